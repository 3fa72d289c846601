# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which instructions compiled functions need, by the names that the kernel gives them in /proc/cpuinfo."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path

# LLVM's names of features where they are not the kernel's with other punctuation.
_KERNEL_NAMES = {
    "64bit": "lm",
    "bmi": "bmi1",
    "crc32": "sse42",
    "lzcnt": "abm",
    "pclmul": "pclmulqdq",
    "prfchw": "3dnowprefetch",
    "rdrnd": "rdrand",
    "sahf": "lahflm",
    "sha": "shani",
    "sse3": "pni",
}


def needed(features: Iterable[str]) -> list[str]:
    """The flags of this machine that LLVM's target features ("+avx2,-sse4a") stand for.

    Features that the kernel does not list, such as shadow stacks, are no instructions of compiled functions.
    """
    enabled = {item[1:] for text in features for item in text.split(",") if item.startswith("+")}
    return sorted({_normalized(_KERNEL_NAMES.get(name, name)) for name in enabled} & here())


@cache
def here() -> frozenset[str]:
    """The flags of this machine's processor, without punctuation."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("flags"):
            return frozenset(map(_normalized, line.partition(":")[2].split()))
    return frozenset()


def _normalized(name: str) -> str:
    return "".join(filter(str.isalnum, name))

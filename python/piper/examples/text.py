# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The text of the Python standard library, which is on every machine, as bytes to train on."""

from __future__ import annotations

import hashlib
import os
import sysconfig
import zlib
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

# Left out: what is not the library itself, what installations differ in, and tests.
_SKIPPED = {
    "__pycache__",
    "dist-packages",
    "ensurepip",
    "idle_test",
    "idlelib",
    "lib2to3",
    "site-packages",
    "test",
    "tests",
    "turtledemo",
}


@dataclass(frozen=True)
class Corpus:
    """Two texts as 1-D uint8 tensors; no file is in both."""

    training: Tensor
    held_out: Tensor

    @property
    def fingerprint(self) -> str:
        """Short hash of both texts: equal on machines with the same library."""
        digest = hashlib.sha256()
        for text in (self.training, self.held_out):
            digest.update(text.numpy().tobytes())
            digest.update(len(text).to_bytes(8, "little"))
        return digest.hexdigest()[:16]

    def training_batch(self, step: int, rows: int, length: int, seed: int = 0) -> tuple[Tensor, Tensor]:
        """Ids and targets (ids one byte on) of random windows, both int64 [rows, length]; the same for the same step and seed."""
        generator = torch.Generator().manual_seed(seed * 1_000_003 + step)
        starts = torch.randint(len(self.training) - length, (rows,), generator=generator)
        return _windows(self.training, starts, length)

    def held_out_batches(self, count: int, rows: int, length: int) -> list[tuple[Tensor, Tensor]]:
        """`count` batches of windows spread evenly over the held-out text."""
        starts = torch.linspace(0, len(self.held_out) - length - 1, count * rows, dtype=torch.float64).long()
        return [_windows(self.held_out, starts[i::count], length) for i in range(count)]


def standard_library(folder: str | os.PathLike | None = None) -> Corpus:
    """Reads every .py file of the running Python's library (or of `folder`), about one in twenty into the held-out text.

    The choice depends on a file's name alone, and files follow each other in the order of their names, a zero byte in between.
    """
    root = Path(folder or sysconfig.get_paths()["stdlib"])
    texts: dict[bool, list[bytes]] = {False: [], True: []}
    for name in sorted(_source_files(root)):
        texts[zlib.crc32(name.encode()) % 20 == 0].append((root / name).read_bytes())
    training, held_out = (
        torch.frombuffer(bytearray(b"\0".join(texts[part])), dtype=torch.uint8) for part in (False, True)
    )
    return Corpus(training, held_out)


def _source_files(root: Path) -> list[str]:
    found = []
    for folder, folders, files in os.walk(root):
        folders[:] = [name for name in folders if name not in _SKIPPED and not name.startswith("config-")]
        for name in files:
            if name.endswith(".py") and not name.startswith("_sysconfigdata"):
                found.append(Path(folder, name).relative_to(root).as_posix())
    return found


def _windows(text: Tensor, starts: Tensor, length: int) -> tuple[Tensor, Tensor]:
    windows = text[starts[:, None] + torch.arange(length + 1)].long()
    return windows[:, :-1].contiguous(), windows[:, 1:].contiguous()

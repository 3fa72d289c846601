# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Names in the text of MLIR modules."""

from __future__ import annotations

import re


def quoted(text: str) -> str:
    """A string literal: what is not plain becomes bytes in hexadecimal, the one escape that MLIR has for everything."""
    return '"' + "".join(character if _is_plain(character) else _escaped(character) for character in text) + '"'


def bare_or_quoted(name: str) -> str:
    """A name as it stands in a symbol or an attribute dictionary: quoted only where it has to be."""
    return name if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_$.]*", name) else quoted(name)


def _is_plain(character: str) -> bool:
    return character.isprintable() and character not in '"\\'


def _escaped(character: str) -> str:
    # Half a surrogate pair (a file name of undecodable bytes has some) is no text.
    return "".join(f"\\{byte:02X}" for byte in character.encode(errors="replace"))

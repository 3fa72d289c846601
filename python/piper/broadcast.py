# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rank 0's tensors on all ranks of a job.

They go through one unnamed memory file of rank 0's, part by part: nothing of it is left however a process ends.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from .execution import Execution

WINDOW_BYTES = 1 << 24


def from_rank_0(execution: Execution, tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Rank 0's values of tensors of which all ranks have equal names, shapes and dtypes, in the same order. Collective."""
    is_source = execution.ranks[0] == 0
    results = {
        name: (value if is_source else torch.empty_like(value)).contiguous().reshape(-1).view(torch.uint8)
        for name, value in tensors.items()
    }
    file = _open_window(execution, is_source)
    try:
        with mmap.mmap(file, WINDOW_BYTES) as memory:
            window = torch.frombuffer(memory, dtype=torch.uint8)
            for pieces in _windows(results):
                if is_source:
                    for place, piece in pieces:
                        window[place : place + len(piece)] = piece
                execution.exchange(b"written")
                if not is_source:
                    for place, piece in pieces:
                        piece.copy_(window[place : place + len(piece)])
                execution.exchange(b"read")
            # The memory cannot be unmapped while a tensor is on it.
            del window
    finally:
        os.close(file)
    return {name: flat.view(tensors[name].dtype).reshape(tensors[name].shape) for name, flat in results.items()}


def _open_window(execution: Execution, is_source: bool) -> int:
    file = -1
    if is_source:
        file = os.memfd_create("piper", os.MFD_CLOEXEC)
        os.ftruncate(file, WINDOW_BYTES)
    pid, number = execution.exchange(f"{os.getpid()} {file}".encode())[0].split()
    if not is_source:
        file = os.open(f"/proc/{int(pid)}/fd/{int(number)}", os.O_RDWR | os.O_CLOEXEC)
    execution.exchange(b"open")
    return file


def _windows(tensors: Mapping[str, torch.Tensor]) -> Iterator[list[tuple[int, torch.Tensor]]]:
    """All bytes in parts that fit into the window: for each its pieces and their places."""
    pieces: list[tuple[int, torch.Tensor]] = []
    used = 0
    for flat in tensors.values():
        while len(flat):
            if used == WINDOW_BYTES:
                yield pieces
                pieces, used = [], 0
            taken = flat[: WINDOW_BYTES - used]
            pieces.append((used, taken))
            used, flat = used + len(taken), flat[len(taken) :]
    if pieces:
        yield pieces

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The example's text: whole files on either side, deterministic batches."""

import zlib

import pytest
import torch
from piper.examples import text


@pytest.fixture
def library(tmp_path):
    names = [f"m{index}.py" for index in range(200)] + ["pkg/a.py"]
    for name in [*names, "test/skipped.py", "site-packages/skipped.py", "_sysconfigdata_x.py", "notes.txt"]:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(f"<{name}>".encode() * 8)
    return tmp_path, names


def test_every_file_is_on_one_side(library):
    root, names = library
    corpus = text.standard_library(root)
    sides = [bytes(side.tolist()).split(b"\0") for side in (corpus.training, corpus.held_out)]
    expected = [[], []]
    for name in sorted(names):
        expected[zlib.crc32(name.encode()) % 20 == 0].append(f"<{name}>".encode() * 8)
    assert sides == expected
    assert expected[1]


def test_batches(library):
    corpus = text.standard_library(library[0])
    ids, target = corpus.training_batch(3, rows=4, length=16)
    assert ids.shape == target.shape == (4, 16) and ids.dtype == torch.int64
    assert torch.equal(ids[:, 1:], target[:, :-1])
    again = corpus.training_batch(3, rows=4, length=16)
    other = corpus.training_batch(4, rows=4, length=16)
    assert torch.equal(ids, again[0]) and not torch.equal(ids, other[0])
    batches = corpus.held_out_batches(2, rows=3, length=8)
    assert [x.shape for x, _ in batches] == [(3, 8)] * 2
    assert corpus.fingerprint == text.standard_library(library[0]).fingerprint


def test_the_real_library_is_large_enough():
    corpus = text.standard_library()
    assert len(corpus.training) > 4_000_000 and len(corpus.held_out) > 100_000

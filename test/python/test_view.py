# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pictures are PNG files, and spans get the right colours."""

from typing import NamedTuple

import pytest
from piper.view import loss_curve, timeline


class Span(NamedTuple):
    """As in piper.execution, which needs the built runtime."""

    rank: int
    stream: str
    label: str
    opcode: str
    start: float
    end: float
    waited: float = 0.0
    where: str = ""


def is_png(path):
    return path.read_bytes().startswith(b"\x89PNG")


def test_loss_curve(tmp_path):
    loss_curve.draw(tmp_path / "loss.png", [3.0, 2.5], {2: 2.6}, [3.1, 2.4], {2: 2.5})
    assert is_png(tmp_path / "loss.png")


def test_timeline(tmp_path):
    spans = [
        Span(0, "compute", "F stage=0 MB=0", "launch", 1.0, 1.5),
        Span(1, "pp_stream", "recv", "recv", 1.0, 1.4),
        Span(1, "compute", "B stage=1 MB=0", "launch", 1.5, 1.5),
    ]
    timeline.draw(tmp_path / "t.png", spans)
    assert is_png(tmp_path / "t.png")


def test_empty_timeline(tmp_path):
    timeline.draw(tmp_path / "t.png", [])
    assert is_png(tmp_path / "t.png")


@pytest.mark.parametrize(
    "label, opcode, kind",
    [
        ("F stage=0 MB=1", "launch", "forward"),
        ("B stage=0 MB=1", "launch", "backward"),
        ("W stage=0", "launch", "backward"),
        ("update bucket0", "launch", "update"),
        ("F stage=0", "recv", "communication"),
        ("F stage=0", "release", "waiting"),
        ("bucket0", "reduce_scatter", "communication"),
        ("whatever", "copy", "other"),
    ],
)
def test_kinds(label, opcode, kind):
    assert timeline.kind(Span(0, "s", label, opcode, 0.0, 1.0)) == kind

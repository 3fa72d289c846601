# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The proof of tables against an oracle of its own: orders with communication that are changed at random are refused exactly if ranks
get stuck or take one message for another."""

from __future__ import annotations

import random
import re

import piper
import pytest
import torch_schedules
from piper import schedules

Row = list[str]


class Oracle:
    """Runs rows step by step. Messages between two ranks carry no names: the first sent is the first received."""

    def __init__(self, rows: list[Row], sends_wait: bool) -> None:
        self.rows = [
            [[self._parse(part) for part in re.findall(r"\d+[A-Z_]+?\d+", cell)] for cell in row] for row in rows
        ]
        self.sends_wait = sends_wait
        self.place = {s: r for r, row in enumerate(self.rows) for cell in row for s, kind, _ in cell if kind == "F"}
        self.done: set[tuple[int, str, int]] = set()
        self.sent: dict[tuple[int, int], list[tuple[int, str, int]]] = {}

    @staticmethod
    def _parse(text: str) -> tuple[int, str, int]:
        stage, kind, microbatch = re.fullmatch(r"(\d+)([A-Z_]+?)(\d+)", text).groups()
        return int(stage), kind, int(microbatch)

    def outcome(self) -> str:
        """ "done", "stuck" or "mixed up"."""
        at = [0] * len(self.rows)
        moved = True
        while moved:
            moved = False
            for rank, row in enumerate(self.rows):
                while at[rank] < len(row):
                    result = self._try(rank, row[at[rank]], at)
                    if result is None:
                        return "mixed up"
                    if not result:
                        break
                    at[rank] += 1
                    moved = True
        left = any(position < len(row) for position, row in zip(at, self.rows, strict=True))
        return "stuck" if left else "mixed up" if any(self.sent.values()) else "done"

    def _try(self, rank: int, cell: list, at: list[int]) -> bool | None:
        """Whether the rank gets past the cell; None where it takes another's message."""
        if not all(self._there(rank, action) for action in cell):
            return False
        for action in cell:
            stage, kind, microbatch = action
            if kind.startswith("SEND"):
                to = self.place[stage + 1 if kind == "SEND_F" else stage - 1]
                queue = self.sent.setdefault((rank, to), [])
                if self.sends_wait and (queue or not self._waits(to, rank, at)):
                    return False
                queue.append(action)
            elif kind.startswith("RECV"):
                sender = stage - 1 if kind == "RECV_F" else stage + 1
                queue = self.sent.get((self.place[sender], rank), [])
                if not queue:
                    return False
                if queue.pop(0) != (sender, kind.replace("RECV", "SEND"), microbatch):
                    return None
            self.done.add(action)
        return True

    def _waits(self, rank: int, sender: int, at: list[int]) -> bool:
        """Whether `rank` stands at a receive from `sender`."""
        row = self.rows[rank]
        if at[rank] >= len(row):
            return False
        for stage, kind, _ in row[at[rank]]:
            if kind in ("RECV_F", "RECV_B"):
                return self.place[stage - 1 if kind == "RECV_F" else stage + 1] == sender
        return False

    def _there(self, rank: int, action: tuple[int, str, int]) -> bool:
        """Whether what an action needs has been computed or received on its rank."""
        stage, kind, m = action
        have = self.done.__contains__
        last = max(self.place)
        if kind == "F":
            local = self.place.get(stage - 1) == rank
            return stage == 0 or have((stage - 1, "F", m) if local else (stage, "RECV_F", m))
        if kind in ("B", "I"):
            if not have((stage, "F", m)):
                return False
            if stage == last:
                return True
            if self.place[stage + 1] == rank:
                return have((stage + 1, "B", m)) or have((stage + 1, "I", m))
            return have((stage, "RECV_B", m))
        if kind == "W":
            return have((stage, "I", m))
        if kind == "SEND_F":
            return have((stage, "F", m))
        return kind != "SEND_B" or have((stage, "B", m)) or have((stage, "I", m))


def communicating_rows(name: str, ranks: int, microbatches: int, stages: int) -> list[Row]:
    schedule = torch_schedules.build(name, ranks, microbatches, stages)
    rows = ([str(action) for action in schedule.pipeline_order_with_comms[rank]] for rank in range(ranks))
    return [[cell for cell in row if "SHARD" not in cell and "REDUCE" not in cell] for row in rows]


@pytest.mark.parametrize(
    "name, ranks, microbatches, stages",
    [
        ("interleaved_1f1b", 2, 4, 4),
        ("looped_bfs", 2, 3, 6),
        ("interleaved_zb", 3, 3, 6),
        ("zbv", 2, 4, 4),
        ("dualpipev", 2, 5, 4),
    ],
)
def test_changed_orders(name, ranks, microbatches, stages):
    rows = communicating_rows(name, ranks, microbatches, stages)
    assert Oracle(rows, True).outcome() == Oracle(rows, False).outcome() == "done"
    found = {"sound": 0, "stuck": 0, "mixed up": 0}
    for seed in range(300):
        rng = random.Random(seed)
        changed = [list(row) for row in rows]
        for _ in range(rng.randint(1, 3)):
            row = rng.choice(changed)
            # A cell moves a few steps.
            position = rng.randrange(len(row))
            row.insert(max(0, position + rng.choice((-3, -2, -1, 1, 2, 3))), row.pop(position))
        outcomes = {Oracle(changed, waits).outcome() for waits in (False, True)}
        try:
            schedules.parse("\n".join(map(",".join, changed)))
            message = None
        except piper.UsageError as error:
            message = str(error)
        if outcomes == {"done"}:
            assert message is None, message
            found["sound"] += 1
        else:
            assert message is not None, (seed, outcomes)
            found["mixed up" if "mixed up" in outcomes else "stuck"] += 1
    # All outcomes occur, so that agreement means something.
    assert min(found.values()) >= 10, found

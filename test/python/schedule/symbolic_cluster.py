# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs graphs with symbols in place of numbers.

`run_imported` is the definition: a loop over replicas, then microbatches. `Cluster` runs a scheduled graph the way ranks do, each stream in
its own order, with messages in queues without names and collectives that wait for all members, at a timing drawn by chance. A value is a
number that stands for how it was made, so two values are equal exactly if they are computed alike. No code is shared with the compiler.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field


class Deadlock(Exception):
    pass


_symbols: dict[tuple, int] = {}


def symbol(*parts) -> int:
    """The number of the value that is made this way."""
    return _symbols.setdefault(parts, len(_symbols))


def part_rows(rows: int, parts: int, index: int) -> int:
    """Rows in part `index` as torch.tensor_split divides them."""
    return rows // parts + (1 if index < rows % parts else 0)


def kind(op) -> str:
    return op.operation.name.removeprefix("piper.")


def operands(op) -> list:
    """Data operands: tokens are no data."""
    return [v for v in op.operation.operands if str(v.type) != "!piper.token"]


def graph_named(module, name: str):
    return next(op for op in module.body.operations if kind(op) == "graph" and op.sym_name.value == name)


@dataclass
class Outcome:
    """What a graph does for the outside."""

    losses: Counter = field(default_factory=Counter)
    weights: Counter = field(default_factory=Counter)
    gradients: dict[str, Counter] = field(default_factory=dict)
    # By state, then replica.
    buffers: dict[str, dict[int, int]] = field(default_factory=dict)


def run_imported(graph, replicas: int, microbatches: int) -> Outcome:
    """Loops over replicas, then over microbatches in order; buffers keep what the microbatch before wrote."""
    outcome = Outcome()
    for replica in range(replicas):
        buffers: dict[str, int] = {}
        for microbatch in range(microbatches):
            _run_part(graph, replica, microbatch, buffers, outcome)
        for name, value in buffers.items():
            outcome.buffers.setdefault(name, {})[replica] = value
    return outcome


def _run_part(graph, replica: int, microbatch: int, buffers: dict[str, int], outcome: Outcome) -> None:
    env: dict = {}
    for op in graph.body.blocks[0].operations:
        args = [env.get(v) for v in operands(op)]
        match kind(op):
            case "input":
                env[op.result] = symbol("input", op.index.value, replica, microbatch)
            case "read":
                env[op.result] = buffers.get(op.source.value, symbol("state", op.source.value))
            case "compute":
                for i, result in enumerate(op.outputs):
                    env[result] = symbol("call", op.callee.value, i, *args)
            case "accumulate":
                outcome.gradients.setdefault(op.state.value, Counter()).update(args)
            case "return":
                outcome.losses[args[0]] += 1
                outcome.weights[args[1]] += 1
    for op in graph.body.blocks[0].operations:
        if kind(op) == "write":
            buffers[op.target.value] = env[op.value]


@dataclass
class Flat:
    """A bucket's vector, or the part of one rank: values by state."""

    bucket: str
    states: dict[str, object]
    part: int | None = None


@dataclass
class InputPart:
    """A part of the batch before it is known whose."""

    index: int
    microbatch: int


class Cluster:
    """All ranks of a scheduled graph."""

    def __init__(self, module, graph, num_ranks: int, sends_wait: bool, rng: random.Random):
        self.graph, self.sends_wait, self.rng = graph, sends_wait, rng
        self.rows = graph.rows.value
        self.buckets = {op.sym_name.value: op for op in module.body.operations if kind(op) == "bucket"}
        self.num_ranks = num_ranks
        self.env: list[dict] = [{} for _ in range(num_ranks)]
        self.done: list[set] = [set() for _ in range(num_ranks)]
        self.channels: dict[tuple, list] = {}
        # Gradients that updates have applied, by rank and state.
        self.applied: list[dict[str, Counter]] = [{} for _ in range(num_ranks)]
        self.queues: dict[tuple[int, str], list] = {}
        for op in graph.body.blocks[0].operations:
            if "stream" in op.operation.attributes:
                for rank in op.ranks:
                    self.queues.setdefault((rank, op.stream.value), []).append(op)
        self.heads = dict.fromkeys(self.queues, 0)

    def run(self) -> None:
        """Until all queues are empty. Raises Deadlock."""
        while any(self._head(key) is not None for key in self.queues):
            keys = list(self.queues)
            self.rng.shuffle(keys)
            slow = {key for key in keys if self.rng.random() < 0.5}
            if not any([self._advance(key) for key in keys if key not in slow]) and not any(
                [self._advance(key) for key in keys]
            ):
                raise Deadlock({key: str(self._head(key)) for key in keys if self._head(key) is not None})

    def outcome(self) -> list[Outcome]:
        """What each rank has done, after `run`. Buffers under the number of the replica that the rank is."""
        return [self._outcome(rank) for rank in range(self.num_ranks)]

    def _outcome(self, rank: int) -> Outcome:
        outcome = Outcome(gradients=self.applied[rank])
        for op in self.graph.body.blocks[0].operations:
            if kind(op) == "return":
                outcome.losses, outcome.weights = self._value(op.operation.operands[0], rank)
            if kind(op) == "write" and rank in (ranks := list(self.buckets[op.target.value].ranks)):
                value = self._value(op.value, rank)
                assert value is not None, f"rank {rank} holds {op.target} and does not get its value"
                if isinstance(value, Flat):
                    assert value.bucket == op.target.value and value.part is None
                else:
                    (state,) = (s.value for s in self.buckets[op.target.value].states)
                    outcome.buffers[state] = {ranks.index(rank): value}
        return outcome

    def _head(self, key: tuple[int, str]):
        queue = self.queues.get(key, [])
        return queue[self.heads[key]] if key in self.heads and self.heads[key] < len(queue) else None

    def _finish(self, key: tuple[int, str], op, results: list) -> None:
        rank = key[0]
        for result, value in zip(op.operation.results, results, strict=False):
            self.env[rank][result] = value
        self.done[rank].add(op.token)
        self.heads[key] += 1

    def _advance(self, key: tuple[int, str]) -> bool:
        op, rank = self._head(key), key[0]
        if op is None or not self._ready(op, rank):
            return False
        match kind(op):
            case "send":
                return self._send(op, key)
            case "recv":
                return self._recv(op, key)
            case "all_reduce" | "reduce_scatter" | "all_gather":
                return self._meet(op, key)
        self._finish(key, op, self._compute(op, rank))
        return True

    def _ready(self, op, rank: int) -> bool:
        if any(token not in self.done[rank] for token in op.after if self._runs(token.owner, rank)):
            return False
        if kind(op) == "recv":
            return True
        return all(self._value(v, rank) is not None for v in operands(op))

    @staticmethod
    def _runs(op, rank: int) -> bool:
        return rank in list(op.opview.ranks)

    def _value(self, value, rank: int):
        """A value on a rank, None where it isn't there yet."""
        if value in self.env[rank]:
            return self.env[rank][value]
        op = value.owner.opview
        match kind(op):
            case "input":
                # Of which replica, the node that uses it says.
                return InputPart(op.index.value, op.microbatch.value)
            case "read":
                return self._read(op, rank)
            case "unpack":
                flat = self._value(op.flat, rank)
                return None if flat is None else self._unpack(op, flat)
            case "pack":
                return self._pack(op, rank)
        return None

    def _read(self, op, rank: int) -> Flat:
        bucket = self.buckets[op.source.value]
        assert rank in list(bucket.ranks), f"rank {rank} reads a bucket that it does not hold"
        states = {s.value: symbol("state", s.value) for s in bucket.states}
        sharded = "shard_params" in bucket.operation.attributes
        return Flat(op.source.value, states, list(bucket.ranks).index(rank) if sharded else None)

    @staticmethod
    def _unpack(op, flat: Flat):
        assert flat.part is None, "a part is taken for the whole"
        assert flat.bucket == op.bucket.value
        return flat.states[op.state.value]

    def _pack(self, op, rank: int):
        """Parts of other ranks are zero here; parts of this rank must be there."""
        parts: list = []
        for part in op.parts:
            if not self._runs(part.owner, rank):
                parts.append(Counter())
                continue
            if part not in self.env[rank]:
                return None
            parts.append(self.env[rank][part])
        if op.bucket is None:
            slots = list(op.slots) if op.slots is not None else range(len(parts))
            elements = [Counter() for _ in range(max(slots, default=-1) + 1)]
            for slot, part in zip(slots, parts, strict=True):
                elements[slot].update(part)
            return elements
        states: dict[str, Counter] = {}
        for state, part in zip(op.states, parts, strict=True):
            states.setdefault(state.value, Counter()).update(part)
        return Flat(op.bucket.value, states)

    def _compute(self, op, rank: int) -> list:
        args = [self._value(v, rank) for v in operands(op)]
        match kind(op):
            case "compute":
                return self._call(op, rank, args)
            case "accumulate":
                return [Counter(args)]
            case "update":
                for state, total in args[0].states.items():
                    assert state not in self.applied[rank], f"{state} is updated twice"
                    self.applied[rank][state] = total
                assert args[1] is not None, "no scale"
                return [Flat(op.target.value, {}, args[0].part)]
        raise AssertionError(f"unexpected {kind(op)}")

    def _call(self, op, rank: int, args: list) -> list:
        replica, replicas = list(op.ranks).index(rank), len(list(op.ranks))
        rows = part_rows(part_rows(self.rows, replicas, replica), op.num_microbatches.value, op.microbatch.value)
        function = op.functions[list(op.variants)[replica]].value
        assert function == f"{op.callee.value}_rows{rows}", f"{function} called with {rows} rows"
        for i, arg in enumerate(args):
            if isinstance(arg, InputPart):
                assert arg.microbatch == op.microbatch.value
                args[i] = symbol("input", arg.index, replica, arg.microbatch)
        return [symbol("call", op.callee.value, i, *args) for i in range(len(op.outputs))]

    def _channel(self, op, key: tuple[int, str]) -> tuple:
        rank, stream = key
        if kind(op) == "send":
            return rank, op.to[list(op.ranks).index(rank)], stream
        return list(op.from_)[list(op.ranks).index(rank)], rank, stream

    def _receiver_waits(self, op, key: tuple[int, str]) -> bool:
        _, receiver, stream = self._channel(op, key)
        head = self._head((receiver, stream))
        return head is not None and kind(head) == "recv" and self._channel(head, (receiver, stream))[0] == key[0]

    def _send(self, op, key: tuple[int, str]) -> bool:
        if self.sends_wait and not self._receiver_waits(op, key):
            return False
        self.channels.setdefault(self._channel(op, key), []).append(self._value(op.operand, key[0]))
        self._finish(key, op, [("message",)])
        return True

    def _recv(self, op, key: tuple[int, str]) -> bool:
        queue = self.channels.get(self._channel(op, key))
        if not queue:
            return False
        self._finish(key, op, [queue.pop(0)])
        return True

    def _meet(self, op, key: tuple[int, str]) -> bool:
        members = list(op.ranks)
        keys = [(rank, key[1]) for rank in members]
        if not all(self._head(k) == op and self._ready(op, k[0]) for k in keys):
            return False
        values = [self._value(op.operand, rank) for rank in members]
        for position, k in enumerate(keys):
            self._finish(k, op, [_combine(kind(op), values, position)])
        return True


def _combine(name: str, values: list, position: int):
    """What the member at `position` gets."""
    if name == "all_gather":
        assert [v.part for v in values] == list(range(len(values))), "parts that do not fit together"
        assert len({v.bucket for v in values}) == 1
        return Flat(values[0].bucket, values[0].states)
    if isinstance(values[0], list):
        return [sum((v[i] for v in values), Counter()) for i in range(len(values[0]))]
    states: dict[str, Counter] = {}
    for value in values:
        assert value.bucket == values[0].bucket and value.part is None
        for state, part in value.states.items():
            states.setdefault(state, Counter()).update(part)
    return Flat(values[0].bucket, states, position if name == "reduce_scatter" else None)

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Directives and strategies: what is parallel, where it runs and in which order, as data."""

from __future__ import annotations

import collections
import dataclasses
import json
import os
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from . import filters
from .errors import UsageError, short
from .files import path_of, write_whole
from .filters import Filter
from .mesh import Mesh
from .mlir_text import quoted

Devices = "Mapping[str, int] | Sequence[int]"


@dataclass(frozen=True)
class Directive:
    """One rewrite of the training graph. `where` is the user's source line, "" for one that was read from a file."""

    op: ClassVar[str] = ""
    # A directive without a pass yet can be written, saved and loaded, but not compiled.
    compiled: ClassVar[bool] = True

    def to_mlir(self) -> str:
        """The directive as an operation of a `piper.strategy` region."""
        raise TypeError(f"the directive '{self.op}' has no text form for the compiler")

    def to_json(self) -> dict[str, Any]:
        """The directive as an object of a JSON strategy; fields that have their default are left out."""
        result: dict[str, Any] = {"op": self.op}
        for item in dataclasses.fields(self):
            value = getattr(self, item.name)
            if item.name != "where" and (item.default is dataclasses.MISSING or value != item.default):
                result[item.name] = value
        return result

    def all_filters(self) -> list[Filter]:
        """Every filter in it."""
        return [self.filter]


@dataclass(frozen=True)
class Split(Directive):
    """Copies the matched sub-DAG once per microbatch."""

    op: ClassVar[str] = "split"
    filter: Filter
    dim_name: str
    num_microbatches: int
    where: str = ""

    def to_mlir(self) -> str:
        return f"piper.split {filters.to_mlir(self.filter)} {quoted(self.dim_name)} into {self.num_microbatches}"


@dataclass(frozen=True)
class Place(Directive):
    """Puts the matched nodes on a device group."""

    op: ClassVar[str] = "place"
    filter: Filter
    devices: list[int]
    stream: str = "pp_stream"
    where: str = ""

    def to_mlir(self) -> str:
        return f"piper.place {filters.to_mlir(self.filter)} on {self.devices} stream {quoted(self.stream)}"


@dataclass(frozen=True)
class Replicate(Directive):
    """Data parallelism over a device group; the flags are those of ZeRO-1, -2 and -3, bucket_size is in MiB."""

    op: ClassVar[str] = "replicate"
    filter: Filter
    devices: list[int]
    gather_stream: str = "gather_stream"
    reduce_stream: str = "reduce_stream"
    shard_params: bool = False
    shard_grads: bool = False
    shard_optimizer: bool = False
    bucket_size: float = 25.0
    where: str = ""

    def to_mlir(self) -> str:
        flags = [name for name in ("shard_params", "shard_grads", "shard_optimizer") if getattr(self, name)]
        attributes = ", ".join([*flags, f"bucket_size = {_float(self.bucket_size)} : f64"])
        streams = f"gather_stream {quoted(self.gather_stream)} reduce_stream {quoted(self.reduce_stream)}"
        return f"piper.replicate {filters.to_mlir(self.filter)} on {self.devices} {streams} {{{attributes}}}"


@dataclass(frozen=True)
class Shard(Directive):
    """Expert parallelism, or with `dim` tensor parallelism."""

    op: ClassVar[str] = "shard"
    compiled: ClassVar[bool] = False
    filter: Filter
    devices: list[int]
    stream: str = "ep_stream"
    dim: int | None = None
    where: str = ""


@dataclass(frozen=True)
class Order(Directive):
    """Runs groups of nodes one after the other; the members of one group may interleave."""

    op: ClassVar[str] = "order"
    filters: list[list[Filter]]
    where: str = ""

    def to_mlir(self) -> str:
        groups = ", ".join("[" + ", ".join(map(filters.to_mlir, group)) + "]" for group in self.filters)
        return f"piper.order [{groups}]"

    def all_filters(self) -> list[Filter]:
        return [filter for group in self.filters for filter in group]


@dataclass(frozen=True)
class Overlap(Directive):
    """Co-schedules two groups on two streams of one device, each within its budget."""

    op: ClassVar[str] = "overlap"
    compiled: ClassVar[bool] = False
    filters: list[list[Filter]]
    sms: int | None = None
    where: str = ""

    def all_filters(self) -> list[Filter]:
        return [filter for group in self.filters for filter in group]


@dataclass(frozen=True)
class Recompute(Directive):
    """Drops saved activations and recomputes them before the backward."""

    op: ClassVar[str] = "recompute"
    compiled: ClassVar[bool] = False
    filter: Filter
    where: str = ""


#: Larger than any model: the bytes still fit into 63 bits.
_MAX_MIB = 2**40

DIRECTIVES: dict[str, type[Directive]] = {
    directive.op: directive for directive in (Split, Place, Replicate, Shard, Order, Overlap, Recompute)
}


@dataclass
class Strategy:
    """Directives over a mesh. Each method appends one and returns the strategy, so that calls chain.

    Wherever `devices` is asked for, give a slice of the mesh (`{"pp": 0}`) or a list of ranks.
    """

    mesh: Mesh
    directives: list[Directive] = field(default_factory=list)
    #: How many stages the schedule has that wrote the directives, where one did.
    stages: int | None = field(default=None, compare=False, repr=False)

    def __repr__(self) -> str:
        counts = collections.Counter(directive.op for directive in self.directives)
        axes = ", ".join(f"{name}={extent}" for name, extent in self.mesh.shape.items())
        directives = ", ".join(f"{count} {op}" for op, count in counts.items())
        return f"<piper.Strategy over {axes}: {directives or 'no directives'}>"

    def split(self, filter: Mapping, dim_name: str, num_microbatches: int) -> Strategy:
        """Runs what `filter` matches once per microbatch; the copies carry the tag `dim_name`."""
        if not filters.is_name(dim_name) or dim_name == "PASS":
            raise UsageError(f"split: expected a tag name as dim_name, got {short(dim_name)}")
        count = _integer(num_microbatches, "split: num_microbatches")
        return self._add(Split(filters.normalize(filter, "split"), dim_name, count, _caller()))

    def place(self, filter: Mapping, devices: Devices, stream: str = "pp_stream") -> Strategy:
        """Runs what `filter` matches on `devices`; values that cross groups travel on `stream`."""
        matched = filters.normalize(filter, "place")
        return self._add(Place(matched, self._ranks(devices, "place"), _name(stream, "place: stream"), _caller()))

    def replicate(
        self,
        filter: Mapping,
        devices: Devices,
        gather_stream: str = "gather_stream",
        reduce_stream: str = "reduce_stream",
        shard_params: bool = False,
        shard_grads: bool = False,
        shard_optimizer: bool = False,
        bucket_size: float = 25.0,
    ) -> Strategy:
        """Data parallelism: each device takes its part of the rows, gradients are reduced in buckets of `bucket_size` MiB.

        shard_optimizer alone is ZeRO-1, with shard_grads ZeRO-2, with shard_params ZeRO-3; a flag implies the weaker ones.
        """
        flags = {"shard_params": shard_params, "shard_grads": shard_grads, "shard_optimizer": shard_optimizer}
        for name, value in flags.items():
            if not isinstance(value, bool):
                raise UsageError(f"replicate: expected true or false as {name}, got {short(value)}")
        if (
            isinstance(bucket_size, bool)
            or not isinstance(bucket_size, (int, float))
            or not 0 < bucket_size <= _MAX_MIB
        ):
            raise UsageError(
                f"replicate: expected a bucket_size in MiB between 0 and {_MAX_MIB}, got {short(bucket_size)}"
            )
        shard_grads = shard_grads or shard_params
        return self._add(
            Replicate(
                filters.normalize(filter, "replicate"),
                self._ranks(devices, "replicate"),
                _name(gather_stream, "replicate: gather_stream"),
                _name(reduce_stream, "replicate: reduce_stream"),
                shard_params,
                shard_grads,
                shard_optimizer or shard_grads,
                float(bucket_size),
                _caller(),
            )
        )

    def shard(self, filter: Mapping, devices: Devices, stream: str = "ep_stream", dim: int | None = None) -> Strategy:
        """Divides experts, or with `dim` tensors, over `devices`."""
        if dim is not None and (isinstance(dim, bool) or not isinstance(dim, int)):
            raise UsageError(f"shard: expected an integer as dim, got {short(dim)}")
        matched = filters.normalize(filter, "shard")
        return self._add(Shard(matched, self._ranks(devices, "shard"), _name(stream, "shard: stream"), dim, _caller()))

    def order(self, filters: Sequence[Mapping | Sequence[Mapping]]) -> Strategy:
        """Runs groups one after the other: `[[{...}], [{...}, {...}]]`; a filter alone is a group of one."""
        groups = _groups(filters, "order")
        if len(groups) < 2:
            raise UsageError(f"order: expected at least two groups, got {len(groups)}")
        return self._add(Order(groups, _caller()))

    def overlap(self, filters: Sequence[Mapping | Sequence[Mapping]], sms: int | None = None) -> Strategy:
        """Runs two groups at the same time; the second gets `sms` of the device's multiprocessors (or cores)."""
        groups = _groups(filters, "overlap")
        if len(groups) != 2:
            raise UsageError(f"overlap: expected two groups, got {len(groups)}")
        return self._add(Overlap(groups, None if sms is None else _integer(sms, "overlap: sms"), _caller()))

    def recompute(self, filter: Mapping) -> Strategy:
        """Recomputes the activations of what `filter` matches instead of keeping them."""
        return self._add(Recompute(filters.normalize(filter, "recompute"), _caller()))

    @property
    def num_microbatches(self) -> int:
        """Parts that each replica's rows are divided in."""
        return next((item.num_microbatches for item in self.directives if isinstance(item, Split)), 1)

    @property
    def divides_backward(self) -> bool:
        """Whether an order names I or W, so that each backward is two nodes."""
        orders = (item for item in self.directives if isinstance(item, Order))
        return any(f.get("PASS") in ("I", "W") for item in orders for group in item.filters for f in group)

    @property
    def num_replicas(self) -> int:
        """Parts that the batch is divided in: the size of the largest device group."""
        groups = [item.devices for item in self.directives if isinstance(item, (Place, Replicate))]
        return max((len(group) for group in groups), default=1)

    def check(self, tags: Mapping[str, Collection[int]]) -> None:
        """Raises UsageError for a directive that is not compiled, or that names a tag or an index that nothing has.

        tags: the indices of each of the model's tags; those of the splits are added.
        """
        splits = [item for item in self.directives if isinstance(item, Split)]
        if len(splits) > 1:
            raise UsageError(f"split: expected at most one in a strategy, got {len(splits)}")
        stages = max(tags.get("stage", ()), default=-1) + 1
        if self.stages is not None and stages and stages != self.stages:
            raise UsageError(f"expected a model of {self.stages} stages, as many as the schedule has, got {stages}")
        known = {**tags, **{item.dim_name: range(item.num_microbatches) for item in splits}}
        for item in self.directives:
            where = f"{item.where}: {item.op}" if item.where else item.op
            if not item.compiled:
                raise UsageError(f"{where}: this version does not compile the directive '{item.op}'; remove it")
            for filter in item.all_filters():
                filters.check_tags(filter, known, where)

    def to_mlir(self, name: str = "strategy") -> str:
        """The `piper.strategy` operation, each directive with its source line as location."""
        lines = [f"  {item.to_mlir()}{_location(item.where)}" for item in self.directives]
        return "\n".join([f"piper.strategy @{name} {{", *lines, "}"])

    def save(self, path: str | os.PathLike) -> None:
        """Writes the directives as JSON, one object each; the mesh is not part of the file."""
        text = json.dumps([item.to_json() for item in self.directives], indent=2) + "\n"
        try:
            write_whole(path_of(path), text)
        except OSError as error:
            raise UsageError(f"{path}: cannot be written: {error.strerror}") from None

    @classmethod
    def load(
        cls,
        path: str | os.PathLike,
        mesh: Mesh | None = None,
        *,
        microbatches: int | None = None,
        zero: int = 0,
        bucket_size: float = 25.0,
    ) -> Strategy:
        """Reads a strategy: directives as JSON; or, from a file named `.csv`, a schedule of torch.distributed.pipelining.

        Without a mesh, the ranks 0 to the largest device form one axis 'rank', those of a schedule the axis 'pp'. A schedule says the
        order only: `zero` and `bucket_size` are those of `strategies.pipeline`, and where `microbatches` is given the file must have as
        many.
        """
        if path_of(path).name.lower().endswith(".csv"):
            from . import schedules, strategies

            schedule = schedules.load(path)
            return strategies.pipeline(mesh or Mesh(pp=schedule.ranks), schedule, microbatches, zero, bucket_size)
        from .strategy_json import read

        strategy = read(path, mesh)
        if microbatches is not None and strategy.num_microbatches != microbatches:
            raise UsageError(
                f"{path}: expected {microbatches} microbatches, got a strategy for {strategy.num_microbatches}"
            )
        return strategy

    def _add(self, directive: Directive) -> Strategy:
        self.directives.append(directive)
        return self

    def _ranks(self, devices: Devices, where: str) -> list[int]:
        try:
            return self.mesh.ranks(devices)
        except UsageError as error:
            raise UsageError(f"{where}: {error}") from None


def _groups(groups: Any, where: str) -> list[list[Filter]]:
    if isinstance(groups, (str, Mapping)) or not isinstance(groups, Sequence):
        raise UsageError(f"{where}: expected a list of groups of filters, got {short(groups)}")
    result = []
    for group in groups:
        members = [group] if isinstance(group, Mapping) else group
        if isinstance(members, str) or not isinstance(members, Sequence) or not members:
            raise UsageError(f"{where}: expected a non-empty group of filters, got {short(group)}")
        result.append([filters.normalize(member, where) for member in members])
    return result


def _integer(value: Any, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= filters.MAX_INDEX:
        raise UsageError(f"{what}: expected an integer from 1 to {filters.MAX_INDEX}, got {short(value)}")
    return value


def _float(value: float) -> str:
    """Python's shortest form that gives the same double back, with the decimal point that MLIR asks for."""
    mantissa, letter, exponent = repr(float(value)).partition("e")
    return (mantissa if "." in mantissa else mantissa + ".0") + letter + exponent


def _name(value: Any, what: str) -> str:
    if not filters.is_name(value):
        raise UsageError(f"{what}: expected a name, got {short(value)}")
    return value


def _caller() -> str:
    """file:line of the first frame outside this package's strategy code; empty where the command line's options say it."""
    frame = sys._getframe(1)
    here = os.path.dirname(__file__)
    while frame.f_back is not None and os.path.dirname(frame.f_code.co_filename) == here:
        if os.path.basename(frame.f_code.co_filename) == "cli.py":
            return ""
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def _location(where: str) -> str:
    file, _, line = where.rpartition(":")
    return f" loc({quoted(file)}:{line}:1)" if file and line.isdigit() else ""

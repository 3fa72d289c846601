# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The mesh: ranks arranged along named axes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping

from .errors import UsageError, short
from .mlir_text import quoted

_MAX_RANKS = 2**20


class Mesh:
    """Ranks along named axes, numbered row-major: in `Mesh(pp=2, dp=2)`, rank = pp * 2 + dp.

    Axes keep the order in which they are given. `mesh.shape == {"pp": 2, "dp": 2}`.
    """

    def __init__(self, **axes: int):
        if not axes:
            raise UsageError("expected at least one axis, as in Mesh(pp=2, dp=2)")
        for name, extent in axes.items():
            if isinstance(extent, bool) or not isinstance(extent, int) or extent < 1:
                raise UsageError(f"expected a positive number of ranks along axis '{name}', got {short(extent)}")
        if math.prod(axes.values()) > _MAX_RANKS:
            raise UsageError(f"expected a mesh of at most {_MAX_RANKS} ranks")
        self.shape: dict[str, int] = dict(axes)

    @property
    def size(self) -> int:
        """Number of ranks."""
        return math.prod(self.shape.values())

    def ranks(self, devices: Mapping[str, int] | Iterable[int] | None = None) -> list[int]:
        """The ranks that `devices` names, ascending for a slice, as given for a list.

        A slice fixes some axes: `{"pp": 0}` is every rank whose pp coordinate is 0. None is all ranks.
        Raises UsageError for an unknown axis, a coordinate outside its axis, or a rank that is repeated or outside the mesh.
        """
        if devices is None:
            devices = {}
        if isinstance(devices, Mapping):
            return self._slice(devices)
        if isinstance(devices, str) or not isinstance(devices, Iterable):
            raise UsageError(
                f"expected a list of ranks or a slice such as {{'pp': 0}} as devices, got {short(devices)}"
            )
        ranks = list(devices)
        if not ranks:
            raise UsageError("expected at least one device, got an empty list")
        for rank in ranks:
            if isinstance(rank, bool) or not isinstance(rank, int):
                raise UsageError(f"expected a rank (an integer), got {short(rank)}")
            if not 0 <= rank < self.size:
                raise UsageError(
                    f"expected a device inside the mesh of {self.size} ranks (0 to {self.size - 1}), got {rank}"
                )
        if len(set(ranks)) != len(ranks):
            raise UsageError(f"expected distinct devices, got {ranks}")
        return ranks

    def _slice(self, devices: Mapping[str, int]) -> list[int]:
        for axis, index in devices.items():
            if axis not in self.shape:
                raise UsageError(f"expected an axis of the mesh ({', '.join(self.shape)}), got '{axis}'")
            if isinstance(index, bool) or not isinstance(index, int) or not 0 <= index < self.shape[axis]:
                raise UsageError(f"expected 0 to {self.shape[axis] - 1} along axis '{axis}', got {short(index)}")
        coordinates = itertools.product(*(range(extent) for extent in self.shape.values()))
        names = list(self.shape)
        return [
            rank
            for rank, point in enumerate(coordinates)
            if all(point[names.index(axis)] == index for axis, index in devices.items())
        ]

    def to_mlir(self) -> str:
        """The `piper.mesh` operation."""
        axes = ", ".join(quoted(name) for name in self.shape)
        extents = ", ".join(str(extent) for extent in self.shape.values())
        return f"piper.mesh @mesh [{axes}] [{extents}]"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mesh) and list(self.shape.items()) == list(other.shape.items())

    def __hash__(self) -> int:
        return hash(tuple(self.shape.items()))

    def __repr__(self) -> str:
        return f"Mesh({', '.join(f'{name}={extent}' for name, extent in self.shape.items())})"

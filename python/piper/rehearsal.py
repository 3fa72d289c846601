# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Plans run on a device that computes nothing: kernels and links take the times that the user states, on as many ranks as one likes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from numbers import Real

from . import _runtime
from .errors import UsageError, short
from .execution import Execution, RankStats, Span

_LINK_FIELDS = {"latency": 0.0, "bandwidth": math.inf}


@dataclass(frozen=True)
class DelayDevice:
    """How long everything takes. All fields are JSON: `DelayDevice(**json.load(file))`.

    kernels: seconds by pattern of a launch's label ("F MB=3 stage=0") or of its kernel's name.
    links: by pattern of a communicator's name {"latency": seconds, "bandwidth": bytes per second}; what is left out takes no time. A message passes a link after
    those before it, and is there one latency later. A collective begins when its last member comes and takes one latency and the time in which a link passes
    what each member sends in a bandwidth-optimal algorithm: 2 (n - 1) / n of an all_reduce's bytes over n members.
    memory_bandwidth: bytes per second of copies, zero fills and accumulations, which otherwise take no time.
    cores: of a rank (multiprocessors, on a GPU), for all of which times of kernels are stated: on a stream with a budget of some of them (`piper.stream @comm {sms = 2}`)
    they take as much longer as it has fewer. None: budgets change nothing.

    Patterns are those of fnmatch; of several that match the first counts, and what matches none takes no time. But for budgets, streams of one rank do not
    slow each other down.
    """

    kernels: Mapping[str, float]
    links: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    memory_bandwidth: float | None = None
    cores: int | None = None

    def costs(self) -> _runtime.DelayCosts:
        """The same as the runtime takes it. Raises UsageError if a field is not what it should be."""
        kernels = list(numbers("kernels", self.kernels).items())
        links = []
        for pattern, link in _patterns("links", self.links).items():
            if not isinstance(link, Mapping) or not set(link) <= set(_LINK_FIELDS):
                raise UsageError(f"links[{pattern!r}]: expected latency and bandwidth, got {short(link)}")
            values = _LINK_FIELDS | dict(link)
            links.append((pattern, *(_number(f"links[{pattern!r}][{name!r}]", values[name]) for name in _LINK_FIELDS)))
        memory = math.inf if self.memory_bandwidth is None else _number("memory_bandwidth", self.memory_bandwidth)
        if self.cores is not None and (type(self.cores) is not int or not 0 < self.cores < 2**31):
            raise UsageError(f"cores: expected a number of cores, got {short(self.cores)}")
        return _runtime.DelayCosts(kernels, links, memory, self.cores or 0)


class Rehearsal:
    """A plan on a DelayDevice. Without RANK and WORLD_SIZE in the environment all ranks are threads of this process, which holds no memory for any.

    Raises UsageError for costs that make no sense, or a pattern that matches nothing in the plan.
    """

    def __init__(self, plan: bytes, device: DelayDevice):
        if not isinstance(device, DelayDevice):
            raise UsageError(f"expected a piper.DelayDevice, got {short(device)}")
        self._execution = Execution(plan, {}, device=device)

    def run(self, entry: str = "step", flags: Iterable[str] = ("fresh", "reduce", "update", "buffers")) -> float:
        """Runs an entry in real time; returns the seconds that its ranks in this process took, each as if its thread had never been late.

        flags: by default those of a training step with update.
        """
        known = self._execution.flags
        self._execution.start_trace()
        self._execution.run(entry, [flag for flag in flags if flag in known])
        return self._execution.duration()

    def trace(self) -> list[Span]:
        """What the ranks of this process did in the last run, at stated times."""
        return self._execution.trace()

    def stats(self) -> list[RankStats]:
        """Counters of the ranks of this process."""
        return self._execution.stats()

    def close(self) -> None:
        """Ends the threads."""
        self._execution.close()

    def __enter__(self) -> Rehearsal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def numbers(name: str, given: object) -> dict[str, float]:
    """Seconds, or other numbers from 0, by pattern or name. Raises UsageError for anything else."""
    return {key: _number(f"{name}[{key!r}]", value) for key, value in _patterns(name, given).items()}


def _patterns(name: str, given: object) -> Mapping:
    if not isinstance(given, Mapping) or not all(isinstance(key, str) for key in given):
        raise UsageError(f"{name}: expected a dictionary whose keys are text, got {short(given)}")
    return given


def _number(name: str, value: object) -> float:
    try:
        number = float(value) if isinstance(value, Real) and not isinstance(value, bool) else math.nan
    except OverflowError:
        raise UsageError(f"{name}: expected a number that a float holds, got {short(value)}") from None
    if math.isnan(number) or number < 0:
        raise UsageError(f"{name}: expected a number from 0, got {short(value)}")
    return number

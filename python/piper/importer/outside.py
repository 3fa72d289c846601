# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What code gets from outside of Python's objects, other in each call: clocks, and random numbers of the operating system.

No object holds what they give, so the names tell that code which ran asks for it.
"""

from __future__ import annotations

import dis
import types
from collections.abc import Iterator, Mapping
from types import CodeType
from typing import Any

from .user_code import Ran, is_own_code

_CLOCKS = {
    "time": {"time", "time_ns", "perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns", "process_time", "process_time_ns"},
    "datetime": {"now", "utcnow", "today"},
}  # fmt: skip
_RANDOM = {
    "os": {"urandom", "getrandom"},
    "secrets": {"token_bytes", "token_hex", "token_urlsafe", "randbelow", "randbits", "choice"},
    "uuid": {"uuid1", "uuid4"},
}
_NAMES = {"LOAD_GLOBAL", "LOAD_NAME"}
_ATTRIBUTES = {"LOAD_ATTR", "LOAD_METHOD"}


def clocks(codes: Mapping[CodeType, Ran]) -> Iterator[str]:
    """The lines of user code that read a clock, with what they call."""
    return _asking(codes, _CLOCKS)


def random_numbers(codes: Mapping[CodeType, Ran]) -> Iterator[str]:
    """The lines of user code that draw from the operating system, with what they call."""
    return _asking(codes, _RANDOM)


def naming_line(codes: Mapping[CodeType, Ran], name: str) -> str | None:
    """The first line of user code that ran and names a global or an attribute."""
    for code, item in codes.items():
        line = code.co_firstlineno
        for instruction in dis.get_instructions(code) if is_own_code(code) else ():
            line = instruction.positions.lineno or line
            named = instruction.opname in _NAMES | _ATTRIBUTES | {"LOAD_DEREF"} and instruction.argval == name
            if named and (item.lines is None or line in item.lines):
                return f"{code.co_filename}:{line}"
    return None


def _asking(codes: Mapping[CodeType, Ran], wanted: Mapping[str, set[str]]) -> Iterator[str]:
    for code, item in codes.items():
        if is_own_code(code):
            for line, name in _calls(code, item.globals, wanted):
                if item.lines is None or line in item.lines:
                    yield f"{code.co_filename}:{line}: '{name}'"


def _calls(code: CodeType, names: Mapping[str, Any], wanted: Mapping[str, set[str]]) -> Iterator[tuple[int, str]]:
    """Line and name of each use: `time.time`, `datetime.datetime.now`, `urandom` that was imported from os."""
    path, value, line = "", None, code.co_firstlineno
    for instruction in dis.get_instructions(code):
        line = instruction.positions.lineno or line
        if instruction.opname in _NAMES:
            path, value = instruction.argval, names.get(instruction.argval)
        elif instruction.opname in _ATTRIBUTES and value is not None:
            path, value = f"{path}.{instruction.argval}", getattr(value, instruction.argval, None)
        else:
            value = None
        if _is_wanted(value, wanted):
            yield line, path


def _is_wanted(value: Any, wanted: Mapping[str, set[str]]) -> bool:
    if not isinstance(value, (types.FunctionType, types.BuiltinFunctionType, types.MethodType)):
        return False
    # A method of a class is of the class's module, and os has some functions of another one.
    owner = getattr(value, "__self__", None)
    kind = owner if isinstance(owner, type) else type(owner)
    module = kind.__module__ if owner is not None and not isinstance(owner, types.ModuleType) else value.__module__
    return value.__name__ in wanted.get({"posix": "os", "nt": "os", "random": "secrets"}.get(module, module), ())

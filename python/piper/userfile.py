# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Model files of the command line: what a user's Python file has to define.

def build():                # -> (model, loss_fn, batches); batches is a list, or a function step -> batch
    ...
def optimizer(model):       # optional; AdamW with --lr if absent
    ...
def strategy(mesh):         # optional; used unless options of the command line say otherwise
    ...
"""

from __future__ import annotations

import contextlib
import importlib.util
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from .errors import PiperError, UsageError


class UserFileError(PiperError):
    """The code of a model file raised; the message shows where, as a traceback does."""


class UserModel(NamedTuple):
    """What a model file defines."""

    model: Any
    loss_fn: Callable
    batch: Callable[[int], Any]
    # How many different batches there are; None if they never end.
    num_batches: int | None
    optimizer: Callable | None
    strategy: Callable | None


def load(path: Path) -> UserModel:
    """Runs a model file.

    Raises UsageError if it is missing, is no Python file or lacks `build`, or if `build` returns something else; UserFileError if its own code raises.
    """
    if not path.is_file():
        raise UsageError(f"{path}: no such file")
    if path.suffix != ".py":
        raise UsageError(f"{path}: expected a Python file, whose name ends in .py")
    module = _execute(path)
    build = getattr(module, "build", None)
    if not callable(build):
        raise UsageError(f"{path}: expected a function build() that returns (model, loss_fn, batches)")
    with _its_own_errors(path):
        built = build()
    if not isinstance(built, tuple) or len(built) != 3:
        raise UsageError(f"{path}: expected build() to return (model, loss_fn, batches), got {type(built).__name__}")
    model, loss_fn, batches = built
    batch, count = _batches(batches, path)
    return UserModel(
        model, loss_fn, batch, count, getattr(module, "optimizer", None), getattr(module, "strategy", None)
    )


def _execute(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    # The file may import its neighbours, and what it defines must be found by name.
    sys.path.insert(0, str(path.parent.resolve()))
    sys.modules[path.stem] = module
    with _its_own_errors(path):
        spec.loader.exec_module(module)
    return module


@contextlib.contextmanager
def _its_own_errors(path: Path) -> Iterator[None]:
    """What the file raises is shown from its own line on, without the frames of who called it."""
    try:
        yield
    except PiperError:
        raise
    except (Exception, SystemExit) as error:
        frames = traceback.extract_tb(error.__traceback__)
        own = next(
            (i for i, frame in enumerate(frames) if Path(frame.filename).resolve() == path.resolve()), len(frames)
        )
        shown = "".join(traceback.format_list(frames[own:]) + traceback.format_exception_only(error)).rstrip()
        raise UserFileError(f"{path} raised {type(error).__name__}\n{shown}") from error


def explain(error: Exception) -> str | None:
    """An error that came out of a model's forward or its loss, without the frames of who called it; None for one of Piper's own."""
    frames = traceback.extract_tb(error.__traceback__)
    # What follows the user's lines is called from within them: the stack may end there.
    while frames and Path(frames[-1].filename).name == "user_code.py":
        frames.pop()
    begin = next((i for i, frame in enumerate(frames) if _calls_the_model(frame)), None)
    if begin is None or Path(frames[-1].filename).resolve().is_relative_to(Path(__file__).resolve().parent):
        return None
    from .importer.capture import is_user_file

    shown = [frame for frame in frames[begin:] if is_user_file(frame.filename)]
    text = "".join(traceback.format_list(shown or frames[-1:]) + traceback.format_exception_only(error)).rstrip()
    return f"the model or its loss raised {type(error).__name__}\n{text}"


def _calls_the_model(frame: traceback.FrameSummary) -> bool:
    """Whether it is one of the two places where the importer calls code of the user."""
    return (Path(frame.filename).name, frame.name) in {("step.py", "_call"), ("loss.py", "call_loss")}


def _batches(batches: Any, path: Path) -> tuple[Callable[[int], Any], int | None]:
    if callable(batches):
        return batches, None
    if isinstance(batches, Sequence) and batches:
        return lambda step: batches[step % len(batches)], len(batches)
    raise UsageError(
        f"{path}: expected batches to be a non-empty list or a function of the step, got {type(batches).__name__}"
    )

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What Piper raises. The command line's exit codes follow from these: 1 failed, 2 wrong use, 3 a rank was lost."""


def short(value: object) -> str:
    """A value that was not expected, as a message shows it."""
    try:
        text = repr(value)
    except ValueError:
        # Python does not print integers of any size.
        return "an integer of too many digits"
    return text if len(text) <= 80 else text[:77] + "..."


class PiperError(Exception):
    """The base of everything that Piper raises on purpose."""

    exit_code = 1
    #: Whether every rank of the job raises it: then nobody has to tell the others.
    raised_on_all_ranks = False


class UsageError(PiperError, ValueError):
    """The caller gave something that cannot be used: a strategy, a batch, a file, an option."""

    exit_code = 2


class RanksDifferError(UsageError):
    """The ranks of a job are not alike: other methods, arguments, data, parameters or programs. All ranks raise it, and nothing has run."""

    raised_on_all_ranks = True


class CompileError(PiperError):
    """A phase of the compiler refused the program. `command`, where given, reproduces it with piper-opt."""

    def __init__(self, message: str, command: str | None = None):
        super().__init__(message if command is None else f"{message}\nreproduce with: {command}")
        self.command = command


class StrategyError(CompileError, UsageError):
    """What the directives ask for cannot be had of this model: a conflict, a deadlock, a node without a place."""

    exit_code = 2


class ProgramError(PiperError):
    """A saved program is missing, damaged, or made for another machine or version."""

    exit_code = 2


class CoupledRowsWarning(UserWarning):
    """Rows of a batch influence each other, so that dividing the batch changes what is computed."""


class UnusedParametersWarning(UserWarning):
    """The loss does not depend on some of the trainable parameters, which therefore do not train."""


class RunError(PiperError, RuntimeError):
    """A kernel failed, or a run was broken off. State may be half updated, so the program runs no more."""


class RankLostError(PiperError, SystemExit):
    """Another rank died, hung or raised; the message names it and the action that waited for it.

    Where nobody catches it the process ends with code 3 and without a traceback: the runtime has said in one line what happened.
    """

    exit_code = 3

    def __init__(self, message: str):
        super().__init__(message)
        self.code = self.exit_code

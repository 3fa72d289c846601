# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Files that are there whole or not at all."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

from .errors import UsageError, short


def path_of(path: object) -> Path:
    """What a user gave as a path; raises UsageError for what is none: `open` would take 1 for the standard output."""
    if not isinstance(path, (str, os.PathLike)) or not os.fspath(path):
        raise UsageError(f"expected a path, got {short(path)}")
    return Path(os.fsdecode(path))


def write_whole(path: str | os.PathLike, data: str | bytes) -> None:
    """Writes a file beside its place and renames it there. Raises OSError; then an earlier file is as it was."""
    target = Path(path)
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data.encode() if isinstance(data, str) else data)
        # mkstemp keeps others out; a new file of this user would let them read as the umask says.
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(temporary, 0o666 & ~mask)
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise

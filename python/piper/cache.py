# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compiled objects on disk, by the hash of everything they depend on.

Several processes may share the folder: an entry appears under its name only when it is complete, and a lock makes one process compile what others
wait for. A folder that cannot be written to costs time, never correctness.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from .files import write_whole

_MAGIC = b"piper object 1\n"
_DIGEST_BYTES = 32


class CompiledObject(NamedTuple):
    """An ELF relocatable object and what the compiler says about it."""

    code: bytes
    metadata: dict


def default_folder() -> Path:
    """$PIPER_CACHE_DIR, or piper/ in the user's cache folder."""
    if chosen := os.environ.get("PIPER_CACHE_DIR"):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "piper"


def content_key(*parts: str) -> str:
    """The hash that names an object; parts are told apart by their lengths."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode()
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


class ObjectCache:
    """A folder of compiled objects. `hits` and `misses` count what was asked of it."""

    def __init__(self, folder: str | os.PathLike | None = None):
        self.folder = Path(folder) if folder is not None else default_folder()
        self.hits = 0
        self.misses = 0
        self._writable = True

    def get_or_make(self, key: str, make: Callable[[], CompiledObject]) -> CompiledObject:
        """The object named `key`, made by `make` (in one process at a time) if it is absent or damaged."""
        found = self.read(key)
        if found is None:
            with self.lock(key):
                found = self.read(key)
                if found is None:
                    self.misses += 1
                    made = make()
                    self.write(key, made)
                    return made
        self.hits += 1
        return found

    def _path(self, key: str) -> Path:
        return self.folder / key[:2] / key

    def read(self, key: str) -> CompiledObject | None:
        """The object named `key`, or None if it is absent or damaged."""
        try:
            data = self._path(key).read_bytes()
        except OSError:
            return None
        body = data[len(_MAGIC) + _DIGEST_BYTES :]
        if (
            not data.startswith(_MAGIC)
            or hashlib.sha256(body).digest() != data[len(_MAGIC) : len(_MAGIC) + _DIGEST_BYTES]
        ):
            return None
        size = int.from_bytes(body[:8], "little")
        return CompiledObject(body[8 + size :], json.loads(body[8 : 8 + size]))

    def write(self, key: str, made: CompiledObject) -> None:
        """Keeps an object under a name, if the folder can be written to."""
        metadata = json.dumps(made.metadata, sort_keys=True).encode()
        body = len(metadata).to_bytes(8, "little") + metadata + made.code
        path = self._path(key)
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_whole(path, _MAGIC + hashlib.sha256(body).digest() + body)
        except OSError as error:
            self._disable(error)

    @contextlib.contextmanager
    def lock(self, key: str) -> Iterator[None]:
        """Holds the lock of a name against other threads and processes, if the folder can be written to."""
        # Keys that share their first digits share a lock: a few hundred small files, however many objects.
        path = self.folder / "locks" / key[:2]
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            file = open(path, "ab")
        except OSError as error:
            self._disable(error)
            yield
            return
        with file:
            try:
                # Closing the file gives the lock back, also when this process dies.
                fcntl.flock(file, fcntl.LOCK_EX)
            except OSError as error:  # a file system without locks
                self._disable(error)
            yield

    def _disable(self, error: OSError) -> None:
        if self._writable:
            self._writable = False
            warnings.warn(
                f"compiled objects are not kept: {self.folder}: {error.strerror}", RuntimeWarning, stacklevel=2
            )

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Program folders: plan, kernels, state and a manifest that says what each file must be.

A folder is complete or absent: it is written beside its place and renamed. Nothing in it is executed before every file matched its hash, and no file is a
pickle.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from .errors import ProgramError
from .files import path_of

FORMAT, VERSION = "piper program", 1
_MANIFEST = "manifest.json"

#: What a file holds: its bytes, or a function that writes it.
Content = bytes | Callable[[Path], None]


def write(path: str | os.PathLike, description: Mapping[str, Any], files: Mapping[str, Content]) -> None:
    """Writes a program folder; `files` by relative name. An earlier program at `path` is replaced.

    Raises ProgramError if the folder cannot be written, or if `path` holds something else; then nothing has changed.
    """
    temporary = None
    try:
        target, temporary = _prepare(path)
        listed = {name: _write_file(temporary / name, content) for name, content in files.items()}
        manifest = {"format": FORMAT, "version": VERSION, **description, "files": listed}
        manifest["sha256"] = _manifest_digest(manifest)
        (temporary / _MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n")
        temporary.chmod(0o755)
        _replace(temporary, target)
    except OSError as error:
        raise ProgramError(f"{path}: cannot be written: {error.strerror or error}") from None
    except ValueError as error:  # a zero byte in the path
        raise ProgramError(f"{path!r}: cannot be written: {error}") from None
    finally:
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)


def check_writable(path: str | os.PathLike) -> None:
    """Raises ProgramError where `write` could not even begin, so that nobody learns of it after hours of work."""
    try:
        _, temporary = _prepare(path)
        temporary.rmdir()
    except OSError as error:
        raise ProgramError(f"{path}: cannot be written: {error.strerror or error}") from None
    except ValueError as error:
        raise ProgramError(f"{path!r}: cannot be written: {error}") from None


def _prepare(path: str | os.PathLike) -> tuple[Path, Path]:
    """The folder that is meant, and a new one beside it."""
    # Where the path is a link, the folder is what it points to.
    target = Path(os.path.realpath(path_of(path)))
    if os.path.lexists(target) and not (target / _MANIFEST).is_file():
        raise ProgramError(f"{path}: exists and is not a program folder")
    target.parent.mkdir(parents=True, exist_ok=True)
    return target, Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}-"))


def _write_file(path: Path, content: Content) -> dict[str, Any]:
    path.parent.mkdir(parents=True, exist_ok=True)
    if callable(content):
        content(path)
    else:
        path.write_bytes(content)
    digest, size = _digest(path)
    return {"sha256": digest, "bytes": size}


def read(path: str | os.PathLike, large: Collection[str] = ()) -> tuple[dict[str, Any], dict[str, Any]]:
    """The manifest and the files of a program folder, each checked: bytes by name, or the path of those in `large`.

    Raises ProgramError that names the file at fault.
    """
    folder = path_of(path)
    try:
        manifest = json.loads(_regular(folder / _MANIFEST).read_text(encoding="utf-8"))
        digest = _manifest_digest(manifest) if isinstance(manifest, dict) else ""
    except OSError as error:
        raise ProgramError(f"{folder}: expected a program folder: {_MANIFEST}: {error.strerror}") from None
    except (ValueError, RecursionError):  # a zero byte in the path is a ValueError, too
        raise ProgramError(f"{folder / _MANIFEST}: damaged: expected JSON") from None
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise ProgramError(f"{folder / _MANIFEST}: expected the manifest of a {FORMAT}")
    if manifest.get("version") != VERSION:
        raise ProgramError(
            f"{folder}: expected version {VERSION}, got {manifest.get('version')!r}: save it again with this piper"
        )
    if manifest.get("sha256") != digest:
        raise ProgramError(f"{folder / _MANIFEST}: damaged: its content is not what was saved")
    listed = manifest.get("files")
    if not isinstance(listed, dict):
        raise ProgramError(f"{folder / _MANIFEST}: expected a list of files")
    contents: dict[str, Any] = {}
    for name, entry in listed.items():
        file = _check_file(folder, name, entry)
        contents[name] = file if name in large else file.read_bytes()
    return manifest, contents


def _check_file(folder: Path, name: str, entry: Any) -> Path:
    path = folder / name
    if Path(name).is_absolute() or ".." in Path(name).parts or not isinstance(entry, dict):
        raise ProgramError(f"{folder / _MANIFEST}: unexpected file entry {name!r}")
    try:
        digest, size = _digest(_regular(path))
    except OSError as error:
        raise ProgramError(f"{path}: {error.strerror}") from None
    if size != entry.get("bytes"):
        raise ProgramError(f"{path}: damaged: expected {entry.get('bytes')} bytes, got {size}")
    if digest != entry.get("sha256"):
        raise ProgramError(f"{path}: damaged: its content is not what was saved")
    return path


def _regular(path: Path) -> Path:
    """The path of a file, which may be a link. Raises OSError for what is there and none: a pipe would never end."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError(errno.EINVAL, "expected a file")
    return path


def _manifest_digest(manifest: Mapping[str, Any]) -> str:
    """The hash of everything else in the manifest, however it is laid out."""
    rest = {name: value for name, value in manifest.items() if name != "sha256"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def _digest(path: Path) -> tuple[str, int]:
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return digest, file.tell()


def _replace(temporary: Path, target: Path) -> None:
    if not target.exists():
        os.rename(temporary, target)
        return
    old = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}-"))
    os.rename(target, old / "old")
    try:
        os.rename(temporary, target)
    except OSError:
        os.rename(old / "old", target)
        raise
    finally:
        shutil.rmtree(old, ignore_errors=True)

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Program folders: plan, kernels, state and a manifest that says what each file must be.

A folder is complete or absent: it is written beside its place and renamed. Nothing in it is executed before every file matched its hash, and no file is a
pickle.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .errors import ProgramError

FORMAT, VERSION = "piper program", 1
_MANIFEST = "manifest.json"


def write(path: str | os.PathLike, description: Mapping[str, Any], files: Mapping[str, bytes]) -> None:
    """Writes a program folder; `files` by relative name. An earlier program at `path` is replaced.

    Raises ProgramError if the folder cannot be written, or if `path` holds something else; then nothing has changed.
    """
    target = Path(path)
    if target.exists() and not (target / _MANIFEST).is_file():
        raise ProgramError(f"{target}: exists and is not a program folder")
    manifest = {
        "format": FORMAT,
        "version": VERSION,
        **description,
        "files": {
            name: {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)} for name, data in files.items()
        },
    }
    temporary = None
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}-"))
        for name, data in files.items():
            (temporary / name).parent.mkdir(parents=True, exist_ok=True)
            (temporary / name).write_bytes(data)
        (temporary / _MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n")
        temporary.chmod(0o755)
        _replace(temporary, target)
    except OSError as error:
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)
        raise ProgramError(f"{target}: cannot be written: {error.strerror}") from None


def read(path: str | os.PathLike) -> tuple[dict[str, Any], dict[str, bytes]]:
    """The manifest and the files of a program folder, each checked. Raises ProgramError that names the file at fault."""
    folder = Path(path)
    try:
        manifest = json.loads((folder / _MANIFEST).read_text())
    except OSError as error:
        raise ProgramError(f"{folder}: expected a program folder: {_MANIFEST}: {error.strerror}") from None
    except ValueError:
        raise ProgramError(f"{folder / _MANIFEST}: damaged: expected JSON") from None
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise ProgramError(f"{folder / _MANIFEST}: expected the manifest of a {FORMAT}")
    if manifest.get("version") != VERSION:
        raise ProgramError(
            f"{folder}: expected version {VERSION}, got {manifest.get('version')!r}: save it again with this piper"
        )
    listed = manifest.get("files")
    if not isinstance(listed, dict):
        raise ProgramError(f"{folder / _MANIFEST}: expected a list of files")
    return manifest, {name: _read_file(folder, name, entry) for name, entry in listed.items()}


def _read_file(folder: Path, name: str, entry: Any) -> bytes:
    path = folder / name
    if Path(name).is_absolute() or ".." in Path(name).parts or not isinstance(entry, dict):
        raise ProgramError(f"{folder / _MANIFEST}: unexpected file entry {name!r}")
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ProgramError(f"{path}: {error.strerror}") from None
    if len(data) != entry.get("bytes"):
        raise ProgramError(f"{path}: damaged: expected {entry.get('bytes')} bytes, got {len(data)}")
    if hashlib.sha256(data).hexdigest() != entry.get("sha256"):
        raise ProgramError(f"{path}: damaged: its content is not what was saved")
    return data


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

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""All models by name. A package is imported only for a model of it."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Callable
from pathlib import Path

from subject import Subject

_FILES = ("transformers_models", "timm_models", "torchvision_models", "diffusers_models", "peft_models")


def names() -> list[str]:
    """In the order in which the files list them; read without importing anything."""
    return list(_places())


def find(name: str) -> Callable[[], Subject]:
    """What makes the model of that name."""
    return getattr(importlib.import_module(_places()[name]), name)


def _places() -> dict[str, str]:
    return {name: file for file in _FILES for name in _listed(Path(__file__).with_name(f"{file}.py"))}


def _listed(path: Path) -> list[str]:
    for statement in ast.parse(path.read_text()).body:
        if isinstance(statement, ast.Assign) and statement.targets[0].id == "MODELS":
            return [item.id for item in statement.value.elts]
    raise LookupError(f"{path} lists no MODELS")

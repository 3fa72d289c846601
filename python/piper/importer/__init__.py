# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""From a PyTorch model to Piper's imported program."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .annotate import annotate, annotate_modules
from .errors import ImporterError
from .imported import Imported

if TYPE_CHECKING:
    from .build import import_model

__all__ = ["Imported", "ImporterError", "annotate", "annotate_modules", "import_model"]


def __getattr__(name: str):
    # Only capturing a model needs the one torch release that capture.py knows; annotating one, or running a program,
    # does not.
    if name != "import_model":
        raise AttributeError(f"module 'piper.importer' has no attribute '{name}'")
    from .build import import_model

    globals()[name] = import_model
    return import_model

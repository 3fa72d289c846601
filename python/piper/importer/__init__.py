# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""From a PyTorch model to Piper's imported program."""

from .annotate import annotate, annotate_modules
from .build import import_model
from .errors import ImporterError
from .imported import Imported

__all__ = ["Imported", "ImporterError", "annotate", "annotate_modules", "import_model"]

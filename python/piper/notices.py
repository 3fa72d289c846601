# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Warnings that name the user's line, however deep inside the package they arise."""

from __future__ import annotations

import contextlib
import os
import sys
import warnings

_INSIDE = (os.path.dirname(__file__) + os.sep, contextlib.__file__)


def warn_user(message: str, category: type[Warning] = UserWarning) -> None:
    """Warns at the innermost line that is not the package's own."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_INSIDE):
        frame, level = frame.f_back, level + 1
    # `frame` is the user's: one level less than what is counted from its callee.
    warnings.warn(message, category, stacklevel=level)

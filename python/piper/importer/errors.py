# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The one exception by which the importer refuses a model, a batch or an optimizer."""

from __future__ import annotations

from ..errors import UsageError


class ImporterError(UsageError):
    """What was given can't be imported. The message names the operation, module, input or field at fault, and a way out
    where there is one.
    """

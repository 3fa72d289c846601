# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Trainable parameters that the loss does not depend on."""

from __future__ import annotations

from .errors import UnusedParametersWarning, UsageError
from .importer.imported import Imported
from .notices import warn_user


def tell_unused_parameters(imported: Imported) -> None:
    """Warns with UnusedParametersWarning of trainable parameters without a gradient: torch leaves theirs None, and an optimizer passes them over.

    Raises UsageError where no trainable parameter has one: then nothing would train.
    """
    unused = [name for name, contributions in imported.gradients.items() if not contributions]
    if not unused:
        return
    names = ", ".join(f"'{name}'" for name in unused[:8]) + (f", … ({len(unused)} in all)" if len(unused) > 8 else "")
    if len(unused) == len(imported.gradients):
        raise UsageError(
            f"the loss depends on none of the trainable parameters ({names}), so nothing would train: look for torch.no_grad(), .detach(), "
            ".data or an operation without a derivative between them and the loss"
        )
    warn_user(
        f"the loss does not depend on the trainable parameters {names}: they get no gradient and stay as they are (requires_grad_(False) "
        "says that this is meant)",
        UnusedParametersWarning,
    )

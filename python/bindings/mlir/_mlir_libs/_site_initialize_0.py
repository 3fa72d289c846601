# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Run by the bindings when they start: makes every new context know Piper."""

from ._piperRegister import register_dialects, register_passes

__all__ = ["register_dialects"]

register_passes()

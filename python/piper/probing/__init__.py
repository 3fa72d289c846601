# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Whether loss and model divide over the rows of a batch, tried in plain PyTorch on a few of them."""

from .check import Divided, check_rows

__all__ = ["Divided", "check_rows"]

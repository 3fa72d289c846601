# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Whether loss and model divide over the rows of a batch, tried in plain PyTorch on a few of them.

check.py              what is tried, within which cost; refuses or warns
  │ verdicts.py work.py   what is known from before; how long a forward takes
  │ trial.py              one division: the model whole and in parts, then its loss
models.py losses.py   the two comparisons
  │ subject.py            the user's code, called without leaving a trace
  │ rows_of_outputs.py    where rows are in an output
  │ variants.py           other data: parts of unequal weight
  │ made_up.py            outputs of a model too large to be run
  │ differences.py        when numbers differ, and when it is rounding
  │ places.py             the line and the module where rows meet
"""

from .check import Divided, check_rows

__all__ = ["Divided", "check_rows"]

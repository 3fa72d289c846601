# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operation classes of the Piper dialect."""

from .._mlir_libs._piper import *  # noqa: F403
from ._piper_enum_gen import *  # noqa: F403
from ._piper_ops_gen import *  # noqa: F403

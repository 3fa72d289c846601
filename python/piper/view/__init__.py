# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pictures of training runs."""

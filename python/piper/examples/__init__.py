# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A model, its data and a training run that show Piper at work."""

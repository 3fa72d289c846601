# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Piper compiles PyTorch models and declared parallel strategies into programs for many devices."""

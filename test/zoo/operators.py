# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Makes torchvision importable beside a torch without CUDA.

PyPI's torchvision holds C++ operators that load only beside a torch with CUDA, and importing it asks for two of them, non-maximum suppression. No model
here calls any, so these are declared, without an implementation, where they can't be loaded. Imported before anything that imports torchvision.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import torch

_LIBRARY = torch.library.Library("torchvision", "FRAGMENT")


def _declare_missing() -> None:
    package = importlib.util.find_spec("torchvision")
    if package is None:
        return
    try:
        torch.ops.load_library(Path(package.origin).with_name("_C.so"))
    except OSError:
        for name in ("nms", "qnms"):
            _LIBRARY.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")


_declare_missing()

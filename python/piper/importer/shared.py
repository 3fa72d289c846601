# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Imports that several compilations of one model have in common: capturing a model is most of the time that compiling takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from .annotate import annotations_of
from .build import import_model
from .imported import Imported


class SharedImports:
    """`import_model` that captures once what is asked for again, for one loss and one batch.

    What strategies ask for differs by rows of a microbatch and by whether backwards are divided; a model may be annotated anew in between. It keeps
    the models, whose parameters the imports refer to.
    """

    def __init__(self):
        self._made: dict[str, tuple[nn.Module, Imported]] = {}

    def __call__(self, model: nn.Module, loss_fn: Callable, batch: Any, **options: Any) -> Imported:
        key = repr((id(model), annotations_of(model), sorted(options.items())))
        if key not in self._made:
            self._made[key] = (model, import_model(model, loss_fn, batch, **options))
        return self._made[key][1]

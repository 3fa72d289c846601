# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The same training in plain PyTorch, to compare with."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import nn

from .importer.inputs import Batch, describe
from .importer.loss import checked_pair, loss_pair


class Reference:
    """A copy of a model and its optimizer, trained by PyTorch in `dtype`; None leaves its types as they are.

    parts: (replicas, microbatches) that it goes through one after the other, replica by replica; (1, 1) takes the whole batch at once.
    """

    def __init__(
        self,
        model: nn.Module,
        loss_fn: Callable,
        optimizer: torch.optim.Optimizer,
        dtype: torch.dtype | None,
        parts: tuple[int, int],
        batch_dims: Mapping[str, int | None] | None = None,
        loss_reduction: str | None = None,
    ):
        self._model = copy.deepcopy(model)
        self._loss_fn = copy.deepcopy(loss_fn) if isinstance(loss_fn, nn.Module) else loss_fn
        pairs = list(zip(model.parameters(), self._model.parameters(), strict=True))
        if isinstance(loss_fn, nn.Module):
            pairs += zip(loss_fn.parameters(), self._loss_fn.parameters(), strict=True)
        self._parameters = [copied for _, copied in pairs]
        self._optimizer = _copy_optimizer(optimizer, {id(old): copied for old, copied in pairs})
        for module in (self._model, self._loss_fn):
            if dtype is not None and isinstance(module, nn.Module):
                module.to(dtype)
        self._dtype = dtype
        self._parts = parts
        self._batch_dims = batch_dims
        self._reduction = loss_reduction

    def step(self, batch: Any) -> float:
        """One optimizer step; the loss of the batch."""
        loss, weight = self._backward(batch)
        if weight != 0:
            self._optimizer.step()
        return loss

    def gradients(self, batch: Any) -> dict[str, torch.Tensor]:
        """Gradients of the loss by parameter name; buffers and parameters stay as they are."""
        buffers = {name: value.clone() for name, value in self._model.named_buffers()}
        self._backward(batch)
        result = {
            name: parameter.grad.clone()
            for name, parameter in self._model.named_parameters()
            if parameter.grad is not None
        }
        with torch.no_grad():
            for name, value in self._model.named_buffers():
                value.copy_(buffers[name])
        return result

    def parameters(self) -> dict[str, torch.Tensor]:
        """Parameters by name."""
        return {name: parameter.detach() for name, parameter in self._model.named_parameters()}

    def _backward(self, batch: Any) -> tuple[float, float]:
        self._optimizer.zero_grad(set_to_none=True)
        losses, weights, divide = [], [], True
        for part, rows in self._divide(Batch.of(batch)):
            output = self._model(*part.args, **part.kwargs)
            total, weight, divide = self._loss(output, part.target, rows)
            total.backward()
            losses.append(total.item())
            weights.append(weight.item())
        scale = sum(weights) if divide else 1.0
        for parameter in self._parameters:
            if parameter.grad is not None:
                parameter.grad = parameter.grad / scale if scale else torch.zeros_like(parameter.grad)
        return (sum(losses) / scale if scale else float("nan")), scale

    def _loss(self, output: Any, target: Any, rows: int | None) -> tuple[torch.Tensor, torch.Tensor, bool]:
        """Sum and weight, and whether the one is divided by the other."""
        if self._parts != (1, 1):
            total, weight, form = loss_pair(self._loss_fn, output, target, self._reduction, rows)
            return total, weight, form.divide
        result = self._loss_fn(output, target)
        if not isinstance(result, torch.Tensor):
            total, weight, _ = checked_pair(result, self._reduction)
            return total, weight, True
        # Of the whole batch it is the loss, whatever the importer takes it for. A mean over nothing has no gradient.
        return result, torch.zeros(()) if result.isnan() else torch.ones(()), True

    def _divide(self, batch: Batch) -> Iterator[tuple[Batch, int | None]]:
        inputs, _, rows = describe(batch, self._batch_dims)
        batch = batch.map(lambda _, value: self._convert(value))
        if rows is None:
            yield batch, None
            return
        replicas, microbatches = self._parts
        for replica in torch.arange(rows).tensor_split(replicas):
            for chosen in replica.tensor_split(microbatches):
                yield (
                    batch.map(
                        lambda name, value, c=chosen: value[c] if name in inputs and inputs[name].split else value
                    ),
                    len(chosen),
                )

    def _convert(self, value: Any) -> Any:
        floating = isinstance(value, torch.Tensor) and value.is_floating_point()
        return value.to(self._dtype) if floating and self._dtype is not None else value


def _copy_optimizer(optimizer: torch.optim.Optimizer, replacement: Mapping[int, nn.Parameter]) -> torch.optim.Optimizer:
    groups = [
        {
            **group,
            "params": [replacement[id(parameter)] for parameter in group["params"] if id(parameter) in replacement],
        }
        for group in optimizer.param_groups
    ]
    # Every group holds all its options; a default lr is what SGD asks for.
    return type(optimizer)(groups, lr=optimizer.defaults["lr"])

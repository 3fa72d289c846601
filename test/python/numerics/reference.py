# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What plain PyTorch gives, and how close Piper has to come to it."""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch


def gradients(model, loss_fn, x, y) -> tuple[float, dict[str, torch.Tensor]]:
    """Loss and gradients of plain eager PyTorch on the whole batch."""
    model = copy.deepcopy(model)
    loss = loss_fn(model(x), y)
    loss.backward()
    return loss.item(), {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


def train(
    model, loss_fn, batches, make_optimizer: Callable, dtype=torch.float32
) -> tuple[list[float], dict[str, torch.Tensor]]:
    """Losses and parameters of plain eager PyTorch after one step per batch."""
    model = copy.deepcopy(model).to(dtype)
    optimizer = make_optimizer(model.parameters())
    losses = []
    for x, y in batches:
        optimizer.zero_grad()
        logits = model(x)
        loss = (
            torch.nn.functional.cross_entropy(logits.view(-1, logits.shape[-1]), y.reshape(-1))
            if dtype == torch.float64
            else loss_fn(logits, y)
        )
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, {name: p.detach() for name, p in model.named_parameters()}


def worst_gradient_error(actual: dict, expected: dict) -> tuple[float, str]:
    """Largest max|error| / max|g| over the parameters; with the global max|g| where the true gradient is zero.

    A gradient below 1e-6 of the global maximum (a key's bias under softmax, say) is rounding noise around a true zero.
    """
    assert set(actual) == set(expected), f"gradients of {set(actual) ^ set(expected)} on one side only"
    largest = max(float(g.abs().max()) for g in expected.values())
    worst = (0.0, "")
    for name, g in expected.items():
        scale = float(g.abs().max())
        scale = scale if scale > 1e-6 * largest else largest
        error = float((torch.as_tensor(actual[name]).double() - g.double()).abs().max()) / scale
        worst = max(worst, (error, name))
    return worst


def assert_gradients(actual: dict, expected: dict, tolerance: float = 1e-5) -> None:
    error, name = worst_gradient_error(actual, expected)
    assert error <= tolerance, f"gradient of {name} is off by {error:.2e} of its maximum, allowed {tolerance:.0e}"

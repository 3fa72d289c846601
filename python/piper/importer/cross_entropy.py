# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Cross-entropy with few passes over the scores: what is kept of a row of log-probabilities are the row's maximum and
the logarithm of its sum of exponentials, and the backward is one operation, scores to gradient.

torch keeps all log-probabilities beside the scores, and makes their gradient before that of the scores.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, fx

from .graphs import aten, calls

_FORWARDS = {aten.nll_loss_forward.default, aten.nll_loss2d_forward.default}
_BACKWARDS = {aten.nll_loss_backward.default, aten.nll_loss2d_backward.default}
_SOFTMAX_BACKWARD = aten._log_softmax_backward_data.default


def _class_dim(x: Tensor) -> int:
    return 0 if x.dim() < 2 else 1


def _per_class(values: Tensor, x: Tensor, dim: int) -> Tensor:
    return values.reshape([-1 if d == dim else 1 for d in range(x.dim())])


def _pick(x: Tensor, target: Tensor, ignore_index: int) -> Tensor:
    """The element of each row's target class; that of class 0 where the target is ignored."""
    dim = _class_dim(x)
    safe = torch.where(target != ignore_index, target, 0)
    return torch.gather(x, dim, safe.unsqueeze(dim)).squeeze(dim)


def _hits(x: Tensor, target: Tensor) -> Tensor:
    """Whether an element is that of its row's target class."""
    dim = _class_dim(x)
    classes = torch.arange(x.shape[dim], dtype=target.dtype, device=x.device)
    return _per_class(classes, x, dim) == target.unsqueeze(dim)


def _reduce(
    losses: Tensor, target: Tensor, weight: Tensor | None, reduction: int, ignore_index: int
) -> tuple[Tensor, Tensor]:
    """The loss and the total weight from each row's -log p(target). Reductions: 0 none, 1 mean, 2 sum."""
    valid = target != ignore_index
    if weight is not None:
        weights = torch.where(valid, weight[torch.where(valid, target, 0)], 0.0)
        losses, total = losses * weights, weights.sum()
    else:
        total = valid.sum().to(losses.dtype)
    losses = torch.where(valid, losses, 0.0)
    if reduction == 0:
        return losses, losses.new_zeros(())
    return (losses.sum() if reduction == 2 else losses.sum() / total), total


def nll_loss_forward(x, target, weight, reduction, ignore_index):
    """aten.nll_loss_forward."""
    return _reduce(-_pick(x, target, ignore_index), target, weight, reduction, ignore_index)


def nll_loss_backward(grad, x, target, weight, reduction, ignore_index, total_weight):
    """aten.nll_loss_backward."""
    dim = _class_dim(x)
    each = -grad / total_weight if reduction == 1 else -grad
    valid = (target != ignore_index).unsqueeze(dim)
    each = each.unsqueeze(dim) if each.dim() else each
    if weight is not None:
        each = each * _per_class(weight, x, dim)
    return torch.where(_hits(x, target) & valid, each, 0.0).to(x.dtype)


def forward(x, maximum, logarithm, target, weight, reduction, ignore_index):
    """`maximum` and `logarithm` of the sum of exp(x - maximum) have extent 1 in the dimension of the classes."""
    dim = _class_dim(x)
    losses = logarithm.squeeze(dim) - (_pick(x, target, ignore_index) - maximum.squeeze(dim))
    return _reduce(losses, target, weight, reduction, ignore_index)


def backward(grad, x, maximum, logarithm, target, weight, reduction, ignore_index, total_weight):
    """d loss / d x = (softmax(x) - onehot(target)) * the row's weight."""
    each = grad / total_weight if reduction == 1 else grad
    valid = target != ignore_index
    if weight is not None:
        each = each * weight[torch.where(valid, target, 0)]
    each = torch.where(valid, each, 0.0).unsqueeze(_class_dim(x))
    return (torch.exp((x - maximum) - logarithm) - torch.where(_hits(x, target), 1.0, 0.0)) * each


def _operation(name: str, body: Callable, signature: str):
    operation = torch.library.custom_op(f"piper::{name}", body, mutates_args=(), schema=signature)
    operation.register_fake(body)
    return getattr(torch.ops.piper, name).default


_FORWARD = _operation(
    "cross_entropy_forward",
    forward,
    "(Tensor x, Tensor maximum, Tensor logarithm, Tensor target, Tensor? weight, int reduction, int ignore_index)"
    " -> (Tensor, Tensor)",
)
_BACKWARD = _operation(
    "cross_entropy_backward",
    backward,
    "(Tensor grad, Tensor x, Tensor maximum, Tensor logarithm, Tensor target, Tensor? weight, int reduction,"
    " int ignore_index, Tensor total_weight) -> Tensor",
)
#: How the operations here are expressed by others.
DECOMPOSITIONS = {_FORWARD: forward, _BACKWARD: backward}


def fuse(graph: fx.Graph) -> None:
    """Replaces each log_softmax that only a cross-entropy and its backward read."""
    for node in calls(graph):
        if node.target is aten._log_softmax.default and _is_covered(node):
            _Fusion(graph, node).run()
    graph.eliminate_dead_code()


def _is_covered(node: fx.Node) -> bool:
    x, dim, half_to_float = node.args
    value = x.meta["val"]
    if half_to_float or value.dtype != torch.float32 or dim % value.dim() != _class_dim(value):
        return False

    def reads_once(user: fx.Node, position: int) -> bool:
        return user.args[position] is node and sum(argument is node for argument in user.args) == 1

    for user in node.users:
        if user.target in _FORWARDS:
            covered = reads_once(user, 0)
        elif user.target in _BACKWARDS:
            covered = reads_once(user, 1) and all(
                other.target is _SOFTMAX_BACKWARD and other.args[0] is user and other.args[1] is node
                for other in user.users
            )
        else:
            covered = user.target is _SOFTMAX_BACKWARD and user.args[0].target in _BACKWARDS and reads_once(user, 1)
        if not covered:
            return False
    return True


class _Fusion:
    """One log_softmax and its readers."""

    def __init__(self, graph: fx.Graph, node: fx.Node):
        self._graph, self._node = graph, node
        self._x, self._dim, _ = node.args

    def run(self) -> None:
        with self._graph.inserting_before(self._node):
            maximum = self._add(self._node, aten.amax.default, self._x, [self._dim], True)
            shifted = self._add(self._node, aten.sub.Tensor, self._x, maximum)
            exponentials = self._add(self._node, aten.exp.default, shifted)
            total = self._add(self._node, aten.sum.dim_IntList, exponentials, [self._dim], True)
            logarithm = self._add(self._node, aten.log.default, total)
        for user in list(self._node.users):
            if user.target in _FORWARDS:
                self._replace(user, _FORWARD, self._x, maximum, logarithm, *user.args[1:])
            elif user.target is _SOFTMAX_BACKWARD:
                grad, _, *rest = user.args[0].args
                self._replace(user, _BACKWARD, grad, self._x, maximum, logarithm, *rest)

    def _add(self, like: fx.Node, target, *args) -> fx.Node:
        """A new operation here, which counts as part of `like`."""
        node = self._graph.call_function(target, args)
        values = fx.map_arg(args, lambda operand: operand.meta["val"])
        node.meta = {**like.meta, "val": target(*values)}
        return node

    def _replace(self, old: fx.Node, target, *args) -> None:
        with self._graph.inserting_before(old):
            new = self._add(old, target, *args)
        old.replace_all_uses_with(new)
        self._graph.erase_node(old)

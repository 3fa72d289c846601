# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The imported program: one global training DAG of one microbatch on one logical device, as data.

Nodes call functions; equal chunks of the model call the same function family. Nothing here depends on torch's capture
machinery.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import fx

from .loss_form import LossForm

if TYPE_CHECKING:
    from .loss_weights import WeightGraph
    from .python_state import PythonState

#: A backward is one node, "B", or divided into what other chunks wait for, "I", and the rest, "W".
FORWARD = "F"


@dataclass(frozen=True)
class TensorSpec:
    """Shape and element type of a dense row-major tensor."""

    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def nbytes(self) -> int:
        return self.dtype.itemsize * torch.Size(self.shape).numel()


@dataclass
class State:
    """A tensor that outlives a step.

    Attributes:
        name: its first name in the model; a constant that the forward made has the name "constant.<n>".
        all_names: every name the model has for this one tensor (tied weights), `name` first.
        kind: "parameter", "buffer" or "constant".
        trainable: whether torch would compute a gradient for it.
        persistent: whether it belongs to the model's state_dict.
        value: the user's tensor itself, read only when a program is loaded; never written by the importer.
    """

    name: str
    all_names: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: torch.dtype
    kind: str
    trainable: bool
    persistent: bool
    value: torch.Tensor

    @property
    def spec(self) -> TensorSpec:
        return TensorSpec(self.shape, self.dtype)


@dataclass(frozen=True)
class Input:
    """A tensor of the batch: "args.0", "kwargs.mask", "target", or a path below those. `split`: its dim 0 counts the
    rows of the batch.

    `shape` is that of the example batch.
    """

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    split: bool

    def spec(self, rows: int) -> TensorSpec:
        return TensorSpec((rows, *self.shape[1:]) if self.split else self.shape, self.dtype)


@dataclass(frozen=True)
class InputRef:
    """A node's operand: a tensor of the batch."""

    name: str


@dataclass(frozen=True)
class StateRef:
    """A node's operand: the current value of a state."""

    name: str


@dataclass(frozen=True, order=True)
class ResultRef:
    """A node's operand: result number `result` of node number `node`."""

    node: int
    result: int


Value = InputRef | StateRef | ResultRef


@dataclass
class Function:
    """One compiled function: a member of a family, for one number of rows.

    The placeholders of `graph` are `operands`, then `saved_operands`; its outputs are `results`, then `saved_results`.
    Saved values are what a node keeps for the later nodes of its own chunk and nobody else sees, bundle by bundle.

    Attributes:
        name: a symbol made of a hash of the content, so equal functions have equal names in every process.
        graph: aten and piper operations on dense tensors.
    """

    name: str
    graph: fx.Graph
    operands: tuple[TensorSpec, ...]
    saved_operands: tuple[TensorSpec, ...]
    results: tuple[TensorSpec, ...]
    saved_results: tuple[TensorSpec, ...]


@dataclass
class Family:
    """The functions of equal chunks, one member for each number of rows.

    Attributes:
        name: a symbol made of a hash of the members.
        pass_: "F", "B", "I" or "W".
        tags: the names of the tags that every node of the family carries.
        members: rows to function.
    """

    name: str
    pass_: str
    tags: tuple[str, ...]
    members: dict[int, Function]


@dataclass(frozen=True)
class Result:
    """What a node's result is, in the order of importance: "loss_sum", "loss_weight", "gradient", "buffer" (its next
    value) or "activation".

    `state` names the first state of a gradient or buffer. Any result may also be another node's operand.
    """

    kind: str
    state: str | None = None


@dataclass
class Node:
    """One call of a family's function.

    Attributes:
        index: its position in `Imported.nodes`, which are in dependency order.
        label: for people: "F stage=0 _block=3".
        tags: annotation indices; the automatic tag is "_block".
        takes: the bundles of saved values that are further operands, each as (node, number of the bundle).
        gives: how many values each bundle has that this node gives; one of none is no result.
        glue: a sum of gradients that come from several chunks; it belongs to no chunk itself and carries the tags of
            the chunk that uses it.
        where: the module that was entered last before it and the first line of user code in it, for messages.
    """

    index: int
    label: str
    family: str
    pass_: str
    tags: dict[str, int]
    operands: tuple[Value, ...]
    results: tuple[Result, ...]
    takes: tuple[tuple[int, int], ...] = ()
    gives: tuple[int, ...] = ()
    glue: bool = False
    where: str = ""


@dataclass
class Imported:
    """A captured training (or evaluation) step of one microbatch.

    Attributes:
        training: whether there is a backward; False for a forward in eval mode.
        rows: the numbers of rows there are functions for.
        gradients: for each trainable parameter its contributions, to be added up; empty where torch leaves the gradient
            None.
        buffer_writes: for each buffer that the forward writes its next value.
        loss_sum, loss_weight: results of a forward node, 0-dimensional.
        static: inputs that are no tensors, by path, with the value that was captured.
        mixing: lines of user code that mix rows of the batch, where it is divided (row_mixing.py).
        weights: the weights of the loss by the number of rows, where the host computes them (loss_weights.py).
        python: what the trace has taken from Python (python_state.py).
        coupled: where rows of the model were seen to meet in numbers (`piper.probing`).
    """

    training: bool
    rows: tuple[int, ...]
    states: dict[str, State]
    inputs: dict[str, Input]
    families: dict[str, Family]
    nodes: list[Node]
    gradients: dict[str, list[ResultRef]]
    buffer_writes: dict[str, ResultRef]
    loss: LossForm
    loss_sum: ResultRef
    loss_weight: ResultRef
    static: dict[str, object] = field(default_factory=dict)
    mixing: tuple[str, ...] = ()
    weights: dict[int, WeightGraph] = field(default_factory=dict)
    python: PythonState | None = None
    coupled: tuple[str, ...] = ()

    def member(self, node: Node, rows: int) -> Function:
        """The function that `node` calls for `rows` rows.

        Raises:
            KeyError: nothing was captured for that number of rows.
        """
        members = self.families[node.family].members
        if rows not in members:
            raise KeyError(
                f"chunk '{self.families[node.family].name}' has no member for rows = {rows} (it has "
                f"{', '.join(map(str, members))})"
            )
        return members[rows]

    def forward_nodes(self) -> list[Node]:
        return [node for node in self.nodes if node.pass_ == FORWARD]

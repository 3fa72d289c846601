# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Values that depend on no input: tables computed in forward become states, numbers and index ranges stay code.

What stays code is copied into every function that uses it, so it is never sent, saved or handed over.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import fx

from .graphs import CREATIONS, aten, calls, is_part_view, is_view

_RECIPE_STEPS = {aten._to_copy.default, aten.clone.default}


@dataclass
class Constants:
    """The constants of one graph.

    Attributes:
        recipes: operations that only make and reshape constants.
        values: placeholders that stand for tables, with their values, in order of the graph.
    """

    recipes: set[fx.Node] = field(default_factory=set)
    values: dict[fx.Node, torch.Tensor] = field(default_factory=dict)


def constant_calls(graph: fx.Graph) -> list[fx.Node]:
    """The operations that depend on no placeholder, in order."""
    found: dict[fx.Node, None] = {node: None for node in graph.nodes if node.op == "get_attr"}
    for node in calls(graph):
        if all(operand in found for operand in node.all_input_nodes) and not _random(node):
            found[node] = None
    return [node for node in found if node.op == "call_function"]


def fold(module: fx.GraphModule, row_dependent: set[fx.Node]) -> Constants:
    """Evaluates what depends on no placeholder, but for `row_dependent`, constants whose shape changes with the number
    of rows: they stay code.
    """
    graph, constants = module.graph, Constants()
    values: dict[fx.Node, torch.Tensor] = {
        node: getattr(module, node.target) for node in graph.nodes if node.op == "get_attr"
    }
    recipes: set[fx.Node] = set()
    code: set[fx.Node] = set()
    for node in constant_calls(graph):
        if node in row_dependent or any(operand in code for operand in node.all_input_nodes):
            code.add(node)
            continue
        args, kwargs = fx.map_arg((node.args, node.kwargs), lambda n: values[n])
        values[node] = node.target(*args, **kwargs)
        from_recipe = all(operand in recipes for operand in node.all_input_nodes)
        if (
            node.target in CREATIONS
            and not node.all_input_nodes
            or (from_recipe and (is_view(node) or is_part_view(node) or node.target in _RECIPE_STEPS))
        ):
            recipes.add(node)
    constants.recipes = recipes | code
    _lift(graph, values, constants)
    return constants


def _random(node: fx.Node) -> bool:
    return torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())


def _lift(graph: fx.Graph, values: dict[fx.Node, torch.Tensor], constants: Constants) -> None:
    first_call = next((node for node in graph.nodes if node.op not in ("placeholder", "get_attr")), graph.output_node())
    for node, value in list(values.items()):
        needed = any(user not in values or user in constants.recipes for user in node.users)
        if node in constants.recipes or not needed or not isinstance(value, torch.Tensor):
            continue
        with graph.inserting_before(node if node.op == "call_function" else first_call):
            if value.numel() <= 1:
                # A state has elements.
                number = value.item() if value.numel() else 0
                options = {"dtype": value.dtype, "device": value.device}
                replacement = graph.call_function(aten.full.default, (list(value.shape), number), options)
                constants.recipes.add(replacement)
            else:
                value = value.detach().contiguous()
                replacement = _equal_table(constants, value) or graph.placeholder(f"constant_{len(constants.values)}")
                constants.values.setdefault(replacement, value.clone())
        replacement.meta = {**node.meta, "val": node.meta["val"] if node.meta.get("val") is not None else value}
        node.replace_all_uses_with(replacement)
    for node, value in reversed(values.items()):
        # Checks of constants, which have passed just now; no dead code to torch.
        if value is None and not node.users:
            graph.erase_node(node)
    graph.eliminate_dead_code()
    for node in [n for n in graph.nodes if n.op == "get_attr" and not n.users]:
        graph.erase_node(node)
    constants.recipes = {node for node in constants.recipes if node in set(graph.nodes)}


def _equal_table(constants: Constants, value: torch.Tensor) -> fx.Node | None:
    for node, table in constants.values.items():
        if same_bits(table, value):
            return node
    return None


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors are the same, NaN and the sign of zero included."""
    return (
        a.dtype == b.dtype
        and a.shape == b.shape
        and torch.equal(*(x.detach().reshape(-1).contiguous().view(torch.uint8) for x in (a, b)))
    )

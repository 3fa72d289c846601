# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Annotations: which part of a forward pass carries which tag.

A tag is a name with an index. Strategies select work by tags, so annotations are the only thing about the model that a
strategy has to know. They have no effect on an eager run; while a model is captured, a `TagRecorder` turns them into
scopes that every traced operation remembers.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from .balance import stage_modules
from .blocks import TABLES, blocks, callable_parts
from .errors import ImporterError

#: Names whose annotation divides a whole model, as a pipeline does. Code outside them belongs to the part that was
#: traced before it.
PIPELINE_TAGS = ("stage", "PP")
#: The automatic tag of the elements of a model's repeated blocks.
BLOCK_TAG = "_block"
RESERVED_TAGS = ("PASS",)
_ATTRIBUTE = "_piper_module_annotations"


@dataclass(frozen=True)
class Scope:
    """One entered annotation: all tags in force inside it. `serial` tells apart two entries that carry equal tags; `continues` says that it goes on with
    the block that was left last; `module` names the module entered.
    """

    serial: int
    tags: tuple[tuple[str, int], ...]
    in_block: bool
    continues: bool = False
    module: str = ""


_ROOT = Scope(0, (), False)


class TagRecorder:
    """Numbers annotations during one forward pass and reports each scope to the tracer.

    `mark(scope)` returns a context manager in which the tracer stamps operations with that scope. `in_backward()` tells
    whether autograd is running: code that activation checkpointing runs again there has been numbered before, and is
    not numbered twice.
    """

    def __init__(
        self,
        mark: Callable[[Scope], contextlib.AbstractContextManager],
        in_backward: Callable[[], bool] = lambda: False,
    ):
        self._mark = mark
        self._in_backward = in_backward
        self.begin()

    def begin(self) -> None:
        """Starts a forward pass: every count is zero again."""
        self._counts: dict[str, int] = {}
        self._called: set[nn.Module] = set()
        self._serial = 0
        self._current = _ROOT

    @contextlib.contextmanager
    def count(self, name: str) -> Iterator[None]:
        """Enters the next index of `name`."""
        if self._in_backward():
            yield
            return
        index = self._counts.get(name, 0)
        self._counts[name] = index + 1
        with self.enter({name: index}):
            yield

    def is_first_call(self, module: nn.Module) -> bool:
        """Whether the forward pass has not asked this before."""
        first = module not in self._called
        self._called.add(module)
        return first

    @contextlib.contextmanager
    def enter(
        self, tags: Mapping[str, int], block: bool = False, continues: bool = False, module: str = ""
    ) -> Iterator[None]:
        """Enters a scope that adds `tags` to those in force."""
        if self._in_backward():
            yield
            return
        outer = self._current
        merged = dict(outer.tags)
        for name, index in tags.items():
            if merged.get(name, index) != index:
                raise ImporterError(
                    f"annotation '{name}' = {index} is nested inside '{name}' = {merged[name]}: expected one index "
                    "at a time"
                )
            merged[name] = index
        self._serial += 1
        in_block, module = outer.in_block or block, module or outer.module
        self._current = Scope(self._serial, tuple(sorted(merged.items())), in_block, continues, module)
        try:
            with self._mark(self._current):
                yield
        finally:
            self._current = outer


_recorder: contextvars.ContextVar[TagRecorder | None] = contextvars.ContextVar("piper_tag_recorder", default=None)


@contextlib.contextmanager
def recording(recorder: TagRecorder) -> Iterator[TagRecorder]:
    """Makes `annotate` report to `recorder` for the duration of the context."""
    token = _recorder.set(recorder)
    try:
        yield recorder
    finally:
        _recorder.reset(token)


@contextlib.contextmanager
def annotate(name: str) -> Iterator[None]:
    """Tags the operations of the `with` body, inside a module's forward.

    The first body with a given name gets index 0, the next one index 1, and so on; counting starts again with each
    forward pass. Different names nest. In an ordinary eager run the context does nothing.

    Args:
        name: a tag such as "stage"; `PASS` and names that start with "_" are reserved.

    Raises:
        ImporterError: the name is reserved or no identifier, or it is nested inside itself.
    """
    check_name(name)
    recorder = _recorder.get()
    if recorder is None:
        yield
        return
    with recorder.count(name):
        yield


def check_name(name: str) -> None:
    if not isinstance(name, str) or not name.isidentifier():
        raise ImporterError(f"expected an identifier as annotation name, got {name!r}")
    if name in RESERVED_TAGS or name.startswith("_"):
        raise ImporterError(f"annotation name '{name}' is reserved")


def annotate_modules(
    model: nn.Module,
    annotations: Mapping[str, Sequence[Sequence[str]]] | None = None,
    *,
    stages: int | None = None,
    balance: str = "cost",
    batch: Any | None = None,
    costs: Mapping[str, float] | None = None,
) -> nn.Module:
    """Tags whole modules of `model` by name, without a change to its code; or cuts it into pipeline stages.

    `stages` cuts between elements of lists and sequences and other modules with parameters, so that the slowest stage is as fast as it can be;
    `annotations_of(model)["stage"]` shows where. A module that runs again after others stays in one stage with them, unless it is an `nn.Embedding`. A warning says if a part that can't be cut makes the stages useless.

    Args:
        model: the model; its parameters and its forward stay as they are.
        annotations: for each tag name a list of lists of module names; the position in the outer list is the index. A
            module's name covers everything below it; an `nn.Embedding` that is called again belongs to the stage that calls it. Calling again replaces
            the annotations.
        stages: instead, the number of stages, whose tag is "stage".
        balance: "cost", or "count" for equal numbers of modules.
        batch: an example, as for `piper.compile`: costs are counted operations and bytes of forward and backward, and modules are cut in the order in
            which they are called. Without it they are guessed from the shapes of parameters, and the order is that of registration.
        costs: those of each module that a cut may lie between, by name, in any unit.

    Returns:
        `model`.

    Raises:
        ImporterError: naming every module that does not exist, that is listed twice (also by way of a parent or as
            another name of the same module), or that has parameters but is in no list of a tag which divides the whole
            model (`PIPELINE_TAGS`); or there are fewer modules than stages.
    """
    if (annotations is None) == (stages is None):
        raise ImporterError("expected either lists of module names by tag, or a number of stages")
    if stages is not None:
        annotations = {"stage": stage_modules(model, stages, balance, batch, costs)}
    elif batch is not None or costs is not None:
        raise ImporterError("expected batch and costs only with a number of stages")
    modules = dict(model.named_modules(remove_duplicate=False))
    for name, groups in annotations.items():
        check_name(name)
        _check_groups(model, modules, name, groups)
    model.__dict__[_ATTRIBUTE] = {name: [list(group) for group in groups] for name, groups in annotations.items()}
    return model


def annotations_of(model: nn.Module) -> dict[str, list[list[str]]]:
    """What `annotate_modules` has set: the lists of module names by tag; empty if it was not called."""
    return model.__dict__.get(_ATTRIBUTE, {})


def _check_groups(
    model: nn.Module, modules: Mapping[str, nn.Module], name: str, groups: Sequence[Sequence[str]]
) -> None:
    if isinstance(groups, str) or any(isinstance(group, str) for group in groups):
        raise ImporterError(f"annotation '{name}': expected a list of lists of module names")
    listed = [module for group in groups for module in group]
    unknown = [module for module in listed if module not in modules or module == ""]
    if unknown:
        raise ImporterError(f"annotation '{name}': the model has no module named {_names(unknown)}")
    owner: dict[int, str] = {}
    twice: list[str] = []
    for module in listed:
        for part in modules[module].modules():
            if owner.setdefault(id(part), module) != module or listed.count(module) > 1:
                twice.append(module)
                break
    if twice:
        raise ImporterError(
            f"annotation '{name}': {_names(dict.fromkeys(twice))} listed twice (a name covers every module below it; "
            "a module that runs in"
            " several places needs piper.annotate in forward)"
        )
    if name in PIPELINE_TAGS:
        left = [
            n for n, m in modules.items() if n and id(m) not in owner and any(True for _ in m.parameters(recurse=False))
        ]
        if left:
            raise ImporterError(f"annotation '{name}': {_names(left)} has parameters and is in no list")


def _names(names) -> str:
    return ", ".join(f"'{n}'" for n in names)


@contextlib.contextmanager
def module_scopes(model: nn.Module, recorder: TagRecorder) -> Iterator[None]:
    """Enters the scopes of `annotate_modules` and of the automatic block tag around each module call, by hooks that are
    removed at the end.
    """
    modules = dict(model.named_modules(remove_duplicate=False))
    tags: dict[nn.Module, dict[str, int]] = {}
    for name, groups in annotations_of(model).items():
        for index, group in enumerate(groups):
            for module in group:
                for part in callable_parts(modules[module]):
                    tags.setdefault(part, {})[name] = index
    names = {part: name for name, part in reversed(modules.items())}
    # Whether each part of a block goes on with it.
    in_blocks: dict[nn.Module, bool] = {}
    for index, block in enumerate(blocks(model)):
        for position, element in enumerate(block):
            for part in callable_parts(element):
                tags.setdefault(part, {})[BLOCK_TAG] = index
                in_blocks[part] = position > 0
    handles = []
    try:
        for module, entries in tags.items():
            later = _without_pipeline_tags(entries) if isinstance(module, TABLES) else entries
            how = (module in in_blocks, in_blocks.get(module, False), names.get(module, ""))
            handles += _hook(module, (entries, later), how, recorder)
        yield
    finally:
        for handle in handles:
            handle.remove()


def _without_pipeline_tags(tags: Mapping[str, int]) -> dict[str, int]:
    return {name: index for name, index in tags.items() if name not in PIPELINE_TAGS}


def _hook(
    module: nn.Module,
    tags: tuple[Mapping[str, int], Mapping[str, int]],
    how: tuple[bool, bool, str],
    recorder: TagRecorder,
) -> list:
    """Hooks that enter the scope: with `tags[0]` at the first call, with `tags[1]` at later ones; `how` are the further arguments of `TagRecorder.enter`."""
    entered: list[contextlib.AbstractContextManager] = []

    def before(_module, _args):
        first, later = tags
        scope = recorder.enter(first if recorder.is_first_call(module) else later, *how)
        scope.__enter__()
        entered.append(scope)

    def after(_module, _args, _output):
        if entered:
            entered.pop().__exit__(None, None, None)

    return [
        module.register_forward_pre_hook(before, prepend=True),
        module.register_forward_hook(after, always_call=True),
    ]

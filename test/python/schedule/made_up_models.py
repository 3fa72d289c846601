# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Imported modules of made-up models, as text: chunks have types but no bodies, which is all that scheduling looks at."""

from __future__ import annotations

from dataclasses import dataclass, field

ACTIVATION = "tensor<?x8xf32>"
MATRIX = "tensor<8x8xf32>"
VECTOR = "tensor<8xf32>"
SCALAR = "tensor<f32>"
BUNDLE = "!piper.bundle"


@dataclass(frozen=True)
class Model:
    """A chain of `stages` x `blocks` layers.

    tied: the last layer uses the first one's matrix. skip: the last layer also reads what the first one makes. buffer: the first layer
    updates a buffer. shared_buffer: the last one reads and updates it too. frozen: the first stage trains nothing and has no backward.
    """

    stages: int = 2
    blocks: int = 1
    rows: int = 16
    tied: bool = False
    skip: bool = False
    buffer: bool = False
    shared_buffer: bool = False
    frozen: bool = False

    @property
    def layers(self) -> int:
        return self.stages * self.blocks

    def matrix(self, layer: int) -> str:
        return "w0" if self.tied and layer == self.layers - 1 else f"w{layer}"

    def trains(self, layer: int) -> bool:
        return not (self.frozen and layer < self.blocks)


@dataclass
class Text:
    """Collects the parts of a module."""

    model: Model
    part_rows: list[int]
    symbols: list[str] = field(default_factory=list)
    graphs: list[str] = field(default_factory=list)
    chunks: set[str] = field(default_factory=set)

    def call(
        self, name: str, kind: str, tags: dict[str, int], args: list[tuple[str, str]], results: list[tuple[str, str]]
    ) -> None:
        """Adds a node; `args` and `results` are (value, type)."""
        self._declare(name, kind, [t for _, t in args], [t for _, t in results])
        tag_text = ", ".join(f"{tag} = {index} : i64" for tag, index in tags.items())
        values = ", ".join([value for value, _ in results] + [f"%t{len(self.graphs)}"])
        self.graphs.append(
            f"    {values} = piper.compute @{name}({', '.join(v for v, _ in args)}) {kind} {{{tag_text}}} : "
            f"({', '.join(t for _, t in args)}) -> ({', '.join(t for _, t in results)})"
        )

    def _declare(self, name: str, kind: str, args: list[str], results: list[str]) -> None:
        if name in self.chunks:
            return
        self.chunks.add(name)
        members = ", ".join(f"{{binding = {{rows = {r} : i64}}, function = @{name}_rows{r}}}" for r in self.part_rows)
        self.symbols.append(
            f"  piper.chunk @{name} {kind} operands {[1] * len(args)} results {[1] * len(results)} [{members}]"
        )
        for rows in self.part_rows:
            inside = [t.replace(BUNDLE, ACTIVATION).replace("?", str(rows)) for t in args]
            outside = [t.replace(BUNDLE, ACTIVATION).replace("?", str(rows)) for t in results]
            self.symbols.append(
                f"  func.func private @{name}_rows{rows}({', '.join(inside)}) -> ({', '.join(outside)})"
            )


def imported_module(model: Model, mesh: tuple[int, int], part_rows: list[int], directives: list[str]) -> str:
    """The module in the imported phase. mesh: (pp, dp). part_rows: the rows that parts of the batch have."""
    text = Text(model, part_rows)
    layers = range(model.layers)
    head = ['module attributes {piper.phase = "imported"} {', f'  piper.mesh @mesh ["pp", "dp"] {list(mesh)}']
    for name in dict.fromkeys(model.matrix(i) for i in layers):
        trainable = "trainable " if any(model.trains(i) for i in layers if model.matrix(i) == name) else ""
        head.append(f'  piper.state @{name} : {MATRIX} parameter {trainable}["{name}"]')
    if model.buffer:
        head.append(f'  piper.state @mean : {VECTOR} buffer ["mean"]')
    head.append('  piper.optimizer @group0 "sgd" slots ["momentum_buffer"] scalars ["lr"] config {}')
    _add_graph(text, train=True)
    _add_graph(text, train=False)
    strategy = ["  piper.strategy @strategy {", *(f"    {d}" for d in directives), "  }"]
    return "\n".join([*head, *text.symbols, *text.graphs, *strategy, "}"])


def _add_graph(text: Text, train: bool) -> None:
    model = text.model
    text.graphs.append(f"  piper.graph @{'step' if train else 'evaluate'} rows {model.rows} {{")
    text.graphs.append(f'    %x = piper.input "args.0" 0 split : {ACTIVATION}')
    text.graphs.append(f'    %y = piper.input "target" 1 split : {ACTIVATION}')
    for name in dict.fromkeys(model.matrix(i) for i in range(model.layers)):
        text.graphs.append(f"    %{name} = piper.read @{name} : {MATRIX}")
    if model.buffer:
        text.graphs.append(f"    %mean = piper.read @mean : {VECTOR}")
    mean = _add_forward(text, train)
    if train:
        _add_backward(text)
        _add_updates(text, mean)
    text.graphs.append(f"    piper.return %loss, %weight : {SCALAR}, {SCALAR}")
    text.graphs.append("  }")


def _kind(model: Model, layer: int) -> str:
    return "last" if layer == model.layers - 1 else "first" if layer == 0 else "middle"


def _tags(model: Model, layer: int) -> dict[str, int]:
    return {"stage": layer // model.blocks, "_block": layer}


def _add_forward(text: Text, train: bool) -> str:
    """Returns the value that the buffer has in the end."""
    model, mean, x = text.model, "%mean", "%x"
    for i in range(model.layers):
        last = i == model.layers - 1
        args = [(x, ACTIVATION), (f"%{model.matrix(i)}", MATRIX)]
        results = [("%loss", SCALAR), ("%weight", SCALAR)] if last else [(f"%a{i}", ACTIVATION)]
        if last:
            args.append(("%y", ACTIVATION))
            if model.skip:
                args.append(("%a0", ACTIVATION))
        if model.buffer and (i == 0 or (last and model.shared_buffer)):
            args.append((mean, VECTOR))
            if train:
                mean = f"%mean{i}"
                results.append((mean, VECTOR))
        if train and model.trains(i):
            results.append((f"%s{i}", BUNDLE))
        suffix = "F" if train else "eval_F"
        frozen = "" if model.trains(i) else "frozen_"
        text.call(f"{frozen}{_kind(model, i)}_{suffix}", "F", _tags(model, i), args, results)
        x = f"%a{i}"
    return mean


def _add_backward(text: Text) -> None:
    model, grad = text.model, None
    for i in reversed(range(model.layers)):
        if not model.trains(i):
            return
        last = i == model.layers - 1
        if model.skip and i == 0:
            text.call("sum_B", "B", {}, [(grad, ACTIVATION), ("%dskip", ACTIVATION)], [("%dsum", ACTIVATION)])
            grad = "%dsum"
        args = [(f"%s{i}", BUNDLE), (f"%{model.matrix(i)}", MATRIX)] + ([(grad, ACTIVATION)] if grad else [])
        results = [(f"%g{i}", MATRIX)]
        if i > 0 and model.trains(i - 1):
            results.append((f"%d{i}", ACTIVATION))
            grad = f"%d{i}"
        if last and model.skip and model.trains(0):
            results.append(("%dskip", ACTIVATION))
        lowest = "" if len(results) > 1 or i == 0 else "lowest_"
        text.call(f"{lowest}{_kind(model, i)}_B", "B", _tags(model, i), args, results)


def _add_updates(text: Text, mean: str) -> None:
    model = text.model
    gradients: dict[str, list[str]] = {}
    for i in range(model.layers):
        if model.trains(i):
            gradients.setdefault(model.matrix(i), []).append(f"%g{i}")
    for name, parts in gradients.items():
        text.graphs.append(
            f"    %sum_{name}, %ta_{name} = piper.accumulate @{name} ({', '.join(parts)}) : {', '.join([MATRIX] * len(parts))} -> {MATRIX}"
        )
        text.graphs.append(f"    %tu_{name} = piper.update @{name} (%sum_{name}) optimizer @group0 : {MATRIX}")
    if model.buffer:
        text.graphs.append(f"    piper.write @mean, {mean} : {VECTOR}")

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The command line: `piper train`, `piper compile` and `piper verify` for a user's model file, `piper simulate` for a schedule.

Exit codes: 0 done, 1 failed, 2 wrong use, 3 a rank was lost.
"""

from __future__ import annotations

import math
import os
import sys
import time
from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from .folder import check_writable

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False)

ModelFile = Annotated[Path, typer.Argument(metavar="MODEL.py", help="a file with build() -> (model, loss_fn, batches)")]
StrategyFile = Annotated[Optional[Path], typer.Option("--strategy", help="JSON over the mesh, or a schedule's CSV")]  # noqa: UP045
MeshOption = Annotated[str, typer.Option("--mesh", help="axes and ranks, as in pp=2,dp=2")]
ScheduleOption = Annotated[str, typer.Option("--schedule", help="pipeline schedule, such as 1f1b or gpipe")]
MicrobatchOption = Annotated[int, typer.Option("--microbatches", min=1, help="microbatches of each replica")]
ZeroOption = Annotated[
    int,
    typer.Option(
        "--zero", min=0, max=3, help="what replicas shard: 0 nothing, 1 optimizer, 2 + gradients, 3 + parameters"
    ),
]
StagesOption = Annotated[
    Optional[int],  # noqa: UP045
    typer.Option("--stages", min=1, help="cut a model without stage tags into so many, of equal time"),
]
BucketOption = Annotated[float, typer.Option("--bucket-size", help="MiB of gradients reduced at once")]
CheckRowsOption = Annotated[
    bool, typer.Option("--check-rows/--no-check-rows", help="try on a few rows whether loss and model divide")
]
LearningRate = Annotated[
    float, typer.Option("--lr", min=0.0, help="learning rate of AdamW, where the file has no optimizer(model)")
]


@app.command()
def train(
    model: ModelFile,
    steps: Annotated[int, typer.Option("--steps", min=1)] = 100,
    mesh: MeshOption = "dp=1",
    strategy: StrategyFile = None,
    schedule: ScheduleOption = "1f1b",
    microbatches: MicrobatchOption = 1,
    stages: StagesOption = None,
    zero: ZeroOption = 0,
    bucket_size: BucketOption = 25.0,
    lr: LearningRate = 1e-3,
    check_rows: CheckRowsOption = True,
    save: Annotated[Optional[Path], typer.Option("--save", help="folder for the trained program")] = None,  # noqa: UP045
) -> None:
    """Trains a model and shows its loss."""
    user = _load(model)
    plan = _strategy(user, mesh, strategy, schedule, microbatches, stages, zero, bucket_size)
    if save is not None:
        check_writable(save)
    program = _compile(user, plan, lr, check_rows)
    start = time.monotonic()
    for step in range(steps):
        loss = program.step(user.batch(step)).item()
        _say(f"step {step + 1:6d}  loss {loss:10.6f}  {(time.monotonic() - start) / (step + 1):8.3f} s/step")
    if save is not None:
        program.save(save)
        _say(f"saved to {save}")
    program.close()


@app.command("compile")
def compile_(
    model: ModelFile,
    output: Annotated[Path, typer.Option("--output", "-o", help="folder for the program")],
    mesh: MeshOption = "dp=1",
    strategy: StrategyFile = None,
    schedule: ScheduleOption = "1f1b",
    microbatches: MicrobatchOption = 1,
    stages: StagesOption = None,
    zero: ZeroOption = 0,
    bucket_size: BucketOption = 25.0,
    lr: LearningRate = 1e-3,
    check_rows: CheckRowsOption = True,
) -> None:
    """Compiles a model to a program folder, with the MLIR of every phase in it."""
    user = _load(model)
    check_writable(output)
    plan = _strategy(user, mesh, strategy, schedule, microbatches, stages, zero, bucket_size)
    program = _compile(user, plan, lr, check_rows)
    program.save(output)
    program.close()
    _say(f"saved to {output}")


@app.command()
def verify(
    model: ModelFile,
    steps: Annotated[int, typer.Option("--steps", min=1)] = 3,
    mesh: MeshOption = "dp=1",
    strategy: StrategyFile = None,
    schedule: ScheduleOption = "1f1b",
    microbatches: MicrobatchOption = 1,
    stages: StagesOption = None,
    zero: ZeroOption = 0,
    bucket_size: BucketOption = 25.0,
    lr: LearningRate = 1e-3,
    check_rows: CheckRowsOption = True,
    every: Annotated[
        bool,
        typer.Option("--all", help="every schedule with every ZeRO level, as a table; cuts the model as each needs"),
    ] = False,
    coupled: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            "--coupled", help="'parts': where rows meet (BatchNorm), PyTorch looped over the parts of a batch is right"
        ),
    ] = None,
) -> None:
    """Compares losses, gradients and updates with plain PyTorch's; exit code 1 if they differ, 2 if there is nothing to compare."""
    import piper

    user = _load(model)
    if every:
        if strategy is not None:
            raise piper.UsageError("--all: expected no --strategy beside it")
        raise typer.Exit(_verify_all(user, _mesh(mesh), microbatches, steps, bucket_size, lr, coupled, check_rows))
    plan = _strategy(user, mesh, strategy, schedule, microbatches, stages, zero, bucket_size)
    batches = [user.batch(step) for step in range(steps)]
    report = piper.verify(
        user.model,
        user.loss_fn,
        batches,
        strategy=plan,
        optimizer=_optimizer(user, lr),
        coupled=coupled,
        check_rows=check_rows,
    )
    _say(str(report))
    raise typer.Exit(report.exit_code)


@app.command()
def simulate(
    context: typer.Context,
    file: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Argument(
            metavar="[SCHEDULE.csv | PROGRAM]", help="a schedule to read, or the folder of a compiled program"
        ),
    ] = None,
    schedule: Annotated[str, typer.Option("--schedule", help="or the name of one, such as zbv")] = "1f1b",
    ranks: Annotated[int, typer.Option("--ranks", help="pipeline ranks")] = 4,
    microbatches: Annotated[int, typer.Option("--microbatches")] = 8,
    stages: Annotated[Optional[int], typer.Option("--stages", help="in all; default: one or two per rank")] = None,  # noqa: UP045
    costs: Annotated[
        str, typer.Option("--costs", help="times of forward, backward and its halves")
    ] = "F=1,B=2,I=1,W=1",
    latency: Annotated[float, typer.Option("--latency", help="of a message between ranks")] = 0.0,
    transfer: Annotated[float, typer.Option("--transfer", help="time that a message keeps its link busy")] = 0.0,
    profile: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            "--profile", help="of a program: JSON of a piper.MachineProfile or piper.DelayDevice, instead of --costs"
        ),
    ] = None,
    output: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("--output", "-o", help="of a program: also a picture (.svg, .png, .pdf) or .json"),
    ] = None,
    transfers: Annotated[bool, typer.Option("--transfers", help="with sends that wait for their receivers")] = False,
    csv: Annotated[bool, typer.Option("--csv", help="print the schedule as torch's CSV instead")] = False,
    json: Annotated[bool, typer.Option("--json", help="print everything as JSON instead")] = False,
) -> None:
    """Proves a pipeline schedule and shows what it takes: makespan, bubbles, live chunks, and a picture. Of a program: also communication and memory."""
    import json as json_text

    from . import schedules
    from .errors import UsageError

    if file is not None:
        _refuse_beside(context, file, ["schedule", "ranks", "microbatches", "stages"])
    if file is not None and file.is_dir():
        _refuse_beside(context, file, ["transfer", "transfers", "csv"])
        found = _simulate_program(file, profile, costs, latency)
        if output is not None:
            found.save(output)
        _say(json_text.dumps(found.to_json(), indent=2) if json else f"{found}\n{found.timeline()}")
        return
    if profile is not None or output is not None:
        raise UsageError("--profile and --output are for the folder of a compiled program")
    table = schedules.load(file) if file else schedules.build(schedule, ranks, microbatches, stages)
    table.prove()
    if transfers:
        table = table.with_transfers()
    result = table.simulate(_costs(costs), latency, transfer, sends_wait=transfers)
    if csv and json:
        raise UsageError("--csv and --json exclude each other")
    if csv:
        _say(table.csv().rstrip("\n"))
    elif json:
        _say(json_text.dumps(result.to_json(), indent=2))
    else:
        _say(f"{result}\n{result.timeline()}".rstrip("\n"))


def _refuse_beside(context: typer.Context, file: Path, names: list[str]) -> None:
    """Options that the file answers itself would be passed over in silence."""
    from .errors import UsageError

    for name in names:
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            raise UsageError(f"--{name} has no meaning beside {file}")


def _simulate_program(folder: Path, profile: Path | None, costs: str, latency: float) -> Any:
    import json

    import piper

    program = piper.load(folder)
    try:
        if profile is None:
            links = {"*": {"latency": latency}} if latency else {}
            return program.simulate(
                piper.DelayDevice({f"{kind} *": t for kind, t in _used(program, _costs(costs))}, links)
            )
        try:
            given = json.loads(profile.read_text())
            device = piper.DelayDevice(**given) if "rates" not in given else piper.MachineProfile.load(profile)
        except OSError as error:
            raise piper.UsageError(f"{profile}: {error.strerror}") from None
        except (TypeError, ValueError) as error:
            raise piper.UsageError(f"{profile}: {error}") from None
        return program.simulate(device)
    finally:
        program.close()


def _used(program: Any, costs: dict[str, float]) -> list[tuple[str, float]]:
    """Without those of passes that the program has not: a pattern that matches nothing would be an error."""
    planned = program.ir("planned")
    return [(kind, seconds) for kind, seconds in costs.items() if f'label "{kind} ' in planned]


def main() -> None:
    """Runs the command line; every error that Piper raises becomes one message and its exit code."""
    from .errors import PiperError

    try:
        app()
    except PiperError as error:
        print(f"piper: error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except Exception as error:
        from .userfile import explain

        message = explain(error)
        if message is None:
            raise
        print(f"piper: error: {message}", file=sys.stderr)
        sys.exit(1)


def _load(path: Path) -> Any:
    from . import userfile

    return userfile.load(path)


def _strategy(
    user: Any,
    mesh: str,
    file: Path | None,
    schedule: str,
    microbatches: int,
    stages: int | None,
    zero: int,
    bucket: float,
) -> Any:
    import piper

    ranks = _mesh(mesh)
    if stages is not None:
        _cut(user, stages)
    if file is not None:
        return piper.Strategy.load(file, ranks, zero=zero, bucket_size=bucket)
    if user.strategy is not None:
        return user.strategy(ranks)
    if "pp" in ranks.shape:
        return piper.strategies.pipeline(ranks, schedule, microbatches, zero, bucket, stages)
    return piper.strategies.data_parallel(ranks, zero, bucket, microbatches)


def _verify_all(
    user: Any,
    mesh: Any,
    microbatches: int,
    steps: int,
    bucket_size: float,
    lr: float,
    coupled: str | None,
    check_rows: bool,
) -> int:
    """Prints a line for each composition as soon as it is there; the exit code."""
    import piper

    from .compositions import HEADER

    batches = [user.batch(step) for step in range(steps)]
    _say(HEADER)
    results = []
    for result in piper.verify_all(
        user.model,
        user.loss_fn,
        batches,
        mesh,
        microbatches=microbatches,
        optimizer=_optimizer(user, lr),
        bucket_size=bucket_size,
        coupled=coupled,
        check_rows=check_rows,
    ):
        _say(str(result))
        results.append(result)
    applied = [result for result in results if result.report is not None]
    equal = sum(result.ok for result in applied)
    _say(f"{equal} of {len(applied)} equal to PyTorch" + _rest(len(results) - len(applied)))
    return 0 if applied and equal == len(applied) else 1


def _rest(count: int) -> str:
    return f", {count} do not apply" if count else ""


def _cut(user: Any, stages: int) -> None:
    import piper

    if "stage" in piper.annotations_of(user.model):
        raise piper.UsageError("--stages: the model's stages are annotated already")
    piper.annotate_modules(user.model, stages=stages, batch=user.batch(0))
    for index, modules in enumerate(piper.annotations_of(user.model)["stage"]):
        _say(f"stage {index}: {', '.join(modules)}")


def _mesh(text: str) -> Any:
    import piper

    axes = {}
    for part in text.split(","):
        name, _, extent = part.partition("=")
        name, extent = name.strip(), extent.strip()
        if not name.isidentifier() or not extent.isascii() or not extent.isdigit() or len(extent) > 9:
            raise piper.UsageError(f"--mesh: expected axes and ranks such as pp=2,dp=2, got {text!r}")
        if name in axes:
            raise piper.UsageError(f"--mesh: expected each axis once, got '{name}' twice in {text!r}")
        axes[name] = int(extent)
    return piper.Mesh(**axes)


def _costs(text: str) -> dict[str, float]:
    from .errors import UsageError

    costs = {}
    for part in text.split(","):
        name, _, value = part.partition("=")
        if name.strip() in costs:
            raise UsageError(f"--costs: expected each pass once, got '{name.strip()}' twice in {text!r}")
        try:
            costs[name.strip()] = float(value)
        except ValueError:
            raise UsageError(f"--costs: expected times such as F=1,B=2,I=1,W=1, got {text!r}") from None
    return costs


def _optimizer(user: Any, lr: float) -> Any:
    import torch

    from .errors import UsageError

    if not math.isfinite(lr):
        raise UsageError(f"--lr: expected a finite learning rate, got {lr}")
    trainable = [parameter for parameter in user.model.parameters() if parameter.requires_grad]
    return user.optimizer(user.model) if user.optimizer is not None else torch.optim.AdamW(trainable, lr=lr)


def _compile(user: Any, strategy: Any, lr: float, check_rows: bool) -> Any:
    import piper

    optimizer = _optimizer(user, lr)
    return piper.compile(
        user.model, user.loss_fn, user.batch(0), strategy=strategy, optimizer=optimizer, check_rows=check_rows
    )


def _say(text: str) -> None:
    if os.environ.get("RANK", "0") == "0":
        print(text, flush=True)


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""PyTorch's own ways of training the model. Each builder returns a step: a batch of all ranks in, this rank's part of the loss out."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist
from models import MICROBATCHES, OPTIONS, loss
from piper.examples import llama
from torch import Tensor, nn

Step = Callable[[Tensor, Tensor], Tensor]


def _optimizer(parameters) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, **OPTIONS, fused=True)


def _rank_and_size() -> tuple[int, int]:
    return (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)


def _train(model: nn.Module) -> Step:
    rank, size = _rank_and_size()
    optimizer = _optimizer(model.parameters())

    def step(ids: Tensor, target: Tensor) -> Tensor:
        ids, target = ids.chunk(size)[rank], target.chunk(size)[rank]
        value = loss(model(ids), target)
        value.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return value.detach() / size

    return step


def eager(model: llama.Llama) -> Step:
    """One process."""
    return _train(model)


def compiled(model: llama.Llama) -> Step:
    """One process, torch.compile."""
    model.compile()
    return _train(model)


def ddp(model: llama.Llama) -> Step:
    """DistributedDataParallel."""
    return _train(nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True))


def ddp_compiled(model: llama.Llama) -> Step:
    """DistributedDataParallel, torch.compile."""
    return _train(torch.compile(nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)))


def fsdp2(model: llama.Llama, reshard: bool) -> Step:
    """fully_shard of each layer and of the rest."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for block in model.blocks:
        fully_shard(block, mesh=mesh, reshard_after_forward=reshard)
    fully_shard(model, mesh=mesh, reshard_after_forward=reshard)
    return _train(model)


class _Stage(nn.Module):
    """Part of the model: whatever of it the names name."""

    def __init__(self, model: llama.Llama, names: list[str]):
        super().__init__()
        self.embed = model.embed if "embed" in names else None
        self.blocks = nn.ModuleList(model.get_submodule(name) for name in names if name.startswith("blocks."))
        self.norm, self.head = (model.norm, model.head) if "head" in names else (None, None)
        self.register_buffer("cos", model.cos, persistent=False)
        self.register_buffer("sin", model.sin, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        if self.embed is not None:
            x = self.embed(x)
        for block in self.blocks:
            x = block(x, self.cos.to(x.dtype), self.sin.to(x.dtype))
        return x if self.head is None else self.head(self.norm(x))


def pipeline(model: llama.Llama, schedule: str, stages_per_rank: int) -> Step:
    """torch.distributed.pipelining."""
    import torch.distributed.pipelining as pipelining

    rank, size = _rank_and_size()
    count = size * stages_per_rank
    mine = [rank, count - 1 - rank] if schedule in _V_SHAPED else range(rank, count, size)
    cuts = llama.stages(model.config, count)
    modules = {index: _Stage(model, cuts[index]) for index in mine}
    stages = [pipelining.PipelineStage(module, i, count, torch.device("cpu")) for i, module in modules.items()]
    kind = getattr(pipelining, schedule)
    runner = kind(stages[0] if stages_per_rank == 1 else stages, MICROBATCHES, loss_fn=loss)
    optimizer = _optimizer([p for module in modules.values() for p in module.parameters()])

    def step(ids: Tensor, target: Tensor) -> Tensor:
        losses: list[Tensor] = []
        last = {"target": target, "losses": losses} if count - 1 in modules else {}
        runner.step(*((ids,) if 0 in modules else ()), **last)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return torch.stack([value.detach() for value in losses]).mean() if losses else torch.zeros(())

    return step


_V_SHAPED = ("ScheduleZBVZeroBubble", "ScheduleDualPipeV")

#: By name: how many ranks, and the builder.
WAYS: dict[str, tuple[int, Callable[[llama.Llama], Step]]] = {
    "eager": (1, eager),
    "compile": (1, compiled),
    "ddp": (2, ddp),
    "ddp_compile": (2, ddp_compiled),
    "fsdp2_reshard": (2, lambda model: fsdp2(model, True)),
    "fsdp2": (2, lambda model: fsdp2(model, False)),
    "gpipe": (2, lambda model: pipeline(model, "ScheduleGPipe", 1)),
    "1f1b": (2, lambda model: pipeline(model, "Schedule1F1B", 1)),
    "interleaved_1f1b": (2, lambda model: pipeline(model, "ScheduleInterleaved1F1B", 2)),
    "zbv": (2, lambda model: pipeline(model, "ScheduleZBVZeroBubble", 2)),
    "dualpipev": (2, lambda model: pipeline(model, "ScheduleDualPipeV", 2)),
}

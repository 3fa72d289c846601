# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The tables of torch.distributed.pipelining, from torch itself: its schedule objects over stages that hold nothing."""

from __future__ import annotations

from torch.distributed.pipelining import schedules

#: Piper's names of what torch has.
CLASSES = {
    "gpipe": schedules.ScheduleGPipe,
    "1f1b": schedules.Schedule1F1B,
    "interleaved_1f1b": schedules.ScheduleInterleaved1F1B,
    "looped_bfs": schedules.ScheduleLoopedBFS,
    "interleaved_zb": schedules.ScheduleInterleavedZeroBubble,
    "zbv": schedules.ScheduleZBVZeroBubble,
    "dualpipev": schedules.ScheduleDualPipeV,
}
SINGLE = ("gpipe", "1f1b")


class EmptyStage:
    """What schedules ask a stage for; a real one wants a module and a process group. Notes what it is told to compute."""

    def __init__(self, num_stages: int, group_size: int, stage_index: int = 0) -> None:
        self.num_stages = num_stages
        self.group_size = group_size
        self.group_rank = 0
        self.stage_index = stage_index
        self.group = None
        self.submod = None
        self.has_backward = True
        self.is_last = False
        self.computed: list[str] = []

    def forward_one_chunk(self, microbatch: int, *_, **__) -> None:
        self.computed.append(f"{self.stage_index}F{microbatch}")

    def backward_one_chunk(self, microbatch: int, **_) -> None:
        self.computed.append(f"{self.stage_index}B{microbatch}")

    def no_transfers(self, _: int) -> list:
        return []

    get_fwd_recv_ops = get_fwd_send_ops = get_bwd_recv_ops = get_bwd_send_ops = no_transfers

    def perform_reduce_grad(self, _: int) -> None:
        pass


def build(name: str, ranks: int, microbatches: int, stages: int):
    """torch's schedule object of several stages per rank. It raises what torch raises for sizes that it does not take."""
    return CLASSES[name]([EmptyStage(stages, ranks) for _ in range(stages // ranks)], microbatches)


def _run_single(name: str, ranks: int, microbatches: int, rank: int) -> list[str]:
    stage = EmptyStage(ranks, ranks, rank)
    schedule = CLASSES[name](stage, microbatches)
    schedule._initialize_stage = lambda *_: None
    schedule._step_microbatches([()] * microbatches, [{}] * microbatches)
    return stage.computed


def compute_order(name: str, ranks: int, microbatches: int, stages: int) -> list[list[str]]:
    """What each rank computes, as torch prints it, without blanks and reductions."""
    if name in SINGLE:
        return [_run_single(name, ranks, microbatches, rank) for rank in range(ranks)]
    order = build(name, ranks, microbatches, stages).pipeline_order
    return [
        [str(action) for action in order[rank] if action is not None and action.is_compute_op] for rank in range(ranks)
    ]


def with_transfers(name: str, ranks: int, microbatches: int, stages: int) -> list[list[str]]:
    """`compute_order` with the sends and receives that torch adds."""
    schedule = build(name, ranks, microbatches, stages)
    order = {rank: [a for a in schedule.pipeline_order[rank] if a and a.is_compute_op] for rank in range(ranks)}
    placed = schedules._add_send_recv(order, lambda stage: schedule.stage_index_to_group_rank[stage], stages)
    return [[str(action) for action in placed[rank]] for rank in range(ranks)]


def read_csv(path, ranks: int, microbatches: int, stages: int) -> list[list[str]]:
    """What torch reads from a file; it validates it and adds communication."""
    runtime = schedules._PipelineScheduleRuntime(
        [EmptyStage(stages, ranks) for _ in range(stages // ranks)], microbatches
    )
    runtime._load_csv(path, format="compute_only")
    return [[str(action) for action in runtime.pipeline_order[rank] if action] for rank in range(ranks)]

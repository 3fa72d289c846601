# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Modules that stand for others are replaced by those, or refused with what to pass instead; so are half precision parameters."""

import contextlib

import pytest
import torch
import zoo
from executor import train
from piper.importer import ImporterError, annotate_modules, import_model
from torch import nn

BATCH = zoo.regression((4,), (2,))


def make():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2))


def gradients(model):
    return train(import_model(model, zoo.squared, BATCH), [BATCH]).gradients


def expected():
    model = make()
    zoo.squared(model(*BATCH["args"]), BATCH["target"]).backward()
    return {name: parameter.grad for name, parameter in model.named_parameters()}


def close(got, prefix=""):
    wanted = {name.replace("2.", f"2.{prefix}") if prefix else name: g for name, g in expected().items()}
    assert set(got) == set(wanted)
    for name, gradient in wanted.items():
        torch.testing.assert_close(got[name], gradient, rtol=1e-5, atol=1e-6)


def test_a_compiled_model_is_the_module_it_was_made_of():
    model = make()
    annotate_modules(model, {"stage": [["0"], ["2"]]})
    imported = import_model(torch.compile(model), zoo.squared, BATCH)
    assert {node.tags["stage"] for node in imported.nodes} == {0, 1}
    close(train(imported, [BATCH]).gradients)


def test_compiled_parts_are_traced_as_they_were_written():
    model = make()
    model[0].compile()
    close(gradients(model))
    model = make()
    model[2] = torch.compile(model[2])
    close(gradients(model), "_orig_mod.")


@contextlib.contextmanager
def one_process():
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        yield
    finally:
        torch.distributed.destroy_process_group()


def replicated(model):
    return nn.parallel.DistributedDataParallel(model)


def sharded(model):
    from torch.distributed.fsdp import fully_shard

    return fully_shard(model)


def sharded_inside(model):
    from torch.distributed.fsdp import FullyShardedDataParallel

    model[0] = FullyShardedDataParallel(model[0], device_id=torch.device("cpu"))
    return model


def hooked(parameter, method):
    def wrap(model):
        getattr(getattr(model[0], parameter), method)(lambda _: None)
        return model

    return wrap


@pytest.mark.parametrize(
    "wrap, message",
    [
        (torch.jit.script, "the model is a torch.jit.ScriptModule, which can't be traced: pass the module it is of"),
        (nn.DataParallel, r"the model is wrapped in DataParallel: pass the module inside \(.module\)"),
        (replicated, r"the model is wrapped in DistributedDataParallel: pass the module inside \(.module\)"),
        (sharded, "the model is sharded by torch's FSDP: pass the module before that"),
        (sharded_inside, "module '0' is sharded by torch's FSDP: pass the module before that"),
        (lambda model: model.forward, "expected an nn.Module as model, got method"),
        (lambda model: model.append(nn.LazyLinear(2)), "parameter '3.weight' has no shape yet: call the model once"),
        (lambda model: model.to(torch.complex64), "parameter '0.weight' is of torch.complex64: expected real parameters"),
        (hooked("weight", "register_hook"), "parameter '0.weight' has a hook on its gradient"),
        (hooked("bias", "register_post_accumulate_grad_hook"), "parameter '0.bias' has a hook on its gradient"),
        (lambda model: model.append(nn.Linear(2, 2).half()), "parameter '3.weight' is of torch.float16, whose gradients need a loss scale"),
    ],
)  # fmt: skip
def test_others_are_refused(wrap, message):
    with one_process():
        model = wrap(make())
        with pytest.raises(ImporterError, match=message):
            import_model(model, zoo.squared, BATCH)

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Adapters of peft on models of transformers: few parameters train, the others are frozen."""

from __future__ import annotations

import peft
from subject import Subject, stirred
from transformers_models import gpt2, llama


def _adapted(subject: Subject, config: peft.PeftConfig) -> Subject:
    # One of the two matrices of LoRA starts with zeros.
    return Subject(stirred(peft.get_peft_model(subject.model, config)).train(), subject.batch)


def lora() -> Subject:
    """Two small matrices beside each projection of Llama's attention."""
    return _adapted(
        llama(), peft.LoraConfig(task_type="CAUSAL_LM", r=4, lora_dropout=0.0, target_modules=["q_proj", "v_proj"])
    )


def dora() -> Subject:
    """The same with lengths and directions apart."""
    config = peft.LoraConfig(
        task_type="CAUSAL_LM", r=4, lora_dropout=0.0, target_modules=["q_proj", "v_proj"], use_dora=True
    )
    return _adapted(llama(), config)


def ia3() -> Subject:
    """Factors on keys, values and the feed-forward of GPT-2."""
    return _adapted(
        gpt2(),
        peft.IA3Config(
            task_type="CAUSAL_LM", target_modules=["c_attn", "mlp.c_proj"], feedforward_modules=["mlp.c_proj"]
        ),
    )


def prefix() -> Subject:
    """Keys and values before the first token of GPT-2."""
    return _adapted(gpt2(), peft.PrefixTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3))


def prompt() -> Subject:
    """Tokens before the first token of GPT-2."""
    return _adapted(gpt2(), peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3))


MODELS = [lora, dora, ia3, prefix, prompt]

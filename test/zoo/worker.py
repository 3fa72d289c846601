# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tries one model in the ways named, and prints one line of JSON for each. `run.py` starts it, so that a crash costs no other model's row."""

from __future__ import annotations

import dataclasses
import json
import sys
import time
import warnings

import operators  # noqa: F401
import piper
import torch
from catalogue import find
from compare import Truths, compare
from piper.arithmetic import widened
from piper.errors import CompileError, PiperError
from piper.importer.errors import ImporterError
from subject import Subject
from truth import adamw, mapped
from ways import PARTS, strategy


def main(model: str, ways: list[str]) -> None:
    """Prints what came of each way, as it comes."""
    warnings.simplefilter("ignore")
    truths = None
    for way in ways:
        # Another model for each: a compilation must not depend on those before it.
        torch.manual_seed(0)
        subject = made(find(model)())
        truths = truths or Truths(subject)
        print(json.dumps({"model": model, "way": way, **_tried(subject, truths, way)}), flush=True)


def made(subject: Subject) -> Subject:
    """The subject in the type that it is compared in."""
    if not subject.double:
        return subject
    return dataclasses.replace(subject, model=subject.model.double(), batch=mapped(subject.batch, widened))


def _tried(subject: Subject, truths: Truths, way: str) -> dict:
    begin = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            program = _compile(subject, way)
        except (PiperError, ImporterError) as error:
            return {"verdict": _refusal(error), "message": str(error)}
    seconds = time.perf_counter() - begin
    told = [str(item.message) for item in caught if issubclass(item.category, piper.CoupledRowsWarning)]
    difference = compare(program, subject, truths, PARTS[way])
    program.close()
    verdict = "right" if difference.right else "WRONG"
    return {"verdict": verdict, "compile_s": seconds, "warnings": told, **dataclasses.asdict(difference)}


def _compile(subject: Subject, way: str) -> piper.Program:
    if way.startswith("pp2"):
        piper.annotate_modules(subject.model, stages=2, batch=subject.batch)
    return piper.compile(
        subject.model,
        subject.loss_fn,
        subject.batch,
        strategy=strategy(way),
        optimizer=adamw(subject.model),
        batch_dims=subject.batch_dims,
        progress=False,
    )


def _refusal(error: Exception) -> str:
    """A refusal names what the user can change; anything else that a compilation raises is a fault of Piper."""
    clear = isinstance(error, (piper.UsageError, ImporterError)) and not isinstance(error, CompileError)
    return "refused" if clear else "CRASHED"


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])

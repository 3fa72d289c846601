# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What to write instead of forms that a compiled step can't follow."""

from __future__ import annotations

import linecache
import os

from .equivalents import instead_of

#: By the name of the function that forward calls: why it needs data, and a form that does not.
_BY_FUNCTION = {
    "one_hot": "give F.one_hot its num_classes",
    "gaussian_nll_loss": "(torch.log(var) + (mean - target) ** 2 / var).mean() / 2 instead of F.gaussian_nll_loss, which reads its variances",
    "bincount": "torch.zeros(n).scatter_add(0, index, torch.ones(len(index))) instead of bincount",
    **dict.fromkeys(
        ("item", "__float__", "__int__", "__index__", "tolist"),
        "keep it a 0-dim tensor instead of making a Python number of it",
    ),
}
_STATIC = "use a form with static shapes (torch.where instead of an if or of a mask as index; for a mixture of experts a dense or batched form)"
_NOISE = "draw them outside and hand them over as an input of forward, a row for each of the batch"
_DROPOUT = f"set dropout to 0, or {_NOISE}"
_PROBLEM_TYPE = 'set model.config.problem_type ("single_label_classification" for classes), or leave labels out and give a loss_fn of the logits'
#: Lines of source that tell what code is about.
_AROUND = 40
TRANSFORMERS_EXPERTS = 'experts of transformers have such a form: model.set_experts_implementation("batched_mm")'


def for_data_dependence(operation: str, function: str, line: str, files: list[str]) -> str:
    """What to do about an operation whose result depends on data.

    function: the torch function that the user's code called. line: "file:line" of that code. files: those of the code that led there, outermost first.
    """
    if any(f"{os.sep}distributions{os.sep}" in file and "torch" in file for file in files):
        return f"torch.distributions checks its arguments: give validate_args=False; it also draws random numbers, if asked to: {_NOISE}"
    if "ctc_loss" in operation:
        return "F.ctc_loss reads its lengths: add up the paths over all frames by torch.logsumexp, with torch.where for what lies beyond a length"
    if is_of_transformers(line):
        around = _source_around(line)
        if "problem_type" in around:
            return f"{_PROBLEM_TYPE}; else {_STATIC}"
        if "expert" in f"{line}{around}":
            return f"{TRANSFORMERS_EXPERTS}; else {_STATIC}"
    own = _BY_FUNCTION.get(function) or instead_of(operation)
    return f"{own}; else {_STATIC}" if own else _STATIC


def _source_around(line: str) -> str:
    file, _, number = line.rpartition(":")
    return "".join(linecache.getlines(file)[max(0, int(number) - _AROUND) : int(number) + _AROUND])


def for_random_numbers(operation: str) -> str:
    """What to do about an operation that draws random numbers."""
    return _DROPOUT if "dropout" in operation or "bernoulli" in operation else _NOISE


def is_of_transformers(line: str) -> bool:
    """Whether a source line belongs to Hugging Face's transformers."""
    return f"{os.sep}transformers{os.sep}" in line

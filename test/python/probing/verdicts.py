# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What compiling says of a model and a loss whose batch is divided, without compiling them: import, and rows tried on numbers."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

from piper.errors import UsageError
from piper.importer import import_model
from piper.importer.imported import Imported
from piper.importer.inputs import Batch, describe
from piper.probing import Divided, check_rows
from piper.rows import part_rows


@dataclass
class Verdict:
    """`error` where it is refused, by the graph or (`tried`) by numbers; else `words`: warnings, and where rows meet."""

    error: str = ""
    tried: bool = False
    words: tuple[str, ...] = ()
    imported: Imported | None = None

    @property
    def silent(self) -> bool:
        return not self.error and not self.words


def verdict(
    model, loss_fn, batch, replicas=2, microbatches=1, loss_reduction=None, cache=None, numbers=True
) -> Verdict:
    inputs, _, rows = describe(Batch.of(batch), None)
    tried = False
    try:
        imported = import_model(
            model, loss_fn, batch, rows=part_rows(rows, replicas, microbatches), loss_reduction=loss_reduction
        )
        if not imported.loss.splittable:
            return Verdict(imported.loss.advice)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            tried = True
            if numbers:
                check_rows(
                    model, loss_fn, batch, imported, Divided(rows, replicas, microbatches), loss_reduction, cache
                )
    except UsageError as error:
        return Verdict(str(error), tried)
    words = [*(str(warning.message) for warning in caught), *imported.mixing, *imported.coupled]
    return Verdict("", tried, tuple(words), imported)

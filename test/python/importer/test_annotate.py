# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import copy

import pytest
import torch
import zoo
from piper.importer import ImporterError, annotate, annotate_modules, import_model
from torch import nn


class Annotated(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.layers, self.last = (
            nn.Linear(4, 4),
            nn.ModuleList(nn.Linear(4, 4) for _ in range(4)),
            nn.Linear(4, 2),
        )

    def forward(self, x):
        x = self.first(x)
        for stage in range(2):
            with annotate("stage"):
                for layer in range(2):
                    with annotate("layer"):
                        x = torch.tanh(self.layers[2 * stage + layer](x))
        return self.last(x)


def labels(model, loss=zoo.squared, batch=None):
    return [node.label for node in import_model(model, loss, batch or zoo.regression((4,), (2,))).nodes]


def test_annotations_count_up_and_nest():
    forward = [
        "stage=0",
        "layer=0 stage=0 _block=0",
        "layer=1 stage=0 _block=1",
        "layer=2 stage=1 _block=2",
        "layer=3 stage=1 _block=3",
        "stage=1",
    ]
    assert labels(Annotated()) == [f"F {tags}" for tags in forward] + [f"B {tags}" for tags in reversed(forward)]


def test_counting_starts_again_in_each_forward():
    model = Annotated()
    assert labels(model) == labels(model)
    model(torch.randn(6, 4))  # an eager run has no effect
    assert labels(model)[1] == "F layer=0 stage=0 _block=0"


def test_blocks_alone_are_the_chunks():
    found = labels(zoo.LanguageModel(), zoo.token_loss, zoo.tokens())
    assert found[:6] == ["F", "F _block=0", "F _block=1", "F _block=2", "F _block=3", "F"]


def dense(layers, width=4, norm=False):
    names = [nn.Linear(width, width), *([nn.LayerNorm(width)] if norm else []), nn.Tanh()]
    return [copy.deepcopy(layer) for _ in range(layers) for layer in names]


#: The label of operations outside of any block.
LOSS = ""


def forwards(model, width=4):
    found = labels(model, batch=zoo.regression((width,), (width,)))
    return [label.removeprefix("F").strip() for label in found if label.startswith("F")]


def test_a_long_sequence_of_plain_layers_is_cut_as_a_list_is():
    each = [f"_block={i}" for i in range(8)]
    assert forwards(nn.Sequential(*dense(8))) == [*each, LOSS]
    # A norm and what has no parameters belong to the layer before them.
    assert forwards(nn.Sequential(*dense(8, norm=True))) == [*each, LOSS]
    # A few small layers are one chunk, large ones are not.
    assert forwards(nn.Sequential(*dense(3))) == [LOSS]
    assert forwards(nn.Sequential(*dense(2, 1024)), 1024) == [*each[:2], LOSS]
    # An element of a list is a layer, however long it is.
    assert forwards(Listed(nn.Sequential(*dense(8)), nn.Sequential(*dense(8)))) == [*each[:3], LOSS]


class Listed(nn.Module):
    def __init__(self, *layers):
        super().__init__()
        self.parts = nn.ModuleDict({"layers": nn.ModuleList(layers), "head": nn.Linear(4, 4)})

    def forward(self, x):
        for layer in self.parts["layers"]:
            x = layer(x)
        return self.parts["head"](x)


def test_containers_in_containers_have_blocks_of_their_own():
    assert forwards(Listed(*dense(3)[::2])) == ["_block=0", "_block=1", "_block=2", "_block=3", LOSS]


def test_modules_by_name():
    model = annotate_modules(zoo.LanguageModel(), {"stage": zoo.STAGES["language_model"]})
    found = labels(copy.deepcopy(model), zoo.token_loss, zoo.tokens())
    assert found[:6] == [
        "F stage=0",
        "F stage=0 _block=0",
        "F stage=0 _block=1",
        "F stage=1 _block=2",
        "F stage=1 _block=3",
        "F stage=1",
    ]


def test_equal_layers_are_one_family():
    imported = import_model(
        annotate_modules(zoo.LanguageModel(), {"stage": zoo.STAGES["language_model"]}),
        zoo.token_loss,
        zoo.tokens(),
        rows=[6, 1],
    )
    families = {node.family for node in imported.nodes if "_block" in node.tags}
    assert len(families) == 2 and len(imported.families) == 6


@pytest.mark.parametrize(
    "groups, named",
    [
        ([["embed", "layers", "norm"], ["hed"]], "'hed'"),
        ([["embed", "layers"], ["layers.1", "norm", "head"]], "'layers.1'"),
        ([["embed", "embed"], ["layers", "norm", "head"]], "'embed'"),
        ([["embed", "layers.0", "layers.1"], ["layers.2", "norm", "head"]], "'layers.3.n1'"),
    ],
)
def test_errors_name_the_modules(groups, named):
    with pytest.raises(ImporterError, match=named):
        annotate_modules(zoo.LanguageModel(), {"stage": groups})


def test_names():
    for name in ("PASS", "_block", "not a name", 3):
        with pytest.raises(ImporterError, match="annotation name"), annotate(name):
            pass


def test_one_name_does_not_nest_in_itself():
    class Bad(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(4, 2)

        def forward(self, x):
            with annotate("stage"), annotate("stage"):
                return self.a(x)

    with pytest.raises(ImporterError, match="nested inside"):
        labels(Bad())

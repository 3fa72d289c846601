# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What models are made of: convolutions in all forms, recurrent layers, attention, norms, embeddings, indexing.

`FAMILIES[family][name]()` gives a model and its example input or inputs. `Branches` makes one model of many of them, so that one compilation is
enough; a wrong one shows by the names of its parameters.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations

ROWS = 8


class Branches(nn.Module):
    """Models side by side, each on inputs of its own; their outputs are one row of numbers."""

    def __init__(self, made):
        super().__init__()
        self.models = nn.ModuleDict({name: model for name, (model, _) in made.items()})
        self.counts = {name: len(inputs) for name, (_, inputs) in made.items()}

    def forward(self, *inputs):
        rest, outputs = list(inputs), []
        for name, model in self.models.items():
            own = [rest.pop(0) for _ in range(self.counts[name])]
            outputs.append(model(*own).flatten(1))
        return torch.cat(outputs, 1)


def branches(family):
    """The models of a family as one, and its inputs."""
    made = {}
    for name, make in FAMILIES[family].items():
        model, inputs = make()
        made[name] = (model, inputs if isinstance(inputs, tuple) else (inputs,))
    return Branches(made), tuple(tensor for _, inputs in made.values() for tensor in inputs)


class Call(nn.Module):
    """A function of the input and of parameters of the given shapes."""

    def __init__(self, run, **shapes):
        super().__init__()
        self.run = run
        for name, shape in shapes.items():
            setattr(self, name, nn.Parameter(torch.randn(shape) * 0.5))

    def forward(self, *inputs):
        return self.run(self, *inputs)


def on(shape, *layers):
    return nn.Sequential(*layers), torch.randn(ROWS, *shape)


class Residual(nn.Module):
    """torchvision's BasicBlock with group norm, whose rows are independent."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.norm1, self.norm2 = nn.GroupNorm(2, outputs), nn.GroupNorm(2, outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.short = nn.Conv2d(inputs, outputs, 1, stride, bias=False) if stride > 1 or inputs != outputs else None

    def forward(self, x):
        y = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
        return F.relu(y + (x if self.short is None else self.short(x)))


class Inverted(nn.Module):
    """MobileNet's inverted residual: expand, depthwise, squeeze and excite, project."""

    def __init__(self, channels, hidden):
        super().__init__()
        self.expand = nn.Conv2d(channels, hidden, 1)
        self.depthwise = nn.Conv2d(hidden, hidden, 3, padding=1, groups=hidden)
        self.gate = nn.Conv2d(hidden, hidden, 1)
        self.project = nn.Conv2d(hidden, channels, 1)

    def forward(self, x):
        y = F.hardswish(self.depthwise(F.relu6(self.expand(x))))
        y = y * F.hardsigmoid(self.gate(F.adaptive_avg_pool2d(y, 1)))
        return x + self.project(y)


class Recurrent(nn.Module):
    def __init__(self, make, first, **options):
        super().__init__()
        self.inner = make(3, 4, batch_first=not first, **options)
        self.first = first
        self.head = nn.Linear(4 * (2 if options.get("bidirectional") else 1), 2)

    def forward(self, x):
        y, _ = self.inner(x.transpose(0, 1) if self.first else x)
        return self.head(y.transpose(0, 1) if self.first else y).flatten(1)


class Cell(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.LSTMCell(3, 4)

    def forward(self, x):
        return self.cell(x, self.cell(x))[0]


class Weighed(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(6, 2, batch_first=True)

    def forward(self, x):
        y, weights = self.attention(x, x, x, need_weights=True)
        return torch.cat([y, weights], 2)


class Translator(nn.Module):
    """Encoder and decoder layers with a causal mask and a padding mask."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.TransformerEncoderLayer(8, 2, 12, dropout=0.0, batch_first=True)
        self.decoder = nn.TransformerDecoderLayer(8, 2, 12, dropout=0.0, batch_first=True, norm_first=True)

    def forward(self, source, target, padding):
        causal = nn.Transformer.generate_square_subsequent_mask(target.shape[1])
        memory = self.encoder(source, src_key_padding_mask=padding)
        return self.decoder(target, memory, tgt_mask=causal, memory_key_padding_mask=padding).flatten(1)


def translator():
    padding = torch.arange(5)[None] >= torch.tensor([5, 3, 4, 2, 5, 1, 4, 3])[:, None]
    return Translator(), (torch.randn(ROWS, 5, 8), torch.randn(ROWS, 4, 8), padding)


class Mixture(nn.Module):
    """Every expert on every token, weighed by the two best scores: static shapes."""

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(6, 4)
        self.inner, self.outer = nn.Parameter(torch.randn(4, 6, 8) * 0.4), nn.Parameter(torch.randn(4, 8, 6) * 0.4)

    def forward(self, x):
        scores, chosen = self.router(x).topk(2, dim=-1)
        weights = torch.zeros(*x.shape[:-1], 4).scatter(-1, chosen, scores.softmax(-1))
        hidden = F.silu(torch.einsum("btd,edh->bteh", x, self.inner))
        return torch.einsum("bteh,ehd,bte->btd", hidden, self.outer, weights).flatten(1)


class Tied(nn.Module):
    """One weight called through torch.func.functional_call in two places."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(5, 5)

    def forward(self, x):
        again = {"weight": self.inner.weight.t(), "bias": self.inner.bias * 2}
        return torch.func.functional_call(self.inner, again, (torch.tanh(self.inner(x)),))


def tokens(*shape, classes=7):
    return torch.randint(0, classes, (ROWS, *shape))


def bag(mode, **options):
    return nn.Sequential(nn.EmbeddingBag(7, 4, mode=mode, **options), nn.Linear(4, 3)), tokens(5)


def elementwise(run):
    return lambda: (nn.Sequential(nn.Linear(4, 6), Call(lambda m, x: run(x))), torch.randn(ROWS, 4))


CONVOLUTIONS = {
    "conv_one_output_with_rest": lambda: on((3, 4, 4), nn.Conv2d(3, 5, 3, stride=2), nn.Flatten(), nn.Linear(5, 2)),
    "conv_rest_on_one_side": lambda: on((2, 4, 9), nn.Conv2d(2, 3, 3, stride=2), nn.Tanh(), nn.Flatten()),
    "conv_dilated_one_output": lambda: on(
        (2, 6, 6), nn.Conv2d(2, 3, 3, dilation=2), nn.Tanh(), nn.Conv2d(3, 2, 2), nn.Flatten()
    ),
    "conv_1d_rest": lambda: on(
        (3, 8), nn.Conv1d(3, 4, 3, stride=4), nn.Tanh(), nn.Conv1d(4, 3, 2, stride=3), nn.Flatten()
    ),
    "conv_1d_one_output": lambda: on((3, 5), nn.Conv1d(3, 4, 3, stride=3), nn.Flatten()),
    "conv_3d_rest": lambda: on((2, 4, 4, 5), nn.Conv3d(2, 3, 3, stride=2), nn.Tanh(), nn.Flatten(), nn.Linear(6, 2)),
    "conv_kernel_one_strided": lambda: on(
        (3, 5, 4), nn.Conv2d(3, 4, 1, stride=2), nn.Tanh(), nn.Conv2d(4, 2, 1, stride=4), nn.Flatten()
    ),
    "conv_grouped": lambda: on(
        (4, 5, 5), nn.Conv2d(4, 6, 3, groups=2, padding=1), nn.Tanh(), nn.Conv2d(6, 6, 3, 2, groups=6), nn.Flatten()
    ),
    "conv_depthwise_multiplied": lambda: on(
        (3, 6, 6), nn.Conv2d(3, 6, 3, groups=3, stride=2, padding=1), nn.Tanh(), nn.Flatten()
    ),
    "conv_reflect": lambda: on(
        (2, 5, 5), nn.Conv2d(2, 3, 3, padding=1, padding_mode="reflect"), nn.Tanh(), nn.Flatten()
    ),
    "conv_circular": lambda: on(
        (2, 5), nn.Conv1d(2, 3, 3, padding=1, padding_mode="circular"), nn.Tanh(), nn.Flatten()
    ),
    "conv_same": lambda: on((2, 5, 6), nn.Conv2d(2, 3, (2, 3), padding="same"), nn.Tanh(), nn.Flatten()),
    "transposed": lambda: on(
        (3, 4, 4), nn.ConvTranspose2d(3, 4, 3, stride=2, padding=1, output_padding=1), nn.Tanh(), nn.Flatten()
    ),
    "transposed_one_input": lambda: on((3, 1, 1), nn.ConvTranspose2d(3, 4, 3, stride=2), nn.Tanh(), nn.Flatten()),
    "transposed_grouped": lambda: on(
        (4, 3, 3), nn.ConvTranspose2d(4, 4, 2, stride=2, groups=2), nn.Tanh(), nn.Flatten()
    ),
    "transposed_1d": lambda: on((3, 4), nn.ConvTranspose1d(3, 2, 4, stride=3, dilation=2), nn.Tanh(), nn.Flatten()),
    "transposed_3d": lambda: on((2, 2, 2, 2), nn.ConvTranspose3d(2, 2, 2, stride=2), nn.Tanh(), nn.Flatten()),
}
POOLS = {
    "max_pool_rest": lambda: on((3, 5, 5), nn.Conv2d(3, 3, 1), nn.MaxPool2d(3), nn.Flatten(), nn.Linear(3, 2)),
    "max_pool_overlapping": lambda: on((2, 6, 6), nn.Conv2d(2, 3, 1), nn.MaxPool2d(3, 2, 1), nn.Flatten()),
    "max_pool_1d": lambda: on((2, 7), nn.Conv1d(2, 3, 1), nn.MaxPool1d(3, 2), nn.Flatten()),
    "max_pool_3d": lambda: on((2, 3, 4, 4), nn.Conv3d(2, 2, 1), nn.MaxPool3d(2), nn.Flatten()),
    "average_pool_rest": lambda: on((3, 5, 5), nn.Conv2d(3, 3, 1), nn.AvgPool2d(3), nn.Flatten(), nn.Linear(3, 2)),
    "average_pool_overlapping": lambda: on((2, 6, 6), nn.Conv2d(2, 3, 1), nn.AvgPool2d(3, 2, 1), nn.Flatten()),
    "average_pool_1d": lambda: on((2, 7), nn.Conv1d(2, 3, 1), nn.AvgPool1d(3, 2), nn.Flatten()),
    "average_pool_3d": lambda: on((2, 3, 4, 4), nn.Conv3d(2, 2, 1), nn.AvgPool3d(2), nn.Flatten()),
    "adaptive_pool": lambda: on((2, 5, 6), nn.Conv2d(2, 3, 1), nn.AdaptiveAvgPool2d((2, 3)), nn.Flatten()),
    "adaptive_max_pool": lambda: on((2, 4, 6), nn.Conv2d(2, 3, 1), nn.AdaptiveMaxPool2d((2, 3)), nn.Flatten()),
    "upsample_nearest": lambda: on(
        (2, 3, 3), nn.Conv2d(2, 3, 1), nn.Upsample(scale_factor=2), nn.Conv2d(3, 2, 3), nn.Flatten()
    ),
    "upsample_bilinear": lambda: on(
        (2, 3, 3), nn.Conv2d(2, 3, 1), nn.Upsample(scale_factor=2, mode="bilinear"), nn.Conv2d(3, 2, 3), nn.Flatten()
    ),
    "pixel_shuffle": lambda: on((2, 3, 3), nn.Conv2d(2, 8, 1), nn.PixelShuffle(2), nn.Conv2d(2, 2, 3), nn.Flatten()),
    "unfold": lambda: on((2, 4, 4), nn.Conv2d(2, 3, 1), nn.Unfold(2), nn.Flatten()),
    "residual_block": lambda: on(
        (3, 8, 8),
        nn.Conv2d(3, 4, 3, 2, 1),
        Residual(4, 4, 1),
        Residual(4, 6, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(6, 3),
    ),
    "inverted_block": lambda: on(
        (3, 6, 6), nn.Conv2d(3, 4, 3, 2, 1), Inverted(4, 6), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3)
    ),
}
LAYERS = {
    "group_norm": lambda: on((5,), nn.Linear(5, 8), nn.GroupNorm(2, 8), nn.Linear(8, 3)),
    "group_norm_images": lambda: on((4, 3, 3), nn.Conv2d(4, 4, 1), nn.GroupNorm(2, 4), nn.Flatten()),
    "instance_norm": lambda: on(
        (3, 4, 4), nn.Conv2d(3, 4, 1), nn.InstanceNorm2d(4, affine=True), nn.Tanh(), nn.Flatten()
    ),
    "layer_norm_plain": lambda: on(
        (5,), nn.Linear(5, 6), nn.LayerNorm(6, elementwise_affine=False), nn.Tanh(), nn.Linear(6, 2)
    ),
    "layer_norm_two": lambda: on((3, 4), nn.Linear(4, 4), nn.LayerNorm((3, 4)), nn.Tanh(), nn.Flatten()),
    "rms_norm": lambda: on((5,), nn.Linear(5, 6), nn.RMSNorm(6), nn.Tanh(), nn.Linear(6, 2)),
    "local_response_norm": lambda: on((4, 3, 3), nn.Conv2d(4, 4, 1), nn.LocalResponseNorm(2), nn.Flatten()),
    "batch_norm_eval": lambda: on((4,), nn.Linear(4, 4), nn.BatchNorm1d(4).eval(), nn.Tanh(), nn.Linear(4, 2)),
    "weight_norm": lambda: on((4,), parametrizations.weight_norm(nn.Linear(4, 5)), nn.Tanh(), nn.Linear(5, 2)),
    "spectral_norm_eval": lambda: on(
        (4,), parametrizations.spectral_norm(nn.Linear(4, 5)).eval(), nn.Tanh(), nn.Linear(5, 2)
    ),
    "prelu": lambda: on((4,), nn.Linear(4, 5), nn.PReLU(5), nn.Linear(5, 2), nn.Softplus(), nn.Linear(2, 2), nn.ELU()),
    "gated": lambda: on(
        (4,), nn.Linear(4, 6), nn.GLU(), nn.Linear(3, 4), nn.Mish(), nn.Linear(4, 4), nn.CELU(), nn.LogSigmoid()
    ),
    "more_activations": lambda: on(
        (4,), nn.Linear(4, 6), nn.SELU(), nn.Linear(6, 6), nn.Hardtanh(), nn.Linear(6, 4), nn.Softsign(), nn.Softmin(1)
    ),
    "bilinear": lambda: (
        Call(lambda m, x, z: F.bilinear(x, z, m.w, m.b), w=(3, 4, 5), b=3),
        (torch.randn(ROWS, 4), torch.randn(ROWS, 5)),
    ),
    "embedding_padded": lambda: (
        nn.Sequential(nn.Embedding(7, 4, padding_idx=2), nn.Flatten(), nn.Linear(20, 3)),
        tokens(5),
    ),
    "embedding_bag_sum": lambda: bag("sum"),
    "embedding_bag_mean": lambda: bag("mean"),
    "embedding_bag_max": lambda: bag("max"),
    "embedding_bag_padded": lambda: bag("mean", padding_idx=1),
    "lstm": lambda: (Recurrent(nn.LSTM, False), torch.randn(ROWS, 5, 3)),
    "lstm_two_ways_two_layers": lambda: (
        Recurrent(nn.LSTM, True, bidirectional=True, num_layers=2),
        torch.randn(ROWS, 4, 3),
    ),
    "gru": lambda: (Recurrent(nn.GRU, False, num_layers=2), torch.randn(ROWS, 4, 3)),
    "rnn": lambda: (Recurrent(nn.RNN, True, nonlinearity="relu"), torch.randn(ROWS, 4, 3)),
    "lstm_cell": lambda: (Cell(), torch.randn(ROWS, 3)),
    "transformer": translator,
    "multihead": lambda: (Weighed(), torch.randn(ROWS, 4, 6)),
    "mixture": lambda: (Mixture(), torch.randn(ROWS, 3, 6)),
    "functional_call": lambda: (Tied(), torch.randn(ROWS, 5)),
}
OPERATIONS = {
    "where": elementwise(lambda x: torch.where(x > 0, x * 2, x.exp())),
    "cumsum": elementwise(lambda x: x.cumsum(1)),
    "cumprod": elementwise(lambda x: x.cumprod(1)),
    "cummax": elementwise(lambda x: x.cummax(1)[0]),
    "sort": elementwise(lambda x: x.sort(1, descending=True)[0] * torch.arange(6.0)),
    "topk": elementwise(lambda x: x.topk(3, 1)[0]),
    "kthvalue": elementwise(lambda x: x.kthvalue(2, 1)[0][:, None]),
    "median": elementwise(lambda x: x.median(1)[0][:, None]),
    "argsort_gather": elementwise(lambda x: x.gather(1, x.argsort(1))),
    "max_both": elementwise(
        lambda x: torch.cat([x.amax(1, keepdim=True), x.amin(1, keepdim=True), x.max(1)[0][:, None]], 1)
    ),
    "maximum": elementwise(lambda x: torch.maximum(x, -x) + torch.minimum(x, x * 2)),
    "norms": elementwise(
        lambda x: torch.stack([x.norm(dim=1), x.norm(p=1, dim=1), torch.linalg.vector_norm(x, 3, dim=1)], 1)
    ),
    "cosine": elementwise(lambda x: F.cosine_similarity(x[:, :3], x[:, 3:])[:, None]),
    "pairwise_distance": elementwise(lambda x: F.pairwise_distance(x[:, :3], x[:, 3:])[:, None]),
    "outer": elementwise(lambda x: torch.einsum("bi,bj->bij", x, x).flatten(1)),
    "baddbmm": elementwise(lambda x: torch.baddbmm(x[:, :, None], x[:, :, None], x[:, None, :1]).flatten(1)),
    "powers": elementwise(lambda x: x.abs().pow(1.5) + x**3 + torch.sqrt(x.abs() + 1) + (x * x + 1).rsqrt()),
    "trigonometry": elementwise(
        lambda x: x.sin() + x.cos() * x.atan() + torch.atan2(x, x * x + 1) + torch.sinh(x * 0.1)
    ),
    "logarithms": elementwise(
        lambda x: torch.log1p(x.abs()) + torch.expm1(x * 0.1) + torch.log2(x.abs() + 1) + x.logsumexp(1, keepdim=True)
    ),
    "clamps": elementwise(lambda x: x.clamp(min=-0.5) + x.clamp(-0.1, 0.3) + x.clamp_max(0.2)),
    "rounding": elementwise(lambda x: x * torch.floor(x * 3) + torch.round(x) + torch.sign(x) * x + torch.frac(x)),
    "remainders": elementwise(lambda x: torch.fmod(x, 0.7) + torch.remainder(x, 0.7)),
    "masks": elementwise(
        lambda x: x.masked_fill(torch.ones(6, 6).triu(1).bool()[0], 0.5) + (x[:, :, None] * x[:, None]).tril().sum(2)
    ),
    "repeats": elementwise(lambda x: x.repeat(1, 2) + x.repeat_interleave(2, 1) + x.tile(2)),
    "rolls": elementwise(lambda x: x.roll(1, 1) + x.flip(1) + torch.cat([x[:, 2:], x[:, :2]], 1)),
    "windows": elementwise(lambda x: x.unfold(1, 3, 1).flatten(1)),
    "strided": elementwise(lambda x: x.as_strided((x.shape[0], 3), (6, 2), 1)),
    "reversed_slices": elementwise(lambda x: x[:, ::2] * x[:, 1::2]),
    "statistics": elementwise(
        lambda x: torch.stack([x.var(1), x.std(1, correction=0), x.mean(1), torch.var_mean(x, 1)[0]], 1)
    ),
    "products": elementwise(lambda x: x.prod(1, keepdim=True)),
    "one_hot": elementwise(lambda x: x * F.one_hot(x.argmax(1), 6)),
    "searching": elementwise(lambda x: x * torch.bucketize(x.detach(), torch.tensor([-0.5, 0.0, 0.5]))),
    "diagonals": elementwise(
        lambda x: (
            torch.diag_embed(x).diagonal(dim1=1, dim2=2) + torch.diagonal(x[:, :, None] * x[:, None], dim1=1, dim2=2)
        )
    ),
    "lerp": elementwise(
        lambda x: torch.lerp(x, x * 2, 0.3) + torch.addcmul(x, x, x, value=0.5) + torch.addcdiv(x, x, x * x + 1)
    ),
    "special": elementwise(
        lambda x: torch.erf(x) + torch.erfc(x) + torch.sigmoid(x).logit() + torch.xlogy(x, x.abs() + 1)
    ),
    "scatter_reduce": elementwise(
        lambda x: torch.zeros(x.shape[0], 3).scatter_reduce(
            1, (torch.arange(6) % 3).expand(x.shape[0], 6), x, "mean", include_self=False
        )
    ),
    "index_fill": elementwise(
        lambda x: x.index_fill(1, torch.tensor([0, 2]), 0.5) + x.index_select(1, torch.tensor([5, 4, 3, 2, 1, 0]))
    ),
    "take_along": elementwise(lambda x: torch.take_along_dim(x, x.argsort(dim=1), 1)),
    "meshgrid": elementwise(
        lambda x: x * torch.meshgrid(torch.arange(float(x.shape[0])), torch.arange(6.0), indexing="ij")[1]
    ),
    "movement": elementwise(
        lambda x: x.unflatten(1, (2, 3)).movedim(1, 2).transpose(1, 2).swapaxes(1, 2).reshape(-1, 6)
    ),
    "tensordot": elementwise(lambda x: torch.tensordot(x, torch.ones(6, 2), dims=1) + x.new_ones(2)),
    "matrices": elementwise(
        lambda x: (
            torch.linalg.multi_dot([x, torch.ones(6, 3), torch.ones(3, 2)])
            + torch.addmv(torch.ones(x.shape[0]), x, torch.ones(6))[:, None]
        )
    ),
}


FAMILIES = {"convolutions": CONVOLUTIONS, "pools": POOLS, "layers": LAYERS, "operations": OPERATIONS}

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Losses as training code writes them, each with what it is called with: scores and classes of rows ("class"), of tokens, some of which do not count
("token"), or numbers ("value").

REFUSED says which have no sum and weight that add up over parts of a batch.
"""

import torch
import torch.nn.functional as F
from torch import nn

WEIGHTS = torch.tensor([0.2, 1.0, 0.7, 2.0])
LAYER_WEIGHTS = torch.tensor([1.0, 0.3])
IGNORED = -100


def one_hot(t):
    return F.one_hot(t, 4).float()


def rows(o, t):
    return F.cross_entropy(o, t, reduction="none")


def tokens(o, t, **options):
    return F.cross_entropy(o.flatten(0, 1), t.flatten(), **options)


def shifted(o, t, **options):
    return F.cross_entropy(o[:, :-1].flatten(0, 1), t[:, 1:].flatten(), **options)


def counted(t):
    return (t != IGNORED).float()


def per_token(o, t):
    return tokens(o, t, reduction="none").view_as(t)


def masked_mean(values, mask):
    return (values * mask).sum() / mask.sum()


def in_place(o, t):
    loss = F.cross_entropy(o, t)
    loss += 0.1 * o.pow(2).mean()
    loss /= 2
    return loss


def floored_then_changed(o, t):
    count = (t != 1).sum().clamp(min=1)
    count += 2
    return (rows(o, t) * (t != 1)).sum() / count


def taken_apart(o, t):
    losses = torch.stack([F.cross_entropy(o, t), o.pow(2).mean()])
    first, second = losses.unbind()
    return sum(w * loss for w, loss in zip(LAYER_WEIGHTS, losses, strict=True)) + 0.1 * first - 0.2 * second


def weighted_list(o, t):
    losses = [F.cross_entropy(o, t), o.pow(2).mean()]
    return sum(w * loss for w, loss in zip((1.0, 0.3), losses, strict=True))


def focal(o, t, gamma=2.0):
    ce = rows(o, t)
    return ((1 - torch.exp(-ce)) ** gamma * ce).mean()


def arcface(o, t):
    cosine = F.normalize(o, dim=-1)
    return F.cross_entropy(8.0 * (cosine - 0.2 * one_hot(t)), t)


def z_loss(o, t):
    """PaLM's: log Z squared beside the cross entropy."""
    return tokens(o, t) + 1e-2 * o.logsumexp(-1).pow(2).mean()


def z_loss_of_counted(o, t):
    return tokens(o, t) + 1e-2 * masked_mean(o.logsumexp(-1).pow(2), counted(t))


def smoothed_by_hand(o, t, eps=0.1):
    logp = o.log_softmax(-1)
    return ((1 - eps) * -logp.gather(1, t[:, None]).squeeze(1) - eps * logp.mean(-1)).mean()


def distillation(o, t):
    teacher = (one_hot(t) * 3).softmax(-1)
    kl = F.kl_div(F.log_softmax(o / 2, -1), teacher, reduction="batchmean") * 4
    return 0.7 * kl + 0.3 * F.cross_entropy(o, t)


def vae(o, t):
    mean, log = o[:, :2], o[:, 2:]
    return F.mse_loss(o, t) - 0.5 * torch.mean(1 + log - mean.pow(2) - log.exp())


def vae_summed(o, t):
    mean, log = o[:, :2], o[:, 2:]
    return F.mse_loss(o, t, reduction="sum") - 0.5 * torch.sum(1 + log - mean.pow(2) - log.exp())


def ppo(o, t):
    ratio = (o[:, :1] - t[:, :1]).exp()
    policy = -torch.min(ratio * t[:, 1:2], ratio.clamp(0.8, 1.2) * t[:, 1:2]).mean()
    return policy + 0.5 * F.mse_loss(o[:, 1], t[:, 2]) - 0.01 * -(o.softmax(-1) * o.log_softmax(-1)).sum(-1).mean()


def dpo(o, t):
    return -F.logsigmoid(0.1 * ((o[:, 0] - t[:, 0]) - (o[:, 1] - t[:, 1]))).mean()


def grpo(o, t):
    per = -(o.log_softmax(-1)[..., 0] * o[..., 1].sigmoid())
    return ((per * counted(t)).sum(-1) / counted(t).sum(-1).clamp(min=1)).mean()


def detection(o, t):
    return {
        "boxes": F.smooth_l1_loss(o[:, :2], t[:, :2]),
        "scores": F.binary_cross_entropy_with_logits(o[:, 2:], t[:, 2:].sigmoid()),
    }


def dice(o, t):
    p, y = o.softmax(-1), one_hot(t)
    return 1 - (2 * (p * y).sum() + 1) / (p.sum() + y.sum() + 1)


def dice_of_rows(o, t):
    p, y = o.softmax(-1), one_hot(t)
    return (1 - (2 * (p * y).sum(-1) + 1) / (p.sum(-1) + y.sum(-1) + 1)).mean()


def contrastive(o, t):
    labels = torch.arange(len(o))
    return (F.cross_entropy(o @ t.t(), labels) + F.cross_entropy(t @ o.t(), labels)) / 2


def halves(o, t):
    chosen, rejected = o.chunk(2)
    return -F.logsigmoid(chosen[: len(rejected)] - rejected).mean()


class Uncertainty(nn.Module):
    """Kendall, Gal and Cipolla 2018: each task's loss has a learned variance."""

    def __init__(self):
        super().__init__()
        self.log = nn.Parameter(torch.tensor([0.1, -0.2]))

    def forward(self, o, t):
        losses = torch.stack([F.cross_entropy(o, t), o.pow(2).mean()])
        return (losses * torch.exp(-self.log) + self.log).sum()


FORMS = {
    "cross_entropy": ("class", F.cross_entropy),
    "cross_entropy module": ("class", nn.CrossEntropyLoss()),
    "class weights": ("class", nn.CrossEntropyLoss(WEIGHTS)),
    "label smoothing": ("class", lambda o, t: F.cross_entropy(o, t, label_smoothing=0.1)),
    "label smoothing, weights, ignored": ("class", nn.CrossEntropyLoss(WEIGHTS, ignore_index=1, label_smoothing=0.2)),
    "ignored": ("class", lambda o, t: F.cross_entropy(o, t, ignore_index=0)),
    "negated": ("class", lambda o, t: -o.log_softmax(-1).gather(1, t[:, None]).mean()),
    "times": ("class", lambda o, t: 0.5 * F.cross_entropy(o, t)),
    "over accumulation steps": ("class", lambda o, t: F.cross_entropy(o, t) / 4),
    "plus penalty": ("class", lambda o, t: F.cross_entropy(o, t) + 0.01 * o.pow(2).mean()),
    "minus entropy": (
        "class",
        lambda o, t: F.cross_entropy(o, t) - 0.01 * -(o.softmax(-1) * o.log_softmax(-1)).sum(-1).mean(),
    ),
    "average of two": ("class", lambda o, t: (F.cross_entropy(o, t) + F.cross_entropy(-o, t)) / 2),
    "average of two that ignore": (
        "class",
        lambda o, t: (F.cross_entropy(o, t, ignore_index=0) + F.cross_entropy(-o, t, ignore_index=1)) / 2,
    ),
    "stacked sum": ("class", lambda o, t: torch.stack([F.cross_entropy(o, t), 0.1 * o.pow(2).mean()]).sum()),
    "stacked mean": ("class", lambda o, t: torch.stack([F.cross_entropy(o * s, t) for s in (1, 2, 3)]).mean()),
    "stacked times weights": (
        "class",
        lambda o, t: (LAYER_WEIGHTS * torch.stack([F.cross_entropy(o, t), o.pow(2).mean()])).sum(),
    ),
    "stacked dot weights": (
        "class",
        lambda o, t: torch.stack([rows(o, t), o.pow(2).mean(-1)], -1).matmul(LAYER_WEIGHTS).mean(),
    ),
    "concatenated": (
        "class",
        lambda o, t: torch.cat([F.cross_entropy(o, t).view(1), o.abs().mean().unsqueeze(0)]).sum(),
    ),
    "sum of a list": ("class", lambda o, t: sum([F.cross_entropy(o, t), 0.1 * o.abs().mean()])),
    "weighted list": ("class", weighted_list),
    "taken apart": ("class", taken_apart),
    "floor, then more": ("class", floored_then_changed),
    "sum over length": ("class", lambda o, t: rows(o, t).sum() / len(t)),
    "sum over shape": ("class", lambda o, t: F.cross_entropy(o, t, reduction="sum") / t.shape[0]),
    "sum over numel": ("token", lambda o, t: per_token(o, t).sum() / t.numel()),
    "sum times inverse": ("class", lambda o, t: rows(o, t).sum() * (1.0 / o.size(0))),
    "elements over length": ("class", lambda o, t: (rows(o, t) / len(t)).sum()),
    "mean over rows, sum over the rest": ("value", lambda o, t: (o - t).pow(2).mean(0).sum()),
    "sum over columns, mean over rows": ("value", lambda o, t: (o - t).pow(2).sum(-1).mean()),
    "mean of row means": ("value", lambda o, t: (o - t).pow(2).mean(-1).mean()),
    "mean by dims": ("value", lambda o, t: torch.mean((o - t).abs(), dim=(0, 1))),
    "mean by keyword": ("value", lambda o, t: (o - t).abs().mean(dim=[0, 1], keepdim=False)),
    "mean of float64": ("value", lambda o, t: (o - t).abs().mean(dtype=torch.float64)),
    "squeezed": ("value", lambda o, t: (o - t).abs().mean(dim=(0, 1), keepdim=True).squeeze()),
    "einsum": ("value", lambda o, t: torch.einsum("bi,bi->b", o, t).mean()),
    "float": ("class", lambda o, t: F.cross_entropy(o, t).float()),
    "double": ("class", lambda o, t: F.cross_entropy(o.double(), t)),
    "in place": ("class", in_place),
    "constant added": ("class", lambda o, t: F.cross_entropy(o, t) - 0.25),
    "flooding's inside": ("class", lambda o, t: 2 * (F.cross_entropy(o, t) - 0.1) + 0.1),
    "one minus cosine": ("class", lambda o, t: 1 - F.cosine_similarity(o, one_hot(t)).mean()),
    "mean of one minus": ("class", lambda o, t: (1 - F.cosine_similarity(o, one_hot(t))).mean()),
    "two minus two cosine": (
        "value",
        lambda o, t: 2 - 2 * (F.normalize(o, dim=-1) * F.normalize(t, dim=-1)).sum(-1).mean(),
    ),
    "focal": ("class", focal),
    "focal with alpha": ("class", lambda o, t: 0.25 * focal(o, t) + 0.75 * rows(o, t).mean()),
    "arcface": ("class", arcface),
    "smoothed by hand": ("class", smoothed_by_hand),
    "distillation": ("class", distillation),
    "nll": ("class", lambda o, t: F.nll_loss(o.log_softmax(-1), t, weight=WEIGHTS)),
    "bce": ("class", lambda o, t: F.binary_cross_entropy(o.sigmoid(), one_hot(t))),
    "bce with logits": ("value", lambda o, t: nn.BCEWithLogitsLoss(pos_weight=WEIGHTS)(o, t.sigmoid())),
    "multi margin": ("class", lambda o, t: F.multi_margin_loss(o, t, weight=WEIGHTS)),
    "tokens": ("token", tokens),
    "tokens, class dim 1": ("token", lambda o, t: F.cross_entropy(o.transpose(1, 2), t)),
    "shifted": ("token", shifted),
    "shifted, smoothed": ("token", lambda o, t: shifted(o, t, label_smoothing=0.1)),
    "shifted by padding": ("token", lambda o, t: tokens(o, F.pad(t, (0, 1), value=IGNORED)[:, 1:])),
    "shifted, summed over count": ("token", lambda o, t: shifted(o, t, reduction="sum") / (t[:, 1:] != IGNORED).sum()),
    "masked mean": ("token", lambda o, t: masked_mean(per_token(o, t), counted(t))),
    "masked, bool": ("token", lambda o, t: (per_token(o, t) * (t != IGNORED)).sum() / (t != IGNORED).sum()),
    "masked, clamped": ("token", lambda o, t: (per_token(o, t) * counted(t)).sum() / counted(t).sum().clamp(min=1)),
    "masked, clamped by name": (
        "token",
        lambda o, t: (per_token(o, t) * counted(t)).sum() / torch.clamp(counted(t).sum(), min=1.0),
    ),
    "masked, at least one": (
        "token",
        lambda o, t: (per_token(o, t) * counted(t)).sum() / torch.maximum(counted(t).sum(), torch.tensor(1.0)),
    ),
    "masked, with epsilon": ("token", lambda o, t: (per_token(o, t) * counted(t)).sum() / (counted(t).sum() + 1e-3)),
    "masked elements over count": ("token", lambda o, t: (per_token(o, t) * counted(t) / counted(t).sum()).sum()),
    "masked means": ("token", lambda o, t: (per_token(o, t) * counted(t)).mean() / counted(t).mean()),
    "mean over each row's tokens": ("token", grpo),
    "z-loss": ("token", z_loss),
    "z-loss of counted": ("token", z_loss_of_counted),
    "tokens and a sum": ("token", lambda o, t: tokens(o, t) + 1e-3 * o.pow(2).sum()),
    "two masks": (
        "token",
        lambda o, t: masked_mean(per_token(o, t), counted(t)) + 0.5 * masked_mean(o.pow(2).mean(-1), (t > 0).float()),
    ),
    "halved masks": (
        "token",
        lambda o, t: 0.5 * (tokens(o, t, ignore_index=IGNORED) + masked_mean(o.abs().sum(-1), (t >= 0).float())),
    ),
    "mse": ("value", F.mse_loss),
    "mse, weighted": ("value", lambda o, t: F.mse_loss(o, t, weight=t.abs())),
    "half mse": ("value", lambda o, t: 0.5 * ((o - t) ** 2).mean()),
    "sum": ("value", lambda o, t: ((o - t) ** 2).sum()),
    "huber": ("value", lambda o, t: F.huber_loss(o, t, delta=0.5)),
    "smooth l1": ("value", nn.SmoothL1Loss(beta=0.5)),
    "log cosh": ("value", lambda o, t: torch.log(torch.cosh(o - t)).mean()),
    "charbonnier": ("value", lambda o, t: torch.sqrt((o - t) ** 2 + 1e-6).mean()),
    "quantile": ("value", lambda o, t: torch.max(0.9 * (t - o), -0.1 * (t - o)).mean()),
    "snr weighted": (
        "value",
        lambda o, t: ((o - t).pow(2).mean(dim=list(range(1, o.ndim))) * t[:, 0].abs().clamp(max=5)).mean(),
    ),
    "gaussian nll": ("value", lambda o, t: F.gaussian_nll_loss(o, t, t.abs() + 0.1)),
    "poisson": ("value", F.poisson_nll_loss),
    "kl": ("value", lambda o, t: F.kl_div(F.log_softmax(o, -1), F.softmax(t, -1), reduction="batchmean")),
    "triplet": ("value", lambda o, t: F.triplet_margin_loss(o, t, -t)),
    "margin ranking": ("value", lambda o, t: F.margin_ranking_loss(o, t, torch.sign(t))),
    "cosine embedding": ("value", lambda o, t: F.cosine_embedding_loss(o, t, torch.ones(len(o)))),
    "hinge": ("value", lambda o, t: F.relu(1 - o * t.sign()).mean()),
    "vae": ("value", vae),
    "vae, summed": ("value", vae_summed),
    "vae, summed over rows": ("value", lambda o, t: vae_summed(o, t) / o.size(0)),
    "ppo": ("value", ppo),
    "dpo": ("value", dpo),
    "detection": ("value", lambda o, t: sum(detection(o, t).values())),
    "weighted dict": (
        "value",
        lambda o, t: sum({"boxes": 5.0, "scores": 1.0}[k] * v for k, v in detection(o, t).items()),
    ),
    "uncertainty": ("class", Uncertainty()),
    "wgan critic": ("value", lambda o, t: o[:, :2].mean() - o[:, 2:].mean()),
    "lsgan": ("value", lambda o, t: 0.5 * (torch.mean((o[:, :2] - 1) ** 2) + torch.mean(o[:, 2:] ** 2))),
    "hinge gan": ("value", lambda o, t: F.relu(1 - o[:, 0]).mean() + F.relu(1 + o[:, 1]).mean()),
    "actor critic": (
        "value",
        lambda o, t: -(o[:, 0] * t[:, 0].detach()).mean() + 0.5 * (o[:, 1] - t[:, 1]).pow(2).mean(),
    ),
    "dice of rows": ("class", dice_of_rows),
    "dot product": ("value", lambda o, t: torch.dot((o - t).flatten(), (o - t).flatten())),
    "pair": ("class", lambda o, t: (F.cross_entropy(o, t, reduction="sum"), len(t))),
    "pair of tokens": ("token", lambda o, t: (tokens(o, t, reduction="sum"), counted(t).sum())),
    "pair times": ("class", lambda o, t: (0.5 * rows(o, t).sum(), t.numel())),
    # What does not add up, or looks at its data.
    "dice": ("class", dice),
    "root": ("value", lambda o, t: F.mse_loss(o, t).sqrt()),
    "root with epsilon": ("value", lambda o, t: torch.sqrt(F.mse_loss(o, t) + 1e-6)),
    "norm": ("value", lambda o, t: (o - t).norm()),
    "relative error": ("value", lambda o, t: (o - t).pow(2).sum() / t.pow(2).sum().sqrt()),
    "exponential of a mean": ("class", lambda o, t: F.cross_entropy(o, t).exp()),
    "product of means": ("class", lambda o, t: F.cross_entropy(o, t) * o.pow(2).mean()),
    "flooding": ("class", lambda o, t: (F.cross_entropy(o, t) - 0.1).abs() + 0.1),
    "largest": ("class", lambda o, t: rows(o, t).max()),
    "hardest rows": ("class", lambda o, t: rows(o, t).topk(2).values.mean()),
    "first row": ("class", lambda o, t: rows(o, t)[0]),
    "mean and auxiliary loss as a pair": ("class", lambda o, t: (F.cross_entropy(o, t), o.pow(2).mean())),
    "pair of a mean": ("class", lambda o, t: (F.cross_entropy(o, t), len(t))),
    "ratio of sums with gradient": ("value", lambda o, t: (o * t).sum() / o.pow(2).sum()),
    "variance": ("value", lambda o, t: (o - t).var()),
}
REFUSED = [
    "floor, then more",
    "gaussian nll",
    "dice",
    "root",
    "root with epsilon",
    "norm",
    "relative error",
    "exponential of a mean",
    "product of means",
    "flooding",
    "largest",
    "hardest rows",
    "first row",
    "mean and auxiliary loss as a pair",
    "pair of a mean",
    "ratio of sums with gradient",
    "variance",
]
#: Rows of these meet, which numbers find (test_probe.py).
COUPLED = {"contrastive": ("value", contrastive), "halves": ("value", halves)}


def batch(kind, count=7):
    """Inputs of `model(kind)` and targets; parts of it count differently where anything is ignored."""
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(count, 6, generator=generator)
    if kind == "value":
        return x, torch.randn(count, 4, generator=generator)
    if kind == "class":
        return x, torch.arange(count) % 4
    t = torch.randint(0, 4, (count, 3), generator=generator)
    t[0, 1:], t[3, 2], t[4, 0] = IGNORED, IGNORED, IGNORED
    return x, t


class Tokens(nn.Module):
    def forward(self, x):
        return x.unflatten(-1, (3, 4))


def model(kind):
    torch.manual_seed(1)
    head = [nn.Linear(8, 12), Tokens()] if kind == "token" else [nn.Linear(8, 4)]
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), *head)

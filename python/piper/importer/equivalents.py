# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What to write instead of operations that Piper does not run, where others that it runs do the same. Every form is a test (test_equivalents.py)."""

from __future__ import annotations

_LOOP = "of a small matrix write the elimination as a loop over its columns; what depends on no parameter compute outside and give as an input"
_MASK = "keep all elements and a mask, as in torch.where(mask, x, 0).sum() / mask.sum()"
_FLOAT32 = "the same of x.float(), exact for integers up to 2**24"
_LARGEST = (
    "the largest by class over the last dim is torch.where(index[..., None] == torch.arange(n), src[..., None], -torch.inf).amax(-2), "
    "the least the same with torch.inf and amin"
)

#: By parts of the operations' names: the first that fits counts.
_INSTEAD = {
    "searchsorted": "(values[..., None] > boundaries).sum(-1), or torch.bucketize",
    "sort": _FLOAT32,
    "topk": _FLOAT32,
    "scatter_reduce": _LARGEST,
    "index_reduce": _LARGEST,
    "segment_reduce": f"give each element the number of its segment as index, then scatter_add; {_LARGEST}",
    "cdist": "(a[..., :, None, :] - b[..., None, :, :]).norm(dim=-1)",
    "pdist": "i, j = torch.triu_indices(n, n, 1); (x[i] - x[j]).norm(dim=-1)",
    "histc": "((x.flatten()[:, None] >= edges[:-1]) & (x.flatten()[:, None] < edges[1:])).sum(0)",
    "logcumsumexp": "m = x.amax(dim, keepdim=True); (x - m).exp().cumsum(dim).log() + m",
    "masked_scatter": "torch.where(mask, src.flatten()[(mask.flatten().cumsum(0) - 1).clamp(min=0)].reshape(x.shape), x)",
    "aten.mode.": "of classes F.one_hot(x, n).sum(-2).argmax(-1)",
    "aten.put.": "of x.take(index) x.flatten()[index]; of x.put(index, values) x.flatten().index_put((index,), values).reshape(x.shape)",
    "hypot": "(a * a + b * b).sqrt()",
    "grid_sampler": "gather the four neighbours of each point (x.flatten(2).gather(2, index)) and add them up by their weights",
    "nonzero": _MASK,
    "masked_select": _MASK,
    "unique": "which classes occur is F.one_hot(x, n).amax(0)",
    "fft": "of n real numbers: k = torch.arange(n); a = 2 * torch.pi / n * k[:, None] * k; real and imaginary part are x @ a.cos() and -(x @ a.sin())",
    "svd": "the largest singular value by a fixed number of steps v = F.normalize(a.T @ (a @ v), dim=0), then (a @ v).norm()",
    "eigh": "the largest eigenvalue by a fixed number of steps v = F.normalize(a @ v, dim=0), then v @ (a @ v)",
    "linalg_matrix_exp": "",
    "linalg_": _LOOP,
    "cholesky": _LOOP,
    "triangular_solve": _LOOP,
}


def instead_of(operation: str) -> str:
    """A form of the same that Piper runs; "" where none is known."""
    return next((form for part, form in _INSTEAD.items() if part in operation), "")

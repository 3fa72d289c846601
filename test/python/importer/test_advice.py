# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a compiled step can't follow is told by its line, with advice that fits; and who follows the advice gets torch's numbers."""

import sys

import pytest
import torch
import torch.nn.functional as F
from executor import train
from piper.importer import ImporterError, import_model
from torch import nn

X, Y = torch.randn(8, 6, generator=torch.Generator().manual_seed(0)), torch.arange(8) % 4
NOISE = "draw them outside and hand them over as an input of forward"


class Model(nn.Module):
    def __init__(self, form):
        super().__init__()
        torch.manual_seed(1)
        self.a, self.form = nn.Linear(6, 4), form

    def forward(self, *inputs):
        return self.form(self, *inputs)


def imports(form, loss=F.cross_entropy, batch=(X, Y), training=True):
    return import_model(Model(form), loss, batch, training=training)


def check_equal(form, loss=F.cross_entropy, batch=(X, Y)):
    """Loss and gradients, in training and in evaluation, are torch's."""
    model = Model(form)
    truth = loss(model(*batch[:-1]), batch[-1])
    truth.backward()
    for training in (True, False):
        found = train(imports(form, loss, batch, training), [batch])
        torch.testing.assert_close(found.loss_sum / found.loss_weight, truth.detach(), rtol=1e-5, atol=1e-6)
        for name, gradient in found.gradients.items():
            torch.testing.assert_close(gradient, dict(model.named_parameters())[name].grad, rtol=1e-4, atol=1e-6)


Normal = torch.distributions.Normal
RANDOM = {
    "randn_like": lambda m, x: m.a(x + torch.randn_like(x)),
    "gumbel": lambda m, x: F.gumbel_softmax(m.a(x)),
    "rsample": lambda m, x: Normal(m.a(x), torch.ones(8, 4), validate_args=False).rsample(),
    "checked rsample": lambda m, x: Normal(m.a(x), torch.ones(8, 4)).rsample(),
}


@pytest.mark.parametrize("name", RANDOM)
def test_noise_is_to_be_an_input(name):
    with pytest.raises(ImporterError, match=rf"test_advice.py:\d+.*{NOISE}") as error:
        imports(RANDOM[name])
    assert "dropout" not in str(error.value)


def test_dropout_is_to_be_zero():
    with pytest.raises(ImporterError, match=r"test_advice.py:\d+: 'aten.native_dropout.default' \(set dropout to 0"):
        imports(lambda m, x: F.dropout(m.a(x), 0.5))


def test_noise_as_an_input_works():
    noise = torch.randn(8, 4)
    check_equal(lambda m, x, e: m.a(x) + 0.1 * e, batch=(X, noise, Y))
    check_equal(lambda m, x, e: m.a(F.dropout(x, 0.0)) + 0.1 * e, batch=(X, noise, Y))


def test_distributions_without_their_checks_work():
    with pytest.raises(ImporterError, match=r"test_advice.py:\d+: .*torch.distributions checks .*validate_args=False"):
        imports(lambda m, x: Normal(m.a(x), torch.ones(8, 4)).log_prob(torch.zeros(8, 4)))
    check_equal(lambda m, x: Normal(m.a(x), torch.ones(8, 4), validate_args=False).log_prob(torch.zeros(8, 4)))


DATA = {
    "item": (lambda m, x: m.a(x) * x.max().item(), "keep it a 0-dim tensor"),
    "float": (lambda m, x: m.a(x) * float(x.max()), "keep it a 0-dim tensor"),
    "one_hot": (lambda m, x: m.a(x) + F.one_hot(x[:, 0].long().abs()).sum(), "give F.one_hot its num_classes"),
    "bincount": (lambda m, x: m.a(x) + x[:, 0].long().abs().bincount().sum(), "scatter_add"),
    "mask": (lambda m, x: m.a(x) + x[x > 0].sum(), "torch.where"),
    "numpy": (lambda m, x: m.a(x) + torch.tensor(x.numpy())[:, :4], "NumPy reads values"),
}


@pytest.mark.parametrize("name", DATA)
def test_values_of_data_are_refused_with_what_to_write(name):
    form, advice = DATA[name]
    with pytest.raises(ImporterError, match=rf"test_advice.py:\d+: .*{advice}"):
        imports(form)


def test_what_to_write_works():
    check_equal(lambda m, x: m.a(x) * x.max())
    check_equal(lambda m, x: m.a(x) + F.one_hot(x[:, 0].long().abs(), 7)[:, :4])
    check_equal(lambda m, x: m.a(x) + torch.where(x > 0, x, 0.0).sum())
    index = X[:, 0].long().abs()
    check_equal(lambda m, x, i: m.a(x) + torch.zeros(9).scatter_add(0, i, torch.ones(len(i)))[:4], batch=(X, index, Y))


def test_ctc_is_to_be_written_with_logsumexp():
    frames, labels = torch.randn(5, 8, 6), torch.randint(1, 4, (5, 3))

    def ctc(out, target):
        return F.ctc_loss(out.log_softmax(-1).transpose(0, 1), target, torch.full((5,), 8), torch.full((5,), 3))

    def by_hand(out, target):
        """Graves et al. 2006, equation 6: blanks between labels; a label may follow another one directly."""
        scores = out.log_softmax(-1)
        path = torch.stack([torch.zeros_like(target), target], 2).flatten(1)
        path = torch.cat([path, torch.zeros_like(path[:, :1])], 1)
        emitted = scores.gather(2, path[:, None].expand(-1, 8, -1))
        skips = F.pad((path[:, 2:] != path[:, :-2]) & (path[:, 2:] != 0), (2, 0))
        start = torch.arange(7) < 2
        alpha = torch.where(start, emitted[:, 0], -1e30)
        for t in range(1, 8):
            one, two = F.pad(alpha, (1, 0), value=-1e30)[:, :-1], F.pad(alpha, (2, 0), value=-1e30)[:, :-2]
            alpha = torch.stack([alpha, one, torch.where(skips, two, -1e30)]).logsumexp(0) + emitted[:, t]
        return (-alpha[:, -2:].logsumexp(1) / 3).mean()

    with pytest.raises(ImporterError, match=r"test_advice.py:\d+: .*F.ctc_loss reads its lengths: .*torch.logsumexp"):
        imports(lambda m, x: m.a(x), ctc, (frames, labels))
    out = torch.randn(5, 8, 4)
    torch.testing.assert_close(by_hand(out, labels), ctc(out, labels))
    check_equal(lambda m, x: m.a(x), by_hand, (frames, labels))


def test_experts_of_transformers_name_their_other_form(tmp_path, monkeypatch):
    folder = tmp_path / "transformers" / "models"
    folder.mkdir(parents=True)
    (folder / "experts_of_a_test.py").write_text("def run(m, x):\n    return m.a(x[(x > 0).any(1).nonzero()[:, 0]])\n")
    monkeypatch.syspath_prepend(str(folder))
    import experts_of_a_test

    with pytest.raises(ImporterError, match=r'experts_of_a_test.py:2: .*set_experts_implementation\("batched_mm"\)'):
        imports(experts_of_a_test.run)
    del sys.modules["experts_of_a_test"]


def energy(m, x):
    return m.a(x).pow(3).sum()


def forces(m, x):
    x = x.detach().requires_grad_(True)
    (force,) = torch.autograd.grad(energy(m, x), x, create_graph=True)
    return m.a(x) + force[:, :4]


def forces_in_place(m, x):
    x.requires_grad_(True)
    (force,) = torch.autograd.grad(energy(m, x), x, create_graph=True)
    return m.a(x) + force[:, :4]


@pytest.mark.parametrize("form", [forces, forces_in_place, lambda m, x: m.a(x.requires_grad_(True))])
def test_a_forward_that_takes_derivatives_works_in_evaluation_too(form):
    model = Model(form)
    truth = F.cross_entropy(model(X.clone()), Y)
    truth.backward()
    for training in (True, False):
        found = train(imports(form, training=training), [(X, Y)])
        torch.testing.assert_close(found.loss_sum / found.loss_weight, truth.detach(), rtol=1e-5, atol=1e-6)
        for name, gradient in found.gradients.items():
            torch.testing.assert_close(gradient, dict(model.named_parameters())[name].grad, rtol=1e-4, atol=1e-6)
    assert not X.requires_grad


def test_a_backward_inside_of_forward_is_refused():
    def form(m, x):
        energy(m, x).backward()
        return m.a(x)

    with pytest.raises(ImporterError, match=r"test_advice.py:\d+: .backward\(\) inside .* use torch.autograd.grad"):
        imports(form)


def test_an_import_works_whatever_it_is_called_under():
    model = nn.Linear(6, 4)
    expected = import_model(model, F.cross_entropy, (X, Y)).families.keys()
    for context in (torch.no_grad(), torch.inference_mode()):
        with context:
            assert import_model(model, F.cross_entropy, (X, Y)).families.keys() == expected
    with torch.device("meta"), pytest.raises(ImporterError, match=r"torch.set_default_device\('cpu'\)"):
        imports(lambda m, x: m.a(x))
    with torch.inference_mode():
        model = nn.Linear(6, 4)
    with pytest.raises(ImporterError, match="parameter 'weight' was made under torch.inference_mode: make the model"):
        import_model(model, F.cross_entropy, (X, Y))


class Calls(nn.Module):
    """Whose own line calls one of torch's modules."""

    def __init__(self, part):
        super().__init__()
        self.part, self.last = part, nn.Linear(6, 4)

    def forward(self, x):
        return self.last(self.part(x))


def after(part):
    return nn.Sequential(nn.Linear(6, 6), part, nn.Linear(6, 4))


def layer(dropout):
    return nn.TransformerEncoderLayer(6, 2, 12, dropout)


IN_MODULES = {
    "dropout": (after(nn.Dropout(0.1)), "'1' (Dropout): 'aten.native_dropout.default' (set dropout to 0"),
    "nested": (after(nn.Sequential(nn.Tanh(), nn.Dropout(0.1))), "'1.1' (Dropout): 'aten.native_dropout"),
    "rrelu": (after(nn.RReLU()), "'1' (RReLU): 'aten.rrelu_with_noise"),
    "the model": (nn.Dropout(0.1), "the model (Dropout): 'aten.native_dropout"),
    "called": (Calls(nn.Dropout(0.1)), "test_advice.py:LINE, in 'part' (Dropout): 'aten.native_dropout"),
    "recurrent": (
        nn.Sequential(nn.LSTM(6, 6, 2, dropout=0.1), nn.Identity()),
        "'0' (LSTM): random numbers in forward are not supported (set dropout between",
    ),
    "transformer": (Calls(nn.TransformerEncoder(layer(0.1), 2)), "LINE, in 'part.layers.1.dropout1' (Dropout); "),
    "many layers": (Calls(nn.TransformerEncoder(layer(0.1), 6)), "; and 16 more: 'aten.native_dropout.default' (set"),
}


@pytest.mark.parametrize("name", IN_MODULES)
def test_what_torchs_modules_do_is_named_by_the_module(name):
    model, message = IN_MODULES[name]
    line = Calls.forward.__code__.co_firstlineno + 1
    with pytest.raises(ImporterError) as error:
        import_model(model, lambda o, t: o[0].sum(), (X, torch.randn(8, 4)))
    assert message.replace("LINE", str(line)) in str(error.value)


def test_data_that_a_loss_of_torch_reads_is_named_by_the_loss():
    with pytest.raises(ImporterError, match=r"^loss_fn torch.equal: the result of "):
        import_model(nn.Linear(6, 4), torch.equal, (X, torch.randn(8, 4)))


def test_advice_reads_the_line_and_not_the_module(tmp_path):
    """A library's own line that calls one of torch's modules, which needs data."""
    folder = tmp_path / "transformers"
    folder.mkdir()
    (folder / "code.py").write_text("def call(part, x):\n    return part(x)  # an expert\n")
    names = {}
    exec(compile((folder / "code.py").read_text(), folder / "code.py", "exec"), names)

    class Reads(nn.Module):
        def forward(self, x):
            return x * x.max().item()

    Reads.forward.__code__ = Reads.forward.__code__.replace(co_filename=nn.modules.linear.__file__)
    with pytest.raises(ImporterError, match=r"transformers/code.py:2, in Reads: .*set_experts_implementation"):
        imports(lambda m, x: m.a(names["call"](Reads(), x)))

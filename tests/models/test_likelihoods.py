"""Likelihoods against torch.distributions and by hand."""

import pytest
import torch
from torch import distributions

from bdl.models import LIKELIHOODS
from bdl.models.likelihoods import Bernoulli, Categorical, Gaussian

UNIT = torch.tensor(1.0, dtype=torch.float64)


def outputs(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.mark.parametrize("noise_precision", [0.01, 1.0, 250.0])
@pytest.mark.parametrize("unit", [1.0, 9.2, 0.05])
def test_gaussian_is_the_density_in_original_units_times_the_jacobian(noise_precision, unit):
    """With y = (y_original - m) / u, p(y) = u p_original(y_original)."""
    f, mean = outputs(7, 1), 22.5
    original = mean + unit * f.squeeze(-1) + torch.linspace(-2, 2, 7, dtype=torch.float64)
    y_unit = torch.tensor(unit, dtype=torch.float64)
    hyper = {"noise_precision": torch.tensor(noise_precision, dtype=torch.float64)}
    actual = Gaussian().log_prob(f, (original - mean) / unit, hyper, y_unit)

    density = distributions.Normal(mean + unit * f.squeeze(-1), noise_precision**-0.5)
    assert actual.shape == (7,)
    torch.testing.assert_close(actual, density.log_prob(original) + y_unit.log(), rtol=1e-12, atol=1e-11)


def test_gaussian_known_numbers():
    """At a residual r the log-density is (log(precision / 2 pi) - precision r^2) / 2; the precision is 1."""
    hyper = {"noise_precision": torch.tensor(4.0)}
    log_prob = Gaussian().log_prob(torch.zeros(2, 1), torch.tensor([0.0, 1.0]), hyper, torch.tensor(0.5))
    torch.testing.assert_close(log_prob, torch.tensor([-0.9189385, -1.4189385]))


@pytest.mark.parametrize("label", [0.0, 1.0])
def test_bernoulli_matches_torch(label):
    f, y = outputs(50, 1), torch.full((50,), label, dtype=torch.float64)
    expected = distributions.Bernoulli(logits=f.squeeze(-1)).log_prob(y)
    torch.testing.assert_close(Bernoulli().log_prob(f, y, {}, UNIT), expected, rtol=1e-12, atol=1e-15)


def test_bernoulli_is_exact_at_large_logits():
    """log sigmoid(f) -> f and its slope -> 1 far on the wrong side; both vanish far on the right side."""
    f = torch.tensor([[1000.0], [-1000.0], [1000.0], [-1000.0]], requires_grad=True)
    log_prob = Bernoulli().log_prob(f, torch.tensor([1.0, 0.0, 0.0, 1.0]), {}, UNIT)
    assert log_prob.tolist() == [0.0, 0.0, -1000.0, -1000.0]
    (gradient,) = torch.autograd.grad(log_prob.sum(), f)
    assert gradient.flatten().tolist() == [0.0, 0.0, -1.0, 1.0]


def test_bernoulli_keeps_the_digits_of_a_confident_probability():
    """log sigmoid(40) = -log(1 + e^-40) = -e^-40 up to e^-80, where sigmoid(40) rounds to 1."""
    f, y = torch.tensor([[40.0]], dtype=torch.float64), torch.ones(1, dtype=torch.float64)
    expected = -torch.tensor([-40.0], dtype=torch.float64).exp()
    torch.testing.assert_close(Bernoulli().log_prob(f, y, {}, UNIT), expected, rtol=1e-12, atol=0)


@pytest.mark.parametrize("dtype", [torch.int64, torch.float64])
def test_categorical_matches_torch(dtype):
    f, y = outputs(8, 4), torch.arange(8) % 4
    expected = distributions.Categorical(logits=f).log_prob(y)
    actual = Categorical().log_prob(f, y.to(dtype), {}, UNIT)
    assert actual.shape == (8,)
    torch.testing.assert_close(actual, expected, rtol=1e-12, atol=1e-14)


def test_categorical_is_exact_at_large_logits():
    f = torch.tensor([[1000.0, 0.0, -1000.0]]).expand(3, 3)
    assert Categorical().log_prob(f, torch.arange(3), {}, UNIT).tolist() == [0.0, -1000.0, -2000.0]


def test_categorical_with_two_classes_is_bernoulli_of_the_difference():
    f, y = outputs(20, 2), torch.arange(20) % 2
    difference = f[:, 1:] - f[:, :1]
    torch.testing.assert_close(
        Categorical().log_prob(f, y, {}, UNIT),
        Bernoulli().log_prob(difference, y, {}, UNIT),
        rtol=1e-12,
        atol=0,
    )


@pytest.mark.parametrize(
    ("name", "kind", "hyper", "n_outputs", "fits"),
    [
        ("gaussian", Gaussian, ("noise_precision",), 1, [0]),
        ("bernoulli", Bernoulli, (), 1, [2]),
        ("categorical", Categorical, (), 5, [2, 3, 4]),
    ],
)
def test_registered_names_and_what_they_need(name, kind, hyper, n_outputs, fits):
    likelihood = LIKELIHOODS.get(name)()
    assert likelihood == kind()
    assert likelihood.hyper == hyper
    assert likelihood.outputs(5) == n_outputs
    assert [n_classes for n_classes in (0, 2, 3, 4) if likelihood.fits(n_classes)] == fits

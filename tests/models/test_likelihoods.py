"""Likelihoods: densities, units, predictive distributions, samples and the root of the Fisher information."""

import pytest
import torch
from torch import distributions

from bdl.models.likelihoods import Bernoulli, Categorical, GaussianLikelihood

UNIT = torch.tensor(1.0, dtype=torch.float64)
BETA = torch.tensor(3.0, dtype=torch.float64)
CASES = [
    pytest.param(GaussianLikelihood(), 1, {"noise_precision": BETA}, id="gaussian"),
    pytest.param(Bernoulli(), 1, {}, id="bernoulli"),
    pytest.param(Categorical(), 4, {}, id="categorical"),
]


def outputs(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.mark.parametrize(
    ("likelihood", "n_outputs", "fits"),
    [(GaussianLikelihood(), 1, [0]), (Bernoulli(), 1, [2]), (Categorical(), 5, [2, 3, 4])],
)
def test_what_they_describe(likelihood, n_outputs, fits):
    assert likelihood.outputs(5) == n_outputs
    assert [n_classes for n_classes in (0, 2, 3, 4) if likelihood.fits(n_classes)] == fits


@pytest.mark.parametrize("noise_precision", [0.01, 250.0])
@pytest.mark.parametrize("unit", [1.0, 9.2, 0.05])
def test_gaussian_is_the_density_in_original_units_times_the_jacobian(noise_precision, unit):
    """With y = (y_original - m) / u, p(y) = u p_original(y_original)."""
    f, mean = outputs(7, 1), 22.5
    original = mean + unit * f.squeeze(-1) + torch.linspace(-2, 2, 7, dtype=torch.float64)
    y_unit = torch.tensor(unit, dtype=torch.float64)
    hyper = {"noise_precision": torch.tensor(noise_precision, dtype=torch.float64)}
    actual = GaussianLikelihood().log_prob(f, (original - mean) / unit, hyper, y_unit)
    density = distributions.Normal(mean + unit * f.squeeze(-1), noise_precision**-0.5)
    torch.testing.assert_close(
        actual, density.log_prob(original) + y_unit.log(), rtol=1e-12, atol=1e-11
    )
    inside = GaussianLikelihood().to_model_units(hyper, y_unit)
    torch.testing.assert_close(
        GaussianLikelihood().log_prob(f, (original - mean) / unit, inside, UNIT), actual
    )


def test_numbers_have_a_unit_and_labels_have_none():
    """Numbers in units of 3 are 3 times smaller, hence their precision 9 times larger."""
    hyper, f = {"noise_precision": 4.0, "prior_precision": 7.0}, outputs(5, 3)
    inside = GaussianLikelihood().to_model_units(hyper, 3.0)
    assert inside == {"noise_precision": 36.0, "prior_precision": 7.0}
    assert GaussianLikelihood().to_original_units(inside, 3.0) == hyper
    assert torch.equal(GaussianLikelihood().restore(f, 3 * UNIT, 10 * UNIT), 3 * f + 10)
    for likelihood in (Bernoulli(), Categorical()):
        assert (
            likelihood.to_model_units(hyper, 3.0)
            == hyper
            == likelihood.to_original_units(hyper, 3.0)
        )
        assert torch.equal(likelihood.restore(f, 3 * UNIT, 4 * UNIT), f)


@pytest.mark.parametrize(
    ("likelihood", "hyper", "expected"),
    [
        (
            GaussianLikelihood(),
            {"noise_precision": BETA},
            lambda f: distributions.Normal(f[..., 0], BETA**-0.5),
        ),
        (Bernoulli(), {}, lambda f: distributions.Bernoulli(logits=f[..., 0])),
        (Categorical(), {}, lambda f: distributions.Categorical(logits=f)),
    ],
)
def test_densities_and_predictive_distributions_are_those_of_torch(likelihood, hyper, expected):
    f = outputs(8, 4 if isinstance(likelihood, Categorical) else 1)
    y = torch.arange(8.0).double() % max(2, f.shape[-1])
    wanted, found = expected(f), likelihood.predictive(f, hyper)
    assert type(found) is type(wanted)
    for density in (found.log_prob(y), likelihood.log_prob(f, y, hyper, UNIT)):
        torch.testing.assert_close(density, wanted.log_prob(y), rtol=1e-12, atol=1e-14)
    assert torch.equal(
        likelihood.log_prob(f, y.long(), hyper, UNIT), likelihood.log_prob(f, y, hyper, UNIT)
    )


def test_labels_are_exact_at_large_logits():
    """log sigmoid(f) -> f and its slope -> 1 far on the wrong side.

    Both vanish far on the right side.
    """
    f = torch.tensor([[1000.0], [-1000.0], [1000.0], [-1000.0]], requires_grad=True)
    log_prob = Bernoulli().log_prob(f, torch.tensor([1.0, 0.0, 0.0, 1.0]), {}, UNIT)
    assert log_prob.tolist() == [0.0, 0.0, -1000.0, -1000.0]
    (gradient,) = torch.autograd.grad(log_prob.sum(), f)
    assert gradient.flatten().tolist() == [0.0, 0.0, -1.0, 1.0]
    # log sigmoid(40) = -log(1 + e^-40) = -e^-40 up to e^-80, where sigmoid(40) rounds to 1
    confident = Bernoulli().log_prob(40 * UNIT.expand(1, 1), UNIT.expand(1), {}, UNIT)
    torch.testing.assert_close(confident, -(-40 * UNIT).exp().expand(1), rtol=1e-12, atol=0)
    f = torch.tensor([[1000.0, 0.0, -1000.0]]).expand(3, 3)
    assert Categorical().log_prob(f, torch.arange(3), {}, UNIT).tolist() == [0.0, -1000.0, -2000.0]


def test_gaussian_samples_are_shifted_and_scaled_noise():
    noise = outputs(3, 2)
    y = GaussianLikelihood().sample(
        torch.full((3, 2, 1), 5.0).double(), {"noise_precision": 4 * UNIT}, noise
    )
    torch.testing.assert_close(y, 5 + noise / 2, rtol=1e-12, atol=0)


@pytest.mark.parametrize(
    ("likelihood", "d_out"), [(Bernoulli(), 1), (Categorical(), 2), (Categorical(), 4)]
)
def test_labels_have_the_shares_of_the_predictive_distribution(likelihood, d_out):
    """Noise at n equally likely quantiles gives each label its share to 1 / n.

    Beyond them there is no other label.
    """
    f, n = outputs(3, d_out), 4001
    quantiles = torch.special.ndtri((torch.arange(n, dtype=torch.float64) + 0.5) / n)
    y = likelihood.sample(f.unsqueeze(1).expand(3, n, d_out), {}, quantiles.expand(3, n))
    assert (y.shape, y.dtype) == ((3, n), torch.float64)
    for label in range(max(2, d_out)):
        expected = likelihood.predictive(f, {}).log_prob(label * UNIT).exp()
        torch.testing.assert_close((y == label).double().mean(1), expected, rtol=0, atol=1.1 / n)
    ends = likelihood.sample(torch.zeros(2, d_out), {}, torch.tensor([-40.0, 40.0])).tolist()
    assert ends == ([1, 0] if d_out == 1 else [0, d_out - 1])


@pytest.mark.parametrize(("likelihood", "d_out", "hyper"), CASES)
def test_root_fisher_is_a_root_of_the_expected_hessian(likelihood, d_out, hyper):
    """Minus the Hessian of log p(y | f) by f, averaged over labels.

    That of a Gaussian is the same for any y.
    """
    f, unit = outputs(5, d_out), torch.tensor(1.7, dtype=torch.float64)
    gaussian = isinstance(likelihood, GaussianLikelihood)
    labels = torch.zeros(1).double() if gaussian else torch.arange(float(max(2, d_out))).double()
    shares = (
        torch.ones(5, 1).double()
        if gaussian
        else likelihood.predictive(f.unsqueeze(1), {}).log_prob(labels).exp()
    )

    def log_prob(row, label):
        return likelihood.log_prob(row.unsqueeze(0), label.unsqueeze(0), hyper, unit).squeeze(0)

    curvature = torch.func.hessian(log_prob)
    each = torch.stack([torch.stack([-curvature(row, label) for label in labels]) for row in f])
    R = likelihood.root_fisher(f, hyper, unit)
    assert R.shape == (5, d_out, d_out)
    torch.testing.assert_close(
        R @ R.mT, (shares[..., None, None] * each).sum(1), rtol=1e-10, atol=1e-12
    )


@pytest.mark.parametrize(("likelihood", "d_out", "hyper"), CASES)
def test_the_verbs_map_over_trials(likelihood, d_out, hyper):
    f, noise, units = (
        outputs(3, 5, d_out),
        outputs(3, 5),
        torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64),
    )
    hypers = {name: value * units for name, value in hyper.items()}

    def verbs(f, noise, unit, hyper):
        sample = likelihood.sample(f, likelihood.to_model_units(hyper, unit), noise)
        root = likelihood.root_fisher(f, hyper, unit)
        return (
            sample,
            root,
            likelihood.restore(f, unit, unit),
            likelihood.predictive(f, hyper).log_prob(sample),
        )

    alone = [
        verbs(f[i], noise[i], units[i], {name: value[i] for name, value in hypers.items()})
        for i in range(3)
    ]
    together = torch.func.vmap(verbs)(f, noise, units, hypers)
    for found, expected in zip(together, zip(*alone, strict=True), strict=True):
        torch.testing.assert_close(found, torch.stack(expected), rtol=1e-12, atol=1e-14)

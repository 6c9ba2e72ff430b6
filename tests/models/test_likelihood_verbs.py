"""Likelihoods: units, predictive distributions, samples and the root of the Fisher information."""

import pytest
import torch
from torch import distributions

from bdl.models.likelihoods import Bernoulli, Categorical, Gaussian

UNIT = torch.tensor(1.0, dtype=torch.float64)
BETA = torch.tensor(3.0, dtype=torch.float64)
CASES = [
    pytest.param(Gaussian(), 1, {"noise_precision": BETA}, id="gaussian"),
    pytest.param(Bernoulli(), 1, {}, id="bernoulli"),
    pytest.param(Categorical(), 4, {}, id="categorical"),
]


def outputs(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_a_noise_precision_follows_the_unit_of_the_targets():
    """Numbers in units of 3 are 3 times smaller, hence their precision 9 times larger."""
    hyper = {"noise_precision": 4.0, "prior_precision": 7.0}
    inside = Gaussian().to_model_units(hyper, 3.0)
    assert inside == {"noise_precision": 36.0, "prior_precision": 7.0}
    assert Gaussian().to_original_units(inside, 3.0) == hyper


def test_log_prob_is_that_of_the_converted_precision_in_unit_1():
    f, y, unit = outputs(5, 1), torch.linspace(-1, 1, 5, dtype=torch.float64), torch.tensor(2.5, dtype=torch.float64)
    inside = Gaussian().to_model_units({"noise_precision": BETA}, unit)
    expected = Gaussian().log_prob(f, y, {"noise_precision": BETA}, unit)
    assert torch.equal(Gaussian().log_prob(f, y, inside, UNIT), expected)


@pytest.mark.parametrize("likelihood", [Bernoulli(), Categorical()])
def test_labels_have_no_unit(likelihood):
    hyper, f = {"noise_precision": BETA}, outputs(5, 3)
    assert likelihood.to_model_units(hyper, 3.0) == hyper == likelihood.to_original_units(hyper, 3.0)
    assert torch.equal(likelihood.restore(f, 3 * UNIT, 4 * UNIT), f)


def test_means_are_restored_to_original_units():
    f = torch.tensor([[[1.0], [-2.0]]])
    assert Gaussian().restore(f, torch.tensor(3.0), torch.tensor(10.0)).tolist() == [[[13.0], [4.0]]]


def test_predictive_distributions_are_those_of_torch():
    f = outputs(2, 6, 4)
    normal = Gaussian().predictive(f[..., :1], {"noise_precision": BETA})
    assert isinstance(normal, distributions.Normal)
    torch.testing.assert_close(normal.mean, f[..., 0], rtol=0, atol=0)
    torch.testing.assert_close(normal.variance, torch.full_like(f[..., 0], 1 / 3), rtol=1e-12, atol=0)
    bernoulli = Bernoulli().predictive(f[..., :1], {})
    assert isinstance(bernoulli, distributions.Bernoulli)
    torch.testing.assert_close(bernoulli.mean, f[..., 0].sigmoid(), rtol=1e-12, atol=0)
    categorical = Categorical().predictive(f, {})
    assert isinstance(categorical, distributions.Categorical)
    torch.testing.assert_close(categorical.probs, f.softmax(-1), rtol=1e-12, atol=0)


@pytest.mark.parametrize(("likelihood", "d_out", "hyper"), CASES)
def test_predictive_agrees_with_log_prob(likelihood, d_out, hyper):
    f, y = outputs(8, d_out), torch.arange(8.0).double() % max(2, d_out)
    expected = likelihood.log_prob(f, y, hyper, UNIT)
    torch.testing.assert_close(likelihood.predictive(f, hyper).log_prob(y), expected, rtol=1e-12, atol=1e-14)


def test_gaussian_samples_are_shifted_and_scaled_noise():
    noise = outputs(3, 2)
    y = Gaussian().sample(torch.full((3, 2, 1), 5.0).double(), {"noise_precision": 4 * UNIT}, noise)
    torch.testing.assert_close(y, 5 + noise / 2, rtol=1e-12, atol=0)


@pytest.mark.parametrize(("likelihood", "d_out"), [(Bernoulli(), 1), (Categorical(), 2), (Categorical(), 4)])
def test_labels_have_the_shares_of_the_predictive_distribution(likelihood, d_out):
    """Noise at n equally likely quantiles gives each label its share to 1 / n."""
    f, n = outputs(3, d_out), 4001
    quantiles = torch.special.ndtri((torch.arange(n, dtype=torch.float64) + 0.5) / n)
    y = likelihood.sample(f.unsqueeze(1).expand(3, n, d_out), {}, quantiles.expand(3, n))
    assert (y.shape, y.dtype) == ((3, n), torch.float64)
    for label in range(max(2, d_out)):
        expected = likelihood.predictive(f, {}).log_prob(label * UNIT).exp()
        torch.testing.assert_close((y == label).double().mean(1), expected, rtol=0, atol=1.1 / n)


def test_samples_stay_labels_at_the_ends_of_the_noise():
    f = torch.zeros(2, 3)
    assert Categorical().sample(f, {}, torch.tensor([-40.0, 40.0])).tolist() == [0.0, 2.0]
    assert Bernoulli().sample(f[:, :1], {}, torch.tensor([-40.0, 40.0])).tolist() == [1.0, 0.0]


@pytest.mark.parametrize(("likelihood", "d_out", "hyper"), CASES)
def test_root_fisher_is_a_root_of_the_expected_hessian(likelihood, d_out, hyper):
    """Minus the Hessian of log p(y | f) by f, averaged over labels; that of a Gaussian is the same for any y."""
    f, unit = outputs(5, d_out), torch.tensor(1.7, dtype=torch.float64)
    gaussian = isinstance(likelihood, Gaussian)
    labels = torch.zeros(1).double() if gaussian else torch.arange(float(max(2, d_out))).double()
    shares = torch.ones(5, 1).double() if gaussian else likelihood.predictive(f.unsqueeze(1), {}).log_prob(labels).exp()

    def log_prob(row, label):
        return likelihood.log_prob(row.unsqueeze(0), label.unsqueeze(0), hyper, unit).squeeze(0)

    curvature = torch.func.hessian(log_prob)
    each = torch.stack([torch.stack([-curvature(row, label) for label in labels]) for row in f])
    R = likelihood.root_fisher(f, hyper, unit)
    assert R.shape == (5, d_out, d_out)
    torch.testing.assert_close(R @ R.mT, (shares[..., None, None] * each).sum(1), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(("likelihood", "d_out", "hyper"), CASES)
def test_the_verbs_map_over_trials(likelihood, d_out, hyper):
    f, noise, units = outputs(3, 5, d_out), outputs(3, 5), torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64)
    hypers = {name: value * units for name, value in hyper.items()}

    def verbs(f, noise, unit, hyper):
        sample = likelihood.sample(f, likelihood.to_model_units(hyper, unit), noise)
        root = likelihood.root_fisher(f, hyper, unit)
        return sample, root, likelihood.restore(f, unit, unit), likelihood.predictive(f, hyper).log_prob(sample)

    alone = [verbs(f[i], noise[i], units[i], {name: value[i] for name, value in hypers.items()}) for i in range(3)]
    together = torch.func.vmap(verbs)(f, noise, units, hypers)
    for found, expected in zip(together, zip(*alone, strict=True), strict=True):
        torch.testing.assert_close(found, torch.stack(expected), rtol=1e-12, atol=1e-14)

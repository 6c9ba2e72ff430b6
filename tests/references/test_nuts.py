"""The sampled reference: what it hands to the sampler, and the truth that it gives."""

from unittest.mock import Mock

import numpy as np
import pytest
import torch

from bdl.errors import InputError
from bdl.models import LIKELIHOODS, MODELS
from bdl.models.likelihoods import Bernoulli, Categorical, Gaussian
from bdl.models.networks import Linear, Mlp
from bdl.models.priors import GaussianPrior
from bdl.models.problem import Problem
from bdl.references import nuts
from bdl.references.base import Made
from bdl.references.exact import ConjugateReference
from bdl.references.nuts import NutsReference

X = torch.randn(40, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
LABELS = (X[:, 0] > 0).double()
ALPHA = torch.tensor(0.5, dtype=torch.float64)


def test_a_recipe_holds_what_the_problem_says():
    recipe = NutsReference(draws=200, seed=3).recipe(
        Problem(Linear(bias=False), Bernoulli(), 3), X, LABELS, {"prior_precision": ALPHA}
    )
    np.testing.assert_array_equal(recipe.regression.x, X.numpy())
    np.testing.assert_array_equal(recipe.regression.prior_precision, [0.5, 0.5, 0.5])
    assert recipe.regression.noise_precision is None
    assert (recipe.settings.draws, recipe.settings.seed, recipe.settings.chains) == (200, 3, 4)


def test_a_bias_is_a_column_of_ones_with_its_own_prior():
    recipe = NutsReference().recipe(
        Problem(Linear(), Bernoulli(), 3, prior=GaussianPrior(1e-5)), X, LABELS, {"prior_precision": ALPHA}
    )
    np.testing.assert_array_equal(recipe.regression.x, np.column_stack([X.numpy(), np.ones(40)]))
    np.testing.assert_array_equal(recipe.regression.prior_precision, [0.5, 0.5, 0.5, 1e-5])


@pytest.mark.parametrize(("model", "likelihood"), [(Mlp(), Bernoulli()), (Linear(), Categorical())])
def test_other_problems_are_refused(model, likelihood):
    with pytest.raises(InputError, match="nuts samples linear models with a gaussian or bernoulli likelihood"):
        NutsReference().check(Problem(model, likelihood, 3))


def test_every_linear_model_with_one_output_is_taken():
    """The registered names are the classes that the check knows."""
    for likelihood in ("gaussian", "bernoulli"):
        NutsReference().check(Problem(MODELS.get("linear")(), LIKELIHOODS.get(likelihood)(), 3))


def test_the_truth_has_the_moments_of_all_chains(monkeypatch):
    theta = np.random.default_rng(0).standard_normal((4, 9, 3)) + np.arange(4)[:, None, None]
    monkeypatch.setattr(nuts, "obtain", lambda recipe: Made(theta, Mock()))
    problem = Problem(Linear(bias=False), Bernoulli(), 3)
    truth = NutsReference().fit(problem, X, LABELS, {"prior_precision": ALPHA})
    np.testing.assert_allclose(truth.mean, theta.reshape(-1, 3).mean(0), rtol=1e-12)
    np.testing.assert_allclose(truth.covariance, np.cov(theta.reshape(-1, 3).T), rtol=1e-12)


@pytest.mark.slow  # draws 10,000 times
def test_the_truth_is_the_conjugate_posterior_within_its_error(tmp_path, monkeypatch):
    """Through the cache, with a bias whose prior is its own."""
    for package in ("bambi", "nutpie"):
        pytest.importorskip(package)
    from bdl.metrics.distances import monte_carlo_se, noise_floor, rel_cov_dist
    from bdl.references.certificate import monte_carlo_errors

    monkeypatch.setenv("BDL_DATA_DIR", str(tmp_path))
    problem = Problem(Linear(), Gaussian(), 3, prior=GaussianPrior(0.1))
    hyper = {"prior_precision": ALPHA, "noise_precision": torch.tensor(2.0, dtype=torch.float64)}
    y = X @ torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64) + 0.3
    sampled = NutsReference(draws=2000, tune=500).fit(problem, X, y, hyper)
    exact = ConjugateReference().fit(problem, X, y, hyper)
    assert sampled.chains is not None
    errors = monte_carlo_errors(sampled.chains.numpy())
    # 4 and 10 scores, t with 99 degrees of freedom: one beyond 4.5 has a probability of 2e-4
    assert abs((sampled.mean - exact.mean).numpy() / errors.mean).max() < 4.5
    lower = np.tril_indices(4)
    assert abs((sampled.covariance - exact.covariance).numpy() / errors.covariance)[lower].max() < 4.5

    floor = noise_floor(lambda ours, reference: rel_cov_dist(ours[1], reference[1]), sampled.chains)
    distance = rel_cov_dist(exact.covariance, sampled.covariance)
    # The distance of the exact posterior is a few times chi-squared about the floor: a factor of 3 is far out.
    assert floor / 3 < distance < 3 * floor
    assert monte_carlo_se(lambda _, cov: rel_cov_dist(exact.covariance, cov), sampled.chains) < 2 * floor

"""Batch fits of factor analysis against closed forms, scikit-learn, and the gradient of the likelihood."""

import math

import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA
from sklearn.decomposition import FactorAnalysis as Estimator

from bdl.data.factor_model import factor_model, observations
from bdl.errors import InputError
from bdl.methods.batch_fa import exact_fa, ppca, sklearn_fa
from bdl.posteriors import FactorAnalysis

FITS = [lambda x, rank: sklearn_fa(x, rank, seed=0), exact_fa, ppca]


def data(count=400, dim=9, rank=3):
    generator = torch.Generator().manual_seed(0)
    factors = 2 * torch.randn(dim, rank, generator=generator, dtype=torch.float64)
    model = FactorAnalysis(torch.arange(dim) / 1.0, factors, torch.linspace(1, 4, dim, dtype=torch.float64))
    return model.sample(torch.randn(count, model.noise_dim, generator=generator, dtype=torch.float64))


def log_likelihood_slopes(fit, x):
    """Derivatives of the mean log-likelihood in mean, F and log psi."""
    parts = fit.loc.requires_grad_(), fit.factors.requires_grad_(), fit.diag.log().requires_grad_()
    mean, factors, log_diag = parts
    return torch.autograd.grad(FactorAnalysis(mean, factors, log_diag.exp()).log_prob(x).mean(), parts)


def test_exact_is_where_the_likelihood_is_flat():
    x = data()
    for slope in log_likelihood_slopes(exact_fa(x, 3, tolerance=1e-10, max_iterations=10_000), x):
        torch.testing.assert_close(slope, torch.zeros_like(slope), rtol=0, atol=2e-6)
    assert max(float(slope.abs().max()) for slope in log_likelihood_slopes(ppca(x, 3), x)) > 0.01


def test_exact_is_scikit_learn_with_lapack():
    """The same iterations from the same start, so the same fit after the same stopping rule."""
    x = data()
    start = (1 - 3 / 18) / np.linalg.inv(np.cov(x.numpy().T, ddof=0)).diagonal()
    theirs = Estimator(3, svd_method="lapack", noise_variance_init=start).fit(x.numpy())
    ours = exact_fa(x, 3)
    np.testing.assert_allclose(ours.loc, theirs.mean_, rtol=1e-12)
    np.testing.assert_allclose(ours.diag, theirs.noise_variance_, rtol=1e-8)
    np.testing.assert_allclose(ours.covariance(), theirs.get_covariance(), rtol=1e-8, atol=1e-9)


def test_randomised_is_scikit_learn_at_its_defaults():
    x = data()
    fit, theirs = sklearn_fa(x, 3, seed=5), Estimator(3, random_state=5).fit(x.numpy())
    assert theirs.get_params() == {
        "n_components": 3,
        "tol": 0.01,
        "copy": True,
        "max_iter": 1000,
        "noise_variance_init": None,
        "svd_method": "randomized",
        "iterated_power": 3,
        "rotation": None,
        "random_state": 5,
    }
    for ours, his in zip(fit, (theirs.mean_, theirs.components_.T, theirs.noise_variance_), strict=True):
        np.testing.assert_array_equal(ours, his)


def test_randomised_stops_early_where_the_spectrum_has_no_gap():
    """Published model, factors below the noise: the sketch ends the climb 100 nats and more under the optimum."""
    (x,) = next(observations([factor_model(0, 100, 10, (1, 10))], 0, 20_000, 20_000)).double()
    sketched, exact = (float(fit.log_prob(x).sum()) for fit in (sklearn_fa(x, 10, seed=1), exact_fa(x, 10)))
    assert sketched < exact - 100


def test_ppca_is_the_closed_form_of_scikit_learn():
    """sklearn divides by n - 1."""
    x = data()
    theirs = PCA(3).fit(x.numpy())
    fit, ratio = ppca(x, 3), (len(x) - 1) / len(x)
    np.testing.assert_allclose(fit.loc, theirs.mean_, rtol=1e-12)
    np.testing.assert_allclose(fit.diag, ratio * theirs.noise_variance_, rtol=1e-12)
    np.testing.assert_allclose(fit.covariance(), ratio * theirs.get_covariance(), rtol=1e-10, atol=1e-11)


def test_ppca_is_flat_in_the_mean_the_factors_and_the_common_noise():
    x = data()
    mean, factors, log_diag = log_likelihood_slopes(ppca(x, 3), x)
    for slope in (mean, factors, log_diag.sum()):
        torch.testing.assert_close(slope, torch.zeros_like(slope), rtol=0, atol=1e-12)


@pytest.mark.parametrize("fit", FITS)
def test_keeps_the_precision(fit):
    assert {part.dtype for part in fit(data().float(), 3)} == {torch.float32}


@pytest.mark.parametrize("fit", FITS)
def test_bad_input(fit):
    x = data()
    for rank in (0, 9):
        with pytest.raises(InputError, match=f"latent_dim {rank} does not suit 9 dimensions"):
            fit(x, rank)
    with pytest.raises(InputError, match="1 observations have no covariance: give at least 2"):
        fit(x[:1], 3)
    x[7, 2] = math.nan
    with pytest.raises(InputError, match="not finite"):
        fit(x, 3)


def test_fewer_observations_than_dimensions():
    """Every variance is that of the data, as at any stationary point, though S is singular."""
    x = data(8, 12, 2)
    fit = exact_fa(x, 2, tolerance=1e-8, max_iterations=10_000).check()
    torch.testing.assert_close(fit.variance(), x.var(0, correction=0), rtol=1e-3, atol=0)


def test_exact_refuses_what_does_not_vary():
    x = data()
    x[:, 4] = 1
    with pytest.raises(InputError, match="the variance of the observations must be positive"):
        exact_fa(x, 3)


def test_exact_is_not_trapped():
    """From psi = 1 the same iterations end 3476 nats under the truth here; the optimum is above it."""
    model = factor_model(5, 100, 10, (1, 100))
    (x,) = next(observations([model], 5, 10_000, 10_000)).double()
    truth = FactorAnalysis(*(part.double() for part in model))
    assert float(exact_fa(x, 10).log_prob(x).sum()) > float(truth.log_prob(x).sum())

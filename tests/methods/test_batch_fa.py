"""Batch fits of factor analysis against closed forms, scikit-learn, and the gradient of the likelihood."""

import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA
from sklearn.decomposition import FactorAnalysis as Estimator

from bdl.data.teachers import draw_factor_model, draw_observations
from bdl.errors import InputError
from bdl.methods.batch_fa import BatchFa, BatchState
from bdl.posteriors import FactorAnalysis


def moments(x, sizes=None, seed=0) -> BatchState:
    """Moments of observations that come in blocks of some sizes."""
    state = BatchFa().init({"mean": torch.zeros(x.shape[-1]), "seed": torch.tensor(seed)})
    for block in torch.split(x, sizes or len(x)):
        state = BatchFa().update_block(state, block)
    return state


def fit(solver, x, rank=3, seed=0) -> FactorAnalysis:
    return BatchFa(rank, solver).posterior(moments(x, seed=seed))


def data(count=400, dim=9, rank=3):
    generator = torch.Generator().manual_seed(0)
    factors = 2 * torch.randn(dim, rank, generator=generator, dtype=torch.float64)
    model = FactorAnalysis(
        torch.arange(dim) / 1.0, factors, torch.linspace(1, 4, dim, dtype=torch.float64)
    )
    return model.sample(
        torch.randn(count, model.noise_dim, generator=generator, dtype=torch.float64)
    )


def log_likelihood_slopes(found, x):
    """Derivatives of the mean log-likelihood in mean, F and log psi."""
    parts = (
        found.loc.requires_grad_(),
        found.factors.requires_grad_(),
        found.diag.log().requires_grad_(),
    )
    mean, factors, log_diag = parts
    return torch.autograd.grad(
        FactorAnalysis(mean, factors, log_diag.exp()).log_prob(x).mean(), parts
    )


def test_moments_do_not_depend_on_the_blocks():
    x = data() + 1e4
    state = moments(x, [1, 99, 250, 50])
    torch.testing.assert_close(state.mean, x.mean(0), rtol=1e-14, atol=0)
    torch.testing.assert_close(
        state.scatter / 400, torch.cov(x.T, correction=0), rtol=1e-9, atol=1e-9
    )
    assert int(state.n_observations) == 400


def test_streams_are_the_leading_dimension():
    x = torch.stack([data(), 3 * data()])
    method = BatchFa(3)
    noise = {"mean": torch.zeros(2, 9), "seed": torch.tensor([1, 2])}
    state = method.update_block(method.init(noise), x)
    torch.testing.assert_close(state.scatter[1], moments(x[1]).scatter)


def test_the_likelihood_is_flat_at_the_optimum():
    """In the mean, F and log psi; for ppca in the common noise."""
    x = data()
    for slope in log_likelihood_slopes(fit("exact", x), x):
        torch.testing.assert_close(slope, torch.zeros_like(slope), rtol=0, atol=2e-6)
    mean, factors, log_diag = log_likelihood_slopes(fit("ppca", x), x)
    for slope in (mean, factors, log_diag.sum()):
        torch.testing.assert_close(slope, torch.zeros_like(slope), rtol=0, atol=1e-12)
    assert float(log_diag.abs().max()) > 0.01


def test_exact_is_scikit_learn_with_lapack():
    """Run to the end, its iterations find the same optimum."""
    x = data()
    theirs = Estimator(3, svd_method="lapack", tol=1e-9, max_iter=100_000).fit(x.numpy())
    ours = fit("exact", x)
    np.testing.assert_allclose(ours.loc, theirs.mean_, rtol=1e-12)
    np.testing.assert_allclose(ours.covariance(), theirs.get_covariance(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("count", [400, 9, 6])
def test_randomised_is_scikit_learn_at_its_defaults(count):
    """From the moments alone: the sketches depend on nothing else."""
    x = data(count)
    ours, theirs = fit("sklearn", x, seed=5), Estimator(3, random_state=5).fit(x.numpy())
    assert (theirs.svd_method, theirs.tol, theirs.iterated_power) == ("randomized", 0.01, 3)
    np.testing.assert_allclose(ours.covariance(), theirs.get_covariance(), rtol=1e-7, atol=1e-8)


def test_randomised_stops_early_where_the_spectrum_has_no_gap():
    """Published model, factors below the noise: the sketch ends the climb 100 nats and more under the optimum."""
    (x,) = next(
        draw_observations([draw_factor_model(0, 100, 10, (1, 10))], 0, 20_000, 20_000)
    ).double()
    sketched, exact = (
        float(fit(solver, x, 10, seed=1).log_prob(x).sum()) for solver in ("sklearn", "exact")
    )
    assert sketched < exact - 100


def test_ppca_is_the_closed_form_of_scikit_learn():
    """sklearn divides by n - 1."""
    x = data()
    theirs = PCA(3).fit(x.numpy())
    ours, ratio = fit("ppca", x), (len(x) - 1) / len(x)
    np.testing.assert_allclose(ours.loc, theirs.mean_, rtol=1e-12)
    np.testing.assert_allclose(ours.diag, ratio * theirs.noise_variance_, rtol=1e-12)
    np.testing.assert_allclose(
        ours.covariance(), ratio * theirs.get_covariance(), rtol=1e-10, atol=1e-11
    )


def test_fewer_observations_than_dimensions():
    """Every variance is that of the data, as at any stationary point, though S is singular."""
    x = data(8, 12, 2)
    torch.testing.assert_close(
        fit("exact", x, 2).check().variance(), x.var(0, correction=0), rtol=1e-3, atol=0
    )


def test_exact_refuses_what_does_not_vary():
    x = data()
    x[:, 4] = 1
    with pytest.raises(InputError, match="the variance of the observations must be positive"):
        fit("exact", x)


def test_exact_is_not_trapped():
    """From psi = 1 scikit-learn's iterations end 3476 nats under the truth here.

    The optimum is above it.
    """
    model = draw_factor_model(5, 100, 10, (1, 100))
    (x,) = next(draw_observations([model], 5, 10_000, 10_000)).double()
    truth = FactorAnalysis(*(part.double() for part in model))
    assert float(fit("exact", x, 10).log_prob(x).sum()) > float(truth.log_prob(x).sum())

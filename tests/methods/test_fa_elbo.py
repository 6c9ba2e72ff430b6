"""The best ELBO: against the exact posterior, a full-covariance fixed point, and the conditions of an optimum."""

import numpy as np
import pytest
import torch
from scipy.optimize import OptimizeResult

from bdl.errors import InputError
from bdl.methods import fa_optimum
from bdl.methods.fa_optimum import FactorAnalysisElbo, FactorAnalysisOptimum
from bdl.models.likelihoods import Bernoulli, Gaussian
from bdl.models.networks import Linear, Mlp
from bdl.models.problem import Problem

DIM, ROWS = 4, 60
RNG = np.random.default_rng(3)
X = torch.from_numpy(RNG.standard_normal((ROWS, DIM)) + 0.7 * RNG.standard_normal((ROWS, 1)))
LABELS = torch.from_numpy((RNG.random(ROWS) < 1 / (1 + np.exp(-X.numpy() @ [1.0, -2.0, 0.5, 0.0]))).astype(float))
ALPHA = {"prior_precision": torch.tensor(0.5, dtype=torch.float64)}
GAUSSIAN = ALPHA | {"noise_precision": torch.tensor(2.0, dtype=torch.float64)}


def logistic(bias: bool = False) -> Problem:
    return Problem(Linear(bias=bias), Bernoulli(), DIM)


def gaussian_moments(mean: np.ndarray, variance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """E[sigmoid(f)] and E[sigmoid'(f)] by a sum over a wide fine grid, independent of quadrature nodes."""
    z = np.linspace(-10, 10, 4001)
    weights = np.exp(-0.5 * z**2) / np.exp(-0.5 * z**2).sum()
    p = 1 / (1 + np.exp(-(mean[:, None] + np.sqrt(variance)[:, None] * z)))
    return p @ weights, (p * (1 - p)) @ weights


@pytest.mark.parametrize("rank", [1, 2])
def test_gaussian_targets_give_the_optimum_for_the_exact_posterior(rank):
    y = X @ torch.tensor([1.0, 0.3, -1.0, 2.0], dtype=torch.float64) + 0.2
    problem = Problem(Linear(bias=False), Gaussian(), DIM)
    found = FactorAnalysisElbo(rank).fit(problem, X, y, GAUSSIAN)
    expected = FactorAnalysisOptimum(rank).fit(problem, X, y, GAUSSIAN)
    # the search ends where derivatives are small, and its last step depends on how the processor rounds
    torch.testing.assert_close(found.mean(), expected.mean(), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(found.covariance(), expected.covariance(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("bias", [False, True])
def test_with_all_factors_it_is_the_best_full_gaussian(bias):
    """The optimum of all Gaussians solves X^T (y - E[p]) = alpha m and S^-1 = alpha I + X^T diag(E[p']) X."""
    design = np.column_stack([X.numpy(), np.ones(ROWS)])[:, : DIM + bias]
    q = FactorAnalysisElbo(DIM).fit(logistic(bias), X, LABELS, ALPHA)
    mean, covariance = q.mean().numpy(), q.covariance().numpy()
    p, slope = gaussian_moments(design @ mean, np.einsum("ni,ij,nj->n", design, covariance, design))
    np.testing.assert_allclose(design.T @ (LABELS.numpy() - p), 0.5 * mean, atol=1e-4)
    precision = 0.5 * np.eye(DIM + bias) + (design.T * slope) @ design
    # DIM factors and a diagonal reach every covariance of DIM parameters, and almost every one of DIM + 1
    np.testing.assert_allclose(covariance @ precision, np.eye(DIM + bias), atol=1e-3)


def test_at_the_optimum_the_marginal_conditions_hold():
    """dJ/dpsi_i = 0: (S^-1)_ii = alpha + sum_n E[p'_n] x_ni^2; where psi_i has shrunk to 0 the left side is smaller."""
    q = FactorAnalysisElbo(1).fit(logistic(), X, LABELS, ALPHA)
    x, covariance = X.numpy(), q.covariance().numpy()
    p, slope = gaussian_moments(x @ q.mean().numpy(), np.einsum("ni,ij,nj->n", x, covariance, x))
    np.testing.assert_allclose(x.T @ (LABELS.numpy() - p), 0.5 * q.mean().numpy(), atol=1e-4)
    inner = q.diag.numpy() > 1e-6 * covariance.diagonal()
    ratio = np.linalg.inv(covariance).diagonal() / (0.5 + slope @ x**2)
    assert inner.sum() == 3
    np.testing.assert_allclose(ratio[inner], 1, rtol=1e-4)
    assert ratio[~inner] < 0.9


@pytest.mark.parametrize("steep", [0, 1, 5, 6])
def test_a_failed_line_search_is_taken_up_again_where_it_ended(monkeypatch, steep):
    """The best of two descents is, five times at most; each descent of the stub goes down by one."""
    begun = []

    def descend(cost, start, options, bounds):
        begun.append(start[0])
        return OptimizeResult(x=start - 1, fun=start[0], jac=np.array([1.0 if len(begun) < 2 + steep else 1e-4]))

    monkeypatch.setattr(fa_optimum, "descend", descend)
    starts = [torch.tensor([value], dtype=torch.float64) for value in (7.0, 5.0)]
    if steep <= 5:
        assert fa_optimum.lowest(lambda x: x, starts, []) == 4 - steep
    else:
        with pytest.raises(InputError, match="fa-elbo has not converged"):
            fa_optimum.lowest(lambda x: x, starts, [])
    assert begun == [7, *range(5, 4 - min(steep, 5), -1)]


@pytest.mark.parametrize(
    ("method", "problem", "message"),
    [
        (FactorAnalysisElbo(), Problem(Mlp(), Bernoulli(), DIM), "needs a linear model"),
        (FactorAnalysisElbo(5), logistic(), "latent_dim 5 exceeds the 4 parameters"),
    ],
)
def test_refusals(method, problem, message):
    with pytest.raises(InputError, match=message):
        method.check(problem)

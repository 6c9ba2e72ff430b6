"""Batch fits of factor analysis, which the online estimators are held against (Brownlie 2022, section 4.4.1).

`sklearn_fa` is the published one: scikit-learn's FactorAnalysis with a randomised SVD. Each iteration draws a new
sketch of a matrix whose spectrum has no gap, so its log-likelihood is not monotone, and as it stops at the first
iteration that does not gain 0.01 nats it stops after about eight, far from the optimum at 100,000 observations.
`exact_fa` makes the same iterations without the sketch and goes on to the optimum. `ppca` has psi = sigma^2 throughout.
"""

import math

import torch
from torch import Tensor

from bdl.errors import InputError
from bdl.methods.online_fa import check_rank
from bdl.posteriors import FactorAnalysis

_LEAST_NOISE = 1e-12
"""Least psi relative to the variance; scikit-learn's bound is absolute."""


def sklearn_fa(observations: Tensor, latent_dim: int, seed: int) -> FactorAnalysis:
    """Fit scikit-learn's FactorAnalysis, randomised SVD, settings at their defaults.

    Those are tolerance 0.01 nats on the total log-likelihood, 1000 iterations, 3 power iterations, psi = 1 at first,
    the same in 0.24.2, the published version, and in 1.9.

    Parameters
    ----------
    observations
        Shape (n, D); the work is done in float64.
    latent_dim
        K.
    seed
        Of the sketches.

    Raises
    ------
    InputError
        Here and below, if K is not one of 1 to D - 1, or there are fewer than 2 observations, or not finite ones.
    """
    from sklearn.decomposition import FactorAnalysis as Estimator

    _check(observations, latent_dim)
    fit = Estimator(latent_dim, svd_method="randomized", random_state=seed).fit(observations.double().numpy())
    parts = fit.mean_, fit.components_.T, fit.noise_variance_
    return FactorAnalysis(*(torch.from_numpy(part).to(observations.dtype) for part in parts))


def exact_fa(
    observations: Tensor, latent_dim: int, tolerance: float = 1e-2, max_iterations: int = 1000
) -> FactorAnalysis:
    """Fit by the iteration of scikit-learn's ``svd_method="lapack"``, on the covariance S of the data.

    With u_i and l_i the K leading eigenvectors and values of diag(psi)^{-1/2} S diag(psi)^{-1/2}, the maximum over F
    is diag(psi)^{1/2} u_i (l_i - 1)_+^{1/2}, column by column; then psi_i = S_ii - (F F^T)_ii (Barber 2012, section
    21.2). An iteration costs O(D^3), whatever the number of observations.

    Parameters
    ----------
    observations
        Shape (n, D); the work is done in float64.
    latent_dim
        K.
    tolerance
        Nats; an iteration that raises the total log-likelihood by less is the last.
    max_iterations
        The last in any case.
    """
    _check(observations, latent_dim)
    mean, covariance = _moments(observations)
    variance = covariance.diagonal()
    psi, last = torch.ones_like(mean), -math.inf
    for _ in range(max_iterations):
        unit = psi.sqrt()
        values, vectors = _leading(covariance / unit.unsqueeze(1) / unit, latent_dim)
        factors = unit.unsqueeze(1) * vectors * (values - 1).clamp(min=0).sqrt()
        explained = values.clamp(min=1)
        cost = explained.log().sum() - explained.sum() + psi.log().sum() + (variance / psi).sum()
        log_likelihood = -0.5 * len(observations) * float(cost)
        if log_likelihood - last < tolerance:
            break
        last, psi = log_likelihood, torch.maximum(variance - factors.square().sum(1), _LEAST_NOISE * variance)
    return FactorAnalysis(*(part.to(observations.dtype) for part in (mean, factors, psi)))


def ppca(observations: Tensor, latent_dim: int) -> FactorAnalysis:
    """Fit probabilistic principal component analysis, psi = sigma^2 throughout, in closed form.

    With u_i and l_i the leading eigenvectors and values of the covariance, F has the columns
    (l_i - sigma^2)^{1/2} u_i and sigma^2 is the mean of the other eigenvalues (Tipping and Bishop 1999, eq. 7 and 8).

    Parameters
    ----------
    observations
        Shape (n, D); the work is done in float64.
    latent_dim
        K.
    """
    _check(observations, latent_dim)
    mean, covariance = _moments(observations)
    values, vectors = _leading(covariance, latent_dim)
    noise = (covariance.trace() - values.sum()) / (len(mean) - latent_dim)
    factors = vectors * (values - noise).clamp(min=0).sqrt()
    return FactorAnalysis(*(part.to(observations.dtype) for part in (mean, factors, noise.expand_as(mean))))


def _moments(observations: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and covariance (divisor n), float64."""
    observations = observations.double()
    return observations.mean(0), torch.cov(observations.T, correction=0)


def _leading(matrix: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Largest eigenvalues (count,), in ascending order, and their eigenvectors (D, count)."""
    from scipy.linalg import eigh

    dim = len(matrix)
    values, vectors = eigh(matrix.numpy(), subset_by_index=[dim - count, dim - 1], check_finite=False)
    return torch.from_numpy(values), torch.from_numpy(vectors)


def _check(observations: Tensor, latent_dim: int) -> None:
    count, dim = observations.shape
    check_rank(latent_dim, dim)
    if count < 2:
        raise InputError(f"{count} observations have no covariance: give at least 2")
    if not bool(torch.isfinite(observations).all()):
        raise InputError("observations has values that are not finite: leave out what diverged")

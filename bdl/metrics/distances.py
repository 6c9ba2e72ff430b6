"""Distances of a posterior to a reference, from their means (D,) and dense covariances (D, D).

All work in float64 and give scalars unless said otherwise. They check their input, so they are not for use
under `vmap`: each raises `InputError` if shapes disagree, a value is not finite, or a covariance is not
symmetric (to the root of its precision).
"""

import math
from collections.abc import Callable
from itertools import combinations

import torch
from torch import Tensor

from bdl.errors import InputError
from bdl.posteriors import FullGaussian, kl_divergence
from bdl.posteriors.base import check_finite, check_shape, check_vector

Moments = tuple[Tensor, Tensor]
"""Mean (D,) and covariance (D, D)."""


def rel_mean_dist(mean: Tensor, reference_mean: Tensor) -> Tensor:
    """Relative distance of the means, |m_ref - m|_2 / |m_ref|_2 (VIFA paper 2023, Table 4).

    Raises `InputError` also if the reference is zero.
    """
    _check_means(mean, reference_mean)
    return _relative(mean, reference_mean)


def rel_cov_dist(cov: Tensor, reference_cov: Tensor) -> Tensor:
    """Relative distance of the covariances, |S_ref - S|_F / |S_ref|_F (VIFA paper 2023, Table 4).

    Raises `InputError` also if the reference is zero. No eigenvalue is computed: an indefinite matrix passes.
    """
    _check_covariances(cov, reference_cov)
    return _relative(cov, reference_cov)


def wasserstein2(mean: Tensor, cov: Tensor, reference_mean: Tensor, reference_cov: Tensor) -> Tensor:
    """2-Wasserstein distance of two Gaussians, in the units of the parameters (not squared).

    The usual form |m1 - m2|^2 + tr(S1 + S2 - 2 (S2^{1/2} S1 S2^{1/2})^{1/2}) subtracts nearly equal traces and squares
    the condition number. With factors S_i = A_i A_i^T the trace of the root is the nuclear norm of A2^T A1, which is
    the maximum of tr(A1^T A2 U) over orthogonal U, so that

        W2^2 = |m1 - m2|^2 + min_U |A1 - A2 U|_F^2.

    The minimum lies at the polar factor U = P V^T of A2^T A1 = P diag(s) V^T (Bhatia, Jain and Lim 2019, theorem 1): a
    sum of squares, in which nothing cancels. The A_i come from eigendecompositions, so a covariance may be singular;
    eigenvalues that rounding made negative count as zero. The error left is that of rounding the covariances to
    float64: of order eps lmax / sqrt(lmin) with the extreme eigenvalues, and at most of order sqrt(D eps lmax). Time
    O(D^3), memory O(D^2). `InputError` also if the smallest eigenvalue is negative beyond the root of the precision
    times the largest.
    """
    _check_gaussians(mean, cov, reference_mean, reference_cov)
    factor = _factor("the covariance", cov)
    reference_factor = _factor("the reference covariance", reference_cov)
    left, _, right = torch.linalg.svd(reference_factor.mT @ factor)
    residual = factor - reference_factor @ (left @ right)
    squared: Tensor = (mean.double() - reference_mean.double()).square().sum() + residual.square().sum()
    return squared.sqrt()


def scaled_w2(mean: Tensor, cov: Tensor, reference_mean: Tensor, reference_cov: Tensor) -> Tensor:
    """`wasserstein2` (not squared) over the dimension D (VIFA paper 2023, Table 4)."""
    return wasserstein2(mean, cov, reference_mean, reference_cov) / len(mean)


def forward_kl(mean: Tensor, cov: Tensor, reference_mean: Tensor, reference_cov: Tensor) -> Tensor:
    """KL(reference || posterior) of two Gaussians, in nats, summed over parameters.

    Raises `InputError` also if a covariance is not positive definite.
    """
    _check_gaussians(mean, cov, reference_mean, reference_cov)
    ours, truth = (
        FullGaussian.from_covariance(at.double(), 0.5 * (spread.double() + spread.mT.double()))
        for at, spread in ((mean, cov), (reference_mean, reference_cov))
    )
    return kl_divergence(truth, ours)


def sym_kl(mean: Tensor, cov: Tensor, reference_mean: Tensor, reference_cov: Tensor) -> Tensor:
    """Average of `forward_kl` and of that with the two exchanged, in nats (SLANG paper 2018, Table 1)."""
    ours, truth = (mean, cov), (reference_mean, reference_cov)
    return 0.5 * (forward_kl(*ours, *truth) + forward_kl(*truth, *ours))


def monte_carlo_se(distance: Callable[[Tensor, Tensor], Tensor], chains: Tensor) -> Tensor:
    """Standard error of a distance to the moments of a sample, by the jackknife over half-chains.

    `distance` maps a reference mean (D,) and covariance (D, D) to a scalar; `chains` are C >= 2 chains of S >= 4 draws,
    (C, S, D), the last of an odd S not being used. `InputError` if there are too few draws or one is not finite.

    A noisier reference is farther away, so distances to pieces of the sample say little of the distance to the whole.
    Instead each of the P = 2C half-chains is left out in turn: with d_p the distance to the pooled moments of the
    others, the error is sqrt((P - 1) / P sum_p (d_p - mean d)^2) (Efron and Tibshirani 1993, equation 11.5). It holds
    for half-chains much longer than their autocorrelation time and for distances well above zero, where they are
    smooth; it does not tell the upward bias. Its own relative error is about 1 / sqrt(2 (P - 1)).
    """
    if chains.ndim != 3 or len(chains) < 2 or chains.shape[1] < 4:
        raise InputError(f"chains has shape {tuple(chains.shape)}: give (C, S, D) with C >= 2 and S >= 4")
    check_finite("chains", chains)
    count, length = 2 * len(chains), chains.shape[1] // 2
    parts = chains[:, : 2 * length].double().reshape(count, length, -1)
    centre = parts.mean((0, 1))
    parts = parts - centre  # second moments about a far origin would cancel
    scatter = parts.flatten(0, 1).mT @ parts.flatten(0, 1)
    kept = (count - 1) * length
    distances = []
    for part in parts:
        shift = -part.sum(0) / kept  # the mean of the others, since all sum to zero
        rest = scatter - part.mT @ part - kept * torch.outer(shift, shift)
        distances.append(distance(centre + shift, rest / (kept - 1)))
    return ((count - 1) * torch.stack(distances).var(correction=0)).sqrt()


def noise_floor(distance: Callable[[Moments, Moments], Tensor], chains: Tensor) -> Tensor:
    """Distance that the sampled distribution itself is expected to have to the moments of its sample.

    Small distances are linear in the errors of the moments. The errors of two halves of the sample are independent,
    each sqrt(2) times that of the whole, so the halves are twice as far apart as the truth and the whole sample: the
    floor is half the root mean square over the ways to halve the chains. `distance` maps two pairs of moments to a
    scalar, the second being the reference. `InputError` if the chains, (C, S, D), cannot be halved.
    """
    count = len(chains)
    if chains.ndim != 3 or count % 2 or not count:
        raise InputError(f"chains has shape {tuple(chains.shape)}: give (C, S, D) with an even C")
    halves = [half for half in combinations(range(count), count // 2) if 0 in half]
    squares = []
    for half in halves:
        other = [chain for chain in range(count) if chain not in half]
        squares.append(distance(_moments(chains[list(half)]), _moments(chains[other])).square())
    return 0.5 * torch.stack(squares).mean().sqrt()


def _moments(chains: Tensor) -> Moments:
    pooled = chains.flatten(0, 1).double()
    return pooled.mean(0), torch.cov(pooled.mT).reshape(chains.shape[-1], -1)


def _relative(value: Tensor, reference: Tensor) -> Tensor:
    if not bool(reference.any()):
        raise InputError("the reference is zero, so no distance is relative to it: leave this metric out")
    difference = reference.double() - value.double()
    return difference.square().sum().sqrt() / reference.double().square().sum().sqrt()


def _factor(name: str, cov: Tensor) -> Tensor:
    """A with A A^T = cov, shape (D, D): eigenvectors times roots of eigenvalues."""
    values, vectors = torch.linalg.eigh(cov.double())
    if bool(values[0] < -_tolerance(cov) * values.abs().max()):
        raise InputError(f"{name} has the eigenvalue {values[0]:.3g}: give a positive semi-definite matrix")
    factor: Tensor = vectors * values.clamp(min=0).sqrt()
    return factor


def _tolerance(cov: Tensor) -> float:
    return math.sqrt(torch.finfo(cov.dtype).eps)


def _check_gaussians(mean: Tensor, cov: Tensor, reference_mean: Tensor, reference_cov: Tensor) -> None:
    _check_means(mean, reference_mean)
    check_shape("the covariance", cov, len(mean), len(mean))
    _check_covariances(cov, reference_cov)


def _check_means(mean: Tensor, reference_mean: Tensor) -> None:
    check_vector("the mean", mean)
    check_shape("the reference mean", reference_mean, len(mean))
    check_finite("the mean", mean)
    check_finite("the reference mean", reference_mean)


def _check_covariances(cov: Tensor, reference_cov: Tensor) -> None:
    if cov.ndim != 2 or len(cov) != cov.shape[1] or not len(cov):
        raise InputError(f"the covariance has shape {tuple(cov.shape)}: give a square matrix")
    check_shape("the reference covariance", reference_cov, *cov.shape)
    for name, matrix in (("the covariance", cov), ("the reference covariance", reference_cov)):
        check_finite(name, matrix)
        if bool((matrix - matrix.mT).abs().max() > _tolerance(matrix) * matrix.abs().max()):
            raise InputError(f"{name} is not symmetric: give (C + C^T) / 2")

"""Distances of a posterior to a reference, from their means (D,) and dense covariances (D, D).

All work in float64 and give scalars unless said otherwise. They check their input, so they are not
for use under `vmap`: each raises `InputError` if shapes disagree, a value is not finite, or a
covariance is not symmetric (to the root of its precision).
"""

import math
from collections.abc import Callable
from itertools import combinations

import torch
from torch import Tensor

from bdl.errors import InputError
from bdl.posteriors import FullGaussian, kl_divergence
from bdl.posteriors.base import check_finite

Moments = tuple[Tensor, Tensor]
"""Mean (D,) and covariance (D, D)."""


def relative_distance(value: Tensor, reference: Tensor) -> Tensor:
    """Relative distance of two means |m_ref - m|_2 / |m_ref|_2, or covariances |S_ref - S|_F /
    |S_ref|_F.

    VIFA paper 2023, Table 4. `InputError` also if the reference is zero; an indefinite matrix
    passes.
    """
    _check_pair(value, reference)
    if not bool(reference.any()):
        raise InputError(
            "the reference is zero, so no distance is relative to it: leave this metric out"
        )
    difference = reference.double() - value.double()
    return difference.square().sum().sqrt() / reference.double().square().sum().sqrt()


def wasserstein2(ours: Moments, reference: Moments) -> Tensor:
    """2-Wasserstein distance of two Gaussians, in the units of the parameters (not squared).

    The usual form |m1 - m2|^2 + tr(S1 + S2 - 2 (S2^{1/2} S1 S2^{1/2})^{1/2}) subtracts nearly
    equal traces and squares the condition number. With factors S_i = A_i A_i^T the trace of the
    root is the nuclear norm of A2^T A1, which is the maximum of tr(A1^T A2 U) over orthogonal U,
    so that

        W2^2 = |m1 - m2|^2 + min_U |A1 - A2 U|_F^2.

    The minimum lies at the polar factor U = P V^T of A2^T A1 = P diag(s) V^T (Bhatia, Jain and Lim
    2019, theorem 1): a sum of squares, in which nothing cancels. The A_i come from
    eigendecompositions, so a covariance may be singular; eigenvalues that rounding made negative
    count as zero. The error left is that of rounding the covariances to float64: of order eps lmax
    / sqrt(lmin) with the extreme eigenvalues, and at most of order sqrt(D eps lmax). Time O(D^3),
    memory O(D^2). `InputError` also if the smallest eigenvalue is negative beyond the root of the
    precision times the largest.
    """
    _check_moments(ours, reference)
    (mean, cov), (reference_mean, reference_cov) = ours, reference
    factor = _factorise("the covariance", cov)
    reference_factor = _factorise("the reference covariance", reference_cov)
    left, _, right = torch.linalg.svd(reference_factor.mT @ factor)
    residual = factor - reference_factor @ (left @ right)
    squared: Tensor = (
        mean.double() - reference_mean.double()
    ).square().sum() + residual.square().sum()
    return squared.sqrt()


def forward_kl(ours: Moments, reference: Moments) -> Tensor:
    """KL(reference || posterior) of two Gaussians, in nats, summed over parameters.

    Raises `InputError` also if a covariance is not positive definite.
    """
    _check_moments(ours, reference)
    return kl_divergence(_build_gaussian(*reference), _build_gaussian(*ours))


def _build_gaussian(mean: Tensor, cov: Tensor) -> FullGaussian:
    # rounding leaves covariances asymmetric, of which a Cholesky factorisation sees one half alone
    symmetric = 0.5 * (cov.double() + cov.mT.double())
    return FullGaussian.from_covariance(mean.double(), symmetric)


def sym_kl(ours: Moments, reference: Moments) -> Tensor:
    """Average of `forward_kl` and of that with the two exchanged, in nats (SLANG paper 2018, Table
    1).
    """
    return 0.5 * (forward_kl(ours, reference) + forward_kl(reference, ours))


def monte_carlo_se(distance: Callable[[Moments], Tensor], chains: Tensor) -> Tensor:
    """Standard error of a distance to the moments of a sample, by the jackknife over half-chains.

    `distance` maps moments of the reference to a scalar; `chains` are C >= 2 chains of S >= 4
    draws, (C, S, D), the last of an odd S not being used.

    A noisier reference is farther away, so distances to pieces of the sample say little of the
    distance to the whole. Instead each of the P = 2C half-chains is left out in turn: with d_p the
    distance to the pooled moments of the others, the error is sqrt((P - 1) / P sum_p (d_p - mean
    d)^2) (Efron and Tibshirani 1993, equation 11.5). It holds for half-chains much longer than
    their autocorrelation time and for distances well above zero, where they are smooth; it does
    not tell the upward bias. Its own relative error is about 1 / sqrt(2 (P - 1)).
    """
    length = chains.shape[1] // 2
    halves = chains[:, : 2 * length].reshape(2 * len(chains), length, -1)
    return jackknife(lambda rest: distance(_pool_moments(rest)), halves).sqrt()


def jackknife(measure: Callable[[Tensor], Tensor], groups: Tensor) -> Tensor:
    """Square of the standard error of a measure of samples in groups, (G, T, n), by leaving out
    each group in turn.
    """
    count = len(groups)
    values = []
    for left_out in range(count):
        values.append(measure(groups[torch.arange(count) != left_out]))
    return (count - 1) * torch.stack(values).var(correction=0)


def noise_floor(distance: Callable[[Moments, Moments], Tensor], chains: Tensor) -> Tensor:
    """Distance that the sampled distribution itself is expected to have to the moments of its
    sample.

    Small distances are linear in the errors of the moments. The errors of two halves of the sample
    are independent, each sqrt(2) times that of the whole, so the halves are twice as far apart as
    the truth and the whole sample: the floor is half the root mean square over the ways to halve
    the chains, (C, S, D) with an even C. For a divergence, which is quadratic in the errors, it is
    about twice too large. `distance` maps two pairs of moments to a scalar, the second being the
    reference.
    """
    count = len(chains)
    squares = []
    for half in combinations(range(count), count // 2):
        if 0 not in half:  # its complement has been compared already
            continue
        complement = [chain for chain in range(count) if chain not in half]
        squares.append(
            distance(_pool_moments(chains[list(half)]), _pool_moments(chains[complement])).square()
        )
    return 0.5 * torch.stack(squares).mean().sqrt()


def _pool_moments(chains: Tensor) -> Moments:
    pooled = chains.flatten(0, 1).double()
    return pooled.mean(0), torch.cov(pooled.mT).reshape(chains.shape[-1], -1)


def _factorise(name: str, cov: Tensor) -> Tensor:
    """A with A A^T = cov, shape (D, D): eigenvectors times roots of eigenvalues."""
    # A Cholesky factor would do for definite matrices only; samples fewer than D give singular
    # ones.
    values, vectors = torch.linalg.eigh(cov.double())
    if bool(values[0] < -_rounding_tolerance(cov) * values.abs().max()):
        raise InputError(
            f"{name} has the eigenvalue {values[0]:.3g}: give a positive semi-definite matrix"
        )
    factor: Tensor = vectors * values.clamp(min=0).sqrt()
    return factor


def _rounding_tolerance(cov: Tensor) -> float:
    return math.sqrt(torch.finfo(cov.dtype).eps)


def _check_moments(ours: Moments, reference: Moments) -> None:
    for pair in zip(ours, reference, strict=True):
        _check_pair(*pair)


def _check_pair(value: Tensor, reference: Tensor) -> None:
    """Check two means, or two covariances."""
    moment = "mean" if value.ndim == 1 else "covariance"
    if value.shape != reference.shape:
        raise InputError(
            f"the {moment} has shape {tuple(value.shape)}, and that of the reference "
            f"{tuple(reference.shape)}"
        )
    for name, tensor in ((f"the {moment}", value), (f"the reference {moment}", reference)):
        check_finite(name, tensor)
        if tensor.ndim == 2 and bool(
            (tensor - tensor.mT).abs().max() > _rounding_tolerance(tensor) * tensor.abs().max()
        ):
            raise InputError(f"{name} is not symmetric: give (C + C^T) / 2")

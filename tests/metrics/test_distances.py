"""Distances between Gaussians against closed forms, scipy, torch.distributions and fifty-digit arithmetic."""

import math

import mpmath
import pytest
import torch
from torch import Tensor
from torch.distributions import MultivariateNormal, kl_divergence

from bdl.errors import InputError
from bdl.metrics.distances import (
    forward_kl,
    monte_carlo_se,
    noise_floor,
    relative_distance,
    sym_kl,
    wasserstein2,
)

from .fits import normal, tensor

DIM = 6


def rotation(seed: int) -> Tensor:
    return torch.linalg.qr(normal(seed, DIM, DIM)).Q


def symmetric(matrix: Tensor) -> Tensor:
    return 0.5 * (matrix + matrix.mT)


def covariance(seed: int, decades: float = 2.0) -> Tensor:
    """Rotate eigenvalues 1 ... 10^-decades at random."""
    axes = rotation(seed)
    return symmetric(axes * torch.logspace(0, -decades, DIM, dtype=torch.float64) @ axes.mT)


def exact_w2(cov: Tensor, other: Tensor) -> float:
    """The trace formula with so many digits that its cancellation does not matter."""
    with mpmath.workdps(50):
        first, second = mpmath.matrix(cov.tolist()), mpmath.matrix(other.tolist())
        values, axes = mpmath.eigsy(second)
        root = axes * mpmath.diag([mpmath.sqrt(value) for value in values]) * axes.T
        squares = mpmath.eigsy(root * first * root, eigvals_only=True)
        inner = mpmath.fsum(mpmath.sqrt(square) for square in squares)
        traces = mpmath.fsum(first[i, i] + second[i, i] for i in range(len(cov)))
        return float(mpmath.sqrt(traces - 2 * inner))


def test_relative_distances():
    """That of covariances counts both triangles."""
    assert relative_distance(tensor(3, 0), tensor(3, 4)).item() == pytest.approx(0.8, rel=1e-15)
    found = relative_distance(tensor([3, 1], [1, 4]), tensor([3, 0], [0, 4]))
    assert found.item() == pytest.approx(math.sqrt(2) / 5, rel=1e-15)


def test_w2_of_commuting_covariances_is_the_distance_of_their_roots():
    axes, sd, other_sd = rotation(0), normal(1, DIM).exp(), normal(2, DIM).exp()
    mean, other_mean = normal(3, DIM), normal(4, DIM)
    expected = torch.cat([mean - other_mean, sd - other_sd]).norm().item()
    pair = (
        (mean, symmetric(axes * sd**2 @ axes.mT)),
        (other_mean, symmetric(axes * other_sd**2 @ axes.mT)),
    )
    assert wasserstein2(*pair).item() == pytest.approx(expected, rel=1e-13)


def test_w2_of_singular_covariances():
    """Orthogonal lines: nothing is shared, so the traces add. A point: the trace of the other."""
    zero, first, second = tensor(0, 0), tensor([4, 0], [0, 0]), tensor([0, 0], [0, 9])
    assert wasserstein2((zero, first), (zero, second)).item() == pytest.approx(
        math.sqrt(13), rel=1e-15
    )
    assert wasserstein2((zero, first), (zero, 0 * first)).item() == pytest.approx(2, rel=1e-15)


@pytest.mark.parametrize("decades", [0, 6, 12])
def test_w2_of_equal_distributions_is_rounding(decades):
    """At most 4 D eps lmax / sqrt(lmin): the trace formula gives some 1e-8, or the root of a negative number."""
    mean, cov = normal(0, DIM), covariance(0, decades)
    limit = 4 * DIM * torch.finfo(torch.float64).eps * 10 ** (decades / 2)
    assert wasserstein2((mean, cov), (mean, cov)).item() < limit


@pytest.mark.parametrize(("decades", "floor"), [(0, 1e-14), (6, 1e-14), (12, 5e-11)])
@pytest.mark.parametrize("change", [1.0, 1e-3, 1e-6, 1e-9])
def test_w2_of_near_and_ill_conditioned_distributions(decades, floor, change):
    """A random change of relative size `change` in the factor gives a W2 of that size.

    The trace formula is wrong by up to 1e-7 at condition 1 and 3e-5 at 1e12.
    """
    mean, cov = torch.zeros(DIM, dtype=torch.float64), covariance(0, decades)
    values, axes = torch.linalg.eigh(cov)
    factor = (torch.eye(DIM, dtype=torch.float64) + change * normal(1, DIM, DIM)) @ (
        axes * values.sqrt()
    )
    other = symmetric(factor @ factor.mT)
    expected = exact_w2(cov, other)
    assert expected > 0.1 * change
    assert wasserstein2((mean, cov), (mean, other)).item() == pytest.approx(
        expected, rel=1e-13, abs=floor
    )


def test_single_precision_input_is_measured_in_double_precision():
    """Rounded to float32, a covariance of condition 1e8 may be indefinite by 1e-7: that is let pass."""
    mean, cov, moderate = normal(0, DIM).float(), covariance(0, 8).float(), covariance(0).float()
    for matrix in (cov, moderate):
        matrix[0, 1] *= 1 + 1e-6
    for distance in (
        relative_distance(cov, cov),
        wasserstein2((mean, cov), (mean, cov)),
        relative_distance(mean, mean),
    ):
        assert distance.dtype == torch.float64
        assert distance.item() < 1e-8
    assert abs(sym_kl((mean, moderate), (mean, moderate)).item()) < 1e-13


def test_kl_directions():
    q, reference = (normal(100, DIM), covariance(0)), (normal(150, DIM), covariance(50))
    laws = MultivariateNormal(*q), MultivariateNormal(*reference)
    forward, reverse = kl_divergence(*laws[::-1]).item(), kl_divergence(*laws).item()
    assert forward_kl(q, reference).item() == pytest.approx(forward, rel=1e-12)
    assert sym_kl(q, reference).item() == pytest.approx((forward + reverse) / 2, rel=1e-12)


def test_jackknife_of_a_mean_is_the_standard_error_of_part_means():
    """For a linear distance the jackknife is exact: sd of the P part means over sqrt(P).

    S = 11 uses 10.
    """
    chains = normal(0, 3, 11, 2)
    part_means = chains[:, :10].reshape(6, 5, 2).mean(1)[:, 0]
    expected = part_means.std().item() / math.sqrt(6)
    assert monte_carlo_se(lambda moments: moments[0][0], chains).item() == pytest.approx(
        expected, rel=1e-13
    )


def test_the_floor_is_the_distance_of_the_truth_to_a_sample():
    """Independent draws, so that moments have known errors.

    The root mean square distance over 100 samples.
    """
    scale = tensor(1, 2, 0.5, 1.5, 1)
    truth, samples = (
        (torch.ones(5).double(), torch.diag(scale.square())),
        1 + scale * normal(0, 100, 4, 500, 5),
    )
    for distance in (
        lambda ours, reference: relative_distance(ours[1], reference[1]),
        wasserstein2,
    ):
        pooled = [chains.flatten(0, 1) for chains in samples]
        found = torch.stack([noise_floor(distance, chains) for chains in samples]).square()
        expected = torch.stack(
            [distance(truth, (own.mean(0), torch.cov(own.T))) for own in pooled]
        ).square()
        error = torch.hypot(found.std(), expected.std()) / 10
        assert abs(found.mean() - expected.mean()) < 4 * error < 0.4 * expected.mean()


def test_the_floor_is_half_the_root_mean_square_over_the_ways_to_halve():
    """Chains of constant 0, 1, 3 and 7: means of halves are 4.5, 2.5 and 1.5 apart."""
    chains = tensor(0, 1, 3, 7).reshape(4, 1, 1).expand(4, 6, 1)
    floor = noise_floor(lambda ours, reference: (ours[0] - reference[0]).abs().sum(), chains)
    assert floor.item() == pytest.approx(
        0.5 * math.sqrt((4.5**2 + 2.5**2 + 1.5**2) / 3), rel=1e-12
    )


ONE, EYE = torch.ones(2, dtype=torch.float64), torch.eye(2, dtype=torch.float64)
SKEW = tensor([1, 0.1], [0, 1])
INDEFINITE = tensor([1, 2], [2, 1])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: relative_distance(ONE, 0 * ONE), "reference is zero"),
        (
            lambda: relative_distance(ONE * math.nan, ONE),
            "the mean has values that are not finite",
        ),
        (lambda: relative_distance(EYE, SKEW), "reference covariance is not symmetric"),
        (
            lambda: wasserstein2((ONE, EYE), (ONE, EYE * math.inf)),
            "reference covariance has values",
        ),
        (lambda: wasserstein2((ONE, -EYE), (ONE, EYE)), "the covariance has the eigenvalue -1"),
        (lambda: forward_kl((ONE, INDEFINITE), (ONE, EYE)), "not positive definite"),
        (
            lambda: relative_distance(torch.ones(5), torch.ones(1)),
            r"the mean has shape \(5,\), and that of the reference \(1,\)",
        ),
    ],
)
def test_bad_input_is_refused(call, message):
    with pytest.raises(InputError, match=message):
        call()

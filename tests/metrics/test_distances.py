"""Distances between Gaussians against closed forms, scipy, torch.distributions and fifty-digit arithmetic."""

import math

import mpmath
import pytest
import torch
from scipy import signal
from torch import Tensor
from torch.distributions import MultivariateNormal, kl_divergence

from bdl.errors import InputError
from bdl.metrics.distances import (
    forward_kl,
    monte_carlo_se,
    noise_floor,
    rel_cov_dist,
    rel_mean_dist,
    reverse_kl,
    scaled_w2,
    sym_kl,
    wasserstein2,
)

EPS = torch.finfo(torch.float64).eps
DIM = 6


def tensor(*values: object) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def normal(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def rotation(seed: int, dim: int = DIM) -> Tensor:
    return torch.linalg.qr(normal(seed, dim, dim)).Q


def symmetric(matrix: Tensor) -> Tensor:
    return 0.5 * (matrix + matrix.mT)


def covariance(seed: int, decades: float = 2.0, dim: int = DIM) -> Tensor:
    """Rotate eigenvalues 1 ... 10^-decades at random."""
    axes = rotation(seed, dim)
    return symmetric(axes * torch.logspace(0, -decades, dim, dtype=torch.float64) @ axes.mT)


def gaussian(seed: int) -> tuple[Tensor, Tensor]:
    return normal(seed + 100, DIM), covariance(seed)


def exact_w2(mean: Tensor, cov: Tensor, other_mean: Tensor, other_cov: Tensor) -> float:
    """The trace formula with so many digits that its cancellation does not matter."""
    with mpmath.workdps(50):
        first, second = mpmath.matrix(cov.tolist()), mpmath.matrix(other_cov.tolist())
        values, axes = mpmath.eigsy(second)
        root = axes * mpmath.diag([mpmath.sqrt(value) for value in values]) * axes.T
        squares = mpmath.eigsy(root * first * root, eigvals_only=True)
        inner = mpmath.fsum(mpmath.sqrt(square) for square in squares)
        traces = mpmath.fsum(first[i, i] + second[i, i] for i in range(len(mean)))
        shift = mpmath.norm(mpmath.matrix(mean.tolist()) - mpmath.matrix(other_mean.tolist()))
        return float(mpmath.sqrt(shift**2 + traces - 2 * inner))


def rounding(decades: float) -> float:
    """Error that the docstring admits for eigenvalues 1 ... 10^-decades: 4 D eps lmax / sqrt(lmin)."""
    return 4 * DIM * EPS * 10 ** (decades / 2)


def test_rel_mean_dist():
    assert rel_mean_dist(tensor(3.0, 0.0), tensor(3.0, 4.0)).item() == pytest.approx(0.8, rel=1e-15)


def test_rel_cov_dist_counts_both_triangles():
    cov, reference = tensor([3.0, 1.0], [1.0, 4.0]), tensor([3.0, 0.0], [0.0, 4.0])
    assert rel_cov_dist(cov, reference).item() == pytest.approx(math.sqrt(2) / 5, rel=1e-15)


def test_w2_of_commuting_covariances_is_the_distance_of_their_roots():
    axes, sd, other_sd = rotation(0), normal(1, DIM).exp(), normal(2, DIM).exp()
    mean, other_mean = normal(3, DIM), normal(4, DIM)
    expected = torch.cat([mean - other_mean, sd - other_sd]).norm().item()
    pair = symmetric(axes * sd**2 @ axes.mT), symmetric(axes * other_sd**2 @ axes.mT)
    assert wasserstein2(mean, pair[0], other_mean, pair[1]).item() == pytest.approx(expected, rel=1e-13)


def test_w2_of_singular_covariances():
    """Orthogonal lines: nothing is shared, so the traces add. A point: the trace of the other."""
    zero = torch.zeros(2, dtype=torch.float64)
    first, second = tensor([4.0, 0.0], [0.0, 0.0]), tensor([0.0, 0.0], [0.0, 9.0])
    assert wasserstein2(zero, first, zero, second).item() == pytest.approx(math.sqrt(13), rel=1e-15)
    assert wasserstein2(zero, first, zero, 0 * first).item() == pytest.approx(2, rel=1e-15)


@pytest.mark.parametrize("decades", [0, 6, 12])
@pytest.mark.parametrize("seed", range(3))
def test_w2_of_equal_distributions_is_rounding(seed, decades):
    """The trace formula gives some 1e-8 at any condition number, or the root of a negative number."""
    mean, cov = normal(seed, DIM), covariance(seed, decades)
    assert wasserstein2(mean, cov, mean, cov).item() < rounding(decades)


@pytest.mark.parametrize(("decades", "floor"), [(0, 1e-14), (6, 1e-14), (12, 5e-11)])
@pytest.mark.parametrize("change", [1.0, 1e-3, 1e-6, 1e-9])
def test_w2_of_near_and_ill_conditioned_distributions(decades, floor, change):
    """A random change of relative size `change` in the factor gives a W2 of that size.

    The trace formula is wrong by up to 1e-7 at condition 1 and 3e-5 at 1e12.
    """
    mean = torch.zeros(DIM, dtype=torch.float64)
    cov = covariance(0, decades)
    values, axes = torch.linalg.eigh(cov)
    twist = torch.eye(DIM, dtype=torch.float64) + change * normal(1, DIM, DIM)
    factor = twist @ (axes * values.sqrt())
    other = symmetric(factor @ factor.mT)
    expected = exact_w2(mean, cov, mean, other)
    assert expected > 0.1 * change
    distance = wasserstein2(mean, cov, mean, other).item()
    assert distance == pytest.approx(expected, rel=1e-13, abs=floor)


def test_scaled_w2_is_over_the_dimension():
    pair = *gaussian(0), *gaussian(1)
    assert scaled_w2(*pair).item() == wasserstein2(*pair).item() / DIM


def test_single_precision_input_is_measured_in_double_precision():
    """Rounded to float32, a covariance of condition 1e8 may be indefinite by 1e-7: that is let pass."""
    mean, cov = normal(0, DIM).float(), covariance(0, 8).float()
    cov[0, 1] *= 1 + 1e-6
    for distance in (rel_cov_dist(cov, cov), scaled_w2(mean, cov, mean, cov), rel_mean_dist(mean, mean)):
        assert distance.dtype == torch.float64
        assert distance.item() < 1e-8
    moderate = covariance(0).float()
    moderate[0, 1] *= 1 + 1e-6
    assert abs(sym_kl(mean, moderate, mean, moderate).item()) < 1e-13


@pytest.mark.parametrize("seed", range(3))
def test_kl_directions(seed):
    q, reference = gaussian(seed), gaussian(seed + 50)
    q_law, reference_law = MultivariateNormal(*q), MultivariateNormal(*reference)
    forward = kl_divergence(reference_law, q_law).item()
    reverse = kl_divergence(q_law, reference_law).item()
    assert forward_kl(*q, *reference).item() == pytest.approx(forward, rel=1e-12)
    assert reverse_kl(*q, *reference).item() == pytest.approx(reverse, rel=1e-12)
    assert sym_kl(*q, *reference).item() == pytest.approx((forward + reverse) / 2, rel=1e-12)


def test_jackknife_of_a_mean_is_the_standard_error_of_part_means():
    """For a linear distance the jackknife is exact: sd of the P part means over sqrt(P). S = 11 uses 10."""
    chains = normal(0, 3, 11, 2)
    part_means = chains[:, :10].reshape(6, 5, 2).mean(1)[:, 0]
    expected = part_means.std().item() / math.sqrt(6)
    assert monte_carlo_se(lambda mean, _: mean[0], chains).item() == pytest.approx(expected, rel=1e-13)


def test_jackknife_passes_the_pooled_moments_of_all_other_parts():
    """Far from the origin, where second moments cancel: float64 leaves 1e4 eps of each deviation."""
    chains = 1e4 + normal(0, 2, 8, 3)
    seen = []
    monte_carlo_se(lambda mean, cov: seen.append((mean, cov)) or mean[0], chains)
    parts = chains.reshape(4, 4, 3)
    for left_out, (mean, cov) in enumerate(seen):
        others = parts[[i for i in range(4) if i != left_out]].reshape(-1, 3)
        torch.testing.assert_close(mean, others.mean(0), rtol=1e-14, atol=0)
        torch.testing.assert_close(cov, torch.cov(others.mT), rtol=0, atol=1e-10)
    assert len(seen) == 4


def test_jackknife_matches_the_spread_over_replications_of_autocorrelated_chains():
    """Over R replications, mean se^2 against the variance of the distance.

    AR(1) chains with rho = 0.8 have an autocorrelation time of 9 draws, so half-chains of 200 are all but
    independent. Tolerance: four standard errors of the ratio. Shuffled over all chains, the draws look
    independent, and the squared error falls by 9 for means and (1 + rho^2) / (1 - rho^2) = 4.6 for variances.
    """
    replications, shape, rho = 300, (4, 400, 2), 0.8
    noise = normal(0, replications, shape[0], shape[1] + 100, shape[2]).numpy()
    draws = signal.lfilter([math.sqrt(1 - rho**2)], [1, -rho], noise, axis=2)[:, :, 100:]
    chains = torch.from_numpy(draws) @ tensor([1.0, 0.0], [0.5, 0.3])
    mean, cov = tensor(0.5, 0.0), tensor([0.6, 0.0], [0.0, 0.2])

    def distance(reference_mean: Tensor, reference_cov: Tensor) -> Tensor:
        return wasserstein2(mean, cov, reference_mean, reference_cov)

    pooled = chains.flatten(1, 2)
    truth = torch.stack([distance(x.mean(0), torch.cov(x.mT)) for x in pooled]).var().item()
    squared = torch.stack([monte_carlo_se(distance, c) for c in chains]).square()
    ratio = squared.mean().item() / truth
    variation = squared.var().item() / squared.mean().item() ** 2
    assert abs(ratio - 1) < 4 * ratio * math.sqrt(2 / (replications - 1) + variation / replications)
    order = torch.randperm(pooled.shape[1], generator=torch.Generator().manual_seed(1))
    shuffled = pooled[:50, order].reshape(-1, *shape)
    naive = torch.stack([monte_carlo_se(distance, c) for c in shuffled]).square().mean().item()
    assert naive < 0.3 * truth


ONE, EYE = torch.ones(2, dtype=torch.float64), torch.eye(2, dtype=torch.float64)
SKEW = tensor([1.0, 0.1], [0.0, 1.0])
INDEFINITE = tensor([1.0, 2.0], [2.0, 1.0])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: rel_mean_dist(ONE, 0 * ONE), "reference is zero"),
        (lambda: rel_mean_dist(ONE, torch.ones(3)), "reference mean has shape"),
        (lambda: rel_mean_dist(ONE * math.nan, ONE), "the mean has values that are not finite"),
        (lambda: rel_cov_dist(EYE, 0 * EYE), "reference is zero"),
        (lambda: rel_cov_dist(EYE, torch.eye(3)), "reference covariance has shape"),
        (lambda: rel_cov_dist(torch.ones(2, 3), EYE), "square"),
        (lambda: rel_cov_dist(EYE, SKEW), "reference covariance is not symmetric"),
        (lambda: wasserstein2(ONE, torch.eye(3), ONE, torch.eye(3)), "give it shape"),
        (lambda: wasserstein2(ONE, EYE, ONE, EYE * math.inf), "reference covariance has values"),
        (lambda: wasserstein2(ONE, SKEW, ONE, EYE), "the covariance is not symmetric"),
        (lambda: wasserstein2(ONE, EYE, ONE, INDEFINITE), "reference covariance has the eigenvalue -1"),
        (lambda: wasserstein2(ONE, -EYE, ONE, EYE), "the covariance has the eigenvalue -1"),
        (lambda: forward_kl(ONE, INDEFINITE, ONE, EYE), "not positive definite"),
        (lambda: reverse_kl(ONE, EYE, ONE[:1], EYE), "the reference mean has shape"),
        (lambda: monte_carlo_se(rel_mean_dist, torch.zeros(1, 9, 2)), "chains has shape"),
        (lambda: monte_carlo_se(rel_mean_dist, torch.zeros(2, 3, 2)), "chains has shape"),
        (lambda: monte_carlo_se(rel_mean_dist, torch.full((2, 4, 2), math.nan)), "chains has values"),
    ],
)
def test_bad_input_is_told_in_one_line(call, message):
    with pytest.raises(InputError, match=message) as error:
        call()
    assert "\n" not in str(error.value)


def test_the_floor_is_the_distance_of_the_truth_to_a_sample():
    """Independent draws, so that moments have known errors; the root mean square distance over 200 samples."""
    generator = torch.Generator().manual_seed(0)
    scale = torch.tensor([1.0, 2.0, 0.5, 1.5, 1.0], dtype=torch.float64)
    mean, cov = torch.ones(5, dtype=torch.float64), torch.diag(scale.square())
    for distance in (
        lambda ours, reference: rel_mean_dist(ours[0], reference[0]),
        lambda ours, reference: rel_cov_dist(ours[1], reference[1]),
        lambda ours, reference: wasserstein2(*ours, *reference),
    ):
        floors, distances = [], []
        for _ in range(100):
            chains = mean + scale * torch.randn(4, 500, 5, generator=generator, dtype=torch.float64)
            pooled = chains.flatten(0, 1)
            floors.append(noise_floor(distance, chains).square())
            distances.append(distance((mean, cov), (pooled.mean(0), torch.cov(pooled.T))).square())
        found, expected = torch.stack(floors), torch.stack(distances)
        error = torch.hypot(found.std(), expected.std()) / 10
        assert abs(found.mean() - expected.mean()) < 4 * error
        assert error < 0.1 * expected.mean()


def test_the_floor_is_half_the_root_mean_square_over_the_ways_to_halve():
    """Chains of constant 0, 1, 3 and 7: means of halves are 4.5, 2.5 and 1.5 apart."""
    chains = tensor(0.0, 1.0, 3.0, 7.0).reshape(4, 1, 1).expand(4, 6, 1)
    floor = noise_floor(lambda ours, reference: (ours[0] - reference[0]).abs().sum(), chains)
    assert floor.item() == pytest.approx(0.5 * math.sqrt((4.5**2 + 2.5**2 + 1.5**2) / 3), rel=1e-12)


@pytest.mark.parametrize("shape", [(3, 10, 2), (0, 10, 2)])
def test_a_floor_needs_chains_that_can_be_halved(shape):
    with pytest.raises(InputError, match="even C"):
        noise_floor(lambda ours, reference: rel_cov_dist(ours[1], reference[1]), torch.randn(*shape))

"""Scores against the true posterior: they are the distances, of the right parts of the moments."""

import pytest
import torch

from bdl.errors import InputError
from bdl.metrics import distances
from bdl.metrics.parameters import RelCovDist, RelMeanDist, ScaledW2, SymKl
from bdl.posteriors import DiagonalGaussian, Dropout, Empirical, FullGaussian
from bdl.references.base import Truth

from .fits import fit, normal

DIM = 4
SCORES = {
    RelMeanDist(): lambda ours, reference: distances.rel_mean_dist(ours[0], reference[0]),
    RelCovDist(): lambda ours, reference: distances.rel_cov_dist(ours[1], reference[1]),
    ScaledW2(): lambda ours, reference: distances.scaled_w2(*ours, *reference),
    SymKl(): lambda ours, reference: distances.sym_kl(*ours, *reference),
}


def covariance(seed: int, dim: int = DIM) -> torch.Tensor:
    root = normal(seed, dim, dim) + 3 * torch.eye(dim, dtype=torch.float64)
    return root @ root.mT


OURS = normal(0, DIM), covariance(1)
TRUTH = Truth(normal(2, DIM), covariance(3), {})
POSTERIOR = FullGaussian.from_covariance(*OURS)


def by_name(score: object) -> str:
    return type(score).__name__


@pytest.mark.parametrize("score", SCORES, ids=by_name)
def test_an_exact_truth(score):
    expected = SCORES[score](OURS, TRUTH[:2]).item()
    assert score(fit(POSTERIOR, truth=lambda: TRUTH)) == {"": pytest.approx(expected, rel=1e-12)}


@pytest.mark.parametrize("score", SCORES, ids=by_name)
def test_a_sampled_truth_has_errors_and_a_floor(score):
    chains = normal(4, 4, 50, DIM) @ torch.linalg.cholesky(TRUTH.covariance).mT
    pooled = chains.flatten(0, 1)
    truth = Truth(pooled.mean(0), torch.cov(pooled.mT), {}, chains)
    found, measure = score(fit(POSTERIOR, truth=lambda: truth)), SCORES[score]
    assert set(found) == {"", "mcse", "floor"}
    error = distances.monte_carlo_se(lambda *reference: measure(OURS, reference), chains)
    assert found["mcse"] == pytest.approx(error.item(), rel=1e-9)
    assert found["floor"] == pytest.approx(distances.noise_floor(measure, chains).item(), rel=1e-12)
    assert 0 < found["mcse"] < found[""]


@pytest.mark.parametrize("score", SCORES, ids=by_name)
def test_a_truth_that_knows_few_covariances(score):
    """Those of the first two parameters are compared; the distance of means looks at all four."""
    truth = Truth(TRUTH.mean, TRUTH.covariance[:2, :2], {})
    d = DIM if isinstance(score, RelMeanDist) else 2
    expected = SCORES[score]((OURS[0][:d], OURS[1][:d, :d]), (truth.mean[:d], truth.covariance)).item()
    assert score(fit(POSTERIOR, truth=lambda: truth))[""] == pytest.approx(expected, rel=1e-12)


def test_single_precision_posteriors_have_their_moments_in_double_precision():
    posterior = DiagonalGaussian(torch.full((2,), 0.1), torch.full((2,), 1e-20))
    mean, covariance = fit(posterior).moments
    assert mean.dtype == covariance.dtype == torch.float64
    assert mean.tolist() == posterior.loc.double().tolist()
    assert covariance.diagonal().tolist() == posterior.var.double().tolist()


def test_the_truth_is_looked_up_once():
    calls = []
    evaluation = fit(POSTERIOR, truth=lambda: calls.append(1) or TRUTH)
    assert not calls
    for score in SCORES:
        score(evaluation)
    assert calls == [1]


@pytest.mark.parametrize(
    "posterior",
    [
        Dropout(torch.ones(DIM), torch.tensor([0, 0, 1, 2]), torch.full((2,), 0.5)),
        Empirical(normal(5, 10, DIM)),
    ],
    ids=by_name,
)
def test_divergences_need_a_gaussian(posterior):
    evaluation = fit(posterior, truth=lambda: TRUTH)
    with pytest.raises(InputError, match=f"^sym_kl: {by_name(posterior)} is not Gaussian: leave the metric out$"):
        SymKl()(evaluation)
    assert RelCovDist()(evaluation)[""] > 0


def test_without_a_truth():
    with pytest.raises(InputError, match="distances need the true posterior: give the entry a reference"):
        ScaledW2()(fit(POSTERIOR))

"""Distances of functions: closed forms of Gaussians, and what finite samples leave of them."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import wasserstein_distance
from torch.distributions import MultivariateNormal, kl_divergence

from bdl.errors import InputError
from bdl.methods.conjugate import Conjugate
from bdl.metrics import functions
from bdl.metrics.evaluation import Evaluation
from bdl.metrics.functions import (
    FunctionAgreement,
    FunctionJointKl,
    FunctionMeanError,
    FunctionSdError,
    FunctionSdRatio,
    FunctionSlicedW2,
    FunctionTv,
    FunctionW2,
)
from bdl.metrics.parameters import RelMeanDist
from bdl.metrics.predictions import as_tensors
from bdl.models.likelihoods import Bernoulli, GaussianLikelihood
from bdl.models.networks import LinearModel
from bdl.models.problem import Problem
from bdl.posteriors import DiagonalGaussian, Empirical
from bdl.references.base import Truth

from .fits import KEY, examples, fit, normal, tensor

ROWS, SAMPLES = 4, 2**15
TEST = examples(normal(2, ROWS, 2), normal(3, ROWS))
PROBLEM = Problem(LinearModel(), GaussianLikelihood(), 2)
HYPER = {"prior_precision": 1.0, "noise_precision": 2.0}
EXACT = Conjugate().fit(PROBLEM, normal(0, 30, 2), normal(1, 30), as_tensors(HYPER))
TRUTH = Truth(EXACT.mean(), EXACT.covariance(), {})
DESIGN = torch.cat([TEST.x, torch.ones(ROWS, 1, dtype=torch.float64)], 1)
MEAN_FIELD = DiagonalGaussian(
    EXACT.mean() + tensor(0.1, -0.2, 0.05), 0.5 / torch.linalg.inv(EXACT.covariance()).diagonal()
)


def fitted(
    posterior, truth=TRUTH, samples=2000, problem=PROBLEM, test=TEST, key=KEY
) -> Evaluation:
    given = {"hyper": HYPER, "test": lambda: test, "truth": lambda: truth}
    return fit(posterior, problem, samples=samples, key=key, **given)


def sampled(chains: torch.Tensor) -> Truth:
    """Return a truth that is known as functions only, (C, S, D)."""
    nothing = torch.zeros(0, dtype=torch.float64)
    return Truth(nothing, nothing.reshape(0, 0), {}, chains)


ROOT = torch.linalg.cholesky(EXACT.covariance())


def drawn(seed: int, length: int, chains: int = 4) -> torch.Tensor:
    """Draw chains from the exact posterior."""
    return EXACT.mean() + normal(seed, chains, length, 3) @ ROOT.T


@pytest.mark.parametrize(
    "score",
    [FunctionW2(), FunctionMeanError(), FunctionSdError(), FunctionSlicedW2(), FunctionJointKl()],
)
def test_the_conjugate_posterior_is_at_the_floor(score):
    """Its own draws, in groups."""
    evaluation = fitted(EXACT, samples=1000)
    assert evaluation.functions.truth.shape == (4, 1000, ROWS)
    found = score(evaluation)
    assert set(found) == {"", "mcse", "floor"}
    assert 0 < found[""] < 3 * found["floor"]
    assert found["floor"] < 0.1


@pytest.mark.parametrize("count", [30, 60, 100, 400])
def test_the_floor_is_what_an_exact_posterior_of_as_many_draws_scores(count):
    """The mean over 60 posteriors, within four standard errors of the difference.

    Against 8 chains of 300 draws. For 400 draws the floor has 1 / 1800 in place of 1 / 2400, and
    is 2.4 % larger; for 100 it is 0.3 %.
    """
    differences, floors = [], []
    for seed in range(60):
        draws = EXACT.mean() + normal(500 + seed, count, 3) @ ROOT.T
        scores = FunctionW2()(fitted(Empirical(draws), sampled(drawn(seed, 300, chains=8))))
        differences.append(scores[""] - scores["floor"])
        floors.append(scores["floor"])
    error = np.std(differences, ddof=1) / math.sqrt(60)
    assert error < 0.08 * np.mean(floors)
    assert abs(np.mean(differences)) < 4 * error


@pytest.mark.parametrize("count", [1, 7, 40, 500])
def test_the_floor_compares_independent_groups_of_the_truth(count):
    """Never draws of one chain, which are alike; never more than there are, nor those of over half of the chains."""
    groups, pairs = torch.arange(160.0).reshape(4, 40, 1), []

    def measure(f: torch.Tensor, truth: torch.Tensor) -> torch.Tensor:
        pairs.append(tuple(set(part.flatten().long().tolist()) for part in (f, truth)))
        return torch.tensor(float(len(f)))

    assert functions.exact_score(measure, groups, count) == min(count, 80)
    for scored, others in pairs:
        chains = {draw // 40 for draw in scored}
        assert others == {draw for draw in range(160) if draw // 40 not in chains}
    assert {draw // 40 for scored, _ in pairs for draw in scored} == {0, 1, 2, 3}


def test_chains_that_do_not_agree_have_no_standard_error():
    chains = drawn(8, 500)
    chains[2:] += 3
    scores = FunctionW2()(fitted(EXACT, sampled(chains)._replace(chains_agree=False)))
    assert set(scores) == {"", "floor"}


def moments(posterior) -> tuple[torch.Tensor, torch.Tensor]:
    """Of the function at the test rows: mean, (n,), and covariance, (n, n)."""
    return DESIGN @ posterior.mean(), DESIGN @ posterior.covariance() @ DESIGN.T


def evenly(posterior) -> torch.Tensor:
    """Samples of the function at the test rows whose moments are better than chance has them, by Sobol's points."""
    points = torch.quasirandom.SobolEngine(3, scramble=True, seed=0).draw(
        SAMPLES, dtype=torch.float64
    )
    root = torch.linalg.cholesky(posterior.covariance())
    return (posterior.mean() + torch.special.ndtri(points) @ root.T) @ DESIGN.T


def test_mean_field_is_as_far_as_the_closed_form_says():
    """Gaussian marginals are sqrt(dm^2 + ds^2) apart."""
    (mean, cov), (true_mean, true_cov) = moments(MEAN_FIELD), moments(EXACT)
    sd, true_sd, off = cov.diagonal().sqrt(), true_cov.diagonal().sqrt(), mean - true_mean
    weights = torch.randn(
        ROWS, 100, generator=torch.Generator().manual_seed(0), dtype=torch.float64
    )
    slices, true_slices = (
        ((weights.T @ each) * weights.T).sum(1).sqrt() for each in (cov, true_cov)
    )
    w2 = ((off.square() + (sd - true_sd).square()).sqrt() / true_sd).mean()
    sliced = (
        ((off @ weights).square() + (slices - true_slices).square()).sqrt() / true_slices
    ).mean()
    noise = torch.full((ROWS,), 1 / HYPER["noise_precision"], dtype=torch.float64)
    laws = (
        MultivariateNormal(at, own + noise.diag())
        for at, own in ((true_mean, true_cov), (mean, cov))
    )
    pair = evenly(MEAN_FIELD), evenly(EXACT)
    for found, expected in (
        (functions.scaled_marginal_w2(*pair), w2),
        (functions.mean_error(*pair), (off / true_sd).square().mean().sqrt()),
        (functions.sd_error(*pair), (sd / true_sd - 1).square().mean().sqrt()),
        (functions.sd_ratio(*pair), (sd / true_sd).mean()),
        (functions.sliced_w2(*pair, 100), sliced),
        (functions.joint_kl(*pair, noise, ROWS, 1), kl_divergence(*laws)),
    ):
        assert found.item() == pytest.approx(expected.item(), abs=1e-3)


def test_samples_of_any_number_have_the_distance_of_their_quantiles():
    """Against scipy's distance of order 1 where all differences of quantiles are the same, and by hand."""
    f, truth = tensor([0], [1]), tensor([0], [1], [2])
    # quantiles differ by 0 on a third, by 1 on (1/3, 1/2): 1 - 0, by 0 on (1/2, 2/3), by 1 on the
    # last third
    assert functions.marginal_w2(f, truth).item() == pytest.approx(math.sqrt(1 / 6 + 1 / 3))
    sample = normal(7, 50)
    found = functions.marginal_w2(sample[:, None] + 2, sample[:, None].repeat(3, 1)).item()
    assert found == pytest.approx(wasserstein_distance(sample.numpy() + 2, sample.numpy()))


def test_a_single_function_has_no_spread():
    single = fitted(Empirical(EXACT.mean().unsqueeze(0)))
    assert FunctionSdError()(single)[""] == pytest.approx(1.0)
    assert FunctionSdRatio()(single)[""] == pytest.approx(0.0)
    assert FunctionW2()(single)[""] == pytest.approx(1.0, abs=0.05)
    assert not single.has_sampling_error


def test_chains_are_the_truth_as_they_are():
    chains = drawn(8, 500)
    seen = fitted(EXACT, sampled(chains))
    np.testing.assert_allclose(
        seen.functions.truth, chains @ DESIGN.T, atol=1e-5
    )  # the model runs in float32
    assert FunctionW2()(seen)[""] < 3 * FunctionW2()(seen)["floor"]
    with pytest.raises(InputError, match="known as functions only"):
        RelMeanDist()(seen)


def test_the_error_is_what_repetitions_scatter_by():
    keys = torch.tensor([[seed, 0] for seed in range(40)], dtype=torch.int32)
    found = [
        FunctionW2()(fitted(MEAN_FIELD, TRUTH._replace(chains=drawn(seed, 250)), 1000, key=key))
        for seed, key in enumerate(keys)
    ]
    scatter = np.std([each[""] for each in found], ddof=1)
    assert np.mean([each["mcse"] for each in found]) == pytest.approx(
        scatter, rel=0.4
    )  # 40 known to 11 %, blocks 19 %


def test_classes():
    """Two sets of logits: p = (0.6, 0.75) beside (0.25, 0.55), as single functions."""
    problem, test = (
        Problem(LinearModel(bias=False), Bernoulli(), 2),
        examples(torch.eye(2).double(), tensor(1, 0)),
    )
    truth = sampled(tensor(0.25, 0.55).logit().expand(4, 10, 2))
    seen = fitted(Empirical(tensor([0.6, 0.75]).logit()), truth, problem=problem, test=test)
    assert FunctionTv()(seen) == {
        "": pytest.approx((0.35 + 0.2) / 2, abs=1e-6),
        "mcse": 0.0,
        "floor": pytest.approx(0.0, abs=1e-15),
    }
    assert FunctionAgreement()(seen)[""] == 0.5


def test_a_truth_without_some_covariances_is_refused():
    with pytest.raises(InputError, match="knows no covariance"):
        FunctionW2()(fitted(EXACT, Truth(EXACT.mean(), EXACT.covariance()[:2, :2], {})))


@pytest.mark.parametrize("samples", [2, 4, 7])
def test_few_samples_have_a_distance_with_its_error(samples):
    found = FunctionW2()(fitted(EXACT, samples=samples))
    assert set(found) == {"", "mcse", "floor"}
    assert all(math.isfinite(value) for value in found.values())


@pytest.mark.parametrize("score", [FunctionW2(), FunctionSdError(), FunctionSlicedW2()])
def test_a_single_sample_has_a_distance_without_an_error(score):
    found = score(fitted(EXACT, samples=1))
    assert set(found) == {"", "floor"}
    assert all(math.isfinite(value) for value in found.values())


def test_a_truth_that_is_a_density_and_no_gaussian_is_refused():
    truth = TRUTH._replace(log_density=lambda theta: theta.sum(-1))
    with pytest.raises(InputError, match="no Gaussian, and not drawn from"):
        FunctionW2()(fitted(EXACT, truth))


def test_functions_are_compared_at_training_rows_where_none_test():
    """Of numbers and of classes."""
    none = TEST.take(slice(0))
    evaluation = replace(fitted(EXACT, test=none), training=lambda: TEST)
    assert FunctionW2()(evaluation) == FunctionW2()(fitted(EXACT))
    problem = Problem(LinearModel(), Bernoulli(), 2)
    labels = TEST._replace(y=(TEST.y > 0).double())
    tested = fitted(EXACT, problem=problem, test=labels)
    trained = replace(
        fitted(EXACT, problem=problem, test=labels.take(slice(0))), training=lambda: labels
    )
    assert FunctionTv()(trained) == FunctionTv()(tested)
    with pytest.raises(InputError, match="no rows test this fit: score others by"):
        _ = trained.predictions

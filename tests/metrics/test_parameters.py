"""Scores of parameters: distances to the true posterior, the bias, small weights, ranks of the truth."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from bdl.data.teachers import PriorDraws
from bdl.errors import InputError
from bdl.methods.conjugate import Conjugate
from bdl.metrics import METRICS, distances
from bdl.metrics.parameters import RelCovDist, RelMeanDist, ScaledW2, SymKl, TruthRank
from bdl.metrics.predictions import as_tensors
from bdl.models.likelihoods import Bernoulli, GaussianLikelihood
from bdl.models.networks import LinearModel, Mlp
from bdl.models.problem import Problem
from bdl.posteriors import DiagonalGaussian, Empirical, FullGaussian
from bdl.references.base import Truth
from bdl.rng import trial_keys

from .fits import examples, fit, normal, tensor

DIM = 4
SCORES = {
    RelMeanDist(): lambda ours, reference: distances.relative_distance(ours[0], reference[0]),
    RelCovDist(): lambda ours, reference: distances.relative_distance(ours[1], reference[1]),
    ScaledW2(): lambda ours, reference: distances.wasserstein2(ours, reference) / len(ours[0]),
    SymKl(): distances.sym_kl,
}


def covariance(seed: int) -> torch.Tensor:
    root = normal(seed, DIM, DIM) + 3 * torch.eye(DIM, dtype=torch.float64)
    return root @ root.mT


OURS = normal(0, DIM), covariance(1)
TRUTH = Truth(normal(2, DIM), covariance(3), {})
POSTERIOR = FullGaussian.from_covariance(*OURS)


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("known", [DIM, 2])
def test_distances_are_of_the_moments_that_the_truth_knows(score, known):
    """Where it knows covariances of two parameters, those are compared.

    The distance of means looks at all four.
    """
    truth = Truth(TRUTH.mean, TRUTH.covariance[:known, :known], {})
    d = DIM if isinstance(score, RelMeanDist) else known
    expected = SCORES[score](
        (OURS[0][:d], OURS[1][:d, :d]), (truth.mean[:d], truth.covariance)
    ).item()
    assert score(fit(POSTERIOR, truth=lambda: truth)) == {"": pytest.approx(expected, rel=1e-12)}


@pytest.mark.parametrize("score", SCORES)
def test_a_sampled_truth_has_errors_and_a_floor(score):
    chains = normal(4, 4, 50, DIM) @ torch.linalg.cholesky(TRUTH.covariance).mT
    pooled = chains.flatten(0, 1)
    truth = Truth(pooled.mean(0), torch.cov(pooled.mT), {}, chains)
    found, measure = score(fit(POSTERIOR, truth=lambda: truth)), SCORES[score]
    assert set(found) == {"", "mcse", "floor"}
    error = distances.monte_carlo_se(lambda reference: measure(OURS, reference), chains)
    assert found["mcse"] == pytest.approx(error.item(), rel=1e-9)
    assert found["floor"] == pytest.approx(
        distances.noise_floor(measure, chains).item(), rel=1e-12
    )


NET = Problem(Mlp((1,)), GaussianLikelihood(), 2)
MEANS = DiagonalGaussian(torch.tensor([0.0, -0.1, 0.1, -5.0, 0.5]), torch.ones(5))
"""Of a network 2-1-1: two weights, a bias, a weight, a bias."""


@pytest.mark.parametrize(
    ("name", "settings", "count"),
    [
        ("weights_below", {"limit": 0.1}, 1),
        ("weights_below", {"limit": 0.11}, 2),
        ("weights_from", {"limit": 0.1}, 1),
        ("weights_from", {"limit": 1.0, "layer": 1}, 1),
        ("weights_below", {"limit": 1.0, "layer": 1}, 0),
    ],
)
def test_sizes_of_the_means_are_counted_without_biases(name, settings, count):
    assert METRICS.build(name, settings)(fit(MEANS, NET)) == count


@pytest.mark.parametrize(("name", "value"), [("bias_mean", -3.0), ("bias_variance", 25.0)])
def test_the_bias_is_the_last_parameter_of_a_linear_model(name, value):
    posterior = FullGaussian(
        torch.tensor([1.0, 2, -3]), torch.tensor([[1.0, 0, 0], [0, 2, 0], [3, 0, 4]])
    )
    assert METRICS.build(name, {})(fit(posterior, Problem(LinearModel(), Bernoulli(), 2))) == value


PROBLEM = Problem(LinearModel(), GaussianLikelihood(), 2)
DRAWS = 300


@pytest.fixture(scope="module")
def exact():
    """Fit data sets drawn from the prior, and give what their scores are functions of."""
    data, found = PriorDraws(draws=DRAWS, rows=20, inputs=2)(), []
    hyper = as_tensors({"prior_precision": 1.0, "noise_precision": 1.0})
    for index, theta in enumerate(data.generating):
        training, test = (
            [torch.from_numpy(values[rows]) for values in (data.x, data.y)]
            for rows in data.split(index)[:2]
        )
        posterior, key = (
            Conjugate().fit(PROBLEM, *training, hyper),
            trial_keys([("rank", index)], "predict")[0],
        )
        given = {
            "test": partial(examples, *test),
            "key": key,
            "generating": torch.from_numpy(theta),
        }
        found.append(fit(posterior, PROBLEM, **given))
    return found


def p_value(ranks) -> float:
    """Test ranks among 99 draws for being uniform, by ten bins."""
    assert set(ranks) <= set(range(100))
    return chisquare(np.histogram(ranks, 10, (-0.5, 99.5))[0]).pvalue


@pytest.mark.parametrize("of", ["parameter", "function"])
@pytest.mark.parametrize("index", [0, 2])
def test_ranks_of_the_exact_posterior_are_uniform(exact, of, index):
    assert p_value([TruthRank(of, index)(own) for own in exact]) > 0.01


def test_ranks_under_mean_field_are_at_both_ends(exact):
    """The best one has the exact mean, and the diagonal of the exact precision."""
    laws = [
        DiagonalGaussian(own.posterior.mean(), 1 / own.posterior.precision_diagonal())
        for own in exact
    ]
    ranks = np.array(
        [TruthRank()(replace(own, posterior=law)) for own, law in zip(exact, laws, strict=True)]
    )
    assert p_value(ranks) < 1e-6
    for end in (ranks < 10, ranks >= 90):
        assert end.mean() > 0.1 + 3 * (0.1 * 0.9 / DRAWS) ** 0.5


def test_a_truth_beyond_all_draws_has_the_first_or_last_rank():
    narrow = DiagonalGaussian(torch.zeros(3), torch.full((3,), 1e-6))
    rows = partial(examples, tensor([1, 0], [0, 1]), tensor(0, 0))
    own = fit(narrow, PROBLEM, test=rows, generating=tensor(-1, 1, 0.5))
    assert [TruthRank(index=index, draws=7)(own) for index in range(3)] == [0, 7, 7]
    assert [TruthRank("function", index, 7)(own) for index in range(2)] == [0, 7], (
        "f is -0.5 and 1.5"
    )


def test_each_vector_of_a_set_is_counted_once():
    """All of them, or every second of nine."""
    steps = torch.arange(9.0).double()
    vectors = torch.stack([steps, steps, -steps], 1)
    rows = partial(examples, tensor([1, 0], [0, 1]), tensor(0, 0))
    # functions are the sums of the first and the last parameter, and of the other two
    own = fit(Empirical(vectors), PROBLEM, test=rows, generating=tensor(3.5, 0, -1))
    assert TruthRank(draws=9)(own) == 4
    assert TruthRank(draws=5)(own) == 2
    assert TruthRank("function", 0, 9)(own) == 9


NORMAL = DiagonalGaussian(torch.zeros(3), torch.ones(3))
VECTORS = Empirical(torch.zeros(5, 3))


@pytest.mark.parametrize(
    ("score", "evaluation", "reason"),
    [
        (SymKl(), fit(VECTORS), "^sym_kl: Empirical is not Gaussian: leave the metric out$"),
        (
            ScaledW2(),
            fit(POSTERIOR),
            "distances need the true posterior: give the entry a reference",
        ),
        (
            METRICS.build("bias_mean", {}),
            fit(problem=NET),
            "^bias_mean: the model has 2 biases, not one",
        ),
        (
            METRICS.build("weights_from", {"layer": 2}),
            fit(MEANS, NET),
            "has 2 layers, .*: there is no layer 2",
        ),
        (TruthRank(), fit(NORMAL, PROBLEM), "not known which parameters"),
        (
            TruthRank(),
            fit(NORMAL, PROBLEM, generating=tensor(0, 0)),
            "with 2 parameters, and the model has 3",
        ),
        (
            TruthRank(index=3),
            fit(NORMAL, PROBLEM, generating=tensor(0, 0, 0)),
            "no parameter 3: .* below 3",
        ),
        (TruthRank("function"), fit(NORMAL, PROBLEM, generating=tensor(0, 0, 0)), "no function 0"),
        (
            TruthRank(),
            fit(VECTORS, PROBLEM, generating=tensor(0, 0, 0)),
            "5 vectors: set draws to 5 or less",
        ),
    ],
)
def test_what_has_no_score(score, evaluation, reason):
    with pytest.raises(InputError, match=reason):
        score(evaluation)

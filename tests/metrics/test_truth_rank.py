"""Ranks of the truth: uniform for the exact posterior, at the ends for one that is too narrow."""

from functools import partial

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from bdl.data.teachers import PriorDraws
from bdl.errors import InputError
from bdl.methods.conjugate import Conjugate
from bdl.methods.exact_gaussian import ExactGaussian
from bdl.metrics.parameters import TruthRank
from bdl.models.likelihoods import Gaussian
from bdl.models.networks import Linear
from bdl.models.problem import Problem
from bdl.posteriors import DiagonalGaussian, Empirical
from bdl.rng import trial_keys

from .fits import examples, fit

PROBLEM = Problem(Linear(), Gaussian(), 2)
HYPER = {"prior_precision": torch.tensor(1.0).double(), "noise_precision": torch.tensor(1.0).double()}
DRAWS = 300
NORMAL = DiagonalGaussian(torch.zeros(3), torch.ones(3))


def evaluated(method):
    """Fit data sets drawn from the prior, and give what their scores are functions of."""
    data, found = PriorDraws(draws=DRAWS, rows=20, inputs=2)(), []
    for index, theta in enumerate(data.generating):
        (x, y), (new, targets) = (
            (torch.from_numpy(data.x[rows]), torch.from_numpy(data.y[rows])) for rows in data.split(index)[:2]
        )
        found.append(
            fit(
                method.fit(PROBLEM, x, y, HYPER),
                PROBLEM,
                test=partial(examples, new, targets),
                key=trial_keys([("rank", index)], "predict")[0],
                generating=torch.from_numpy(theta),
            )
        )
    return found


@pytest.fixture(scope="module")
def exact():
    return evaluated(Conjugate())


def p_value(score, fits) -> float:
    """Test ranks for being uniform, by ten bins."""
    ranks = [score(own) for own in fits]
    assert all(rank == round(rank) for rank in ranks)
    assert min(ranks) >= 0
    assert max(ranks) <= score.draws
    return chisquare(np.histogram(ranks, 10, (-0.5, score.draws + 0.5))[0]).pvalue


@pytest.mark.parametrize("of", ["parameter", "function"])
@pytest.mark.parametrize("index", [0, 2])
def test_ranks_of_the_exact_posterior_are_uniform(exact, of, index):
    assert p_value(TruthRank(of, index), exact) > 0.01


def test_ranks_under_mean_field_are_at_both_ends():
    fits = evaluated(ExactGaussian("diagonal"))
    assert p_value(TruthRank(), fits) < 1e-6
    ranks = np.array([TruthRank()(own) for own in fits])
    for end in (ranks < 10, ranks >= 90):
        assert end.mean() > 0.1 + 3 * (0.1 * 0.9 / DRAWS) ** 0.5


def test_a_truth_beyond_all_draws_has_the_last_rank():
    narrow = DiagonalGaussian(torch.zeros(3), torch.full((3,), 1e-6))
    own = fit(narrow, PROBLEM, generating=torch.tensor([-1.0, 1.0, 0.5]).double())
    assert [TruthRank(index=index, draws=7)(own) for index in range(3)] == [0, 7, 7]
    rows = partial(examples, torch.tensor([[1.0, 0.0], [0.0, 1.0]]).double(), torch.zeros(2).double())
    both = fit(narrow, PROBLEM, test=rows, generating=torch.tensor([-1.0, 1.0, 0.5]).double())
    assert [TruthRank("function", index, 7)(both) for index in range(2)] == [0, 7], "f is -0.5 and 1.5"


@pytest.mark.parametrize(
    ("posterior", "generating", "score", "reason"),
    [
        (NORMAL, None, TruthRank(), "not known which parameters"),
        (NORMAL, torch.zeros(2), TruthRank(), "drawn with 2 parameters, and the model has 3"),
        (NORMAL, torch.zeros(3), TruthRank(index=3), "no parameter 3: choose an index below 3"),
        (NORMAL, torch.zeros(3), TruthRank("function"), "no function 0: choose an index below 0"),
        (Empirical(torch.zeros(5, 3)), torch.zeros(3), TruthRank(), "has 5 vectors: set draws to 5 or less"),
    ],
)
def test_what_has_no_rank(posterior, generating, score, reason):
    with pytest.raises(InputError, match=reason):
        score(fit(posterior, PROBLEM, generating=generating))

"""The joint score of batches of two rows: by a loop, in closed form, and that it sees what belongs together."""

import math

import numpy as np
import pytest
import torch
from scipy import special, stats
from torch import Tensor

from bdl.metrics.evaluation import Evaluation
from bdl.metrics.likelihoods import DyadicNll, Nll, Nmll
from bdl.models.likelihoods import Categorical, Gaussian
from bdl.models.networks import Linear
from bdl.models.problem import Problem
from bdl.posteriors.predictive import Outputs

from .fits import examples, fit, normal


def evaluated(f: Tensor, y: Tensor, beta: float = 1.0) -> Evaluation:
    """Evaluate outputs (S, n) at targets, or log-probabilities (S, n, C) at labels."""
    rows, answer = examples(torch.arange(float(len(y))).unsqueeze(-1), y), Outputs(f)
    likelihood, outputs = (Gaussian(), 1) if f.ndim == 2 else (Categorical(), f.shape[-1])
    problem = Problem(Linear(), likelihood, 1, outputs)
    return fit(lambda x: answer, problem, test=lambda: rows, hyper={"noise_precision": beta})


@pytest.mark.parametrize(("rows", "batches", "n"), [(10, 40, 9), (1, 5, 9), (3, 40, 2), (4, 7, 1)])
def test_batches_by_a_loop(rows, batches, n):
    """Each batch has `rows` rows of at most two, drawn here from what the score draws."""
    f, y = normal(0, 6, n), normal(1, n).sort().values
    own = DyadicNll(rows=rows, batches=batches)
    densities, found = stats.norm(f.numpy(), 0.8**-0.5).logpdf(y.numpy()), []
    for first, second, count in zip(*own._drawn(n), strict=True):
        assert first != second or n == 1
        assert 0 <= count <= rows
        batch = [first] * int(count) + [second] * (rows - int(count))
        found.append(-(special.logsumexp(densities[:, batch].sum(1)) - math.log(6)) / rows)
    assert own(evaluated(f, y, 0.8)) == pytest.approx(np.mean(found), rel=1e-12)


def test_rows_and_counts_are_drawn_evenly():
    """All pairs of five rows, and half of the ten rows of a batch from each: within five standard errors."""
    first, second, count = DyadicNll(batches=20_000)._drawn(5)
    pairs = torch.bincount(5 * first + second, minlength=25).view(5, 5)
    assert pairs.diagonal().sum() == 0
    assert (pairs[~torch.eye(5, dtype=torch.bool)] - 1000).abs().max() < 5 * math.sqrt(950)
    assert abs(count.double().mean() - 5) < 5 * math.sqrt(2.5 / 20_000)
    assert abs(count.double().var() - 2.5) < 0.15


def test_one_sample_has_its_marginal_score_where_rows_are_equally_likely():
    """Without averaging nothing is joint: equal errors have one density, whichever rows are drawn."""
    y = torch.arange(6.0, dtype=torch.float64)
    evaluation = evaluated((y + 0.7)[None], y, 2.0)
    assert DyadicNll()(evaluation) == pytest.approx(Nmll()(evaluation), rel=1e-12)


def test_one_row_in_a_batch_is_the_marginal_score():
    """Batches of one: the mean of marginal scores of drawn rows, here of two rows that have the same."""
    f = normal(0, 50, 1).repeat(1, 2)
    evaluation = evaluated(f, torch.full((2,), 0.3, dtype=torch.float64))
    assert DyadicNll(rows=1)(evaluation) == pytest.approx(Nmll()(evaluation), rel=1e-12)


def test_correlated_predictions_differ_from_independent_ones_with_the_same_marginals():
    """Two targets that lie 1.5 deviations above their predictive mean; with f ~ N(0, 1) and noise of variance 0.25.

    Samples at quantiles of f: the correlated predictor has them in the same order at both rows, the other all pairs.
    Densities of batches in closed form: y ~ N(0, K + I / 4), K of ones, or only among copies of the same row.
    """
    nodes, y = torch.from_numpy(stats.norm.ppf((np.arange(300) + 0.5) / 300)), torch.full((2,), 1.5).double()
    correlated = nodes[:, None].expand(-1, 2).repeat_interleave(300, 0)
    independent = torch.cartesian_prod(nodes, nodes)
    both = [evaluated(f, y, 4.0) for f in (correlated, independent)]
    assert Nmll()(both[0]) == pytest.approx(Nmll()(both[1]), rel=1e-12)
    score = DyadicNll(batches=200)
    together, apart = map(score, both)
    assert together < apart - 0.05

    def exact(shared: bool) -> float:
        own = []
        for count in score._drawn(2)[2].tolist():
            row = np.arange(10) < count
            kernel = np.ones((10, 10)) if shared else (row[:, None] == row).astype(float)
            own.append(-stats.multivariate_normal(np.zeros(10), kernel + np.eye(10) / 4).logpdf(np.full(10, 1.5)) / 10)
        return float(np.mean(own))

    # 300 nodes are not all of a normal: 8e-9 off
    assert (together, apart) == pytest.approx((exact(True), exact(False)), abs=1e-7)


def test_labels_that_go_together():
    """Two coins of which nothing is known but that they are the same: the joint score knows, the marginal one not."""
    heads, tails = torch.tensor([0.95, 0.05]).double().log(), torch.tensor([0.05, 0.95]).double().log()
    same = torch.stack([torch.stack([heads, heads]), torch.stack([tails, tails])])
    alone = torch.stack([torch.stack([a, b]) for a in (heads, tails) for b in (heads, tails)])
    both = [evaluated(f, torch.zeros(2)) for f in (same, alone)]
    assert Nll()(both[0]) == pytest.approx(Nll()(both[1]), rel=1e-12) == pytest.approx(math.log(2), rel=1e-12)
    assert DyadicNll()(both[0]) == pytest.approx(-math.log(0.95) + math.log(2) / 10, abs=1e-6)
    assert DyadicNll()(both[1]) > DyadicNll()(both[0]) + 0.05

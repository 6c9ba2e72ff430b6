"""Scores of training rows: of those alone, some of them, and the same as of test rows if they are the test rows."""

import pytest
import torch

from bdl.metrics import METRICS
from bdl.metrics.classification import ErrorPercent
from bdl.metrics.likelihoods import Nll
from bdl.models.likelihoods import Bernoulli
from bdl.models.networks import Linear
from bdl.models.problem import Problem
from bdl.posteriors import DiagonalGaussian

from .fits import examples, fit, normal

CERTAIN = DiagonalGaussian(torch.tensor([1.0]), torch.tensor([1e-20]))
"""The weight 1: a row of a positive input is called 1."""
PROBLEM = Problem(Linear(bias=False), Bernoulli(), 1)


def scored(name, x, y, rows):
    seen = examples(torch.tensor(x).unsqueeze(-1), torch.tensor(y))
    return METRICS.build(name, {"rows": rows})(fit(CERTAIN, PROBLEM, training=lambda: seen))


def test_rows_are_drawn_from_all_over():
    """Every second of 4000 rows is called what it is not; of 400 that are drawn half, within four standard errors."""
    errors = [1.0, 0.0] * 2000
    found = scored("training_error_pct", [1.0] * 4000, errors, 400)
    assert found == pytest.approx(50, abs=4 * 50 / 20)
    assert found == scored("training_error_pct", [1.0] * 4000, errors, 400)
    assert scored("training_error_pct", [1.0] * 4000, errors, 4000) == 50


def test_no_row_is_drawn_twice():
    assert scored("training_error_pct", [1.0] * 4, [1.0, 0.0, 0.0, 0.0], 3) in (pytest.approx(200 / 3), 100)


def test_the_rows_that_are_drawn_are_part_of_the_score():
    """The digits of published tables rest on them."""
    errors = torch.eye(10).tolist()
    assert [i for i in range(10) if scored("training_error_pct", [-1.0] * 10, errors[i], 3)] == [1, 4, 7]


def test_nll_by_hand():
    found = scored("training_nll", [2.0, -1.0], [1.0, 1.0], 10)
    expected = (torch.tensor([2.0, -1.0]).sigmoid().log().mean()).item()
    assert found == pytest.approx(-expected, rel=1e-6)


def test_the_same_rows_score_the_same():
    """By the same draws of the posterior."""
    wide = DiagonalGaussian(torch.tensor([1.0]), torch.tensor([4.0]))
    rows = examples(normal(0, 50, 1), (normal(1, 50) > 0).double())
    evaluation = fit(wide, PROBLEM, training=lambda: rows, test=lambda: rows, samples=30)
    assert METRICS.build("training_nll", {})(evaluation) == Nll()(evaluation)
    assert METRICS.build("training_error_pct", {})(evaluation) == ErrorPercent()(evaluation)

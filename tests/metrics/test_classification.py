"""Scores of labels against scikit-learn, and against values worked out by hand."""

import math
from typing import NamedTuple

import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score, brier_score_loss, log_loss
from torch import Tensor

from bdl.metrics import METRICS
from bdl.metrics.classification import (
    Brier,
    Ece,
    Entropy,
    Error,
    ErrorPercent,
    Rps,
)
from bdl.metrics.likelihoods import Nll
from bdl.metrics.selective import Accuracy
from bdl.metrics.training_rows import TrainingErrorPercent, TrainingNll
from bdl.models.likelihoods import Bernoulli
from bdl.models.networks import LinearModel
from bdl.models.problem import Problem
from bdl.posteriors import DiagonalGaussian
from bdl.posteriors.predictive import Probabilities

from .fits import binary, examples, fit, labelled, normal, tensor

SLOPE = Problem(LinearModel(bias=False), Bernoulli(), 1)


@pytest.fixture
def probabilities() -> Tensor:
    """Of 5 samples, 200 rows and 4 classes."""
    return normal(0, 5, 200, 4).softmax(-1)


@pytest.fixture
def y() -> Tensor:
    return torch.arange(200) % 4


def test_scores_of_four_classes(probabilities, y):
    mean = probabilities.mean(0).numpy()
    cumulative = (mean.cumsum(1) - (np.arange(4) >= y.numpy()[:, None])) ** 2
    accuracy = accuracy_score(y, mean.argmax(1))
    for score, expected in (
        (Nll(), log_loss(y, mean)),
        (Accuracy(), accuracy),
        (Error(), 1 - accuracy),
        (ErrorPercent(), 100 * (1 - accuracy)),
        (Brier(), brier_score_loss(y, mean, labels=range(4), scale_by_half=False)),
        (Rps(), cumulative.sum(1).mean()),
        (Entropy(), -(mean * np.log(mean)).sum(1).mean()),
    ):
        assert score(labelled(probabilities, y)) == pytest.approx(expected, rel=1e-12)


def test_scores_of_two_classes_from_one_logit():
    """One column of probabilities is that of the label 1: means are 0.8, 0.4 and 0.1."""
    evaluation = binary(tensor([0.9, 0.5, 0.1], [0.7, 0.3, 0.1]), torch.tensor([1.0, 1.0, 0.0]))
    assert Nll()(evaluation) == pytest.approx(
        -(math.log(0.8) + math.log(0.4) + math.log(0.9)) / 3, rel=1e-12
    )
    assert Error()(evaluation) == pytest.approx(1 / 3, rel=1e-14)
    assert Brier()(evaluation) == pytest.approx(2 * (0.04 + 0.36 + 0.01) / 3, rel=1e-12)
    assert Rps()(evaluation) == pytest.approx(Brier()(evaluation) / 2, rel=1e-12)


@pytest.mark.parametrize("bins", [1, 5, 15, 50])
def test_ece_is_the_sum_over_bins(probabilities, y, bins):
    confidence, guess = probabilities.mean(0).max(1)
    expected = 0.0
    for b in range(bins):
        inside = (confidence > b / bins) & (confidence <= (b + 1) / bins)
        if inside.any():
            expected += (
                abs(((guess == y)[inside].double() - confidence[inside]).sum().item()) / 200
            )
    assert Ece(bins)(labelled(probabilities, y)) == pytest.approx(expected, rel=1e-12)


def test_bins_of_ece_end_with_their_upper_bound():
    """With two bins 0.5 is in the lower and 0.75 in the upper one.

    With four they are in neighbours.
    """
    evaluation = labelled(tensor([[0.5, 0.5], [0.75, 0.25]]), torch.tensor([1, 0]))
    for bins in (2, 4):
        assert Ece(bins)(evaluation) == pytest.approx((0.5 + 0.25) / 2, rel=1e-12)


def test_certain_predictions():
    """Probabilities 0 and 1 exactly: entropy 0, and confidence 1 has its bin."""
    evaluation = labelled(torch.eye(3, dtype=torch.float64).unsqueeze(0), torch.tensor([0, 1, 0]))
    assert Entropy()(evaluation) == 0
    assert Ece()(evaluation) == pytest.approx(1 / 3, rel=1e-14)
    assert Nll()(evaluation) == math.inf


@pytest.mark.parametrize("probability", [1e-30, 1e-300])
def test_a_small_probability_counts_as_it_is(probability):
    class Certain(NamedTuple):
        probabilities: torch.Tensor

        def __call__(self, x):
            return Probabilities(self.probabilities.expand(len(x), -1))

    rows = examples(torch.zeros(2, 1), torch.tensor([1.0, 0.0]))
    law = Certain(tensor([1 - probability, probability]))
    expected = -math.log(probability) / 2
    assert Nll()(fit(law, SLOPE, test=lambda: rows)) == pytest.approx(expected, rel=1e-12)


def test_the_training_rows_that_are_drawn_are_part_of_the_score():
    """The digits of published tables rest on them.

    The weight 1 calls all rows 0, of which one is 1.
    """
    certain, found = DiagonalGaussian(tensor(1), tensor(1e-20)), []
    for labels in torch.eye(10):
        seen = examples(torch.full((10, 1), -1.0), labels)
        found.append(TrainingErrorPercent(3)(fit(certain, SLOPE, training=lambda seen=seen: seen)))
    assert [number for number, error in enumerate(found) if error] == [1, 4, 7]


@pytest.mark.parametrize(
    ("score", "name"), [(TrainingNll(), "nll"), (TrainingErrorPercent(), "test_error_pct")]
)
def test_training_rows_score_as_test_rows_do(score, name):
    """By the same draws of the posterior."""
    wide = DiagonalGaussian(tensor(1), tensor(4))
    rows, other = (
        examples(normal(seed, 50, 1), (normal(seed + 1, 50) > 0).double()) for seed in (0, 2)
    )
    seen = fit(wide, SLOPE, training=lambda: rows, test=lambda: other, samples=30)
    assert score(seen) == METRICS.build(name, {})(fit(wide, SLOPE, test=lambda: rows, samples=30))

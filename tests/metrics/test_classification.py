"""Scores of labels against scikit-learn, and against values worked out by hand."""

import math

import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score, brier_score_loss, log_loss
from torch import Tensor

from bdl.errors import InputError
from bdl.metrics import METRICS
from bdl.metrics.classification import Brier, Ece, Entropy, Error, ErrorPercent, Rps
from bdl.metrics.likelihoods import Nll
from bdl.metrics.selective import Accuracy
from bdl.models.likelihoods import Bernoulli
from bdl.models.networks import Linear
from bdl.models.problem import Problem
from bdl.posteriors import DiagonalGaussian

from .fits import binary, examples, fit, labelled, normal


@pytest.fixture
def probabilities() -> Tensor:
    """Of 5 samples, 200 rows and 4 classes."""
    return normal(0, 5, 200, 4).softmax(-1)


@pytest.fixture
def y() -> Tensor:
    return torch.arange(200) % 4


def two(p: list[float]) -> Tensor:
    return torch.tensor([p], dtype=torch.float64)


def test_scores_of_four_classes(probabilities, y):
    evaluation, mean = labelled(probabilities, y), probabilities.mean(0).numpy()
    accuracy = accuracy_score(y, mean.argmax(1))
    assert 0.1 < accuracy < 0.6
    assert Nll()(evaluation) == pytest.approx(log_loss(y, mean), rel=1e-12)
    assert Accuracy()(evaluation) == pytest.approx(accuracy, rel=1e-14)
    assert Error()(evaluation) == pytest.approx(1 - accuracy, rel=1e-14)
    assert ErrorPercent()(evaluation) == pytest.approx(100 * (1 - accuracy), rel=1e-14)
    assert Brier()(evaluation) == pytest.approx(
        brier_score_loss(y, mean, labels=range(4), scale_by_half=False), rel=1e-12
    )
    assert Entropy()(evaluation) == pytest.approx(-(mean * torch.tensor(mean).log().numpy()).sum(1).mean(), rel=1e-12)


def test_scores_of_two_classes_from_one_logit():
    """One column of probabilities is that of the label 1: means are 0.8, 0.4 and 0.1."""
    samples, y = two([0.9, 0.5, 0.1]).repeat(2, 1), torch.tensor([1.0, 1.0, 0.0])
    samples[1] = two([0.7, 0.3, 0.1])
    evaluation = binary(samples, y)
    torch.testing.assert_close(evaluation.predictions.probabilities[:, 1], two([0.8, 0.4, 0.1])[0])
    assert Nll()(evaluation) == pytest.approx(-(math.log(0.8) + math.log(0.4) + math.log(0.9)) / 3, rel=1e-12)
    assert Error()(evaluation) == pytest.approx(1 / 3, rel=1e-14)
    assert Brier()(evaluation) == pytest.approx(2 * (0.04 + 0.36 + 0.01) / 3, rel=1e-12)


def test_rps_is_that_of_scoringrules(probabilities, y):
    """It numbers classes from 1."""
    scoringrules = pytest.importorskip("scoringrules")
    expected = scoringrules.rps_score(y.numpy() + 1, probabilities.mean(0).numpy())
    assert Rps()(labelled(probabilities, y)) == pytest.approx(np.mean(expected), rel=1e-10)


def test_rps_by_hand_and_of_two_classes():
    """Probabilities 0.5, 0.2, 0.3 sum up to 0.5, 0.7, 1; the label 2 asks for 0, 0, 1. Of two classes half of Brier."""
    evaluation = labelled(torch.tensor([[[0.5, 0.2, 0.3]]], dtype=torch.float64), torch.tensor([2]))
    assert Rps()(evaluation) == pytest.approx(0.25 + 0.49, rel=1e-12)
    coins = binary(two([0.8, 0.4, 0.1]), torch.tensor([1.0, 1.0, 0.0]))
    assert Rps()(coins) == pytest.approx(Brier()(coins) / 2, rel=1e-12)


def test_nll_averages_probabilities_and_not_their_logarithms():
    evaluation = binary(torch.tensor([[0.99], [0.01]], dtype=torch.float64), torch.ones(1))
    assert Nll()(evaluation) == pytest.approx(math.log(2), rel=1e-12)


def test_votes_are_those_of_each_sample():
    """The mean probability prefers class 0, two of three samples class 1."""
    samples = torch.tensor([[[0.9, 0.1]], [[0.45, 0.55]], [[0.4, 0.6]]], dtype=torch.float64)
    evaluation = labelled(samples, torch.tensor([1]))
    torch.testing.assert_close(evaluation.predictions.votes, torch.tensor([[1 / 3, 2 / 3]], dtype=torch.float64))
    assert Error()(evaluation) == 1


def test_ece_by_hand():
    """Two bins of ten: confidences 0.62, 0.66 with one hit (gap 0.14), 0.91 with a miss (gap 0.91)."""
    evaluation = binary(two([0.62, 0.34, 0.91]), torch.tensor([1.0, 1.0, 0.0]))
    assert Ece(bins=10)(evaluation) == pytest.approx((2 * 0.14 + 0.91) / 3, rel=1e-12)


def test_bins_of_ece_end_with_their_upper_bound():
    """With two bins 0.5 is in the lower and 0.75 in the upper one; with four they are in neighbours."""
    evaluation = labelled(torch.tensor([[[0.5, 0.5], [0.75, 0.25]]], dtype=torch.float64), torch.tensor([1, 0]))
    for bins in (2, 4):
        assert Ece(bins=bins)(evaluation) == pytest.approx((0.5 + 0.25) / 2, rel=1e-12)
    assert Ece(bins=1)(evaluation) == pytest.approx(abs(0.5 - 0.625), rel=1e-12)


@pytest.mark.parametrize("bins", [1, 5, 15, 50])
def test_ece_is_the_sum_over_bins(probabilities, y, bins):
    mean = probabilities.mean(0)
    confidence, guess = mean.max(1)
    expected = 0.0
    for b in range(bins):
        inside = (confidence > b / bins) & (confidence <= (b + 1) / bins)
        if inside.any():
            gap = (guess == y)[inside].double().mean() - confidence[inside].mean()
            expected += inside.double().mean().item() * abs(gap.item())
    assert Ece(bins)(labelled(probabilities, y)) == pytest.approx(expected, rel=1e-12)


def test_certain_predictions():
    """Probabilities 0 and 1 exactly: entropy 0, and confidence 1 has its bin."""
    evaluation = labelled(torch.eye(3, dtype=torch.float64).unsqueeze(0), torch.tensor([0, 1, 0]))
    assert Entropy()(evaluation) == 0
    assert Ece()(evaluation) == pytest.approx(1 / 3, rel=1e-14)
    assert Brier()(evaluation) == pytest.approx(2 / 3, rel=1e-14)
    assert Nll()(evaluation) == math.inf


def test_entropy_is_greatest_for_equal_probabilities():
    evaluation = labelled(torch.full((2, 3, 5), 0.2, dtype=torch.float64), torch.zeros(3))
    assert Entropy()(evaluation) == pytest.approx(math.log(5), rel=1e-12)


def test_settings_are_checked():
    assert METRICS.build("ece", {"bins": 20}) == Ece(20)
    assert METRICS.build("ece", {}) == Ece(15)
    with pytest.raises(InputError, match="metric 'ece': bins: Input should be greater than or equal to 1"):
        METRICS.build("ece", {"bins": 0})


def test_scores_at_the_mean_are_those_of_a_point():
    """The weight 1 calls positive inputs 1: one of three labels is another. Samples of both signs are split evenly."""
    x, y = torch.tensor([[1.0], [2.0], [3.0]]), torch.tensor([1.0, 1.0, 0.0])
    problem, wide = Problem(Linear(bias=False), Bernoulli(), 1), DiagonalGaussian(torch.ones(1), torch.full((1,), 1e4))
    evaluation = fit(wide, problem, test=lambda: examples(x, y), samples=400)
    logits = torch.tensor([1.0, 2.0, -3.0], dtype=torch.float64)
    assert Nll(at="mean")(evaluation) == pytest.approx(-float(logits.sigmoid().log().mean()), rel=1e-6)
    assert Error(at="mean")(evaluation) == pytest.approx(1 / 3)
    assert ErrorPercent(at="mean")(evaluation) == pytest.approx(100 / 3)
    # Of draws of the sign, half of the probability is with either class: log 2, to four standard errors.
    assert Nll()(evaluation) == pytest.approx(math.log(2), abs=4 * 0.5 / 400**0.5 * 2)

"""Scores of the most certain rows against scikit-learn, and against values worked out by hand."""

import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score, f1_score, precision_score, recall_score, roc_auc_score

from bdl.errors import InputError
from bdl.metrics import METRICS
from bdl.metrics.selective import F1, Accuracy, Aurc, Auroc, Disagreement, Precision, Recall, uncertainties

from .fits import labelled, normal

SCORES = {
    Accuracy: lambda y, p: accuracy_score(y, p > 0.5),
    Precision: lambda y, p: precision_score(y, p > 0.5),
    Recall: lambda y, p: recall_score(y, p > 0.5),
    F1: lambda y, p: f1_score(y, p > 0.5),
    Auroc: roc_auc_score,
}


@pytest.fixture
def probabilities() -> torch.Tensor:
    """Of 7 samples, 197 rows and 2 classes; labels agree with them more often than not."""
    return (1.5 * normal(0, 1, 197, 2) + normal(1, 7, 197, 2)).softmax(-1)


@pytest.fixture
def y(probabilities) -> torch.Tensor:
    return (probabilities.mean(0)[:, 1] + 0.4 * normal(2, 197) > 0.5).long()


@pytest.mark.parametrize("by", ["entropy", "disagreement"])
@pytest.mark.parametrize("kept", [0.5, 0.7, 0.9, 1.0])
@pytest.mark.parametrize("score", SCORES)
def test_scores_of_the_most_certain_rows(probabilities, y, score, kept, by):
    mean = probabilities.mean(0).numpy()
    if by == "entropy":
        uncertain = -(mean * np.log2(mean)).sum(1)  # bits, as the published code has them: the order is the same
    else:
        uncertain = ((probabilities.numpy() - mean) ** 2).mean((0, 2))
    rows = np.argsort(uncertain, kind="stable")[: int(kept * 197)]
    expected = SCORES[score](y.numpy()[rows], mean[rows, 1])
    assert score(kept=kept, by=by)(labelled(probabilities, y)) == pytest.approx(expected, rel=1e-12)


def test_uncertainties_by_hand():
    """Two samples say 0.9 and 0.5 of one row, and 0.7 twice of another: the same mean, and no disagreement in one."""
    probabilities = torch.tensor([[[0.1, 0.9], [0.3, 0.7]], [[0.5, 0.5], [0.3, 0.7]]], dtype=torch.float64)
    evaluation = labelled(probabilities, torch.tensor([1, 0]))
    assert uncertainties(evaluation, "disagreement").tolist() == pytest.approx([2 * 0.04, 0], abs=1e-15)
    entropy = -(0.3 * np.log(0.3) + 0.7 * np.log(0.7))
    assert uncertainties(evaluation, "entropy").tolist() == pytest.approx([entropy, entropy])
    assert Disagreement()(evaluation) == pytest.approx(0.04)


def test_the_area_under_risk_by_coverage():
    """Rows by certainty: right, wrong, right, wrong. Risks are 0, 1/2, 1/3 and 1/2."""
    probabilities = torch.tensor([[[0.1, 0.9], [0.8, 0.2], [0.3, 0.7], [0.4, 0.6]]], dtype=torch.float64)
    evaluation = labelled(probabilities, torch.tensor([1, 1, 1, 0]))
    assert Aurc()(evaluation) == pytest.approx((0 + 1 / 2 + 1 / 3 + 1 / 2) / 4)


def test_shares_count_rows_down_and_never_none():
    probabilities = torch.linspace(0.99, 0.6, 10, dtype=torch.float64)
    probabilities = torch.stack([1 - probabilities, probabilities], -1).unsqueeze(0)
    y = torch.tensor([1] * 7 + [0] * 3)
    assert Accuracy(kept=0.7)(labelled(probabilities, y)) == 1
    assert Accuracy(kept=0.8)(labelled(probabilities, y)) == pytest.approx(7 / 8)
    assert Accuracy(kept=0.01)(labelled(probabilities, y)) == 1


def test_one_class_alone_has_no_ranking_and_no_positives_no_precision():
    certain = torch.tensor([[[0.9, 0.1], [0.8, 0.2]]], dtype=torch.float64)
    evaluation = labelled(certain, torch.tensor([0, 0]))
    assert [score()(evaluation) for score in (Auroc, Precision, Recall, F1)] == [0.5, 0, 0, 0]


@pytest.mark.parametrize("score", [Precision, Recall, F1, Auroc])
def test_more_than_two_classes_are_refused(score):
    evaluation = labelled(normal(0, 2, 6, 3).softmax(-1), torch.arange(6) % 3)
    with pytest.raises(InputError, match="need two classes, not 3"):
        score()(evaluation)


@pytest.mark.parametrize("settings", [{"kept": 0}, {"kept": 1.1}, {"by": "votes"}])
def test_settings_have_limits(settings):
    with pytest.raises(InputError):
        METRICS.build("f1", settings)

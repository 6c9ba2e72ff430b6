"""Scores of the most certain rows against scikit-learn, and against values worked out by hand."""

from itertools import permutations

import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score, f1_score, precision_score, recall_score, roc_auc_score

from bdl.errors import InputError
from bdl.metrics.classification import compute_count_law, number_tied_groups
from bdl.metrics.selective import (
    F1,
    Accuracy,
    Aurc,
    Auroc,
    Disagreement,
    Precision,
    Recall,
    measure_uncertainty,
)

from .fits import binary, labelled, normal, tensor

SCORES = {
    Accuracy: lambda y, p: accuracy_score(y, p > 0.5),
    Precision: lambda y, p: precision_score(y, p > 0.5, zero_division=0),
    Recall: lambda y, p: recall_score(y, p > 0.5, zero_division=0),
    F1: lambda y, p: f1_score(y, p > 0.5, zero_division=0),
    Auroc: lambda y, p: roc_auc_score(y, p) if 0 < sum(y) < len(y) else 0.5,
}


@pytest.mark.parametrize("by", ["entropy", "disagreement"])
@pytest.mark.parametrize("kept", [0.5, 0.9, 1.0])
@pytest.mark.parametrize("score", SCORES)
def test_scores_of_the_most_certain_rows(score, kept, by):
    """Of 7 samples, 197 rows and 2 classes; labels agree with them more often than not."""
    probabilities = (1.5 * normal(0, 1, 197, 2) + normal(1, 7, 197, 2)).softmax(-1)
    y = (probabilities.mean(0)[:, 1] + 0.4 * normal(2, 197) > 0.5).long()
    mean = probabilities.mean(0).numpy()
    if by == "entropy":
        uncertain = -(mean * np.log2(mean)).sum(
            1
        )  # bits, as the published code has them: the order is the same
    else:
        uncertain = ((probabilities.numpy() - mean) ** 2).mean((0, 2))
    rows = np.argsort(uncertain, kind="stable")[: int(kept * 197)]
    expected = SCORES[score](y.numpy()[rows], mean[rows, 1])
    assert score(kept=kept, by=by)(labelled(probabilities, y)) == pytest.approx(
        expected, rel=1e-12
    )


def test_uncertainties_by_hand():
    """Two samples say 0.9 and 0.5 of one row, and 0.7 twice of another: the same mean, and no disagreement in one."""
    evaluation = labelled(
        tensor([[0.1, 0.9], [0.3, 0.7]], [[0.5, 0.5], [0.3, 0.7]]), torch.tensor([1, 0])
    )
    assert measure_uncertainty(evaluation, "disagreement").tolist() == pytest.approx(
        [2 * 0.04, 0], abs=1e-15
    )
    entropy = -(0.3 * np.log(0.3) + 0.7 * np.log(0.7))
    assert measure_uncertainty(evaluation, "entropy").tolist() == pytest.approx([entropy, entropy])
    assert Disagreement()(evaluation) == pytest.approx(0.04)


def test_shares_count_rows_down_and_never_none():
    evaluation = binary(
        torch.linspace(0.99, 0.6, 10).double().unsqueeze(0), torch.tensor([1] * 7 + [0] * 3)
    )
    for kept, accuracy in ((0.7, 1), (0.8, 7 / 8), (0.01, 1)):
        assert Accuracy(kept=kept)(evaluation) == pytest.approx(accuracy)


@pytest.mark.parametrize("score", [Precision, Recall, F1, Auroc])
def test_more_than_two_classes_are_refused(score):
    evaluation = labelled(normal(0, 2, 6, 3).softmax(-1), torch.arange(6) % 3)
    with pytest.raises(InputError, match="need two classes, not 3"):
        score()(evaluation)


SURE = np.array([0.9, 0.9, 0.1, 0.7, 0.3, 0.3, 0.3, 0.55])
"""Probabilities of class 1: three rows are equally certain, then four, then there is one."""
ORDERS = [
    [*first, *second, 7]
    for first in permutations(range(3))
    for second in permutations(range(3, 7))
]


@pytest.mark.parametrize(
    "labels", [[1, 0, 1, 1, 0, 1, 0, 1], [0] * 8, [1] * 8, [0, 0, 1, 0, 0, 1, 1, 0]]
)
@pytest.mark.parametrize("score", SCORES)
def test_tied_rows_are_averaged_over_all_their_orders(score, labels):
    """One class alone has no ranking, and without positives precision, recall and F1 are 0."""
    y = np.array(labels)
    for kept in range(1, 9):
        first = sorted(
            {tuple(sorted(order[:kept])) for order in ORDERS}
        )  # each as often as the others
        expected = np.mean([SCORES[score](y[list(rows)], SURE[list(rows)]) for rows in first])
        for order in ORDERS[::29]:
            found = score(kept=kept / 8)(
                binary(torch.tensor(SURE[order]).unsqueeze(0), torch.tensor(y[order]))
            )
            assert found == pytest.approx(expected, rel=1e-12)


def test_the_area_under_risk_by_coverage_is_averaged_over_all_orders_of_tied_rows():
    y = np.array([1, 0, 1, 1, 0, 1, 0, 1])
    errors = (SURE > 0.5) != y
    expected = np.mean([np.cumsum(errors[order]) / np.arange(1, 9) for order in ORDERS])
    for order in ORDERS[::29]:
        found = Aurc()(binary(torch.tensor(SURE[order]).unsqueeze(0), torch.tensor(y[order])))
        assert found == pytest.approx(expected, rel=1e-12)


def test_rows_that_differ_by_rounding_are_tied():
    """Neither the entropy of a certain row, nor a disagreement that cancels, puts rows into an order."""
    assert number_tied_groups(tensor(0, 0, 0.3, 0.3 + 1e-16, 0.4)).tolist() == [0, 0, 1, 1, 2]
    same = tensor([0.1, 0.9], [0.3, 0.7], [1 / 3, 2 / 3]).repeat(97, 1, 1)
    evaluation = labelled(same, torch.tensor([1, 0, 1]))
    assert measure_uncertainty(evaluation, "disagreement").tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("tied", "marked", "drawn"), [(20, 5, 7), (20, 18, 7), (3000, 900, 1000), (5, 0, 2), (0, 0, 0)]
)
def test_the_number_of_marked_rows_that_are_drawn(tied, marked, drawn):
    """Its mean and its variance by the textbook; what is left out does not show."""
    found, law = compute_count_law(tied, marked, drawn)
    share = marked / max(tied, 1)
    assert law.sum() == pytest.approx(1, rel=1e-14)
    assert law @ found == pytest.approx(drawn * share, rel=1e-12)
    variance = drawn * share * (1 - share) * (tied - drawn) / max(tied - 1, 1)
    assert law @ (found - drawn * share) ** 2 == pytest.approx(variance, rel=1e-9)


def test_many_tied_rows_take_little_time():
    """Of ten thousand, none of which is more certain; F1 by the law of large numbers."""
    generator = torch.Generator().manual_seed(0)
    y, called = (
        torch.rand(10_000, generator=generator, dtype=torch.float64) < 0.5 for _ in range(2)
    )
    evaluation = binary((0.2 + 0.6 * called.double()).unsqueeze(0), y.long())
    assert F1(kept=0.5)(evaluation) == pytest.approx(F1()(evaluation), abs=1e-4)

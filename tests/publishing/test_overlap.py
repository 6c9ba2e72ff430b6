"""What splits have in common, by their published rows."""

import pytest

from bdl.publishing.provenance import overlaps
from bdl.spec import load_benchmark


def test_published_splits_share_training_rows():
    """Ten test rows to ninety for training on diabetes; halves of one to one for the two-class sets."""
    quick = load_benchmark("uci-regression", "quick")
    assert overlaps(quick) == {"diabetes": pytest.approx(44 / 398)}


def test_splits_along_inputs_share_training_rows():
    """Of diabetes, 294 rows test in the tails and 148 train between them."""
    quick = load_benchmark("uci-regression", "quick")
    tails = quick.preparation.model_copy(update={"split": "tail"})
    assert overlaps(quick.model_copy(update={"preparation": tails})) == {"diabetes": pytest.approx(294 / 148)}


@pytest.mark.parametrize(
    "changes",
    [
        {"splits": 1},
        {"preparation": load_benchmark("uci-regression").preparation.model_copy(update={"split": "first"})},
    ],
)
def test_single_splits_and_replicates_share_nothing_that_counts(changes):
    assert overlaps(load_benchmark("uci-regression", "quick").model_copy(update=changes)) == {}

"""Calibration: coverage of central intervals and reliability of labels, against counts by hand."""

import numpy as np
import pytest

import bdl
from bdl.errors import InputError
from bdl.reports.certainty import coverage, reliability

RNG = np.random.default_rng(0)
X = RNG.normal(size=(4000, 2))
Y = X @ [2.0, -1.0] + 0.5 * RNG.standard_normal(4000)
TRAINED, TESTED = slice(0, 1000), slice(1000, None)


def test_a_target_is_in_the_interval_that_reaches_to_it():
    """Of F(y) = 0.5, 0.7, 0.05, 1 the central intervals with probability 0, 0.4, 0.9 and 1 are the first with y."""
    found = coverage(np.array([0.5, 0.7, 0.05, 1.0]), np.array([0.1, 0.39, 0.41, 0.95, 1.0]))
    assert found.tolist() == [0.25, 0.25, 0.5, 0.75, 1.0]


def test_bins_have_their_upper_bounds():
    confidence, accuracy, rows = reliability(np.array([0.5, 0.6, 1.0, 0.9]), np.array([True, False, True, False]), 2)
    assert confidence.tolist() == [0.5, pytest.approx(2.5 / 3)]
    assert accuracy.tolist() == [1, pytest.approx(1 / 3)]
    assert rows.tolist() == [1, 3]


def test_the_right_model_covers_what_it_says():
    """3000 rows: three standard errors of a share are at most 3 sqrt(0.25 / 3000) = 0.027."""
    found = bdl.calibration(bdl.Regressor().fit(X[TRAINED], Y[TRAINED]), X[TESTED], Y[TESTED])
    assert found.rows == 3000
    assert found.table["level"].tolist() == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9])
    assert found.table["coverage"].to_numpy() == pytest.approx(found.table["level"].to_numpy(), abs=0.028)
    (figure,) = found.plot().values()
    assert figure.axes[0].get_xlabel() == "level"


def test_a_noise_that_is_too_small_covers_too_little():
    fitted = bdl.Regressor(prior_precision=1, noise_precision=100).fit(X[TRAINED], Y[TRAINED])
    found = bdl.calibration(fitted.fitted_, X[TESTED], Y[TESTED], bins=2).table
    assert found["coverage"].item() < 0.25, "0.5 of deviations of 0.1 is 0.135 deviations of 0.5, which cover 0.11"


def test_labels_have_a_reliability():
    words = np.where(RNG.uniform(size=4000) < 1 / (1 + np.exp(-Y)), "yes", "no")
    found = bdl.calibration(bdl.Classifier().fit(X[TRAINED], words[TRAINED]), X[TESTED], words[TESTED], bins=4)
    assert found.table["rows"].sum() == 3000
    assert found.table["accuracy"].to_numpy() == pytest.approx(found.table["confidence"].to_numpy(), abs=0.06)
    (figure,) = found.plot().values()
    assert figure.axes[0].get_ylabel() == "accuracy"


def test_rows_and_targets_are_needed():
    fitted = bdl.Regressor().fit(X[TRAINED], Y[TRAINED])
    for given in ((), (X[TESTED],), (X[TESTED], Y[:5])):
        with pytest.raises(InputError, match="give X and y, one target a row"):
            bdl.calibration(fitted, *given)

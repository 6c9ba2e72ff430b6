"""Figures of functions of one input."""

import numpy as np
import pytest

from bdl.reports.posteriors import DEVIATIONS, REACH, CredibleBand, band_drawings, bands_figure

X = np.linspace(-8, 8, 9)
INPUTS, TARGETS = np.array([-4.0, 0.0, 4.0]), np.array([-60.0, 1.0, 60.0])
NEW = np.array([[-7.0, 7.0], [-90.0, 80.0]])


def band(entry, sd, dataset="cubic"):
    quartiles = np.stack([9 * X - 20, 9 * X, 9 * X + 10])
    return CredibleBand(dataset, entry, X, 10 * X, np.full(9, sd), INPUTS, TARGETS, quartiles, NEW)


def test_a_figure_a_data_set():
    given = [band("slang-1", 5.0), band("bbb", 2.0), band("bbb", 2.0, "cubic_outlier")]
    assert list(band_drawings(given)) == ["bands-cubic", "bands-cubic_outlier"]


def test_credible_bands_hold_the_numbers():
    one, two = bands_figure([band("slang-1", 5.0), band("bbb", 2.0)]).axes
    assert [panel.get_title(loc="left") for panel in (one, two)] == ["slang-1", "bbb"]
    mean, rows = one.lines
    np.testing.assert_array_equal(mean.get_xydata().T, (X, 10 * X))
    np.testing.assert_array_equal(rows.get_xydata().T, (INPUTS, TARGETS))
    for drawn, number in zip(one.collections, DEVIATIONS, strict=True):
        ends = drawn.get_paths()[0].get_extents()
        assert (ends.y0, ends.y1) == (-80 - 5 * number, 80 + 5 * number)
    assert one.get_ylim() == two.get_ylim() == (-95, 95)


@pytest.mark.parametrize("sd", [1e3, 1e9])
def test_huge_deviations_are_clipped(sd):
    low, high = bands_figure([band("slang-1", sd)]).axes[0].get_ylim()
    assert (low, high) == (-60 - 120 * REACH, 60 + 120 * REACH)


def test_of_labels_a_probability_is_shown():
    (panel,) = bands_figure([band("slang-1", 1.0)._replace(labels=True)]).axes
    assert panel.get_ylabel() == "probability of the second class"


def test_quartiles_and_the_test_rows():
    """The axis holds all targets, and no band."""
    (panel,) = bands_figure([band("slang-1", 1e9)], by_quartiles=True).axes
    assert panel.get_ylabel() == "function of the input"
    new, median, rows = panel.lines
    np.testing.assert_array_equal(new.get_xydata().T, NEW)
    np.testing.assert_array_equal(median.get_xydata().T, (X, 9 * X))
    np.testing.assert_array_equal(rows.get_xydata().T, (INPUTS, TARGETS))
    (drawn,) = panel.collections
    ends = drawn.get_paths()[0].get_extents()
    assert (ends.y0, ends.y1) == (-92, 82)
    assert panel.get_ylim() == pytest.approx((-90 - 0.08 * 170, 80 + 0.08 * 170))

"""Figures of parameter vectors over the contours of the truth."""

import numpy as np
from matplotlib.colors import to_hex

from bdl.reports.planes import DEVIATIONS, ITERATES, MEAN, START, iterate_drawings, iterates_figure
from bdl.reports.posteriors import Gaussians

TRUTH = np.array([1.0, -2.0]), np.diag([4.0, 0.25])
PATH = np.array([[1.0, -2.0], [9.0, -1.0], [2.0, -3.0]])


def pair(entry="sgd", path=PATH, dim=2):
    moments = np.resize(PATH.mean(0), dim), np.eye(dim)
    truth = np.resize(TRUTH[0], dim), np.diag(np.resize([4.0, 0.25], dim))
    return Gaussians("synthetic", entry, *moments, *truth, None, np.resize([-3.0, 0.0], dim), path)


def line(panel, look):
    """The points drawn with a look."""
    found = [one for one in panel.lines if one.get_marker() == look["marker"]]
    assert [to_hex(one.get_color()) for one in found] == [to_hex(look["color"])]
    return np.column_stack(found[0].get_data())


def test_figure_has_the_vectors_the_one_before_them_and_their_mean():
    panel, *_ = iterates_figure([pair()]).axes
    np.testing.assert_array_equal(line(panel, ITERATES), PATH)
    np.testing.assert_array_equal(line(panel, START), [[-3, 0]])
    np.testing.assert_allclose(line(panel, MEAN), [PATH.mean(0)])
    (low, high), (bottom, top) = panel.get_xlim(), panel.get_ylim()
    assert low < -5.4, "the truth, 3.2 deviations to the left"
    assert high > 9, "the second vector"
    assert bottom < -3.6
    assert top > 0, "the first point"


def test_contours_are_ellipses_of_the_truth():
    """Along an axis the farthest point of each contour is at its number of deviations."""
    panel, *_ = iterates_figure([pair()]).axes
    contours = next(own for own in panel.collections if len(own.get_paths()) == len(DEVIATIONS))
    for path, deviations in zip(contours.get_paths(), DEVIATIONS, strict=True):
        reach = abs(path.vertices - TRUTH[0]).max(0)
        np.testing.assert_allclose(reach, deviations * np.array([2, 0.5]), rtol=0.02)


def test_a_figure_for_each_data_set_of_entries_that_keep_vectors():
    others = [pair("none", path=None), pair("cube", dim=3), pair()._replace(dataset="plane")]
    assert list(iterate_drawings([pair(), pair("more"), *others])) == ["iterates-synthetic", "iterates-plane"]
    figure = iterate_drawings([pair(), pair("more"), *others])["iterates-synthetic"]()
    assert [panel.get_title(loc="left") for panel in figure.axes] == ["sgd", "more"]

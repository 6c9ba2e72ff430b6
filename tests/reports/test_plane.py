"""The figure of a posterior of two parameters: what its panels and its lines show."""

import numpy as np
import pytest
from matplotlib.colors import to_hex

from bdl.reports.figures import OURS, PAPER
from bdl.reports.inputs import Gaussians
from bdl.reports.plane import LEVELS, _gaussian, plane_figure

MEAN, COVARIANCE = np.array([1.0, -2.0]), np.array([[2.0, 0.5], [0.5, 1.0]])


def ring(theta):
    """A log-density that is no Gaussian's: highest on a circle of radius 2 around the origin."""
    return 1000 - 8 * (np.linalg.norm(theta, axis=-1) - 2) ** 2


@pytest.fixture
def gaussian():
    return Gaussians("synthetic", "vifa", MEAN + 1, COVARIANCE, MEAN, 4 * COVARIANCE)


@pytest.fixture
def skewed():
    return Gaussians("synthetic", "vifa", np.zeros(2), np.eye(2), np.zeros(2), 2.5 * np.eye(2), ring)


def deviations(points, mean, covariance):
    away = points - mean
    return np.sqrt(np.einsum("ni,ij,nj->n", away, np.linalg.inv(covariance), away))


def bands(panel):
    """The filled contours of a panel: points on each border, by the lower level of the band."""
    (found,) = panel.collections
    return found, [path.vertices for path in found.get_paths()]


def test_the_density_is_that_of_a_gaussian_relative_to_its_peak():
    points = np.random.default_rng(0).standard_normal((4, 5, 2))
    expected = -0.5 * deviations(points.reshape(-1, 2), MEAN, COVARIANCE).reshape(4, 5) ** 2
    np.testing.assert_allclose(_gaussian(points, MEAN, COVARIANCE), expected, rtol=1e-12)


def test_ellipses_lie_at_one_and_two_standard_deviations(gaussian):
    lines = plane_figure(gaussian).axes[3].lines
    both = [(gaussian.true_mean, gaussian.true_covariance), (gaussian.mean, gaussian.covariance)]
    expected = [(*moments, radius) for moments in both for radius in (1, 2)]
    for line, (mean, covariance, radius) in zip(lines, expected, strict=True):
        np.testing.assert_allclose(deviations(line.get_xydata(), mean, covariance), radius, rtol=1e-9)
    assert [line.get_color() for line in lines] == [PAPER["color"]] * 2 + [OURS["color"]] * 2


def test_both_densities_are_on_one_scale_and_the_same_axes(gaussian):
    truth, ours, bar, both = plane_figure(gaussian).axes
    assert len({panel.get_xlim() for panel in (truth, ours, both)}) == 1
    assert len({panel.get_ylim() for panel in (truth, ours, both)}) == 1
    assert [bands(panel)[0].levels.tolist() for panel in (truth, ours)] == [LEVELS.tolist()] * 2
    assert bar.get_ylim() == (0, 1)
    low, high = np.array([truth.get_xlim(), truth.get_ylim()]).T
    for mean, covariance in ((gaussian.true_mean, gaussian.true_covariance), (gaussian.mean, gaussian.covariance)):
        assert (low <= mean - 3 * np.sqrt(covariance.diagonal())).all()
        assert (high >= mean + 3 * np.sqrt(covariance.diagonal())).all()


def test_shades_show_the_density(gaussian):
    """The darkest band of a Gaussian is an ellipse where the density is 0.9 of its peak; half a pixel is 0.02 sd."""
    for panel, mean, covariance in zip(
        plane_figure(gaussian).axes,
        (gaussian.true_mean, gaussian.mean),
        (gaussian.true_covariance, gaussian.covariance),
        strict=False,
    ):
        _, paths = bands(panel)
        radii = deviations(paths[-1][:-1], mean, covariance)
        np.testing.assert_allclose(radii, np.sqrt(-2 * np.log(0.9)), atol=0.02)


def test_a_truth_that_is_not_gaussian_is_drawn_as_it_is(skewed):
    """Outlines at radii 2 +- 1/4 and 2 +- 1/2, where 8 (r - 2)^2 is 1/2 and 2; a fifth of a pixel is 0.01."""
    truth, _, _, both = plane_figure(skewed).axes
    (outlines,) = both.collections
    assert to_hex(outlines.get_edgecolor()[0]) == PAPER["color"]
    for path, away in zip(outlines.get_paths(), (0.5, 0.25), strict=True):
        points = path.vertices[path.codes != path.CLOSEPOLY]
        np.testing.assert_allclose(abs(np.linalg.norm(points, axis=1) - 2), away, atol=0.01)
    assert len(both.lines) == 2  # the approximation's
    _, paths = bands(truth)
    darkest = np.linalg.norm(paths[-1], axis=1)
    assert abs(darkest - 2).max() < np.sqrt(-np.log(0.9) / 8) + 0.01


def test_a_degenerate_approximation_is_drawn(gaussian):
    flat = gaussian._replace(covariance=np.diag([1.0, 0.0]))
    line = plane_figure(flat).axes[3].lines[2]
    np.testing.assert_allclose(line.get_ydata(), flat.mean[1], atol=1e-7)
    assert np.ptp(line.get_xdata()) == pytest.approx(2, rel=1e-3)

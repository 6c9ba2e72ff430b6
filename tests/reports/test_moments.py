"""Figures of a posterior beside the truth."""

import numpy as np
import pytest
from matplotlib.image import imread

from bdl.reports.inputs import Gaussians
from bdl.reports.moments import _figure, moment_figures

MEAN, COVARIANCE = np.array([1.0, -2.0, 3.0]), np.array([[2.0, 0.5, 0.0], [0.5, 1.0, -0.3], [0.0, -0.3, 0.5]])


@pytest.fixture
def wide():
    return Gaussians("energy", "vifa", MEAN, COVARIANCE, MEAN + 0.1, 2 * COVARIANCE[:2, :2])


@pytest.fixture
def plane():
    return Gaussians("synthetic", "vifa", MEAN[:2], COVARIANCE[:2, :2], MEAN[:2], 4 * COVARIANCE[:2, :2])


def test_files_are_the_same_each_time(wide, plane, tmp_path):
    paths = moment_figures("b", [wide, plane], tmp_path / "one")
    assert [path.name for path in paths] == [
        f"b-posterior-{name}.{suffix}" for name in ("energy-vifa", "synthetic-vifa") for suffix in ("png", "pdf")
    ]
    again = moment_figures("b", [wide, plane], tmp_path / "two")
    assert [path.read_bytes() for path in paths] == [path.read_bytes() for path in again]
    assert imread(paths[0]).std() > 0.01


def test_panels_hold_the_numbers(wide):
    means, variances, truth, ours, _ = _figure(wide).axes
    assert [line.get_ydata().tolist() for line in means.lines] == [wide.true_mean.tolist(), wide.mean.tolist()]
    heights = [bar.get_height() for bar in variances.patches]
    assert heights == [4, 2, 2, 1]  # the truth knows two of the three variances
    images = [panel.images[0] for panel in (truth, ours)]
    assert images[0].get_clim() == images[1].get_clim() == (-1, 1)
    assert [image.get_array()[0, 1] for image in images] == [1, 0.5]
    assert all(image.get_array().mask.diagonal().all() for image in images)


def test_many_variances_are_outlines():
    ours, truth = np.diag(np.arange(1.0, 61)), np.diag(np.arange(2.0, 62))
    panel = _figure(Gaussians("a1a", "vifa", np.zeros(60), ours, np.zeros(60), truth)).axes[1]
    assert [patch.get_data().values.tolist() for patch in panel.patches] == [
        truth.diagonal().tolist(),
        ours.diagonal().tolist(),
    ]


def test_one_parameter_has_no_covariances():
    one = Gaussians("synthetic", "vifa", MEAN[:1], COVARIANCE[:1, :1], MEAN[:1], COVARIANCE[:1, :1])
    assert len(_figure(one).axes) == 2


def test_two_parameters_have_a_figure_of_their_own(plane):
    assert [panel.get_title("left") for panel in _figure(plane).axes[:2]] == [
        "density, truth",
        "density, approximation",
    ]

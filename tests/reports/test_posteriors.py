"""Figures of posteriors beside the truth."""

import numpy as np
import pytest
from matplotlib.colors import to_hex

from bdl.reports.drawing import OURS, PAPER
from bdl.reports.figures import Shown, draw_figures
from bdl.reports.planes import LEVELS, _gaussian, plane_drawings, plane_figure
from bdl.reports.posteriors import FEW, Gaussians, by_truth, moments_figure

MEAN, COVARIANCE = np.array([1.0, -2.0, 3.0]), np.array([[2.0, 0.5, 0.0], [0.5, 1.0, -0.3], [0.0, -0.3, 0.5]])
NAMES = ["mf", "slang-1", "slang-5", "exact"]
LOOKS = {name: {"color": "black", "marker": "o", "linestyle": "-"} for name in [*NAMES, "vifa"]}


def pairs(dim, dataset="usps", names=NAMES, truth=0):
    """Posteriors of `dim` parameters; `truth` is the seed of what they are held against."""
    rng = np.random.default_rng(truth)
    factor = rng.normal(size=(dim, dim))
    mean, covariance = rng.normal(size=dim), factor @ factor.T + np.eye(dim)
    return [
        Gaussians(dataset, name, mean + shift, covariance * (1 + shift), mean, covariance)
        for shift, name in enumerate(names)
    ]


@pytest.fixture
def pair():
    return Gaussians("energy", "vifa", MEAN, COVARIANCE, MEAN + 0.1, 2 * COVARIANCE[:2, :2])


@pytest.fixture
def plane():
    return Gaussians("synthetic", "vifa", MEAN[:2] + 1, COVARIANCE[:2, :2], MEAN[:2], 4 * COVARIANCE[:2, :2])


def test_files(make_benchmark, pair, plane, tmp_path, blank_figures):
    """Few entries have figures of their own; of three and more with the same truth all are in one."""
    given = [pair, plane, *pairs(5), *pairs(5, "a1a", NAMES[:1]), *pairs(3, "few", NAMES[:FEW])]
    shown = Shown(make_benchmark(name="b"), posteriors=given)
    paths = draw_figures(shown, tmp_path)
    assert [path.name for path in paths if path.suffix == ".png"] == [
        "b-posterior-energy-vifa.png",
        "b-posterior-a1a-mf.png",
        *(f"b-posterior-few-{name}.png" for name in NAMES[:FEW]),
        "b-posteriors-usps.png",
        "b-posteriors-few.png",
        "b-posterior-synthetic-vifa.png",
    ]


def test_entries_with_another_truth_have_a_figure_of_their_own():
    """Four entries share a truth, two others another one, and one has a truth to itself."""
    given = [*pairs(3), *pairs(3, names=["a", "b"], truth=1), *pairs(3, names=["c"], truth=2), *pairs(3, "a1a")]
    found = [(name, [pair.entry for pair in group]) for name, group in by_truth(given)]
    assert found == [("usps", NAMES), ("usps-2", ["a", "b"]), ("a1a", NAMES)]


def test_panels_hold_the_numbers():
    group = pairs(3)
    figure = moments_figure(group, LOOKS)
    means, variances, *maps = figure.axes
    assert [line.get_ydata().tolist() for line in means.lines] == [pair.mean.tolist() for pair in group]
    assert means.patches[0].get_data().values.tolist() == group[0].true_mean.tolist()
    assert [line.get_ydata().tolist() for line in variances.lines] == [
        pair.covariance.diagonal().tolist() for pair in group
    ]
    images = [panel.images[0] for panel in maps[: len(group) + 1]]
    assert [panel.get_title("left") for panel in maps[: len(group) + 1]] == ["truth", *NAMES]
    for image, values in zip(images, [group[0].true_covariance, *(pair.covariance for pair in group)], strict=True):
        assert image.get_array()[0, 1] == values[0, 1]
        assert image.get_array().mask.diagonal().all()
    assert len({image.get_clim() for image in images}) == 1
    spots = [line.get_xdata() for line in means.lines]
    assert all(np.abs(spot - [1, 2, 3]).max() < 0.5 for spot in spots)
    assert len({spot[0] for spot in spots}) == len(group), "marks stand side by side"


def test_a_truth_of_fewer_covariances_is_all_that_is_shown():
    full = pairs(4)
    group = [pair._replace(true_covariance=pair.true_covariance[:3, :3]) for pair in full]
    means, variances, truth, *_ = moments_figure(group, LOOKS).axes
    assert [len(line.get_ydata()) for line in means.lines] == [4] * 4
    assert [len(line.get_ydata()) for line in variances.lines] == [3] * 4
    assert truth.images[0].get_array().shape == (3, 3)


def test_many_parameters_are_lines_and_few_large_covariances_do_not_rule_the_colours():
    group = pairs(60)
    for pair in group:
        pair.true_covariance[0, 1] = pair.true_covariance[1, 0] = 1e6
    means, _, truth, *_ = moments_figure(group, LOOKS).axes
    assert {(line.get_linestyle(), line.get_marker()) for line in means.lines} == {("-", "")}
    assert truth.images[0].get_clim()[1] < 1e3


def test_one_entry_and_its_truth(pair):
    means, variances, truth, ours, _ = moments_figure([pair], LOOKS).axes
    assert [line.get_ydata().tolist() for line in means.lines] == [pair.mean.tolist()]
    assert means.patches[0].get_data().values.tolist() == pair.true_mean.tolist()
    assert variances.patches[0].get_data().values.tolist() == [4, 2], "the truth knows two of the three variances"
    images = [panel.images[0] for panel in (truth, ours)]
    assert images[0].get_clim() == images[1].get_clim() == (-1, 1)
    assert [image.get_array()[0, 1] for image in images] == [1, 0.5]


def test_one_parameter_has_no_covariances():
    one = Gaussians("synthetic", "vifa", MEAN[:1], COVARIANCE[:1, :1], MEAN[:1], COVARIANCE[:1, :1])
    assert len(moments_figure([one], LOOKS).axes) == 2


@pytest.mark.parametrize("known", [None, lambda points: -0.5 * np.square(points).sum(-1)])
def test_two_parameters_have_a_panel_an_entry_whatever_its_truth(known):
    given = [*pairs(2, names=NAMES[:2]), *pairs(2, names=NAMES[2:], truth=1)]
    ((name, group),) = by_truth([pair._replace(true_log_density=known) for pair in given])
    assert name == "usps"
    assert [pair.entry for pair in group] == NAMES
    drawings = plane_drawings(group)
    assert list(drawings) == ["posteriors-usps"]
    panels = drawings["posteriors-usps"]().axes
    assert [panel.get_title("left") for panel in panels] == NAMES


def ring(theta):
    """A log-density that is no Gaussian's: highest on a circle of radius 2 around the origin."""
    return 1000 - 8 * (np.linalg.norm(theta, axis=-1) - 2) ** 2


@pytest.fixture
def skewed():
    return Gaussians("synthetic", "vifa", np.zeros(2), np.eye(2), np.zeros(2), 2.5 * np.eye(2), ring)


def deviations(points, mean, covariance):
    away = points - mean
    return np.sqrt(np.einsum("ni,ij,nj->n", away, np.linalg.inv(covariance), away))


def filled(panel):
    """The filled contours of a panel: points on each border, by the lower level of the band."""
    (found,) = panel.collections
    return found, [path.vertices for path in found.get_paths()]


def test_the_density_is_that_of_a_gaussian_relative_to_its_peak():
    points = np.random.default_rng(0).standard_normal((4, 5, 2))
    expected = -0.5 * deviations(points.reshape(-1, 2), MEAN[:2], COVARIANCE[:2, :2]).reshape(4, 5) ** 2
    np.testing.assert_allclose(_gaussian(points, MEAN[:2], COVARIANCE[:2, :2]), expected, rtol=1e-12)


def test_ellipses_lie_at_one_and_two_standard_deviations(plane):
    lines = plane_figure(plane).axes[3].lines
    both = [(plane.true_mean, plane.true_covariance), (plane.mean, plane.covariance)]
    expected = [(*moments, radius) for moments in both for radius in (1, 2)]
    for line, (mean, covariance, radius) in zip(lines, expected, strict=True):
        np.testing.assert_allclose(deviations(line.get_xydata(), mean, covariance), radius, rtol=1e-9)
    assert [line.get_color() for line in lines] == [PAPER["color"]] * 2 + [OURS["color"]] * 2


def test_both_densities_are_on_one_scale_and_the_same_axes(plane):
    truth, ours, bar, both = plane_figure(plane).axes
    assert len({panel.get_xlim() for panel in (truth, ours, both)}) == 1
    assert len({panel.get_ylim() for panel in (truth, ours, both)}) == 1
    assert [filled(panel)[0].levels.tolist() for panel in (truth, ours)] == [LEVELS.tolist()] * 2
    assert bar.get_ylim() == (0, 1)
    low, high = np.array([truth.get_xlim(), truth.get_ylim()]).T
    for mean, covariance in ((plane.true_mean, plane.true_covariance), (plane.mean, plane.covariance)):
        assert (low <= mean - 3 * np.sqrt(covariance.diagonal())).all()
        assert (high >= mean + 3 * np.sqrt(covariance.diagonal())).all()


def test_shades_show_the_density(plane):
    """The darkest band of a Gaussian is an ellipse where the density is 0.9 of its peak; half a pixel is 0.02 sd."""
    for panel, mean, covariance in zip(
        plane_figure(plane).axes,
        (plane.true_mean, plane.mean),
        (plane.true_covariance, plane.covariance),
        strict=False,
    ):
        _, paths = filled(panel)
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
    _, paths = filled(truth)
    darkest = np.linalg.norm(paths[-1], axis=1)
    assert abs(darkest - 2).max() < np.sqrt(-np.log(0.9) / 8) + 0.01


def test_a_degenerate_approximation_is_drawn(plane):
    flat = plane._replace(covariance=np.diag([1.0, 0.0]))
    line = plane_figure(flat).axes[3].lines[2]
    np.testing.assert_allclose(line.get_ydata(), flat.mean[1], atol=1e-7)
    assert np.ptp(line.get_xdata()) == pytest.approx(2, rel=1e-3)

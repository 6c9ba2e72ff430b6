"""Figures of posteriors beside the truth, of the vectors that they are made of, and of functions of one input."""

import numpy as np
import pytest
from matplotlib.colors import to_hex

from bdl.reports.drawing import OUR_MARK, PAPER_MARK
from bdl.reports.figures import FigureData, drawings_of
from bdl.reports.planes import (
    ITERATES,
    LEVELS,
    MAX_ENTRIES,
    MEAN,
    START,
    iterate_drawings,
    joint_drawings,
    plane_figure,
)
from bdl.reports.posteriors import (
    DEVIATIONS,
    REACH,
    CredibleBand,
    Gaussians,
    credible_band_drawings,
    group_by_truth,
    moments_figure,
)

from .conftest import make_benchmark, titles

CENTRE, COVARIANCE = (
    np.array([1.0, -2.0, 3.0]),
    np.array([[2.0, 0.5, 0.0], [0.5, 1.0, -0.3], [0.0, -0.3, 0.5]]),
)
PAIR = Gaussians("energy", "vifa", CENTRE, COVARIANCE, CENTRE + 0.1, 2 * COVARIANCE[:2, :2])
PLANE = Gaussians(
    "synthetic", "vifa", CENTRE[:2] + 1, COVARIANCE[:2, :2], CENTRE[:2], 4 * COVARIANCE[:2, :2]
)
BENCHMARK = make_benchmark()
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


def test_few_entries_have_figures_of_their_own_and_those_with_the_same_truth_are_in_one():
    posteriors = [
        PAIR,
        PLANE,
        *pairs(5),
        *pairs(5, "a1a", NAMES[:1]),
        *pairs(3, "few", NAMES[:MAX_ENTRIES]),
    ]
    assert list(drawings_of(FigureData(make_benchmark(), posteriors=posteriors))) == [
        "posterior-energy-vifa",
        "posterior-synthetic-vifa",
        "posterior-a1a-mf",
        *(f"posterior-few-{name}" for name in NAMES[:MAX_ENTRIES]),
        "posteriors-usps",
        "posteriors-few",
    ]


def test_entries_with_another_truth_have_a_figure_of_their_own():
    """Four entries share a truth, two others another one, and one has a truth to itself."""
    posteriors = [
        *pairs(3),
        *pairs(3, names=["a", "b"], truth=1),
        *pairs(3, names=["c"], truth=2),
        *pairs(3, "a1a"),
    ]
    groups = [(name, [pair.entry for pair in group]) for name, group in group_by_truth(posteriors)]
    assert groups == [("usps", NAMES), ("usps-2", ["a", "b"]), ("a1a", NAMES)]


def heights(panel):
    return [line.get_ydata().tolist() for line in panel.lines]


def test_panels_hold_the_numbers():
    group = pairs(3)
    means, variances, *maps = moments_figure(BENCHMARK, group, LOOKS).axes
    maps = maps[: len(group) + 1]
    assert heights(means) == [pair.mean.tolist() for pair in group]
    assert means.patches[0].get_data().values.tolist() == group[0].true_mean.tolist()
    assert heights(variances) == [pair.covariance.diagonal().tolist() for pair in group]
    assert [panel.get_title("left") for panel in maps] == ["truth", *NAMES]
    images = [panel.images[0] for panel in maps]
    for image, values in zip(
        images, [group[0].true_covariance, *(pair.covariance for pair in group)], strict=True
    ):
        assert image.get_array()[0, 1] == values[0, 1]
        assert image.get_array().mask.diagonal().all()
    assert len({image.get_clim() for image in images}) == 1
    spots = [line.get_xdata() for line in means.lines]
    assert all(np.abs(spot - [1, 2, 3]).max() < 0.5 for spot in spots)
    assert len({spot[0] for spot in spots}) == len(group), "marks stand side by side"


def test_a_truth_of_fewer_covariances_is_all_that_is_shown():
    means, variances, truth, ours, _ = moments_figure(BENCHMARK, [PAIR], LOOKS).axes
    assert heights(means) == [PAIR.mean.tolist()]
    assert means.get_xlim() == (0.4, 3.6), "the mean of each parameter is within the panel"
    assert heights(variances) == [[2, 1]]
    assert variances.patches[0].get_data().values.tolist() == [4, 2], (
        "the truth knows two of the three variances"
    )
    images = [panel.images[0] for panel in (truth, ours)]
    assert images[0].get_clim() == images[1].get_clim() == (-1, 1)
    assert [(image.get_array().shape, image.get_array()[0, 1]) for image in images] == [
        ((2, 2), 1),
        ((2, 2), 0.5),
    ]
    one_parameter = PAIR._replace(true_mean=CENTRE[:1], true_covariance=COVARIANCE[:1, :1])
    assert len(moments_figure(BENCHMARK, [one_parameter], LOOKS).axes) == 2, (
        "one parameter has no covariances"
    )


def test_many_parameters_are_lines_and_few_large_covariances_do_not_rule_the_colours():
    group = pairs(60)
    for pair in group:
        pair.true_covariance[0, 1] = pair.true_covariance[1, 0] = 1e6
    means, _, truth, *_ = moments_figure(BENCHMARK, group, LOOKS).axes
    assert {(line.get_linestyle(), line.get_marker()) for line in means.lines} == {("-", "")}
    assert truth.images[0].get_clim()[1] < 1e3


@pytest.mark.parametrize("known", [None, lambda points: -0.5 * np.square(points).sum(-1)])
def test_two_parameters_have_a_panel_an_entry_whatever_its_truth(known):
    posteriors = [*pairs(2, names=NAMES[:2]), *pairs(2, names=NAMES[2:], truth=1)]
    drawings = joint_drawings(
        BENCHMARK, [pair._replace(true_log_density=known) for pair in posteriors]
    )
    assert list(drawings) == ["posteriors-usps"]
    assert titles(drawings["posteriors-usps"]()) == NAMES


def deviations(points, mean, covariance):
    away = points - mean
    return np.sqrt(np.einsum("ni,ij,nj->n", away, np.linalg.inv(covariance), away))


def filled(panel):
    """The filled contours of a panel: points on each border, by the lower level of the band."""
    (contours,) = panel.collections
    return contours, [path.vertices for path in contours.get_paths()]


def test_shades_and_ellipses_of_a_plane():
    """The darkest band of a Gaussian is an ellipse where the density is 0.9 of its peak.

    Half a pixel is 0.02 sd.
    """
    truth, ours, bar, both = plane_figure(BENCHMARK, PLANE).axes
    moments = (PLANE.true_mean, PLANE.true_covariance), (PLANE.mean, PLANE.covariance)
    ellipses = [
        (*mean_and_covariance, radius) for mean_and_covariance in moments for radius in (1, 2)
    ]
    for line, (mean, covariance, radius) in zip(both.lines, ellipses, strict=True):
        np.testing.assert_allclose(
            deviations(line.get_xydata(), mean, covariance), radius, rtol=1e-9
        )
    assert [line.get_color() for line in both.lines] == [PAPER_MARK["color"]] * 2 + [
        OUR_MARK["color"]
    ] * 2
    assert len({(panel.get_xlim(), panel.get_ylim()) for panel in (truth, ours, both)}) == 1
    assert bar.get_ylim() == (0, 1)
    low, high = np.array([truth.get_xlim(), truth.get_ylim()]).T
    for panel, (mean, covariance) in zip((truth, ours), moments, strict=True):
        contours, paths = filled(panel)
        assert contours.levels.tolist() == LEVELS.tolist()
        np.testing.assert_allclose(
            deviations(paths[-1][:-1], mean, covariance), np.sqrt(-2 * np.log(0.9)), atol=0.02
        )
        assert (low <= mean - 3 * np.sqrt(covariance.diagonal())).all()
        assert (high >= mean + 3 * np.sqrt(covariance.diagonal())).all()


def test_a_truth_that_is_not_gaussian_is_drawn_as_it_is():
    """A ring: outlines at radii 2 +- 1/4 and 2 +- 1/2, where 8 (r - 2)^2 is 1/2 and 2.

    A fifth of a pixel is 0.01.
    """

    def ring(theta):
        return 1000 - 8 * (np.linalg.norm(theta, axis=-1) - 2) ** 2

    pair = Gaussians(
        "synthetic", "vifa", np.zeros(2), np.eye(2), np.zeros(2), 2.5 * np.eye(2), ring
    )
    truth, _, _, both = plane_figure(BENCHMARK, pair).axes
    (outlines,) = both.collections
    assert to_hex(outlines.get_edgecolor()[0]) == PAPER_MARK["color"]
    for path, away in zip(outlines.get_paths(), (0.5, 0.25), strict=True):
        points = path.vertices[path.codes != path.CLOSEPOLY]
        np.testing.assert_allclose(abs(np.linalg.norm(points, axis=1) - 2), away, atol=0.01)
    assert len(both.lines) == 2  # the approximation's
    darkest = np.linalg.norm(filled(truth)[1][-1], axis=1)
    assert abs(darkest - 2).max() < np.sqrt(-np.log(0.9) / 8) + 0.01


def test_a_degenerate_approximation_is_drawn():
    flat = PLANE._replace(covariance=np.diag([1.0, 0.0]))
    line = plane_figure(BENCHMARK, flat).axes[3].lines[2]
    np.testing.assert_allclose(line.get_ydata(), flat.mean[1], atol=1e-7)
    assert np.ptp(line.get_xdata()) == pytest.approx(2, rel=1e-3)


PATH = np.array([[1.0, -2.0], [9.0, -1.0], [2.0, -3.0]])
OF_PATH = Gaussians(
    "synthetic",
    "sgd",
    PATH.mean(0),
    np.eye(2),
    CENTRE[:2],
    np.diag([4.0, 0.25]),
    None,
    np.array([-3.0, 0.0]),
    PATH,
)


def test_a_figure_for_each_data_set_of_entries_that_keep_vectors():
    cube = Gaussians(
        "synthetic", "cube", CENTRE, COVARIANCE, CENTRE, COVARIANCE, path=np.ones((2, 3))
    )
    others = [OF_PATH._replace(entry="none", path=None), cube, OF_PATH._replace(dataset="plane")]
    drawings = iterate_drawings(BENCHMARK, [OF_PATH, OF_PATH._replace(entry="more"), *others])
    assert list(drawings) == ["iterates-synthetic", "iterates-plane"]
    assert titles(drawings["iterates-synthetic"]()) == ["sgd", "more"]


def test_iterates_lie_over_ellipses_of_the_truth():
    """The vectors, the one before them and their mean.

    Contours reach their number of deviations along an axis.
    """
    (panel,) = iterate_drawings(BENCHMARK, [OF_PATH])["iterates-synthetic"]().axes
    for look, points in ((ITERATES, PATH), (START, [[-3, 0]]), (MEAN, [PATH.mean(0)])):
        (line,) = (one for one in panel.lines if one.get_marker() == look["marker"])
        assert to_hex(line.get_color()) == to_hex(look["color"])
        np.testing.assert_allclose(line.get_xydata(), points)
    (low, high), (bottom, top) = panel.get_xlim(), panel.get_ylim()
    assert low < -5.4, "the truth, 3.2 deviations to the left"
    assert high > 9, "the second vector"
    assert bottom < -3.6
    assert top > 0, "the first point"
    contours = next(own for own in panel.collections if len(own.get_paths()) == len(DEVIATIONS))
    for path, number in zip(contours.get_paths(), DEVIATIONS, strict=True):
        reach = abs(path.vertices - OF_PATH.true_mean).max(0)
        np.testing.assert_allclose(reach, number * np.array([2, 0.5]), rtol=0.02)


X = np.linspace(-8, 8, 9)
INPUTS, TARGETS = np.array([-4.0, 0.0, 4.0]), np.array([-60.0, 1.0, 60.0])
NEW = np.array([[-7.0, 7.0], [-90.0, 80.0]])


def band(entry, sd, dataset="cubic"):
    quartiles = np.stack([9 * X - 20, 9 * X, 9 * X + 10])
    return CredibleBand(dataset, entry, X, 10 * X, np.full(9, sd), INPUTS, TARGETS, quartiles, NEW)


def test_credible_bands_hold_the_numbers():
    drawings = credible_band_drawings(
        make_benchmark(),
        [band("slang-1", 5.0), band("bbb", 2.0), band("bbb", 2.0, "cubic_outlier")],
    )
    assert list(drawings) == ["bands-cubic", "bands-cubic_outlier"]
    figure = drawings["bands-cubic"]()
    one, two = figure.axes
    assert titles(figure) == ["slang-1", "bbb"]
    mean, rows = one.lines
    np.testing.assert_array_equal(mean.get_xydata().T, (X, 10 * X))
    np.testing.assert_array_equal(rows.get_xydata().T, (INPUTS, TARGETS))
    for drawn, number in zip(one.collections, DEVIATIONS, strict=True):
        ends = drawn.get_paths()[0].get_extents()
        assert (ends.y0, ends.y1) == (-80 - 5 * number, 80 + 5 * number)
    assert one.get_ylim() == two.get_ylim() == (-95, 95)


def test_huge_deviations_are_clipped_and_of_labels_a_probability_is_shown():
    drawings = credible_band_drawings(
        make_benchmark(), [band("slang-1", 1e9)._replace(labels=True)]
    )
    (panel,) = drawings["bands-cubic"]().axes
    assert panel.get_ylim() == (-60 - 120 * REACH, 60 + 120 * REACH)
    assert panel.get_ylabel() == "probability of the second\nclass"


def test_quartiles_and_the_test_rows():
    """The axis holds all targets, and no band."""
    drawings = credible_band_drawings(
        make_benchmark(metrics=["nmll", "spread"]), [band("slang-1", 1e9)]
    )
    (panel,) = drawings["bands-cubic"]().axes
    assert panel.get_ylabel() == "function of the input"
    for line, points in zip(panel.lines, (NEW, (X, 9 * X), (INPUTS, TARGETS)), strict=True):
        np.testing.assert_array_equal(line.get_xydata().T, points)
    (drawn,) = panel.collections
    ends = drawn.get_paths()[0].get_extents()
    assert (ends.y0, ends.y1) == (-92, 82)
    assert panel.get_ylim() == pytest.approx((-90 - 0.08 * 170, 80 + 0.08 * 170))

"""Figures of several posteriors beside one truth."""

import numpy as np
import pytest
from matplotlib.image import imread

from bdl.reports.inputs import Gaussians
from bdl.reports.moments import FEW, moment_figures
from bdl.reports.posteriors import _figure, _groups, posterior_figures

NAMES = ["mf", "slang-1", "slang-5", "exact"]
LOOKS = {name: {"color": "black", "marker": "o", "linestyle": "-"} for name in NAMES}


def pairs(dim, dataset="usps", names=NAMES, truth=0):
    """Posteriors of `dim` parameters; `truth` is the seed of what they are held against."""
    rng = np.random.default_rng(truth)
    factor = rng.normal(size=(dim, dim))
    mean, covariance = rng.normal(size=dim), factor @ factor.T + np.eye(dim)
    return [
        Gaussians(dataset, name, mean + shift, covariance * (1 + shift), mean, covariance)
        for shift, name in enumerate(names)
    ]


def test_files_are_the_same_each_time(tmp_path):
    paths = posterior_figures("b", [*pairs(5), *pairs(5, "a1a", NAMES[:1])], tmp_path / "one")
    assert [path.name for path in paths] == ["b-posteriors-usps.png", "b-posteriors-usps.pdf"], "a1a has one entry"
    again = posterior_figures("b", pairs(5), tmp_path / "two")
    assert [path.read_bytes() for path in paths] == [path.read_bytes() for path in again]
    assert imread(paths[0]).std() > 0.01


def test_entries_with_another_truth_have_a_figure_of_their_own():
    """Four entries share a truth, two others another one, and one has a truth to itself."""
    given = [*pairs(3), *pairs(3, names=["a", "b"], truth=1), *pairs(3, names=["c"], truth=2), *pairs(3, "a1a")]
    found = [(name, [pair.entry for pair in group]) for name, group in _groups(given)]
    assert found == [("usps", NAMES), ("usps-2", ["a", "b"]), ("a1a", NAMES)]


def test_panels_hold_the_numbers():
    group = pairs(3)
    figure = _figure(group, LOOKS)
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
    means, variances, truth, *_ = _figure(group, LOOKS).axes
    assert [len(line.get_ydata()) for line in means.lines] == [4] * 4
    assert [len(line.get_ydata()) for line in variances.lines] == [3] * 4
    assert truth.images[0].get_array().shape == (3, 3)


def test_many_parameters_are_lines_and_few_large_covariances_do_not_rule_the_colours():
    group = pairs(60)
    for pair in group:
        pair.true_covariance[0, 1] = pair.true_covariance[1, 0] = 1e6
    means, _, truth, *_ = _figure(group, LOOKS).axes
    assert {(line.get_linestyle(), line.get_marker()) for line in means.lines} == {("-", "")}
    assert truth.images[0].get_clim()[1] < 1e3


@pytest.mark.parametrize("known", [None, lambda points: -0.5 * np.square(points).sum(-1)])
def test_two_parameters_have_a_panel_an_entry_whatever_its_truth(known, tmp_path):
    given = [*pairs(2, names=NAMES[:2]), *pairs(2, names=NAMES[2:], truth=1)]
    ((name, group),) = _groups([pair._replace(true_log_density=known) for pair in given])
    assert name == "usps"
    assert [pair.entry for pair in group] == NAMES
    (png, _) = posterior_figures("b", group, tmp_path)
    assert imread(png).std() > 0.01


def test_many_entries_have_no_figures_of_their_own(tmp_path):
    few, many = pairs(3, "few", NAMES[:FEW]), pairs(3, "many", NAMES)
    found = {path.stem for path in moment_figures("b", [*few, *many], tmp_path)}
    assert found == {f"b-posterior-few-{name}" for name in NAMES[:FEW]}

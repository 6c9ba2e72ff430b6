"""Looks of methods: one for each in all figures, which no other method of a figure has."""

from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import pytest
from matplotlib.colors import to_hex

from bdl.publishing.run_figures import gather_figure_data
from bdl.reports import method_styles
from bdl.reports.drawing import label_directly, lay_out_panels, spread_apart
from bdl.reports.figures import drawings_of
from bdl.reports.method_styles import FAMILIES, entry_styles
from bdl.reports.planes import joint_drawings
from bdl.spec import list_benchmarks, list_profiles, load_benchmark, load_request
from bdl.stored_results.loading import load_results

from .test_posteriors import pairs

SHIPPED = [(name, profile) for name, _ in list_benchmarks() for profile in list_profiles(name)]
RESULTS = Path(__file__).parents[2] / "results"
FAST = ("sgd-posterior", "slang-convergence")
"""Published benchmarks with few figures, which show many methods of a family."""
PUBLISHED = [
    pytest.param(name, profile, marks=() if name in FAST else pytest.mark.slow)
    for name, profile in SHIPPED
    if (RESULTS / name / ("" if profile == "paper" else profile) / "table.json").exists()
]


def looks_of(entries):
    return [(look["color"], look["marker"]) for look in entry_styles(entries).values()]


@pytest.mark.parametrize(("name", "profile"), SHIPPED)
def test_no_two_methods_of_a_benchmark_share_colour_and_marker(name, profile):
    """Figures have some of its entries, whose looks do not depend on the others."""
    entries = [*load_benchmark(name, profile).entries]
    looks = looks_of(entries)
    assert len({*looks}) == len(entries)
    assert [look for entry in entries for look in looks_of([entry])] == looks


def shared_looks(drawings, entries):
    """Return the methods that share colour and marker in a figure, by figure.

    Figures are laid out, not rendered, which would take most of the time.
    """
    shared = {}
    for figure_name, draw in drawings.items():
        methods = defaultdict(set)
        for panel in draw().axes:
            for handle, label in zip(*panel.get_legend_handles_labels(), strict=True):
                line = getattr(handle, "lines", [handle])[0]  # of an error bar, its mark
                if label in entries:
                    methods[to_hex(line.get_color()), line.get_marker()].add(label)
        labels = [sorted(labels) for labels in methods.values() if len(labels) > 1]
        if labels:
            shared[figure_name] = labels
    return shared


def shared_published_looks(name, profile="paper"):
    loaded = load_results(load_request(name, profile), RESULTS)
    return shared_looks(drawings_of(gather_figure_data(loaded, {})), loaded.benchmark.entries)


@pytest.mark.parametrize(("name", "profile"), PUBLISHED)
def test_no_two_methods_of_a_published_figure_share_colour_and_marker(name, profile):
    assert shared_published_looks(name, profile) == {}


def test_methods_that_share_colour_and_marker_in_a_figure_are_noticed(monkeypatch):
    monkeypatch.setattr(method_styles, "MARKERS", "o")
    shared = shared_published_looks("slang-convergence")
    assert ["slang-1", "slang-online-eig-1"] in shared["sym_kl-curve"]


def test_no_two_methods_share_colour_and_marker_in_a_figure_of_posteriors():
    """Their posteriors, which are stored but not drawn from published rows, are made up."""
    benchmark = load_benchmark("slang-logistic")
    drawings = joint_drawings(benchmark, pairs(2, names=[*benchmark.entries]))
    assert [*drawings] == ["posteriors-usps"]
    assert shared_looks(drawings, benchmark.entries) == {}


def test_every_shipped_method_has_a_family():
    known = {name for _, names in FAMILIES.values() for name in names}
    shipped = {entry for name, _ in list_benchmarks() for entry in load_benchmark(name).entries}
    assert shipped <= known
    assert len(FAMILIES) <= 8
    assert len(known) == sum(len(names) for _, names in FAMILIES.values())


def test_other_methods_look_like_no_other_of_the_figure():
    others = [f"mine-{i}" for i in range(20)]
    entries = ["map", *others, "vifa-mine", "adam"]
    looks = looks_of(entries)
    assert len({*looks}) == len(entries)
    assert looks[0] == looks_of(["map"])[0]
    assert entry_styles(["vifa-mine"])["vifa-mine"]["color"] != looks[0][0]


@pytest.mark.parametrize("heights", [[0.5] * 10, [0.98, 0.99, 1.0], [0.0, 0.01, 0.9], [0.3]])
def test_names_do_not_overlap(heights):
    moved = spread_apart(heights)
    ordered = sorted(moved)
    gaps = [after - before for before, after in pairwise(ordered)]
    assert all(gap >= min(0.06, 1 / len(heights)) - 1e-9 for gap in gaps)
    assert max(moved) <= 1 + 1e-9 or len(heights) > 16


def test_names_stand_beside_the_ends_of_their_lines():
    figure, (panel,) = lay_out_panels(1, (3, 2))
    panel.plot([0, 1], [0, 1], label="rising")
    panel.plot([0, 1], [1, 0], label="falling")
    width = figure.get_figwidth()
    label_directly(figure, [panel])
    heights = {text.get_text(): text.get_position()[1] for text in panel.texts}
    assert heights["rising"] > 0.9
    assert heights["falling"] < 0.1
    assert figure.get_figwidth() > width

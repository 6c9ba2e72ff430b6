"""Looks of methods: one for each in all figures, which no other method of a figure has."""

from itertools import pairwise

import pytest

from bdl.reports.drawing import label_directly, lay_out_panels, spread_apart
from bdl.reports.method_styles import FAMILIES, entry_styles
from bdl.spec import list_benchmarks, list_profiles, load_benchmark

SHIPPED = [(name, profile) for name, _ in list_benchmarks() for profile in list_profiles(name)]


def looks_of(entries):
    return [(look["color"], look["marker"]) for look in entry_styles(entries).values()]


@pytest.mark.parametrize(("name", "profile"), SHIPPED)
def test_no_two_methods_of_a_benchmark_share_colour_and_marker(name, profile):
    """Figures have some of its entries, whose looks do not depend on the others."""
    entries = [*load_benchmark(name, profile).entries]
    looks = looks_of(entries)
    assert len({*looks}) == len(entries)
    assert [look for entry in entries for look in looks_of([entry])] == looks


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

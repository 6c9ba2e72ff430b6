"""Who is ranked and who is not, and what tables, lines and figures say of it."""

import numpy as np
import pandas as pd
import pytest

from bdl.records.row import CERTIFICATE_DETAIL
from bdl.reports.entry_places import place_entries, place_lines
from bdl.reports.figures import draw_figure
from bdl.reports.standing_figure import standing_drawings
from bdl.reports.standing_tables import (
    compute_standings,
    pair_section,
    standing_lines,
    standing_sections,
)

from .conftest import make_benchmark, make_trials

DATASETS, ENTRIES = ["energy", "wine", "yacht"], ["vifa", "bbb", "nuts", "swag", "mine"]


def make_contenders(**changes):
    defaults = {"datasets": DATASETS, "entries": dict.fromkeys(ENTRIES), "papers": []}
    return make_benchmark(**defaults | {"baseline": "vifa"} | changes)


def make_rows(without=()):
    """Scores that rise from one entry to the next, on four splits."""
    tables = []
    for dataset in DATASETS:
        for i, entry in enumerate(ENTRIES):
            if (dataset, entry) not in without:
                values = i + np.array([0.1, -0.1, 0.2, 0.0]) * (1 + i)
                tables.append(make_trials(dataset, entry, values, runtime=[1.0 + i] * 4))
    return pd.concat(tables, ignore_index=True)


def test_methods_are_ranked_by_each_score():
    standings = compute_standings(make_contenders(), make_rows(), {}, {})
    assert [standing.metric for standing in standings] == ["nmll", "rmse"]
    first = standings[0]
    assert {entry: rank.value for entry, rank in first.ranks.items()} == dict(
        zip(ENTRIES, range(1, 6), strict=True)
    )
    assert (first.n_splits, len(first.pairs), first.unranked) == ((4, 4, 4), 3 * 10, [])
    assert first.seconds == pytest.approx({name: 60.0 * (1 + i) for i, name in enumerate(ENTRIES)})
    assert first.front == {"vifa"}
    assert first.ahead["vifa"].bootstrap == 4
    assert first.ahead["vifa"].hierarchical == 4


@pytest.mark.parametrize(
    "changes",
    [{"sweep": {"model.hidden": ["[20]", "[50]"]}}, {"datasets": DATASETS[:2]}],
)
def test_other_benchmarks_have_no_standing(changes):
    assert compute_standings(make_contenders(**changes), make_rows(), {}, {}) == []


def test_who_is_not_ranked_has_the_rank_that_it_would_have():
    rows = make_rows(without=[("wine", "nuts")])
    rows[CERTIFICATE_DETAIL] = None
    rows.loc[rows["entry"] == "nuts", CERTIFICATE_DETAIL] = ["certified"] * 7 + ["breaks rules 1"]
    rows = rows.drop(rows.index[(rows["entry"] == "swag") & (rows["split"] == 3)])
    standing = compute_standings(make_contenders(), rows, {}, {"mine": "an entry of its own"})
    assert standing == []  # two methods are left
    standing, _ = compute_standings(make_contenders(), rows, {}, {})
    assert list(standing.ranks) == ["vifa", "bbb", "mine"]
    nuts, swag = standing.unranked
    assert nuts.reason == "all splits of 2 of 3 data sets; 1 of 8 fits uncertified"
    assert (nuts.n_datasets, nuts.rank.value) == (2, 3.0)
    assert (swag.reason, swag.rank) == ("all splits of 0 of 3 data sets", None)


def test_a_certified_score_is_ranked():
    """Chains that disagree about weights are ranked by a score that they agree about."""
    rows = make_rows()
    texts = {"nuts": "breaks rules 1, 2", "swag": "certified"}
    rows[CERTIFICATE_DETAIL] = rows["entry"].map(texts)
    rows["nmll_mcse"] = np.where(rows["entry"] == "nuts", 0.009, np.nan)
    by_nmll = compute_standings(make_contenders(), rows, {}, {})[0]
    assert list(by_nmll.ranks) == ENTRIES
    rows.loc[(rows["entry"] == "nuts") & (rows["split"] == 1), "nmll_mcse"] = 0.011
    by_nmll = compute_standings(make_contenders(), rows, {}, {})[0]
    (nuts,) = by_nmll.unranked
    assert nuts.reason.endswith("fits uncertified")


def test_a_failed_fit_takes_part_as_the_worst():
    rows = make_rows()
    fails = (rows["entry"] == "vifa") & (rows["split"] == 0)
    rows.loc[fails, "status"] = "failed"
    rows.loc[fails, "nmll"] = np.nan
    standing, _ = compute_standings(make_contenders(), rows, {}, {})
    assert standing.ranks["vifa"].value == 2.0  # a quarter of 5 and more is behind 1
    assert {pair.n for pair in standing.pairs if "vifa" in pair[1:3]} == {3}
    assert {pair.n for pair in standing.pairs if "vifa" not in pair[1:3]} == {4}
    # a method that failed where another did not is not ahead of it
    assert standing.ahead["vifa"].hierarchical == 0


def test_an_unranked_method_does_not_decide_what_a_failure_counts():
    rows = make_rows(without=[("wine", "mine")])
    rows.loc[rows["entry"] == "mine", "nmll"] = 1e9
    fails = (rows["entry"] == "bbb") & (rows["split"] == 0)
    rows.loc[fails, "status"] = "failed"
    standing, _ = compute_standings(make_contenders(), rows, {}, {})
    (mine,) = standing.unranked
    assert mine.rank.value == 5.0


def test_seconds_are_those_of_all_data_sets():
    """A mean over other data sets would not compare."""
    rows = make_rows(without=[("wine", "nuts")])
    standing, _ = compute_standings(make_contenders(), rows, {}, {})
    assert list(standing.seconds) == ["vifa", "bbb", "swag", "mine"]


@pytest.mark.parametrize("splits", [1, 2])
def test_few_splits_have_ranks_and_no_differences(splits):
    rows = make_rows()
    standings = compute_standings(make_contenders(), rows[rows["split"] < splits], {}, {})
    sections = standing_sections("uci", standings)
    assert [section.table.columns[0] for section in sections] == ["Method", "Method"]
    lines = [line.plain for line in standing_lines(standings, 80)]
    assert not any("power" in line for line in lines)


def test_scores_of_both_signs_have_no_logarithms():
    """Negated shares such as R²: their margin is relative, and -0.9 is better than 0.5."""
    rows = make_rows()
    order = dict(zip(ENTRIES, (-0.9, 0.5, -0.8, 0.1, 0.2), strict=True))
    noise = rows["split"] * 0.001
    rows["rmse"] = rows["entry"].map(order) + noise
    by_rmse = compute_standings(make_contenders(), rows, {}, {})[1]
    assert by_rmse.ahead["vifa"].hierarchical == 1  # of the other with negative scores alone


def test_an_entry_without_certificate_has_no_place_even_if_it_lacks_data_sets():
    rows = make_rows(without=[("energy", "mine"), ("wine", "mine"), ("wine", "nuts")])
    rows[CERTIFICATE_DETAIL] = np.where(rows["entry"] == "nuts", "breaks rules 1", None)
    place = place_entries(make_contenders(), rows, {}, ["mine"])[0]
    assert place.n_ranked == 4
    assert place.unranked >= {"nuts"}


def test_tables_lines_and_figure():
    rows = make_rows(without=[("wine", "nuts")])
    benchmark = make_contenders()
    standings = compute_standings(benchmark, rows, {"wine": 0.1}, {})
    ranks, smallest, unranked, *_ = standing_sections("uci", standings)
    assert [row[:2] for row in ranks.rows] == [
        ("vifa", "1.0"), ("bbb", "2.0"), ("swag", "3.0"), ("mine", "4.0"),
    ]  # fmt: skip
    assert [row[0] for row in smallest.rows] == DATASETS
    assert [row[0] for row in unranked.rows] == ["nuts"]
    assert len(pair_section(standings[0]).rows) == 3 * 6
    lines = [line.plain for line in standing_lines(standings, 80)]
    assert max(map(len, lines)) <= 80
    assert "Standing over 3 data sets of 4 splits: average ranks" in lines
    assert "nuts: all splits of 2 of 3 data sets." in lines
    drawings = standing_drawings(benchmark, standings)
    assert list(drawings) == ["nmll-standing", "rmse-standing"]
    figure = draw_figure(drawings["nmll-standing"])
    ranks_panel, wins, times = figure.axes
    names = [label.get_text() for label in ranks_panel.get_yticklabels()]
    assert names == ["vifa", "bbb", "swag", "mine", "nuts"]
    np.testing.assert_allclose(wins.images[0].get_array(), 100 * standings[0].win_rates)
    assert times.get_xlabel() == "seconds of a fit; geometric mean"


def test_an_added_entry_has_its_place_on_the_data_sets_that_it_has():
    without = [("energy", "mine"), ("wine", "mine"), ("yacht", "nuts")]
    rows = make_rows(without=without)
    places = place_entries(make_contenders(), rows, {"yacht": 0.1}, ["mine"])
    place = places[0]
    assert (place.entry, place.metric, place.datasets) == ("mine", "nmll", ("yacht",))
    assert (place.rank.value, place.n_ranked) == (4.0, 4)
    assert [(each.entry, each.n) for each in place.differences] == [
        ("vifa", 4), ("bbb", 4), ("swag", 4),
    ]  # fmt: skip
    lines = [line.plain for line in place_lines(places, 80)]
    assert lines[0].startswith("mine would have rank 4.0 (4-4) of 4 by NMLL")
    (line,) = [line for line in lines if line.startswith("swag")]
    assert line.split() == ["swag", "1.05", "0.807", "to", "1.29", "worse"]
    assert max(map(len, lines)) <= 80


def test_on_several_data_sets_the_place_counts_verdicts():
    places = place_entries(make_contenders(), make_rows(), {}, ["mine"])
    assert places[0].rank.value == 5.0
    lines = [line.plain for line in place_lines(places[:1], 80)]
    assert lines[2].split() == ["than", "vifa", "0", "0", "3"]

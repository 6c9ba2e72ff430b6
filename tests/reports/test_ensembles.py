"""Deep-ensemble equivalents: by hand, and of rows that lack something."""

from types import SimpleNamespace

import pandas as pd
import pytest

from bdl.reports.more_tables import ensemble_sections, equivalent


@pytest.mark.parametrize(
    ("score", "text"),
    [
        (2.5, "< 1"),
        (2.0, "1.0"),
        (1.5, "1.5"),  # half-way from 2 to 1
        (1.0, "2.0"),
        (0.9, "3.3"),  # past three, which are worse than two: 0.2 / 0.75 of the way from 1.1 to 0.35
        (0.5, "3.8"),
        (0.35, "4.0"),
        (0.3, "> 4"),
    ],
)
def test_members_by_hand(score, text):
    assert equivalent([2.0, 1.0, 1.1, 0.35], score) == text


def test_one_member_that_nothing_improves():
    assert equivalent([1.0, 1.0], 1.0) == "1.0"
    assert equivalent([1.0, 1.2], 0.9) == "> 2"


def entry(method: str) -> SimpleNamespace:
    return SimpleNamespace(method=SimpleNamespace(name=method))


def rows_of(make_trials, curve: list[list[float]]) -> pd.DataFrame:
    """An ensemble of three on two splits, and a method with the score 1.5 where it has one."""
    first = {f"calibrated_nll_first_{m}": values for m, values in enumerate(curve[:-1], start=1)}
    return pd.concat(
        [
            make_trials("yacht", "ensemble", curve[-1], calibrated_nll=curve[-1], **first),
            make_trials("yacht", "other", [0.0, 0.0, 0.0], calibrated_nll=[1.0, 2.0, 99.0]),
            make_trials("energy", "other", [0.0], calibrated_nll=[1.0]),
        ]
    )


def test_a_table_has_means_over_shared_splits(make_benchmark, make_trials):
    """Means 3, 2 and 1 of one to three members on two splits: 1.5 is half-way from the second to the third."""
    made = make_benchmark(
        entries={"ensemble": entry("deep-ensemble"), "other": entry("vifa")}, metrics=["calibrated_nll"]
    )
    (found,) = ensemble_sections(made, rows_of(make_trials, [[2.5, 3.5], [1.0, 3.0], [0.5, 1.5]]))
    assert list(found.table.columns) == ["Dataset", "Method", "Mean", "Members", "n"]
    assert found.rows == [("yacht", "other", "1.50", "2.5", "2")]
    assert "members of ensemble that are as good, by Calibrated NLL" in found.title


def test_without_ensemble_score_or_prefixes_there_is_no_table(make_benchmark, make_trials):
    rows = rows_of(make_trials, [[2.5, 3.5], [1.0, 3.0], [0.5, 1.5]])
    both = {"ensemble": entry("deep-ensemble"), "other": entry("vifa")}
    assert ensemble_sections(make_benchmark(entries=both, metrics=["nmll"]), rows) == []
    alone = {"other": entry("vifa")}
    assert ensemble_sections(make_benchmark(entries=alone, metrics=["calibrated_nll"]), rows) == []
    whole = rows.drop(columns=[name for name in rows if "first" in name])
    assert ensemble_sections(make_benchmark(entries=both, metrics=["calibrated_nll"]), whole) == []

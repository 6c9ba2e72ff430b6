"""Deep-ensemble equivalents, by hand."""

from types import SimpleNamespace

import pandas as pd
import pytest

from bdl.reports.ensembles import ensemble_sections, equivalent_members

from .conftest import columns, make_benchmark, make_trials


@pytest.mark.parametrize(
    ("curve", "score", "text"),
    [
        ([2.0, 1.0, 1.1, 0.35], 2.5, "< 1"),
        ([2.0, 1.0, 1.1, 0.35], 2.0, "1.0"),
        ([2.0, 1.0, 1.1, 0.35], 1.5, "1.5"),  # half-way from 2 to 1
        ([2.0, 1.0, 1.1, 0.35], 1.0, "2.0"),
        (
            [2.0, 1.0, 1.1, 0.35],
            0.9,
            "3.3",
        ),  # past three, which are worse than two: 0.2 / 0.75 from 1.1 to 0.35
        ([2.0, 1.0, 1.1, 0.35], 0.3, "> 4"),
        ([1.0, 1.0], 1.0, "1.0"),  # one member that nothing improves
        ([1.0, 1.2], 0.9, "> 2"),
    ],
)
def test_members_by_hand(curve, score, text):
    assert equivalent_members(curve, score) == text


def test_a_table_of_ensembles_has_means_over_shared_splits():
    """Means 3, 2 and 1 of one to three members on two splits: 1.5 is half-way from the second to the third."""
    first = {"calibrated_nll_first_1": [2.5, 3.5], "calibrated_nll_first_2": [1.0, 3.0]}
    rows = [
        make_trials("yacht", "ensemble", [0.5, 1.5], calibrated_nll=[0.5, 1.5], **first),
        make_trials("yacht", "other", [0.0, 0.0, 0.0], calibrated_nll=[1.0, 2.0, 99.0]),
        make_trials("energy", "other", [0.0], calibrated_nll=[1.0]),
    ]
    methods = {"ensemble": "deep-ensemble", "other": "vifa"}
    entries = {
        name: SimpleNamespace(method=SimpleNamespace(name=method))
        for name, method in methods.items()
    }

    def tables(rows, entries=entries, metric="calibrated_nll"):
        return ensemble_sections(make_benchmark(entries=entries, metrics=[metric]), rows)

    (section,) = tables(pd.concat(rows))
    assert columns(section) == ["Dataset", "Method", "Mean", "Members", "n"]
    assert section.rows == [("yacht", "other", "1.50", "2.5", "2")]
    assert "members of ensemble that are as good, by Calibrated NLL" in section.title
    without_prefixes = pd.concat(rows).drop(columns=[*first])
    assert tables(without_prefixes) == tables(pd.concat(rows), metric="nmll") == []
    assert tables(pd.concat(rows), {"other": entries["other"]}) == []

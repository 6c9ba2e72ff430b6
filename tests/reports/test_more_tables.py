"""What stands below the tables of metrics: numbers printed elsewhere, deep-ensemble equivalents, and references."""

import json
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest

from bdl.errors import InputError
from bdl.plan.truths import published_info
from bdl.reports import compare
from bdl.reports.more_tables import (
    elsewhere_sections,
    ensemble_sections,
    equivalent,
    reference_sections,
)
from bdl.reports.papers import OTHERS, load_paper

from .conftest import columns, make_benchmark, make_trials

PUBLISHED = Path(__file__).parents[2] / "results"


def test_ours_come_first_and_theirs_say_how_they_were_made():
    made = make_benchmark(elsewhere=OTHERS, papers=[])
    nmll, rmse = elsewhere_sections(
        made, compare(made, make_trials("yacht", "vifa-nn", [1.0, 2.0, 3.0]))
    )
    assert "NMLL" in nmll.title
    assert "without verdicts" in nmll.title
    nine_to_one = "20 of nine to one", "lakshminarayanan2017 Table 1"
    assert nmll.rows == [
        ("yacht", "vifa-nn", "2.00 ± 0.58", "standard error", "ours", "here"),
        ("yacht", "dropout_grid", "1.25 ± 0.01", "standard error", "ours", "gal2018 readme"),
        (
            "yacht",
            "deep_ensembles",
            "1.18 ± 0.21",
            "deviation over splits, probably",
            *nine_to_one,
        ),
        ("yacht", "pbp", "1.63 ± 0.02", "standard error, probably", *nine_to_one),
    ]
    assert rmse.rows[-1][2] == "1.02 ± 0.05"
    assert elsewhere_sections(make_benchmark(elsewhere=(), papers=[]), []) == []


def test_every_source_says_how_its_splits_and_errors_are_to_be_read():
    rows = [row for paper in OTHERS for row in load_paper(paper)]
    said = [dict(part.split("=") for part in row["setting"].split(";")) for row in rows]
    assert {each["splits"] for each in said} == {"same-index", "same-protocol"}
    assert {each["pm"] for each in said} == {"se", "sd-probably", "se-probably"}
    assert len(rows) == 44


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
    assert equivalent(curve, score) == text


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

    (found,) = tables(pd.concat(rows))
    assert columns(found) == ["Dataset", "Method", "Mean", "Members", "n"]
    assert found.rows == [("yacht", "other", "1.50", "2.5", "2")]
    assert "members of ensemble that are as good, by Calibrated NLL" in found.title
    without_prefixes = pd.concat(rows).drop(columns=[*first])
    assert tables(without_prefixes) == tables(pd.concat(rows), metric="nmll") == []
    assert tables(pd.concat(rows), {"other": entries["other"]}) == []


def test_each_reference_has_a_line_with_what_its_certificate_says():
    found = published_info(PUBLISHED / "network-posterior")
    (section,) = reference_sections("network-posterior", found)
    assert [(row[0], row[1]) for row in section.rows[:4]] == [
        (name, str(s)) for name, s, _ in found[:4]
    ]
    yacht = next(row for row in section.rows if row[:2] == ("yacht", "0"))
    content = json.loads(
        (PUBLISHED / "network-posterior/references/yacht.json").read_text("utf-8")
    )["certificate"]
    ess = min(content["bulk_ess"] + content["tail_ess"])
    seconds = f"{content['origin']['seconds']:.0f}"
    assert yacht[3:] == (f"{max(content['r_hat']):.4f}", f"{ess:.0f}", "certified", seconds)


def test_linear_models_have_certificates_of_their_own():
    found = published_info(PUBLISHED / "logistic-posterior")
    assert {"a1a", "australian"} < {dataset for dataset, *_ in found}
    assert all(row[5] == "certified" for row in reference_sections("some", found)[0].rows)


def test_broken_rules_are_named(tmp_path):
    assert reference_sections("some", published_info(tmp_path)) == []
    text = (PUBLISHED / "network-posterior/references/yacht-2.json").read_text("utf-8")
    content = json.loads(text)
    content["certificate"]["r_hat"][3], content["certificate"]["divergences"][1] = 1.02, 0.01
    (tmp_path / "references").mkdir()
    (tmp_path / "references/two-thirds-2.json").write_text(json.dumps(content))
    (section,) = reference_sections("some", published_info(tmp_path))
    assert section.rows[0][:2] == ("two-thirds", "2")
    assert section.rows[0][5] == "breaks rules 1, 7"


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"certificate": 1}', '{"certificate": {"r_hat": [1]}}']
)
def test_a_damaged_file_is_told(tmp_path, text):
    (tmp_path / "references").mkdir()
    (tmp_path / "references/yacht.json").write_text(text)
    with pytest.raises(InputError, match=r"tells of no reference|not a certificate"):
        published_info(tmp_path)

"""Numbers that other papers print, with ours and without verdicts."""

from bdl.reports.comparison import compare_with_papers
from bdl.reports.elsewhere import elsewhere_sections
from bdl.reports.papers import OTHER_PAPERS, load_paper

from .conftest import make_benchmark, make_trials


def test_ours_come_first_and_theirs_say_how_they_were_made():
    benchmark = make_benchmark(elsewhere=OTHER_PAPERS, papers=[])
    nmll, rmse = elsewhere_sections(
        benchmark, compare_with_papers(benchmark, make_trials("yacht", "vifa-nn", [1.0, 2.0, 3.0]))
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
    rows = [row for paper in OTHER_PAPERS for row in load_paper(paper)]
    settings = [dict(text.split("=") for text in row["setting"].split(";")) for row in rows]
    assert {setting["splits"] for setting in settings} == {"same-index", "same-protocol"}
    assert {setting["pm"] for setting in settings} == {"se", "sd-probably", "se-probably"}
    assert len(rows) == 44

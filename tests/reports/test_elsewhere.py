"""What other papers print for the same data, below ours."""

from bdl.reports import compare
from bdl.reports.more_tables import elsewhere_sections
from bdl.reports.papers import OTHERS, load_paper


def test_ours_come_first_and_theirs_say_how_they_were_made(make_benchmark, make_trials):
    made = make_benchmark(elsewhere=OTHERS, papers=[])
    nmll, rmse = elsewhere_sections(made, compare(made, make_trials("yacht", "vifa-nn", [1.0, 2.0, 3.0])))
    assert "NMLL" in nmll.title
    assert "without verdicts" in nmll.title
    own, *theirs = nmll.rows
    assert own == ("yacht", "vifa-nn", "2.00 ± 0.58", "standard error", "ours", "here")
    assert theirs == [
        ("yacht", "dropout_grid", "1.25 ± 0.01", "standard error", "ours", "gal2018 readme"),
        *(
            ("yacht", method, value, f"{spread}, probably", "20 of nine to one", "lakshminarayanan2017 Table 1")
            for method, value, spread in (
                ("deep_ensembles", "1.18 ± 0.21", "deviation over splits"),
                ("pbp", "1.63 ± 0.02", "standard error"),
            )
        ),
    ]
    assert rmse.rows[-1][2] == "1.02 ± 0.05"
    assert elsewhere_sections(make_benchmark(elsewhere=(), papers=[]), []) == []


def test_every_source_says_how_its_splits_and_errors_are_to_be_read():
    rows = [row for paper in OTHERS for row in load_paper(paper)]
    said = [dict(part.split("=") for part in row["setting"].split(";")) for row in rows]
    assert {each["splits"] for each in said} == {"same-index", "same-protocol"}
    assert {each["pm"] for each in said} == {"se", "sd-probably", "se-probably"}
    assert len(rows) == 44

import csv
import io
import json
from dataclasses import asdict, replace

import numpy as np
import pandas as pd
import pytest
from rich.console import Console
from rich.text import Text

from bdl.errors import InputError
from bdl.registry import Label
from bdl.reports import compare
from bdl.reports.layout import UNPRINTED, chance, heading, quantity, sections
from bdl.reports.papers import Printed
from bdl.reports.render import render, rich_table

KEYS = [
    *("benchmark", "dataset", "method", "metric", "statistic", "ours", "ours_se", "n_trials", "n_failed"),
    *("paper", "paper_se", "paper_source", "mc_se", "floor", "z", "df", "p", "low", "high", "margin"),
    *("failed_as_worst", "verdict", "note", "point"),
]


def three(centre):
    """Three values with the standard error 0.01."""
    away = 0.01 * 3**0.5
    return [centre - away, centre, centre + away]


@pytest.fixture
def cells(make_benchmark, make_trials, make_note):
    notes = [
        make_note("For one_method | 100%.", entry="vifa-lr", dataset="yacht"),
        make_note("Timed elsewhere.", metric="runtime"),
        make_note("Only the median.", entry="vifa-nn", dataset="energy", metric="nmll", statistic="median"),
    ]
    rows = pd.concat(
        [
            make_trials("energy", "vifa-lr", three(2.57)),
            make_trials("energy", "vifa-nn", [*three(2.51), np.nan], status=["ok"] * 3 + ["failed"]),
            make_trials("yacht", "vifa-lr", [np.nan] * 2, status=["failed"] * 2),
        ]
    )
    return compare(make_benchmark(notes=notes), rows)


def shown(cells, width=120):
    console = Console(width=width, file=io.StringIO(), color_system=None)
    console.print(render(cells, "rich"))
    return console.file.getvalue()


@pytest.mark.parametrize(
    ("value", "printed", "text"),
    [
        (2.5312, "2.53", "2.531"),
        (2.9, "2.90", "2.900"),
        (10.336, "10.34", "10.336"),
        (0.042137, "22.10", "0.0421"),
        (2.5312, "2.13e7", "2.53"),
        (2.1349e7, "2.13e7", "2.135e7"),
        (2.1349e7, "2.53", "2.135e7"),
        (153.2, None, "153"),
        (2.5312, None, "2.53"),
        (-0.012345, None, "-0.0123"),
        (1.2345e-5, None, "1.23e-5"),
        (0.0, None, "0.00"),
        (99999.9, None, "100000"),
    ],
)
def test_numbers_show_one_digit_more_than_the_paper(value, printed, text):
    assert quantity(value, Printed(printed) if printed else None) == text


def test_json_is_valid_and_has_exactly_the_keys(cells):
    def refuse(constant):
        raise AssertionError(constant)

    text = render(cells, "json")
    objects = json.loads(text, parse_constant=refuse)
    assert [list(item) for item in objects] == [KEYS] * len(cells)
    assert text.startswith('[\n  {\n    "benchmark": "uci-nn"')
    for item, cell in zip(objects, map(asdict, cells), strict=True):
        for name, value in cell.items():
            expected = pytest.approx(value, rel=1e-9) if isinstance(value, float) else value
            assert item[name] == expected
    failed = next(item for item in objects if item["verdict"] == "failed")
    assert failed["ours"] is None
    assert failed["ours_se"] is None


def test_csv_is_the_same_table(cells):
    table = list(csv.DictReader(io.StringIO(render(cells, "csv"))))
    assert list(table[0]) == KEYS
    assert len(table) == len(cells)
    for line, cell in zip(table, cells, strict=True):
        assert line["verdict"] == cell.verdict
        assert line["ours"] == ("" if cell.ours is None else repr(cell.ours))
        assert line["n_trials"] == str(cell.n_trials)


def test_notes_of_a_csv_line_stay_on_it(cells):
    text = render([replace(cells[0], note="one\ntwo")], "csv")
    assert len(text.splitlines()) == 2
    assert text.endswith(",one two,\n")


def test_markdown_row(cells):
    lines = render(cells, "markdown").splitlines()
    assert lines[0] == "**uci-nn: NMLL (nats per test point), ↓ lower is better; a match is within 0.05**"
    assert any(
        line.endswith("RMSE (target units), ↓ lower is better; a match is within 10% of the print**") for line in lines
    )
    median = "Median (failed as worst)"
    assert lines[2].startswith(
        f"| Dataset | Method | Mean ± SE | Paper ± SE | z | Verdict | {median} | Paper | Verdict |"
    )
    # Mean: z = -0.015 / sqrt(0.01^2 + 0.02^2) = -0.67. Median of all: halfway between the second and the third of four.
    start = "| energy | vifa-nn¹ | 2.510 ± 0.010 | 2.53 ± 0.02 | -0.7 | no difference shown | 2.510 (2.519) | 2.54 |"
    assert f"{start} no difference shown² | 4 (1) |" in lines
    assert lines[-1].startswith("Tests at the level of 5%: 8. Differences beyond it: 4;")
    assert "if no number differed, 0.4." in lines[-1]


def test_half_of_the_trials_failed_leave_no_median_of_all(cells):
    half = [replace(cell, n_failed=2, failed_as_worst=None) for cell in cells[:2]]
    assert sections(half)[0].rows[0][6] == "2.570 (failed)"


def test_chance_is_told_of_tests_alone(cells):
    assert chance([cell for cell in cells if cell.p is None]) is None
    beyond = [replace(cell, p=0.01) for cell in cells[:3]] + [replace(cell, p=0.5) for cell in cells[:7]]
    assert chance(beyond).startswith(
        "Tests at the level of 5%: 10. Differences beyond it: 3; by chance alone, if no num"
    )


def test_every_markdown_line_of_a_table_has_the_same_number_of_cells(cells):
    for block in render(cells, "markdown").split("**")[2::2]:
        widths = {line.replace(r"\|", "").count("|") for line in block.splitlines() if line.startswith("|")}
        assert len(widths) == 1


def test_markdown_escapes_and_lists_each_note_once(cells):
    text = render(cells, "markdown")
    assert text.count(r"For one\_method \| 100%.") == 1
    assert text.count("Timed elsewhere.") == 1
    assert "**uci-nn: Runtime (minutes per split), ↓ shorter is better⁵**" in text


def test_rich_shows_every_dataset_method_verdict_and_note(cells):
    text = shown(cells)
    for word in (
        "energy",
        "yacht",
        "vifa-lr",
        "vifa-nn",
        "failed",
        "not run",
        "45x faster",
        "NMLL",
        "RMSE",
        "Runtime",
    ):
        assert word in text
    assert text.count("Timed elsewhere.") == 1


def test_rich_keeps_all_numbers_on_eighty_columns(cells):
    text = shown(cells, width=80)
    assert "…" not in text
    assert text.count("0.010") == 4  # our standard errors: two entries, NMLL and RMSE


def test_rich_leaves_brackets_in_names_alone(cells):
    assert "[bold]x[/bold]" in shown([replace(cells[0], method="[bold]x[/bold]")])


def test_runtime_table_has_neither_z_nor_median(cells):
    runtime = sections(cells)[2]
    assert [title for title, _ in runtime.columns] == [
        "Dataset", "Method", "Mean ± SE", "Paper ± SE", "Verdict", "n (failed)",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("ours", "error", "text"),
    [
        (2.57, 0.01, "2.570 ± 0.010"),
        (2.51, 0.0008, "2.5100 ± 0.0008"),
        (2.57, 0.00003, "2.57000 ± 0.00003"),
        (2.57, 3e-9, "2.570 ± 3e-9"),
        (4.24e17, 4.2e17, "4.240e17 ± 4e17"),
    ],
)
def test_standard_errors_are_written_as_their_values_are(cells, ours, error, text):
    assert sections([replace(cells[0], ours=ours, ours_se=error)])[0].rows[0][2] == text


def test_notes_are_marked_where_they_hold(cells):
    nmll, rmse, runtime = sections(cells)
    assert [row[1] for row in nmll.rows] == ["vifa-lr", "vifa-nn¹", "vifa-lr³", "vifa-nn"]
    assert nmll.rows[1][5] == "no difference shown"
    assert nmll.rows[1][8].endswith("²")
    assert [row[1] for row in rmse.rows] == ["vifa-lr", "vifa-nn¹", "vifa-lr³", "vifa-nn"]
    assert runtime.title.endswith("⁵")
    assert [row[1] for row in runtime.rows] == ["vifa-lr", "vifa-nn", "vifa-lr³", "vifa-nn"]


def test_no_cells():
    assert render([], "markdown") == ""
    assert render([], "json") == "[]\n"


def test_unknown_format(cells):
    with pytest.raises(InputError, match="unknown format 'markdwon': did you mean markdown"):
        render(cells, "markdwon")


@pytest.fixture
def sampled(make_benchmark, make_trials):
    """Distances to sampled truths on yacht, to exact ones on energy."""
    names = {"rel_cov_dist": [0.30, 0.32], "rel_cov_dist_mcse": [0.011, 0.013], "rel_cov_dist_floor": [0.056] * 2}
    rows = [make_trials("yacht", "vifa-lr", [1.0, 2.0], **names), make_trials("energy", "vifa-lr", [1.0, 2.0])]
    rows[1]["rel_cov_dist"] = 0.1, 0.2
    return compare(make_benchmark(metrics=["rel_cov_dist"], entries={"vifa-lr": {}}), pd.concat(rows))


def test_what_a_sampled_truth_leaves_open_stands_in_columns(sampled):
    (section,) = sections(sampled)
    titles = [title for title, _ in section.columns]
    assert titles[-3:] == ["MC error", "Floor", "n"]
    assert [row[-3:] for row in section.rows] == [("", "", "2"), ("0.012", "0.056", "2")]
    assert "sqrt(d^2 - floor^2)" in shown(sampled)


def unprinted(cells):
    return [replace(cell, paper=None, paper_se=None, z=None, p=None, verdict="no paper value") for cell in cells]


def test_columns_of_the_paper_are_left_out_where_it_prints_nothing(cells):
    some = [cell for cell in cells if cell.metric == "nmll"]
    rest = [cell for cell in cells if cell.metric != "nmll"]
    nmll, rmse = (section.columns for section in sections([*unprinted(some), *rest])[:2])
    assert [title for title, _ in nmll] == [
        "Dataset",
        "Method",
        "Mean ± SE",
        "Median (failed as worst)",
        "n (failed)",
    ]
    assert [title for title, _ in rmse][2:6] == ["Mean ± SE", "Paper ± SE", "z", "Verdict"]


def test_a_dash_stands_for_a_verdict_where_the_paper_prints_nothing(cells):
    first, second, *_ = [cell for cell in cells if cell.metric == "nmll" and cell.statistic == "mean"]
    (alone,) = unprinted([second])
    (section,) = sections([first, replace(alone, note=None)])
    assert [row[5] for row in section.rows] == [first.verdict, UNPRINTED]
    assert json.loads(render([alone], "json"))[0]["verdict"] == "no paper value"


def test_notes_of_an_unprinted_row_are_marked_on_its_entry(cells):
    (mean, median) = unprinted([cell for cell in cells if cell.metric == "nmll"][:2])
    (section,) = sections([replace(mean, note="why"), replace(median, note=None)])
    assert section.rows[0][1] == f"{mean.method}¹"


def test_a_fit_that_failed_keeps_its_verdict_without_a_paper(cells):
    mean, *others = unprinted([cell for cell in cells if cell.metric == "nmll"])
    (section,) = sections([replace(mean, ours=None, verdict="failed"), *others])
    assert section.rows[0][[title for title, _ in section.columns].index("Verdict")] == "failed"


def test_medians_have_verdicts_only_where_the_paper_prints_one(cells, sampled):
    by_title = {section.title.split(":")[1].split(" ")[1]: section for section in sections(cells)}
    titles = [title for title, _ in by_title["NMLL"].columns]
    assert titles.count("Verdict") == titles.count("Paper") + 1 == 2
    (section,) = sections(sampled)
    assert "Verdict" not in [title for title, _ in section.columns]
    assert "Median" in [title for title, _ in section.columns]


@pytest.mark.parametrize(
    ("metric", "text"),
    [
        ("rmse", "RMSE (target units), ↓ lower is better"),
        ("accuracy", "Accuracy (fraction of kept points), ↑ higher is better"),
        ("bias_mean", "Mean of the bias (output units)"),
        ("weights_below_0.05", "Weights below 0.05 (weights)"),
        (Label("sum", "weights_from", {"limit": 30}), "Weights from (weights)"),
    ],
)
def test_headings_say_what_is_better_and_the_settings(metric, text):
    assert heading(metric) == text


def test_withheld_verdicts_leave_the_printed_values_alone(make_benchmark, make_trials):
    """No column of z or verdict, of means or medians, and the printed values dim."""
    failed = make_trials("energy", "vifa-lr", [np.nan], status=["failed"])
    rows = pd.concat([make_trials("energy", "vifa-nn", three(2.51)), failed])
    withheld = compare(make_benchmark(), rows, protocol=False)
    nmll, _, runtime = sections(withheld)
    assert [title for title, _ in nmll.columns[2:]] == [
        "Mean ± SE", "Paper ± SE", "Median", "Paper", "n (failed)",
    ]  # fmt: skip
    assert [title for title, _ in runtime.columns[2:]] == ["Mean ± SE", "Paper ± SE", "n (failed)"]
    assert nmll.title == "uci-nn: NMLL (nats per test point), ↓ lower is better"
    assert chance(withheld) is None
    table = rich_table(nmll)
    assert {text.style for text in table.columns[2].cells if isinstance(text, Text)} == {"dim"}
    assert "withheld" not in render(withheld, "markdown") + render(withheld, "latex")

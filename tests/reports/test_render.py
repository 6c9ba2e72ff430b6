"""Tables of cells: numbers, notes and columns, the same in every format, and what each format makes of them."""

import csv
import io
import json
from dataclasses import asdict, fields, replace

import numpy as np
import pandas as pd
import pytest
from rich.console import Console
from rich.text import Text

from bdl.errors import InputError
from bdl.registry import Label
from bdl.reports.comparison import TableEntry, compare_with_papers
from bdl.reports.layout import (
    UNPRINTED,
    chance_note,
    format_number,
    metric_heading,
    metric_sections,
    order_printed_first,
)
from bdl.reports.papers import Printed
from bdl.reports.render import render, rich_table

from .conftest import columns, make_benchmark, make_note, make_trials, of, three, unprinted


@pytest.fixture
def cells():
    notes = [
        make_note("For one_method | 100%.", entry="vifa-lr", dataset="yacht"),
        make_note("Timed elsewhere.", metric="runtime"),
        make_note(
            "Only the median.",
            entry="vifa-nn",
            dataset="energy",
            metric="nmll",
            statistic="median",
        ),
    ]
    rows = [
        make_trials("energy", "vifa-lr", three(2.57)),
        make_trials("energy", "vifa-nn", [*three(2.51), np.nan], ["ok"] * 3 + ["failed"]),
        make_trials("yacht", "vifa-lr", [np.nan] * 2, ["failed"] * 2),
    ]
    return compare_with_papers(make_benchmark(notes=notes), pd.concat(rows))


def test_rows_with_a_printed_value_come_first(cells):
    first = ("energy", "vifa-lr")
    changed = [
        replace(cell, paper=None) if (cell.dataset, cell.method) == first else cell
        for cell in cells
    ]
    before, after = (
        [row[:2] for row in metric_sections(entries)[0].rows]
        for entries in (changed, order_printed_first(changed))
    )
    assert before[0] == first
    assert after == [*before[1:], first]


def shown(cells, width=120):
    console = Console(width=width, file=io.StringIO(), color_system=None)
    console.print(render(cells, "rich"))
    return console.file.getvalue()


@pytest.mark.parametrize(
    ("value", "printed", "text"),
    [
        (2.5312, "2.53", "2.531"),
        (2.9, "2.90", "2.900"),
        (0.042137, "22.10", "0.0421"),
        (2.5312, "2.13e7", "2.53"),
        (2.1349e7, "2.13e7", "2.135e7"),
        (2.1349e7, "2.53", "2.135e7"),
        (153.2, None, "153"),
        (-0.012345, None, "-0.0123"),
        (1.2345e-5, None, "1.23e-5"),
        (0.0, None, "0.00"),
        (-0.0, None, "0.00"),
        (float("-inf"), None, "-inf"),
        (99999.9, None, "100000"),
    ],
)
def test_numbers_show_one_digit_more_than_the_paper(value, printed, text):
    assert format_number(value, Printed(printed) if printed else None) == text


@pytest.mark.parametrize(
    ("ours", "error", "text"),
    [
        (2.57, 0.01, "2.570 ± 0.010"),
        (2.51, 0.0008, "2.5100 ± 0.0008"),
        (2.57, 0.00003, "2.57000 ± 0.00003"),
        (2.57, 3e-9, "2.570 ± 3e-9"),
        (4.24e17, 4.2e17, "4.240e17 ± 4e17"),
        (0.00304, 0.18633, "0.003 ± 0.186"),
    ],
)
def test_standard_errors_are_written_as_their_values_are(cells, ours, error, text):
    assert metric_sections([replace(cells[0], ours=ours, ours_se=error)])[0].rows[0][2] == text


@pytest.mark.parametrize(
    ("ours", "error", "text"),
    [
        (0.00304, 0.18633, "0.00 ± 0.19"),
        (-0.0304, 0.0298, "-0.0304 ± 0.0298"),
        (40.0, 53.2, "40 ± 53"),
        (0.5, 530.0, "0 ± 530"),
    ],
)
def test_digits_that_an_error_beyond_the_number_does_not_allow_are_left_out(
    cells, ours, error, text
):
    """Unless the printed number has them, as in the test above."""
    cell = replace(cells[0], ours=ours, ours_se=error, paper=None, paper_se=None)
    assert metric_sections([cell])[0].rows[0][2] == text


def test_json_is_valid_and_has_all_fields_and_csv_is_the_same_table(cells):
    def refuse(constant):
        raise AssertionError(constant)

    text = render(cells, "json")
    objects = json.loads(text, parse_constant=refuse)
    assert text.startswith('[\n  {\n    "benchmark": "uci-nn"')
    table = list(csv.DictReader(io.StringIO(render(cells, "csv"))))
    names = [field.name for field in fields(TableEntry)]
    assert (
        [list(item) for item in objects] == [list(line) for line in table] == [names] * len(cells)
    )
    for item, line, cell in zip(objects, table, cells, strict=True):
        for name, value in asdict(cell).items():
            assert item[name] == (
                pytest.approx(value, rel=1e-9) if isinstance(value, float) else value
            )
        assert line["ours"] == ("" if cell.ours is None else repr(cell.ours))
        assert (line["verdict"], line["n_trials"]) == (cell.verdict, str(cell.n_trials))
    lines = render([replace(cells[0], note="one\ntwo")], "csv").splitlines()
    assert len(lines) == 2
    assert lines[1].endswith(",one two,")


def test_no_cells_and_no_such_format(cells):
    assert render([], "markdown") == ""
    assert render([], "json") == "[]\n"
    with pytest.raises(InputError, match="unknown format 'markdwon': did you mean markdown"):
        render(cells, "markdwon")


def test_markdown_row(cells):
    lines = render(cells, "markdown").splitlines()
    assert (
        lines[0] == "**uci-nn: NMLL (nats per test point), ↓ lower is better; the margin is 0.05**"
    )
    rmse = "**uci-nn: RMSE (target units), ↓ lower is better; the margin is 10% of the print**"
    assert rmse in lines
    median = "Median (failed as worst)"
    head = f"| Dataset | Method | Mean ± SE | Paper ± SE | z | Verdict | {median} | Paper | Verdict | n (failed) |"
    assert lines[2] == head
    # Mean: z = -0.015 / sqrt(0.01^2 + 0.02^2) = -0.67. Median of all: halfway between the second
    # and the third of four.
    start = "| energy | vifa-nn¹ | 2.510 ± 0.010 | 2.53 ± 0.02 | -0.7 | unsettled | 2.510 (2.519) | 2.54 |"
    assert f"{start} unsettled² | 4 (1) |" in lines
    assert lines[-1].startswith("Tests at the level of 5%: 8. Differences beyond it: 4;")
    assert "if no number differed, 0.4." in lines[-1]


def test_half_of_the_trials_failed_leave_no_median_of_all(cells):
    half = [replace(cell, n_failed=2, failed_as_worst=None) for cell in cells[:2]]
    assert metric_sections(half)[0].rows[0][6] == "2.570 (failed)"


def test_chance_is_told_of_tests_alone(cells):
    assert chance_note([cell for cell in cells if cell.p is None]) is None
    beyond = [replace(cell, p=0.01) for cell in cells[:3]] + [
        replace(cell, p=0.5) for cell in cells[:7]
    ]
    note = "Tests at the level of 5%: 10. Differences beyond it: 3; by chance alone, if no num"
    assert chance_note(beyond).startswith(note)


def test_markdown_escapes_and_lists_each_note_once_and_has_whole_lines(cells):
    text = render(cells, "markdown")
    assert text.count(r"For one\_method \| 100%.") == text.count("Timed elsewhere.") == 1
    assert "**uci-nn: Runtime (minutes per split), ↓ shorter is better⁵**" in text
    for block in text.split("**")[2::2]:
        widths = {
            line.replace(r"\|", "").count("|")
            for line in block.splitlines()
            if line.startswith("|")
        }
        assert len(widths) == 1


def test_rich_shows_everything_on_eighty_columns(cells):
    text = shown(cells)
    words = (
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
    )
    assert [word for word in words if word not in text] == []
    assert text.count("Timed elsewhere.") == 1
    narrow = shown(cells, width=80)
    assert "…" not in narrow
    assert narrow.count("0.010") == 4  # our standard errors: two entries, NMLL and RMSE
    assert "[bold]x[/bold]" in shown([replace(cells[0], method="[bold]x[/bold]")])


def test_notes_are_marked_where_they_hold(cells):
    nmll, rmse, runtime = metric_sections(cells)
    assert [row[1] for row in nmll.rows] == ["vifa-lr", "vifa-nn¹", "vifa-lr³", "vifa-nn"]
    assert nmll.rows[1][5] == "unsettled"
    assert nmll.rows[1][8].endswith("²")
    assert [row[1] for row in rmse.rows] == ["vifa-lr⁴", "vifa-nn¹", "vifa-lr³", "vifa-nn"]
    assert runtime.title.endswith("⁵")
    assert [row[1] for row in runtime.rows] == ["vifa-lr", "vifa-nn", "vifa-lr³", "vifa-nn"]
    assert columns(runtime) == [
        "Dataset",
        "Method",
        "Mean ± SE",
        "Paper ± SE",
        "Verdict",
        "n (failed)",
    ]


def test_what_a_sampled_truth_leaves_open_stands_in_columns():
    """Distances to sampled truths on yacht, to exact ones on energy.

    Medians without a printed one have no verdict.
    """
    names = {
        "rel_cov_dist": [0.30, 0.32],
        "rel_cov_dist_mcse": [0.011, 0.013],
        "rel_cov_dist_floor": [0.056] * 2,
    }
    rows = [
        make_trials("yacht", "vifa-lr", [1.0, 2.0], **names),
        make_trials("energy", "vifa-lr", [1.0, 2.0], rel_cov_dist=[0.1, 0.2]),
    ]
    cells = compare_with_papers(
        make_benchmark(metrics=["rel_cov_dist"], entries={"vifa-lr": {}}), pd.concat(rows)
    )
    (section,) = metric_sections(cells)
    assert columns(section) == [
        "Dataset",
        "Method",
        "Mean ± SE",
        "Median",
        "MC error",
        "Floor",
        "n",
    ]
    assert [row[-3:] for row in section.rows] == [("", "", "2"), ("0.012", "0.056", "2")]
    assert "sqrt(d^2 - floor^2)" in shown(cells)


def test_columns_of_the_paper_are_left_out_where_it_prints_nothing(cells):
    some, rest = (
        [cell for cell in cells if (cell.metric == "nmll") == own] for own in (True, False)
    )
    nmll, rmse, _ = metric_sections([*unprinted(some), *rest])
    assert columns(nmll) == [
        "Dataset",
        "Method",
        "Mean ± SE",
        "Median (failed as worst)",
        "n (failed)",
    ]
    assert columns(rmse)[2:6] == ["Mean ± SE", "Paper ± SE", "z", "Verdict"]


def test_a_row_without_a_printed_number_has_a_dash_and_its_notes_on_the_entry(cells):
    first, second, *_ = of(cells)
    (alone,) = unprinted([second])
    (section,) = metric_sections([first, replace(alone, note=None)])
    assert [row[5] for row in section.rows] == [first.verdict, UNPRINTED]
    assert json.loads(render([alone], "json"))[0]["verdict"] == "no paper value"
    (median,) = unprinted(
        of(cells, statistic="median", dataset=alone.dataset, method=alone.method)
    )
    (noted,) = metric_sections([replace(alone, note="why"), replace(median, note=None)])
    assert noted.rows[0][1] == "vifa-nn¹"
    (failed,) = metric_sections([replace(alone, ours=None, verdict="failed")])
    assert failed.rows[0][columns(failed).index("Verdict")] == "failed"


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
    assert metric_heading(metric) == text


def test_withheld_verdicts_leave_the_printed_values_alone():
    """No column of z or verdict, of means or medians, and the printed values dim."""
    failed = make_trials("energy", "vifa-lr", [np.nan], ["failed"])
    rows = pd.concat([make_trials("energy", "vifa-nn", three(2.51)), failed])
    withheld = compare_with_papers(make_benchmark(), rows, protocol=False)
    nmll, _, runtime = metric_sections(withheld)
    assert columns(nmll)[2:] == ["Mean ± SE", "Paper ± SE", "Median", "Paper", "n (failed)"]
    assert columns(runtime)[2:] == ["Mean ± SE", "Paper ± SE", "n (failed)"]
    assert nmll.title == "uci-nn: NMLL (nats per test point), ↓ lower is better"
    assert chance_note(withheld) is None
    table = rich_table(nmll)
    assert {text.style for text in table.columns[2].cells if isinstance(text, Text)} == {"dim"}
    assert "withheld" not in render(withheld, "markdown") + render(withheld, "latex")

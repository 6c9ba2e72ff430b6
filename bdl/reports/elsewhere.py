"""Tables of our means with the numbers that other papers print, without verdicts."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bdl.metrics import get_metric_info
from bdl.reports.comparison import TableEntry
from bdl.reports.layout import Section, estimate_text, metric_heading
from bdl.reports.papers import load_paper
from bdl.reports.statistics import group_by

if TYPE_CHECKING:
    from bdl.spec import Benchmark


SPLITS = {"same-index": "ours", "same-protocol": "20 of nine to one"}
"""Text for each kind of splits in the settings of a source: ours, or others."""
SPREAD = {"se": "standard error", "sd": "deviation over splits"}
"""Text for each meaning of a printed plus and minus."""


def elsewhere_sections(benchmark: "Benchmark", cells: Sequence[TableEntry]) -> list[Section]:
    """Lay out our means and, below those of a data set, the numbers of papers under `elsewhere`.

    There is a table a metric.
    """
    papers: list[dict[str, str]] = []
    for paper in benchmark.elsewhere:
        papers += load_paper(paper)
    our_columns = SPREAD["se"], SPLITS["same-index"], "here"
    columns = ["Dataset", "Method", "Mean", "±", "Splits", "Source"]
    arranged = []
    for metric in benchmark.metrics:
        printed = [row for row in papers if row["metric"] == metric]
        means: list[TableEntry] = []
        for cell in cells:
            if (cell.metric, cell.statistic) == (metric, "mean") and cell.n_trials:
                means.append(cell)
        lines: list[tuple[str, ...]] = []
        for dataset, dataset_means in group_by(means, lambda cell: cell.dataset).items():
            printed_rows = [row for row in printed if row["dataset"] == dataset]
            if not printed_rows:
                continue
            for cell in dataset_means:
                lines.append((dataset, cell.method, estimate_text(cell), *our_columns))
            for row in printed_rows:
                source = f"{row['paper']} {row['table']}"
                lines.append((dataset, row["method"], *as_printed(row), source))
        # durations on machines of other years do not compare
        if lines and get_metric_info(metric).direction != "ratio":
            title = f"{benchmark.name}: {metric_heading(metric)}"
            title += ", ours and printed elsewhere, without verdicts"
            arranged.append(Section.of(title, columns, lines))
    return arranged


def as_printed(row: dict[str, str]) -> tuple[str, str, str]:
    """Write a row of `load_paper`: the number as printed, the meaning of its ±, and its splits."""
    settings = dict(setting.split("=") for setting in row["setting"].split(";"))
    spread, _, guess = settings["pm"].partition("-")
    value = " ± ".join(filter(None, (row["value"], row["stderr"])))
    meaning = SPREAD[spread] + (", probably" if guess else "")
    return value, meaning, SPLITS[settings["splits"]]

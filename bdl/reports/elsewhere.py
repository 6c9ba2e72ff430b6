"""Numbers that other papers print for the same data, below ours and without a verdict."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bdl.metrics import info
from bdl.reports.compare import Cell
from bdl.reports.layout import Section, heading, ours
from bdl.reports.papers import load_paper

if TYPE_CHECKING:
    from bdl.spec import Benchmark

SPLITS = {"same-index": "ours", "same-protocol": "20 of nine to one", "own": "its own"}
"""How the splits of a source relate to the published ones, as its settings say it."""
SPREAD = {"se": "standard error", "sd": "deviation over splits"}
"""What stands behind a printed plus and minus."""


def elsewhere_sections(benchmark: "Benchmark", cells: Sequence[Cell]) -> list[Section]:
    """Lay out our means and, below those of a data set, what the papers under `elsewhere` print; a table a metric.

    Parameters
    ----------
    benchmark
        Names the papers.
    cells
        As `bdl.reports.compare` returns them.
    """
    found = []
    for metric in benchmark.metrics:
        printed = [row for paper in benchmark.elsewhere for row in load_paper(paper) if row["metric"] == metric]
        own = [cell for cell in cells if (cell.metric, cell.statistic) == (metric, "mean") and cell.n_trials]
        known = {row["dataset"] for row in printed}
        lines = [
            line
            for dataset in dict.fromkeys(cell.dataset for cell in own)
            if dataset in known
            for line in (
                *(_ours(cell) for cell in own if cell.dataset == dataset),
                *(_theirs(row) for row in printed if row["dataset"] == dataset),
            )
        ]
        if lines and info(metric).direction != "ratio":
            title = f"{benchmark.name}: {heading(metric)}, ours and printed elsewhere, without verdicts"
            found.append(Section.of(title, ["Dataset", "Method", "Mean", "±", "Splits", "Source"], lines))
    return found


def _ours(cell: Cell) -> tuple[str, ...]:
    return cell.dataset, cell.method, ours(cell), SPREAD["se"], SPLITS["same-index"], "here"


def as_printed(row: dict[str, str]) -> tuple[str, str, str]:
    """Return a number of another paper with its plus and minus, what stands behind that, and the splits it is of.

    Parameters
    ----------
    row
        As `bdl.reports.papers.load_paper` returns it.
    """
    said = dict(part.split("=") for part in row["setting"].split(";"))
    spread, _, guess = said["pm"].partition("-")
    value = " ± ".join(filter(None, (row["value"], row["stderr"])))
    return value, f"{SPREAD[spread]}{', probably' if guess else ''}", SPLITS[said["splits"]]


def _theirs(row: dict[str, str]) -> tuple[str, ...]:
    return row["dataset"], row["method"], *as_printed(row), f"{row['paper']} {row['table']}"

"""Brings published rows of the old layout to the present one, and writes their tables anew.

Scores at recorded counts used to be columns of ``trials.parquet``, such as ``rel_cov_dist_at_1000``, the score after
1000 observations. They leave it and become ``points.parquet`` beside it, one row a score. Then every ``table.json``
and ``table.md`` is rendered from the published rows. What is in the present layout already stays as it is.
"""

import argparse
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from rich.console import Console

from bdl.archive.frames import POINT_COLUMNS
from bdl.publishing.outcome import narrowed
from bdl.reports import compare
from bdl.reports.render import render
from bdl.spec import load_benchmark

RECORDED = re.compile(r"(?P<metric>\w+)_at_(?P<at>\d+)")
"""Column of a score after so many observations."""


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=Path("results"), help="where the published rows are")
    results, console = parser.parse_args(arguments).results, Console()
    for path in sorted(results.glob("*/trials.parquet")):
        moved = convert(path)
        tabulate(path.parent)
        console.print(f"{path.parent}: {moved} scores moved to points.parquet", highlight=False)


def convert(path: Path) -> int:
    """Move recorded scores from a ``trials.parquet`` to the ``points.parquet`` beside it; give their number."""
    old = pd.read_parquet(path)
    rows, points = split(old)
    if len(rows.columns) < len(old.columns):
        # The points first: if the second step is missing, the next run makes both again.
        for table, name in ((points, "points"), (rows, "trials")):
            new = path.with_name(f"{name}.new")
            table.to_parquet(new, compression="zstd", index=False)
            new.replace(path.with_name(f"{name}.parquet"))
    return len(points)


def split(table: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Part a table of fits into its columns without recorded scores, and these scores.

    Parameters
    ----------
    table
        One row a fit, with columns such as ``rel_cov_dist_at_1000``.

    Returns
    -------
    tuple of DataFrame
        The other columns; and the finite scores of successful final fits, one a row with the columns of
        ``points.parquet``, in the order of the fits and within a fit by `at` and `metric`.
    """
    matches = [match for name in table.columns if (match := RECORDED.fullmatch(str(name)))]
    good = table[(table["stage"] == "final") & (table["status"] == "ok")].reset_index(drop=True)
    parts = [
        good[["dataset", "entry", "split"]].assign(
            axis="observations", at=int(match["at"]), metric=match["metric"], value=good[match[0]], row=good.index
        )
        for match in matches
    ]
    points = pd.concat(parts) if parts else pd.DataFrame(columns=[*POINT_COLUMNS, "row"])
    points = points[np.isfinite(points["value"].astype(float))]
    points = points.sort_values(["row", "at", "metric"], ignore_index=True)
    return table.drop(columns=[match[0] for match in matches]), points[POINT_COLUMNS]


def tabulate(folder: Path) -> None:
    """Render the tables of a benchmark from its published rows."""
    rows = pd.read_parquet(folder / "trials.parquet")
    rows = rows[rows["stage"] == "final"]
    cells = compare(narrowed(load_benchmark(folder.name), rows), rows)
    for name, format in (("table.md", "markdown"), ("table.json", "json")):
        (folder / name).write_text(str(render(cells, format)), encoding="utf-8")


if __name__ == "__main__":
    main()

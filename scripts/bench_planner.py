"""How far timed updates are from what the fits of published runs took, compilation left out.

    python scripts/bench_planner.py results/slang-logistic results/noisy-wine
    results/mnist-slang/cpu

Folders are of published rows, by default all below ``results``; the data sets must be at hand.
Updates are timed for up to ``--seconds`` in each folder, on this machine, and carried over to
stages of as many updates, slot batches as wide, and compiled updates, as a dry run does. Scores
are left out, which published seconds have in them.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from rich.console import Console
from rich.table import Table

from bdl.errors import InputError
from bdl.execution.estimate import RemainingWork
from bdl.execution.timing import time_updates
from bdl.plan.cost import estimate_fit_seconds
from bdl.plan.planning import list_tasks
from bdl.plan.task import Task
from bdl.records.run_folder import RunFolder
from bdl.spec import Request

_QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9)


class Stage(NamedTuple):
    """A stage of a cell, in seconds."""

    measured: float
    estimated: float


def stages(cell: Task, rate: float, rows: pd.DataFrame) -> Iterator[Stage]:
    """Return the stages of a cell of which rows say what they took.

    `rate` is how far rough seconds are off.
    """
    keys = {"dataset": str(cell.dataset), "entry": cell.entry, **cell.point.texts}
    own = rows[
        (rows[list(keys)] == pd.Series(keys)).all(axis=1) & (rows.seconds > 0) & (rows.updates > 0)
    ]
    for _, fits in own.groupby("stage"):
        kinds = zip(fits.updates, fits.width, fits.compiled, strict=True)
        rough = sum(
            estimate_fit_seconds(cell, updates, int(width), bool(compiled))
            for updates, width, compiled in kinds
        )
        yield Stage(float(fits.seconds.sum()), rate * rough)


def of_folder(place: Path, seconds: float) -> list[Stage]:
    """Return the stages of the cells whose updates were timed.

    None if the rows do not say how they were made.

    Raises
    ------
    InputError
        If the rows cannot be read, or their data sets are not at hand.
    """
    records = RunFolder(place)
    rows, text = records.tabulate(), records.request_text
    if text is None or not {"updates", "width", "compiled"} <= set(rows):
        return []
    cells = {cell.key: cell for cell in list_tasks(Request.parse(text, str(place)).benchmark)}
    timed = time_updates(
        [RemainingWork(cell, len(cell.splits), 0, 0, 0) for cell in cells.values()], [], seconds
    )
    rates = {
        own.task_key: own.seconds / estimate_fit_seconds(cells[own.task_key], 1, own.width, False)
        for own in timed
    }
    return [stage for key, rate in rates.items() for stage in stages(cells[key], rate, rows)]


def main() -> None:
    """Print a line for each folder, and how ratios of measured to estimated times are spread over stages."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", nargs="*", type=Path, help="of published rows")
    parser.add_argument(
        "--seconds", type=float, default=60.0, help="to time updates in each folder"
    )
    asked = parser.parse_args()
    folders = asked.folders or sorted(path.parent for path in Path("results").rglob("run.json"))
    table, ratios = (
        Table("folder", "stages", "measured (min)", "estimated (min)", "ratio"),
        list[float](),
    )
    for place in folders:
        try:
            found = of_folder(place, asked.seconds)
        except InputError as error:
            raise SystemExit(str(error)) from None
        if found:
            measured, estimated = (sum(column) / 60 for column in zip(*found, strict=True))
            table.add_row(
                str(place),
                str(len(found)),
                f"{measured:.1f}",
                f"{estimated:.1f}",
                f"{measured / estimated:.2f}",
            )
            ratios += [stage.measured / stage.estimated for stage in found]
    console = Console()
    console.print(table)
    if ratios:
        spread = ", ".join(f"{q:.0%}: {np.quantile(ratios, q):.2f}" for q in _QUANTILES)
        console.print(f"{len(ratios)} stages, measured over estimated, quantiles: {spread}")


if __name__ == "__main__":
    main()

"""How far the planner's model of an update is from what the fits of published runs took, compilation left out.

    python scripts/bench_planner.py results/slang-logistic results/noisy-wine results/mnist-slang/cpu

Folders are of published rows, by default all below ``results`` that say how wide their slot batches were. A stage of a
cell is estimated from its updates, its slot batch and whether it was compiled; the data sets must be at hand.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from rich.console import Console
from rich.table import Table

from bdl.archive.frames import read_frames
from bdl.errors import InputError
from bdl.plan.cell import Cell
from bdl.plan.effort import effort
from bdl.plan.planning import cells_of
from bdl.spec import Variant

_QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9)


class Stage(NamedTuple):
    """A stage of a cell, in seconds."""

    measured: float
    estimated: float


def stages(cell: Cell, rows: pd.DataFrame) -> Iterator[Stage]:
    """Return the stages of a cell of which rows say what they took."""
    keys = {"dataset": str(cell.dataset), "entry": cell.entry, **cell.point.texts}
    own = rows[(rows[list(keys)] == pd.Series(keys)).all(axis=1) & (rows.seconds > 0) & (rows.updates > 0)]
    for _, fits in own.groupby("stage"):
        kinds = zip(fits.updates, fits.width, fits.compiled, strict=True)
        estimated = sum(effort(cell).seconds(updates, int(width), bool(compiled)) for updates, width, compiled in kinds)
        yield Stage(float(fits.seconds.sum()), estimated)


def of_folder(place: Path) -> list[Stage]:
    """Return the stages of all cells that learn from minibatches; none if the rows do not say how they were made.

    Raises
    ------
    InputError
        If the rows cannot be read, or their data sets are not at hand.
    """
    rows, _, text = read_frames(place)
    if text is None or not {"updates", "width", "compiled"} <= set(rows):
        return []
    cells = cells_of(Variant.parse(text, str(place)).benchmark)
    return [stage for cell in cells if cell.settings.training for stage in stages(cell, rows)]


def main() -> None:
    """Print a line for each folder, and how ratios of measured to estimated times are spread over stages."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", type=Path, help="of published rows")
    folders = parser.parse_args().folders or sorted(path.parent for path in Path("results").rglob("trials.parquet"))
    table, ratios = Table("folder", "stages", "measured (min)", "estimated (min)", "ratio"), list[float]()
    for place in folders:
        try:
            found = of_folder(place)
        except InputError as error:
            raise SystemExit(str(error)) from None
        if found:
            measured, estimated = (sum(column) / 60 for column in zip(*found, strict=True))
            table.add_row(
                str(place), str(len(found)), f"{measured:.1f}", f"{estimated:.1f}", f"{measured / estimated:.2f}"
            )
            ratios += [stage.measured / stage.estimated for stage in found]
    console = Console()
    console.print(table)
    if ratios:
        spread = ", ".join(f"{q:.0%}: {np.quantile(ratios, q):.2f}" for q in _QUANTILES)
        console.print(f"{len(ratios)} stages, measured over estimated, quantiles: {spread}")


if __name__ == "__main__":
    main()

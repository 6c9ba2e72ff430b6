"""How much the splits of a benchmark have in common."""

from pathlib import Path

import numpy as np

from bdl.archive.folder import ResultsFolder
from bdl.plan.cell import Cell
from bdl.plan.planning import cells_of
from bdl.spec import Benchmark


def overlaps(benchmark: Benchmark) -> dict[str, float]:
    """Return the test rows per training row of the data sets whose splits share training rows.

    Parameters
    ----------
    benchmark
        Whose data are loaded.

    Returns
    -------
    dict
        Data set to n_test / n_train of its first split; the largest at the points of a sweep. Replicates of one split,
        and single splits, are not there.

    Raises
    ------
    InputError
        If data cannot be had.
    """
    if benchmark.preparation.repeats:
        return {}
    found: dict[str, float] = {}
    for cell in cells_of(benchmark):
        if len(cell.splits) > 1 and not cell.settings.streams:
            found[str(cell.dataset)] = max(found.get(str(cell.dataset), 0.0), _overlap(cell))
    return {name: ratio for name, ratio in found.items() if ratio}


def recorded_overlaps(place: Path, benchmark: Benchmark) -> dict[str, float]:
    """Return what `overlaps` does as the provenance of published rows has it; errors and data as there if it has not.

    Parameters
    ----------
    place
        Folder of the rows.
    benchmark
        What they were made with.
    """
    with ResultsFolder(place) as here:
        known: dict[str, float] | None = here.provenance.get("overlap")
        cells = here.provenance.get("fit_hashes", {})
    covered = {label.partition("/")[0] for label in cells}
    return overlaps(benchmark) if known is None or not {*map(str, benchmark.datasets)} <= covered else known


def _overlap(cell: Cell) -> float:
    """Return n_test / n_train of the first split if the second trains on some of its training rows, else 0."""
    first, second = (cell.data.split(split) for split in cell.splits[:2])
    return len(first.test) / len(first.train) if np.isin(first.train, second.train).any() else 0.0

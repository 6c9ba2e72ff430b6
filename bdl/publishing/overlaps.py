"""Overlaps of splits, by which the errors of means over splits are corrected."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from bdl.plan.planning import list_tasks
from bdl.spec import Benchmark
from bdl.stored_results.loading import LoadedResults
from bdl.stored_results.results_folder import ResultsFolder


def compute_overlaps(benchmark: Benchmark) -> dict[str, float]:
    """Compute n_test / n_train of the first split of data sets whose splits share training rows.

    Of the points of a sweep it is the largest, so that no interval is too short. Replicates of one
    split, and single splits, are left out. `InputError` if data cannot be had.
    """
    shares: dict[str, float] = {}
    for task in list_tasks(benchmark):
        is_resampled = len(task.splits) > 1 and not task.benchmark.preparation.repeats
        if is_resampled and not task.settings.streams:
            first, second = map(task.data.split, task.splits[:2])
            # splits that share no training rows are independent, and need no correction
            if np.isin(first.train, second.train).any():
                ratio = len(first.test) / len(first.train)
                shares[str(task.dataset)] = max(shares.get(str(task.dataset), 0.0), ratio)
    return {name: ratio for name, ratio in shares.items() if ratio}


def find_overlaps(loaded: LoadedResults, benchmark: Benchmark) -> Mapping[str, float]:
    """Find the overlaps of results, of which the benchmark is a part.

    They are those that the run has computed, or else those of `load_overlaps`.
    """
    if loaded.overlaps is not None:
        return loaded.overlaps
    return load_overlaps(loaded.folder, benchmark)


def load_overlaps(folder: Path, benchmark: Benchmark) -> dict[str, float]:
    """Load the overlaps from the provenance of published rows, or compute them from the data.

    They are those of `compute_overlaps`.
    """
    provenance = ResultsFolder(folder).provenance
    recorded: dict[str, float] | None = provenance.get("overlap")
    fit_hashes = provenance.get("fit_hashes", {})
    covered = {label.partition("/")[0] for label in fit_hashes}
    return (
        compute_overlaps(benchmark)
        if recorded is None or not {*map(str, benchmark.datasets)} <= covered
        else recorded
    )

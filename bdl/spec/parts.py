"""What decides the numbers of a benchmark: the fits, the scores, all of them."""

from typing import TYPE_CHECKING, Any

from bdl.spec.canonical import sha256

if TYPE_CHECKING:
    from bdl.spec.schema import Benchmark


def fit_part(benchmark: "Benchmark", dataset: str, entry: str) -> dict[str, Any]:
    """List everything in a benchmark that decides the fits of an entry on a data set.

    Parameters
    ----------
    benchmark
        Without a sweep: of one with a sweep, what `Benchmark.at` gives.
    dataset, entry
        Label and name.

    Returns
    -------
    dict
        JSON values: the benchmark's name and seed, the data set, the entry, preparation and record; evaluation where
        there is a search, and the reference where it estimates hyper-parameters. Settings that have their default
        value are left out, so that one that is added later leaves the parts as they were. Splits, other entries and
        what concerns other data sets have no part.

    Raises
    ------
    InputError
        If the benchmark has no such data set.
    """
    label, own = benchmark.dataset(dataset), benchmark.entries[entry]
    settings = own.dump_on(dataset, defaults=False)
    settings.pop("record", None)
    if not own.on(dataset).from_reference:
        settings.pop("reference", None)
    if search := settings.get("search"):
        # The order matters, of draws and of the grid's points; the sorted keys of canonical JSON would hide it.
        for name in {"space", "grid"} & search.keys():
            search[name] = list(search[name].items())
    record = benchmark.record_of(dataset, entry)
    return {
        "benchmark": benchmark.name,
        "seed": benchmark.seed,
        "dataset": [str(label), label.name, label.given],
        "entry": [entry, settings],
        "preparation": benchmark.preparation.dump_on(dataset, defaults=False),
        "record": record and record.model_dump(mode="json", exclude_defaults=True),
        "evaluation": _evaluation(benchmark, entry) if search else None,
    }


def score_part(benchmark: "Benchmark", dataset: str, entry: str) -> dict[str, Any]:
    """List everything in a benchmark that decides the scores of a posterior: evaluation and reference, as JSON values.

    Parameters as in `fit_part`.
    """
    reference = benchmark.entries[entry].on(dataset).reference
    return {
        "evaluation": _evaluation(benchmark, entry),
        "reference": reference and reference.model_dump(mode="json", exclude_defaults=True),
    }


def content_hash(benchmark: "Benchmark") -> str:
    """Hash the number of splits and the parts of all cells, whatever their order: SHA-256 (hex)."""
    cells = [
        sha256([point.text, fit_part(at, dataset, entry), score_part(at, dataset, entry)])
        for point in benchmark.points
        for at in (benchmark.at(point),)
        for dataset, entry in at.pairs
    ]
    fewer = {"fewer": dict(benchmark.preparation.splits)} if benchmark.preparation.splits else {}
    return sha256({"splits": benchmark.splits, "cells": sorted(cells)} | fewer)


def _evaluation(benchmark: "Benchmark", entry: str) -> dict[str, Any]:
    return benchmark.evaluation_of(entry).model_dump(mode="json", exclude_defaults=True)

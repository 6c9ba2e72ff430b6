"""Parts of a benchmark: the points of a sweep, splits, and what decides the numbers of fits and scores."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby, product
from typing import TYPE_CHECKING, Any, Self

from bdl.errors import InputError, short
from bdl.spec.fields import canonical, sha256

if TYPE_CHECKING:
    from bdl.spec.schema import Benchmark


class Point(Mapping[str, Any]):
    """Path of each axis to its JSON value there, in the order of the axes; immutable, equal if the values are."""

    def __init__(self, values: Mapping[str, Any] = {}) -> None:
        self._texts = {path: canonical(value) for path, value in values.items()}

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read what `text` writes; the axes are then in alphabetical order."""
        return cls(json.loads(text))

    @property
    def text(self) -> str:
        """Canonical JSON, ``{}`` without a sweep."""
        return canonical(dict(self))

    @property
    def texts(self) -> dict[str, str]:
        """Path of each axis to the canonical JSON of its value, as tables have it."""
        return dict(self._texts)

    def __getitem__(self, path: str) -> Any:
        return json.loads(self._texts[path])

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts)

    def __len__(self) -> int:
        return len(self._texts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Point) and self._texts == other._texts

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"Point({self.text})"


def points(sweep: Mapping[str, Sequence[Any]]) -> tuple[Point, ...]:
    """List every combination of values, the last axis fastest; one empty point if there is no axis."""
    return tuple(Point(dict(zip(sweep, values, strict=True))) for values in product(*sweep.values()))


_MOST = 1_000_000
"""Splits that are listed one by one."""
_DIGITS = 18
"""Of a number that can be that of a split."""


def parse_splits(text: str, n: int) -> tuple[int, ...]:
    """Read which of the splits 0 to n - 1 to run; return their numbers, ascending, each once.

    The text is a count, which stands for the first so many; or split numbers and ranges, ``0,3,5-7``. A single split is
    written as a range, ``4-4``. `InputError` if it is neither, is empty, or names a split that does not exist.
    """
    shown = short(text)
    parts = [tuple(part.strip() for part in part.split("-")) for part in text.split(",")]
    if not all(len(part) <= 2 and all(bound.isdecimal() for bound in part) for part in parts):
        raise InputError(f"splits '{shown}': give a count such as 3, or numbers and ranges such as 0,3,5-7")
    if any(len(bound) > _DIGITS for part in parts for bound in part):
        raise InputError(f"splits '{shown}': there are {n} splits, 0 to {n - 1}; choose among them")
    is_count = len(parts) == len(parts[0]) == 1
    bounds = [(0, int(text) - 1)] if is_count else [(int(part[0]), int(part[-1])) for part in parts]
    for low, high in bounds:
        if low > high:
            raise InputError(f"splits '{shown}': that is no split at all; give a count from 1 up, or low-high")
        if high >= n:
            raise InputError(f"splits '{shown}': there are {n} splits, 0 to {n - 1}; choose among them")
    if (count := sum(high - low + 1 for low, high in bounds)) > _MOST:
        raise InputError(f"splits '{shown}': {count:,} splits are too many to list; choose at most {_MOST:,}")
    return tuple(sorted({number for low, high in bounds for number in range(low, high + 1)}))


def listed(splits: Iterable[int]) -> str:
    """Write split numbers in order, those that follow one another as a range: ``0, 3, 5-7``."""
    runs = [[number for _, number in run] for _, run in groupby(enumerate(sorted(splits)), lambda own: own[1] - own[0])]
    return ", ".join(f"{run[0]}" if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def fit_part(benchmark: "Benchmark", dataset: str, entry: str) -> dict[str, Any]:
    """List everything in a benchmark without a sweep that decides the fits of an entry on a data set, as JSON values.

    These are the benchmark's name and seed, the data set, the entry, preparation and record; evaluation where there is
    a search, and the reference where it estimates hyper-parameters. Settings that have their default value are left
    out, so that one that is added later leaves the parts as they were. Splits, other entries and what concerns other
    data sets have no part. `InputError` if the benchmark has no such data set.
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

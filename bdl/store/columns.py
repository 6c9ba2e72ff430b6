"""Rows of a store by column, for tables of many."""

import json
from collections.abc import Mapping, Sequence
from itertools import chain
from math import nan
from sys import intern
from typing import Any, NamedTuple

from bdl.store.rows import told

AT_A_TIME = 500
"""Rows that are read at a time: few enough that their JSON is gone before the garbage collector looks at it."""

Refused = Mapping[tuple[int, int, int], Mapping[str, str]]
"""Why scores could not be computed, by split, trial and fold, then by metric."""


class Columns(NamedTuple):
    """Some rows of one stage of a cell, a list a column; what a row lacks is NaN there."""

    split: list[int]
    trial: list[int]
    fold: list[int]
    status: list[str]
    reason: list[str | None]
    """As `bdl.store.rows.Row.problem`."""
    seconds: list[float]
    hyper: dict[str, list[Any]]
    metrics: dict[str, list[float]]
    details: dict[str, list[Any]]

    @classmethod
    def of(cls, rows: Sequence[tuple[Any, ...]], metrics: Sequence[str], refused: Refused) -> "Columns":
        """Take rows apart: split, trial, fold, status, the JSON of the body, and the value of each metric."""
        split, trial, fold, status, texts, *scores = map(list, zip(*rows, strict=True))
        bodies = json.loads(f"[{','.join(texts)}]")
        keys = zip(split, trial, fold, strict=True)
        return cls(
            *(split, trial, fold, [*map(intern, status)]),
            reason=[body["reason"] or told(refused.get(key, {})) for body, key in zip(bodies, keys, strict=True)],
            seconds=[body["seconds"] for body in bodies],
            hyper=_by_name([body["hyper"] for body in bodies]),
            metrics={
                name: [nan if value is None else value for value in values]
                for name, values in zip(metrics, scores, strict=True)
            },
            details=_by_name([body["details"] for body in bodies]),
        )


def _by_name(found: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Turn mappings into a list for each name, with NaN where one lacks it."""
    names = dict.fromkeys(chain.from_iterable(found))
    return {name: [own.get(name, nan) for own in found] for name in names}

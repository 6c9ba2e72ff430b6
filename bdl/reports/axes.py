"""The axes of a sweep, whose values stand in result columns as canonical JSON."""

import json
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import pandas as pd

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")

WORDS = {
    "model.hidden": "hidden units",
    "training.batch_size": "batch size (rows)",
    "dataset.rows": "training rows",
    "dataset.snr": "signal-to-noise ratio",
}
"""Axes whose last word does not say what they are."""

Values = Mapping[str, str]
"""Path of each axis to the JSON of its value; empty without a sweep."""


def by_cell(rows: "pd.DataFrame", axes: Sequence[str]) -> "dict[tuple[Hashable, ...], pd.DataFrame]":
    """Group rows by data set, entry and the values of the axes, which together are the keys."""
    return dict(list(rows.groupby(["dataset", "entry", *axes], sort=False)))


def by_split(rows: "pd.DataFrame", axes: Sequence[str]) -> "dict[tuple[Hashable, ...], pd.DataFrame]":
    """Group rows as `by_cell` does, each group with the split as its index; rows may lack the column of an axis."""
    rows = rows.reindex(columns=list(dict.fromkeys((*rows.columns, *axes))))
    return {key: own.set_index("split") for key, own in by_cell(rows, axes).items()}


def grouped(items: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """Group items that have a key in common; keys are in the order of their appearance."""
    groups: dict[K, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def short(text: str) -> str:
    """Write a value for people: ``50`` for ``[50]``, ``50-20`` for ``[50,20]``, ``rank=2`` for ``{"rank":2}``."""
    value = json.loads(text)
    if isinstance(value, dict):
        return " ".join(f"{name}={short(json.dumps(part))}" for name, part in value.items())
    if isinstance(value, list):
        return "-".join(short(json.dumps(part)) for part in value)
    return value if isinstance(value, str) else f"{value:g}" if isinstance(value, float) else json.dumps(value)


def number(text: str) -> float | None:
    """Return the place of a value on an axis of numbers, also that of a list of one; None for what is no number."""
    value = json.loads(text)
    if isinstance(value, list) and len(value) == 1:
        (value,) = value
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def words(path: str) -> str:
    """Write an axis in words, with the unit of its numbers if they have one."""
    return WORDS.get(path, path.rpartition(".")[2].replace("_", " "))


def panel_heading(dataset: str, point: str) -> str:
    """Write what a panel is of: a data set, and a point of a sweep if there is one."""
    return "  ".join(part for part in (dataset, point) if part)


def named(values: Values) -> str:
    """Write a point for people, ``hidden = 50``, by the last word of each path; empty without a sweep."""
    return ", ".join(f"{path.rpartition('.')[2]} = {short(text)}" for path, text in values.items())

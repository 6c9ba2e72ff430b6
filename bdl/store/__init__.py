"""Where a run keeps its rows, and what they are: what is kept of each trial, row by row and by column."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from math import nan
from sys import intern
from typing import Any, Literal, NamedTuple

Stage = Literal["search", "final"]
STAGES: tuple[Stage, ...] = ("search", "final")

REFUSALS = "; "
"""What stands between the scores that could not be computed, in a row's `problem`."""

KEPT = "kept"
"""Detail of a final row whose fit left predictions, and no distribution of parameters: what is kept of it."""

CERTIFICATE = "certificate"
"""Detail of a final row whose fit is judged by rules: that it keeps them, or which ones it breaks."""

HYPER = "hyper_"
"""Beginning of the columns of hyper-parameters, in tables of rows."""

CellKey = tuple[str, str, str]
"""Data set, entry, and the values of the sweep's axes as canonical JSON, ``"{}"`` without a sweep."""

AT_A_TIME = 500
"""Rows that are read at a time: few enough that their JSON is gone before the garbage collector looks at it."""

Refused = Mapping[tuple[int, int, int], Mapping[str, str]]
"""Why scores could not be computed, by split, trial and fold, then by metric."""


class Reading(NamedTuple):
    """A score at a recorded count of one fit."""

    axis: str
    """Unit of the count: epochs, updates or observations."""
    at: int
    """Where the count stood."""
    metric: str
    value: float
    """In the unit of the metric; NaN where it is not finite."""


@dataclass(frozen=True)
class Row:
    """Outcome of one trial: a fold of a search setting, or the final fit of a split (trial 0, fold 0)."""

    dataset: str
    entry: str
    point: str
    """Values of the sweep's axes, as in `CellKey`."""
    stage: Stage
    split: int
    trial: int
    fold: int
    status: Literal["ok", "failed"]
    reason: str | None
    """Why it failed."""
    hyper: dict[str, float]
    metrics: dict[str, float | None]
    """Values by metric; for a search row the validation score."""
    seconds: float
    """Its share of the wall time of its group."""
    details: dict[str, Any]
    """Updates, group width, device, compiled, traceback; under ``files`` the digests of components from outside."""
    codes: dict[str, str] = field(default_factory=dict, compare=False)
    """Hash of the code and the settings that each metric was computed by."""
    artefact: str | None = field(default=None, compare=False)
    """SHA-256 (hex) of the file that holds the posterior of a final fit."""
    refused: dict[str, str] = field(default_factory=dict, compare=False)
    """Why a score could not be computed, by metric; its value is None."""

    @property
    def problem(self) -> str | None:
        """Why it failed, or which scores of a fit that did not could not be computed, and why; None if all is well."""
        return self.reason or told(self.refused)

    @property
    def imported(self) -> bool:
        """Whether it is a final row that was imported from published ones."""
        return "origin" in self.details

    @property
    def cell(self) -> CellKey:
        """The cell that it belongs to."""
        return self.dataset, self.entry, self.point


def told(refused: Mapping[str, str]) -> str | None:
    """Write why scores could not be computed, by metric; None if all could."""
    return REFUSALS.join(f"{metric}: {why}" for metric, why in refused.items()) or None


class Outcome(NamedTuple):
    """What a group of trials hands over for one of them: everything that is to be kept."""

    row: Row
    readings: tuple[Reading, ...] = ()
    posterior: bytes | None = None
    """Content of the artefact that the row is to name."""


class Columns(NamedTuple):
    """Some rows of one stage of a cell, a list a column; what a row lacks is NaN there."""

    split: list[int]
    trial: list[int]
    fold: list[int]
    status: list[str]
    reason: list[str | None]
    """As `bdl.store.Row.problem`."""
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

"""Rows of a run: the record of each fit, and its scores at recorded counts."""

from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

Stage = Literal["search", "final"]
STAGES: tuple[Stage, ...] = ("search", "final")

REFUSAL_SEPARATOR = "; "
"""Separates the scores that could not be computed, in the `problem` of a row."""

KEPT_DETAIL = "kept"
"""Detail of a final row whose fit left predictions, and no distribution of parameters: what is
kept of it.
"""

CERTIFICATE_DETAIL = "certificate"
"""Detail of a final row whose fit is judged by rules: that it keeps them, or which ones it
breaks.
"""

HYPER_PREFIX = "hyper_"
"""Beginning of the columns of hyper-parameters, in tables of rows."""

CellKey = tuple[str, str, str]
"""Data set, entry, and the values of the sweep's axes as canonical JSON, ``"{}"`` without a
sweep.
"""

RowKey = tuple[Stage, int, int, int]
"""Stage, split, trial and fold of a row of a cell."""


class CurvePoint(NamedTuple):
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
    """Outcome of one fit: of a setting to a fold of a search, or the final fit of a split."""

    dataset: str
    entry: str
    point: str
    """Values of the sweep's axes, as in `CellKey`."""
    stage: Stage
    split: int
    trial: int
    """Number of the setting in its search; 0 for a final fit."""
    fold: int
    """0 for a final fit."""
    status: Literal["ok", "failed", "removed"]
    """``"removed"`` in files alone: the row of this key is no more."""
    reason: str | None
    """Why it failed."""
    hyper: dict[str, float]
    metrics: dict[str, float | None]
    """Values by metric; for a search row the validation score."""
    seconds: float
    """Its share of the wall time of its group."""
    details: dict[str, Any]
    """How it was made: ``updates``, ``width`` of the group, ``device``, ``compiled``; ``files`` with the
    digests of components from outside, and ``packages`` of a guest; the ``traceback`` of a failure;
    ``kept`` and ``certificate`` as the constants above say; the ``origin`` of an imported fit.
    """
    score_hashes: dict[str, str] = field(default_factory=dict, compare=False)
    """Hash of the code and the settings that each metric was computed by."""
    artefact: str | None = field(default=None, compare=False)
    """SHA-256 (hex) of the file that holds the posterior of a final fit."""
    refusals: dict[str, str] = field(default_factory=dict, compare=False)
    """Why a score could not be computed, by metric; its value is None."""

    @property
    def problem(self) -> str | None:
        """Why the fit failed, or else which scores could not be computed, and why.

        None if all is well.
        """
        return self.reason or join_refusals(self.refusals)

    @property
    def imported(self) -> bool:
        """Whether it is a final row that was imported from published ones."""
        return "origin" in self.details

    @property
    def cell(self) -> CellKey:
        """Key of the cell that it belongs to."""
        return self.dataset, self.entry, self.point

    @property
    def key(self) -> RowKey:
        """Its key within the cell."""
        return self.stage, self.split, self.trial, self.fold


def split_refusals(problem: str, metrics: Container[str]) -> dict[str, str]:
    """Return the reasons that `join_refusals` joined, by metric.

    A reason may have the separator in it: it goes on up to the name of the next of the `metrics`.
    """
    refusals: dict[str, str] = {}
    metric = ""
    for text in problem.split(REFUSAL_SEPARATOR):
        name, _, reason = text.partition(": ")
        if name in metrics:
            metric = name
            refusals[metric] = reason
        elif metric:
            refusals[metric] += REFUSAL_SEPARATOR + text
    return refusals


def join_refusals(refusals: Mapping[str, str]) -> str | None:
    """Write why scores could not be computed, by metric; None if all could."""
    return (
        REFUSAL_SEPARATOR.join(f"{metric}: {reason}" for metric, reason in refusals.items())
        or None
    )


class FitResult(NamedTuple):
    """Everything that a run folder keeps of one fit."""

    row: Row
    curve_points: tuple[CurvePoint, ...] = ()
    posterior: bytes | None = None
    """Content of the artefact that the row is to name."""

"""What a run keeps of each trial."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

Stage = Literal["search", "final"]
STAGES: tuple[Stage, ...] = ("search", "final")

REFUSALS = "; "
"""What stands between the scores that could not be computed, in a row's `problem`."""

KEPT = "kept"
"""Detail of a final row whose fit left predictions, and no distribution of parameters: what is kept of it."""

CERTIFICATE = "certificate"
"""Detail of a final row whose fit is judged by rules: that it keeps them, or which ones it breaks."""

CellKey = tuple[str, str, str]
"""Data set, entry, and the values of the sweep's axes as canonical JSON, ``"{}"`` without a sweep."""


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
    """Outcome of one trial.

    Parameters
    ----------
    dataset, entry, point, stage, split, trial, fold
        Which trial: a fold of a search setting, or the final fit of a split (trial 0, fold 0); `point` has the values
        of the sweep's axes, as in `CellKey`.
    status
        ``"ok"`` or ``"failed"``.
    reason
        Why it failed.
    hyper
        Hyper-parameters.
    metrics
        Values by metric; for a search row the validation score.
    seconds
        Its share of the wall time of its group.
    details
        How it was run: updates, group width, device, compiled, traceback; under ``files`` the digests of components
        that live outside the package, by file.
    codes
        Hash of the code and the settings that each metric was computed by.
    artefact
        SHA-256 (hex) of the file that holds the posterior of a final fit; None where there is none.
    refused
        Why a score could not be computed, by metric; its value is None.
    """

    dataset: str
    entry: str
    point: str
    stage: Stage
    split: int
    trial: int
    fold: int
    status: Literal["ok", "failed"]
    reason: str | None
    hyper: dict[str, float]
    metrics: dict[str, float | None]
    seconds: float
    details: dict[str, Any]
    codes: dict[str, str] = field(default_factory=dict, compare=False)
    artefact: str | None = field(default=None, compare=False)
    refused: dict[str, str] = field(default_factory=dict, compare=False)

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

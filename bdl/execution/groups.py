"""The two kinds of work: rounds of the search of a cell, and final fits with the chosen settings."""

import errno
import json
import os
import traceback
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple

from bdl.execution import Report
from bdl.execution.details import Log, Stopwatch, details_of, is_full_disk, kept, limited
from bdl.execution.scoring import Buffers, Scored, codes, computed, evaluation, scores
from bdl.plan import Cell, fit_hash
from bdl.plan.programs import (
    Member,
    compiles,
    evaluations,
    final_fitting,
    program,
    slot_batch,
    slot_rows,
    unit,
    width,
)
from bdl.plan.truths import truth
from bdl.posteriors.base import Posterior
from bdl.search import Setting, propose
from bdl.search.crossval import FoldScore, cross_validate, failure, told
from bdl.store import Outcome, Reading, Row, Stage, artefacts
from bdl.training.checkpoint import Checkpoint


class Chosen(NamedTuple):
    """A final fit that is to be made."""

    cell: Cell
    split: int
    setting: Setting
    """Hyper-parameters, but for those that a reference estimates."""
    search_seconds: float = 0.0
    """What the search of the setting took."""


@dataclass(frozen=True, eq=False)
class SearchGroup:
    """Score the settings of the next round of some splits of a slot batch by cross-validation, as one program."""

    cell: Cell
    scores: Mapping[int, Sequence[FoldScore]]
    """Splits, and what their earlier rounds found."""
    folder: Path | None = None
    """Where to keep checkpoints; None for nowhere."""

    def checkpoint(self) -> Checkpoint | None:
        """Return what a long round goes on from after an interruption.

        The rounds before it decide its settings.
        """
        done = {split: len(earlier) for split, earlier in self.scores.items()}
        layout = _layout(self.cell, "search", next(iter(self.scores)))
        return _checkpoint(self.folder, [fit_hash(self.cell), self.cell.key, layout, done])

    @property
    def members(self) -> tuple[Member, ...]:
        """Cells and splits whose final rows the group decides."""
        return tuple((self.cell, split) for split in self.scores)

    def run(self, report: Report) -> list[Outcome]:
        """Do the work; one row a fold."""
        cell, search, compile = self.cell, self.cell.settings.search, compiles(self.cell, "search")
        assert search is not None
        settings, cost = dict[int, dict[int, Setting]](), unit(cell, "search")
        with Stopwatch() as stopwatch:
            start = stopwatch.now()
            for split, scored in self.scores.items():
                earlier = told(scored, search.penalty)
                proposed = enumerate(
                    propose(search, cell.benchmark.seed + split, earlier), start=len(earlier)
                )
                settings[split] = {
                    trial: {**cell.settings.hyper, **own} for trial, own in proposed
                }
            found = cross_validate(
                program(cell),
                {split: cell.data.split(split) for split in self.scores},
                settings,
                slot_batch=slot_rows(cell, "search", next(iter(self.scores))),
                k=search.folds,
                score=search.metric.build(),
                identity=cell.identity,
                compile=compile,
                progress=lambda minibatches: report(minibatches * cost),
                checkpoint=self.checkpoint(),
            )
            seconds = stopwatch.now() - start
        details = details_of(cell, width(cell, "search"), compile)
        share = seconds / max(len(found), details["width"])
        rows = (
            Row(
                *(*cell.key, "search", fold.split, fold.trial, fold.fold),
                status="failed" if fold.reason else "ok",
                reason=fold.reason,
                hyper=fold.hyper,
                metrics={str(search.metric): None if fold.reason else fold.score},
                seconds=share,
                details=details | {"updates": fold.updates},
            )
            for fold in found
        )
        return [*map(Outcome, rows)]


@dataclass(frozen=True, eq=False)
class FinalGroup:
    """Fit the chosen settings of splits of a slot batch on all training rows, and score what is left of each.

    The cells differ only where they learn from streams, which are fitted as one batch.
    """

    chosen: tuple[Chosen, ...]
    folder: Path | None = None
    """Where to keep checkpoints; None for nowhere."""

    def run(self, report: Report) -> list[Outcome]:
        """Do the work; one row a member."""
        cell, count = self.chosen[0].cell, len(self.chosen)
        compile, cost = compiles(cell, "final"), unit(cell, "final")
        work = final_fitting(self.members, self.hyper, compile)
        checkpoint, when = self.checkpoint(), evaluations(cell)
        log = Log(checkpoint.text if checkpoint else "")
        if (
            checkpoint
        ):  # a fit that is scored after every update would write its scores thousands of times
            checkpoint.write = lambda: log.text
        ends: dict[int, tuple[Posterior, Buffers, Scored, int, int]] = {}
        with Stopwatch() as stopwatch:
            start = stopwatch.now()
            for snapshot in work.run(
                when, lambda minibatches: report(minibatches * cost), checkpoint
            ):
                log.seconds += stopwatch.now() - start
                at = None
                if when is not None:
                    at = (
                        when.place(snapshot.counters)
                        if snapshot.last
                        else when.due(snapshot.counters)
                    )
                for place, position in (
                    enumerate(snapshot.index) if snapshot.last or at is not None else ()
                ):
                    posterior = work.posterior(snapshot, place)
                    buffers: Buffers = {
                        name: value[place] for name, value in snapshot.buffers.items()
                    }
                    own = self.chosen[position]
                    seen = evaluation(
                        own.cell, own.split, posterior, buffers, self.hyper[position]
                    )
                    scored = scores(seen, computed(own.cell))
                    if when is not None and at is not None:
                        log.add(
                            position,
                            [Reading(when.unit, at, *score) for score in scored.values.items()],
                        )
                    if snapshot.last:
                        numbers = int(snapshot.diverged[place]), int(snapshot.updates[place])
                        ends[position] = posterior, buffers, scored, *numbers
                start = stopwatch.now()  # scores are no part of what fits take
        at_once = count if cell.settings.streams else width(cell, "final")
        share, details = log.seconds / max(count, at_once), details_of(cell, at_once, compile)
        outcomes = []
        for position, own in enumerate(self.chosen):
            posterior, buffers, scored, diverged, updates = ends[position]
            worst = min(
                (value for value in scored.values.values() if not isfinite(value)), default=0.0
            )
            reason = failure(diverged, worst)
            row = Row(
                *(*own.cell.key, "final", own.split, 0, 0),
                status="failed" if reason else "ok",
                reason=reason,
                hyper=self.hyper[position],
                metrics={}
                if reason
                else {**scored.stored, "runtime": (share + own.search_seconds) / 60},
                seconds=share,
                details=details | {"updates": updates} | kept(posterior),
                codes=codes(own.cell, scored.stored),
                refused={} if reason else dict(scored.refused),
            )
            content = None if reason else artefacts.encode(posterior, buffers)
            outcomes.append(Outcome(row, log.readings(position), content))
        return outcomes

    def checkpoint(self) -> Checkpoint | None:
        """Return what long fits go on from after an interruption, by all that decides the fits of the group."""
        fits = [(fit_hash(fit.cell), fit.cell.key, fit.split, fit.setting) for fit in self.chosen]
        return _checkpoint(
            self.folder, [_layout(self.chosen[0].cell, "final", self.chosen[0].split), fits]
        )

    @property
    def members(self) -> tuple[Member, ...]:
        """Cells and splits whose final rows the group makes."""
        return tuple((own.cell, own.split) for own in self.chosen)

    @cached_property
    def hyper(self) -> tuple[Setting, ...]:
        """Chosen settings, with what references estimate."""
        return tuple(own.setting | estimated(own.cell, own.split) for own in self.chosen)


Group = SearchGroup | FinalGroup


def final_groups(chosen: Iterable[Chosen], folder: Path | None = None) -> list[Group]:
    """Make a group of each slot batch.

    Of all cells if there are several, those of a split side by side.
    """
    fits = sorted(
        chosen, key=lambda fit: fit.split
    )  # the cells of a split share what is drawn of their streams
    slot_batches = groupby(fits, key=lambda fit: slot_batch(fit.cell, "final", fit.split))
    return [FinalGroup(tuple(own), folder) for _, own in slot_batches]


def attempt(group: Group, report: Report) -> list[Outcome]:
    """Run a group; if it dies, its splits become failed final rows that carry the traceback.

    A full disk is no fault of the fits, and is raised.
    """
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings(
                "ignore", category=FutureWarning, module=r"torch\._inductor"
            )  # of its own code
            with limited(group.members[0][0].benchmark.limits):
                return group.run(report)
    except (
        Exception,
        SystemExit,
    ) as error:  # a method that calls sys.exit ends its fits, not the run
        if is_full_disk(error):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from None
        first = (str(error).strip().splitlines() or [""])[0]
        return failed(
            group, f"{type(error).__name__}: {first}", {"traceback": traceback.format_exc()}
        )


def failed(group: Group, reason: str, details: dict[str, Any]) -> list[Outcome]:
    """Make the final rows of a group that has no results."""
    return [Outcome(failed_row(*member, reason, details)) for member in group.members]


def failed_row(cell: Cell, split: int, reason: str, details: dict[str, Any]) -> Row:
    """Make the final row of a split that has no result."""
    return Row(*cell.key, "final", split, 0, 0, "failed", reason, {}, {}, 0.0, details)


def _checkpoint(folder: Path | None, key: object) -> Checkpoint | None:
    return None if folder is None else Checkpoint(folder, json.dumps(key, sort_keys=True))


def _layout(cell: Cell, stage: Stage, split: int) -> list[object]:
    """Return the places of a split's slot batch and how it is computed, which decide the bits of what is kept."""
    rows = None if cell.settings.training is None else slot_rows(cell, stage, split)
    return [rows, cell.device, compiles(cell, stage)]


def estimated(cell: Cell, split: int) -> Setting:
    """Values of the hyper-parameters that the reference estimates."""
    wanted = cell.settings.from_reference
    found = truth(cell, split) if wanted else None
    return {name: float(found.hyper[name]) for name in wanted} if found else {}

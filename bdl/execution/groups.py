"""The two kinds of work of a cell: rounds of the search, and the final fits with the chosen settings."""

import time
import traceback
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite, nan
from typing import Any

import numpy as np

from bdl.execution.scoring import Kept, score_moments, score_predictions
from bdl.execution.streaming import StreamGroup
from bdl.plan.cell import Cell
from bdl.references.base import Truth
from bdl.search import FoldScore, cross_validate, propose, told
from bdl.search.crossval import failure
from bdl.search.study import Setting
from bdl.spec import Search
from bdl.store.store import Row
from bdl.training.engine import Fit, Progress
from bdl.training.program import Program
from bdl.training.trials import Trials


@dataclass(frozen=True, eq=False)
class SearchGroup:
    """Score the settings of the next round of some splits by cross-validation, as one program."""

    cell: Cell
    scores: Mapping[int, Sequence[FoldScore]]
    """Splits, and what their earlier rounds found."""

    @property
    def splits(self) -> tuple[int, ...]:
        """Splits of the group."""
        return tuple(self.scores)

    @property
    def members(self) -> list[tuple[Cell, int]]:
        """Cells and splits whose final rows the group decides."""
        return [(self.cell, split) for split in self.splits]

    def run(self, progress: Progress) -> list[Row]:
        """Do the work; one row a fold."""
        cell, search = self.cell, self.cell.settings.search
        assert search is not None
        start, program = time.perf_counter(), cell.program()
        training = {split: cell.data.split(split).train for split in self.splits}
        settings = {split: self._proposed(search, split) for split in self.splits}
        width = search.folds * sum(map(len, settings.values()))
        compile = cell.compiles("search", width)
        scores = cross_validate(
            program,
            training,
            settings,
            k=search.folds,
            metric=search.metric,
            identity=cell.identity,
            compile=compile,
            progress=progress,
        )
        seconds = (time.perf_counter() - start) / len(scores)
        details = _details(cell, width, compile)
        return [_fold_row(cell, search.metric, score, seconds, details) for score in scores]

    def _proposed(self, search: Search, split: int) -> dict[int, Setting]:
        """Settings of a split's next round, by trial."""
        earlier, cell = told(self.scores[split], search.penalty), self.cell
        proposed = propose(search, cell.benchmark.seed + split, earlier)
        return {trial: {**cell.settings.hyper, **own} for trial, own in enumerate(proposed, start=len(earlier))}


@dataclass(frozen=True, eq=False)
class FinalGroup:
    """Train the chosen setting of each split on all its training rows and predict its test rows."""

    cell: Cell
    settings: Mapping[int, Setting]
    search_seconds: Mapping[int, float]

    @property
    def splits(self) -> tuple[int, ...]:
        """Splits of the group."""
        return tuple(self.settings)

    @property
    def members(self) -> list[tuple[Cell, int]]:
        """Cells and splits whose final rows the group makes."""
        return [(self.cell, split) for split in self.splits]

    def run(self, progress: Progress) -> list[Row]:
        """Do the work; one row a split."""
        cell = self.cell
        start, program = time.perf_counter(), cell.program()
        compile = cell.compiles("final", len(self.splits))
        truths = {split: cell.truth(split) for split in self.splits}
        hyper = {split: {**setting, **self._estimated(truths[split])} for split, setting in self.settings.items()}
        trials = program.trials(
            [(*cell.identity, split, "final") for split in self.splits],
            [cell.data.split(split).train for split in self.splits],
            list(hyper.values()),
        )
        fit = program.train(trials, compile=compile, progress=progress)
        kept = {split: self._kept(program, trials, fit, index) for index, split in enumerate(self.splits)}
        seconds = (time.perf_counter() - start) / len(self.splits)
        rows = []
        for split, epoch, updates in zip(self.splits, fit.diverged, fit.updates, strict=True):
            metrics = self._metrics(split, kept[split], hyper[split], truths[split])
            details = _details(cell, len(self.splits), compile) | {"updates": int(updates)}
            rows.append(self._row(split, kept[split], metrics, int(epoch), hyper[split], seconds, details))
        return rows

    def _estimated(self, truth: Truth | None) -> Setting:
        return {name: truth.hyper[name] for name in self.cell.settings.from_reference} if truth else {}

    def _kept(self, program: Program, trials: Trials, fit: Fit, index: int) -> Kept:
        if self.cell.benchmark.measures_distances:
            return program.moments(fit, index).cpu().numpy()
        rows = self.cell.data.split(self.splits[index]).test
        return program.predict(trials, fit, [index], rows)[0].cpu().numpy()

    def _metrics(self, split: int, kept: Kept, hyper: Setting, truth: Truth | None) -> dict[str, float]:
        if truth is None or not self.cell.benchmark.measures_distances:
            return score_predictions(self.cell, split, kept, hyper)
        return score_moments(self.cell, kept, truth) if np.isfinite(kept).all() else {}

    def _row(
        self,
        split: int,
        kept: Kept,
        metrics: dict[str, float],
        diverged: int,
        hyper: Setting,
        seconds: float,
        details: dict[str, Any],
    ) -> Row:
        worst = min((value for value in metrics.values() if not isfinite(value)), default=0.0)
        reason = failure(diverged, worst) if metrics else failure(diverged, nan)
        total = seconds + self.search_seconds.get(split, 0.0)
        return Row(
            *(self.cell.dataset, self.cell.entry, "final", split, 0, 0),
            status="failed" if reason else "ok",
            reason=reason,
            hyper=hyper,
            metrics={} if reason else {**metrics, "runtime": total / 60},
            seconds=seconds,
            details=details,
            predictions=None if reason else kept,
        )


Group = SearchGroup | FinalGroup | StreamGroup


def attempt(group: Group, progress: Progress) -> list[Row]:
    """Run a group; if it dies, its splits become failed final rows that carry the traceback."""
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", category=FutureWarning, module=r"torch\._inductor")  # of its own code
            return group.run(progress)
    except Exception as error:
        reason = f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"
        return [failed_row(*member, reason, {"traceback": traceback.format_exc()}) for member in group.members]


def failed_row(cell: Cell, split: int, reason: str, details: dict[str, Any]) -> Row:
    """Make the final row of a split that has no result."""
    return Row(cell.dataset, cell.entry, "final", split, 0, 0, "failed", reason, {}, {}, 0.0, details)


def _fold_row(cell: Cell, metric: str, found: FoldScore, seconds: float, details: dict[str, Any]) -> Row:
    return Row(
        *(cell.dataset, cell.entry, "search", found.split, found.trial, found.fold),
        status="failed" if found.reason else "ok",
        reason=found.reason,
        hyper=found.hyper,
        metrics={metric: None if found.reason else found.score},
        seconds=seconds,
        details=details | {"updates": found.updates},
    )


def _details(cell: Cell, width: int, compile: bool) -> dict[str, Any]:
    return {"width": width, "device": cell.device, "compiled": compile}

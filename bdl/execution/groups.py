"""Groups of fits: rounds of the search of a task, and final fits with the chosen settings."""

import errno
import json
import os
import time
import traceback
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from bdl.execution.fit_records import CurveLog, Stopwatch, describe_fits, posterior_details
from bdl.execution.limits import enforce_limits, is_full_disk
from bdl.execution.scoring import (
    Buffers,
    FitScores,
    compute_scores,
    is_finite,
    make_evaluation,
)
from bdl.execution.worker_pool import Report
from bdl.plan.cost import estimate_batch_work, estimate_work
from bdl.plan.fittings import (
    TaskSplit,
    build_evaluation_schedule,
    build_final_fitting,
    build_training_setup,
)
from bdl.plan.reference_posteriors import compute_truth
from bdl.plan.task import Task
from bdl.plan.workload import (
    count_fits,
    count_fits_per_batch,
    count_slot_rows,
    find_slot_batch,
    is_stage_compiled,
    list_slot_splits,
)
from bdl.posteriors.base import Posterior
from bdl.records import posterior_files
from bdl.records.row import CurvePoint, FitResult, Row, Stage
from bdl.search.choice import summarise_trials
from bdl.search.crossval import FoldScore, cross_validate, describe_failure
from bdl.search.proposals import Setting, propose
from bdl.training.checkpoint import Checkpoint
from bdl.training.fitting import EvaluationSchedule, Fitting, Snapshot


class FinalFit(NamedTuple):
    """Setting of a final fit that is to be made."""

    task: Task
    split: int
    setting: Setting
    """Hyper-parameters, but for those that a reference estimates."""
    search_seconds: float = 0.0
    """Seconds that the search of the setting took."""


class _EvaluatedFit(NamedTuple):
    """The end of a final fit."""

    posterior: Posterior
    buffers: Buffers
    scores: FitScores
    diverged: int
    """Epoch as in `Snapshot.diverged`."""
    updates: int


@dataclass(frozen=True, eq=False)
class SearchGroup:
    """Cross-validation of the next round of settings of some splits, as one program.

    The splits are those of a slot batch.
    """

    task: Task
    scores: Mapping[int, Sequence[FoldScore]]
    """Scores of the earlier rounds, by split."""
    folder: Path | None = None
    """Where to keep checkpoints; None for nowhere."""

    def checkpoint(self) -> Checkpoint | None:
        """Return the checkpoint from which a long round goes on after an interruption.

        The rounds before it decide its settings.
        """
        rounds = {split: len(earlier) for split, earlier in self.scores.items()}
        layout = _layout(self.task, "search", next(iter(self.scores)))
        return _checkpoint(self.folder, [self.task.fit_hash, self.task.key, layout, rounds])

    @property
    def members(self) -> tuple[TaskSplit, ...]:
        """Task and splits whose final rows the group decides."""
        return tuple((self.task, split) for split in self.scores)

    @property
    def work(self) -> int:
        """Work of the rest of the searches and of the final fits that follow them."""
        splits = len(self.scores)
        finished_fits = sum(len(fold_scores) for fold_scores in self.scores.values())
        search_fits = splits * count_fits(self.task, "search") - finished_fits
        return estimate_work(self.task, search_fits, splits)

    def run(self, report: Report) -> list[FitResult]:
        """Score the settings; one row a fold."""
        task, search = self.task, self.task.settings.search
        assert search is not None
        compile = is_stage_compiled(task, "search")
        batch_work = estimate_batch_work(task, "search")
        checkpoint = self.checkpoint()
        seconds_before = float(checkpoint.text or 0) if checkpoint else 0.0
        with Stopwatch(seconds_before) as stopwatch:
            if checkpoint:
                checkpoint.current_text = lambda: str(stopwatch.seconds)
            fold_scores = cross_validate(
                build_training_setup(task),
                {split: task.data.split(split) for split in self.scores},
                self._propose_settings(),
                slot_batch=list_slot_splits(task, "search", next(iter(self.scores))),
                k=search.folds,
                score=search.metric.build(),
                identity=task.identity,
                compile=compile,
                progress=lambda minibatches: report(minibatches * batch_work),
                checkpoint=checkpoint,
            )
        details = describe_fits(task, count_fits_per_batch(task, "search"), compile)
        # by the slots that were computed: a batch that is not full takes as long as a full one,
        # and the estimate of a run multiplies the seconds of a fit by the slots
        share = stopwatch.seconds / max(len(fold_scores), details["width"])
        results: list[FitResult] = []
        for fold in fold_scores:
            row = Row(
                *(*task.key, "search", fold.split, fold.trial, fold.fold),
                status="failed" if fold.reason else "ok",
                reason=fold.reason,
                hyper=fold.hyper,
                metrics={str(search.metric): None if fold.reason else fold.score},
                seconds=share,
                details=details | {"updates": fold.updates},
            )
            results.append(FitResult(row))
        return results

    def _propose_settings(self) -> dict[int, dict[int, Setting]]:
        """Return the settings of the round, by split and number of the trial."""
        task, search = self.task, self.task.settings.search
        assert search is not None
        settings: dict[int, dict[int, Setting]] = {}
        for split, fold_scores in self.scores.items():
            trials = summarise_trials(fold_scores, search.penalty)
            # a seed of its own for each split: otherwise all would try the same random settings
            proposals = propose(search, task.benchmark.seed + split, trials)
            fixed = {**task.settings.hyper, **reference_hyper(task, split)}
            settings[split] = {}
            for trial, proposal in enumerate(proposals, start=len(trials)):
                settings[split][trial] = {**fixed, **proposal}
        return settings


@dataclass(frozen=True, eq=False)
class FinalGroup:
    """Final fits of splits of a slot batch on all training rows, as one program, and their scores.

    The tasks differ only where they learn from streams, which are fitted as one batch.
    """

    final_fits: tuple[FinalFit, ...]
    folder: Path | None = None
    """Where to keep checkpoints; None for nowhere."""

    def run(self, report: Report) -> list[FitResult]:
        """Fit and score; one row a member."""
        task, count = self.final_fits[0].task, len(self.final_fits)
        compile = is_stage_compiled(task, "final")
        checkpoint = self.checkpoint()
        log = CurveLog(checkpoint.text if checkpoint else "")
        fitting = build_final_fitting(self.members, self.hyper, compile)
        with Stopwatch(log.seconds) as stopwatch:
            if checkpoint:
                # called when states are saved: a fit that is scored after every update would write
                # its scores thousands of times
                checkpoint.current_text = lambda: log.write(stopwatch.seconds)
            evaluated = self._fit_and_score(fitting, report, checkpoint, log, stopwatch)
        width = count if task.settings.streams else count_fits_per_batch(task, "final")
        seconds = stopwatch.seconds / max(count, width)
        details = describe_fits(task, width, compile)
        return [
            self._make_result(position, evaluated[position], log, seconds, details)
            for position in range(count)
        ]

    def _fit_and_score(
        self,
        fitting: Fitting,
        report: Report,
        checkpoint: Checkpoint | None,
        log: CurveLog,
        stopwatch: Stopwatch,
    ) -> dict[int, _EvaluatedFit]:
        """Return the ends of the fits by their position, and log scores at recorded counts."""
        task = self.final_fits[0].task
        batch_work = estimate_batch_work(task, "final")
        schedule = build_evaluation_schedule(task)
        evaluated: dict[int, _EvaluatedFit] = {}
        for snapshot in fitting.run(
            schedule, lambda minibatches: report(minibatches * batch_work), checkpoint
        ):
            count = _evaluation_count(schedule, snapshot)
            if not snapshot.last and count is None:
                continue
            # the seconds of fits leave scores out
            with stopwatch.paused():
                for slot, position in enumerate(snapshot.index):
                    posterior = fitting.posterior(snapshot, slot)
                    buffers = {name: value[slot] for name, value in snapshot.buffers.items()}
                    scores = self._score(position, posterior, buffers)
                    if schedule is not None and count is not None:
                        for score in scores.values.items():
                            log.add(position, [CurvePoint(schedule.unit, count, *score)])
                    if snapshot.last:
                        evaluated[position] = _EvaluatedFit(
                            posterior,
                            buffers,
                            scores,
                            int(snapshot.diverged[slot]),
                            int(snapshot.updates[slot]),
                        )
        return evaluated

    def _score(self, position: int, posterior: Posterior, buffers: Buffers) -> FitScores:
        fit = self.final_fits[position]
        evaluation = make_evaluation(fit.task, fit.split, posterior, buffers, self.hyper[position])
        return compute_scores(evaluation, fit.task.fit_metrics)

    def _make_result(
        self,
        position: int,
        evaluated: _EvaluatedFit,
        log: CurveLog,
        seconds: float,
        details: Mapping[str, Any],
    ) -> FitResult:
        fit, scores = self.final_fits[position], evaluated.scores
        # what a score cannot say of a sound posterior fails that score alone
        reason = describe_failure(evaluated.diverged, is_finite(evaluated.posterior), "posterior")
        runtime = (seconds + fit.search_seconds) / 60
        row = Row(
            *(*fit.task.key, "final", fit.split, 0, 0),
            status="failed" if reason else "ok",
            reason=reason,
            hyper=self.hyper[position],
            metrics={} if reason else {**scores.stored, "runtime": runtime},
            seconds=seconds,
            details={
                **details,
                "updates": evaluated.updates,
                **posterior_details(evaluated.posterior),
            },
            score_hashes=fit.task.score_hashes(scores.stored),
            refusals={} if reason else dict(scores.refused),
        )
        # a failed fit leaves no posterior: its score would be that of numbers that are not finite
        content = None
        if not reason:
            content = posterior_files.encode_posterior(evaluated.posterior, evaluated.buffers)
        return FitResult(row, log.readings(position), content)

    def checkpoint(self) -> Checkpoint | None:
        """Return the checkpoint from which long fits go on after an interruption.

        Its key is all that decides the fits of the group.
        """
        fits = [
            (fit.task.fit_hash, fit.task.key, fit.split, fit.setting) for fit in self.final_fits
        ]
        layout = _layout(self.final_fits[0].task, "final", self.final_fits[0].split)
        return _checkpoint(self.folder, [layout, fits])

    @property
    def members(self) -> tuple[TaskSplit, ...]:
        """Tasks and splits whose final rows the group makes."""
        return tuple((fit.task, fit.split) for fit in self.final_fits)

    @property
    def work(self) -> int:
        """Work of its fits."""
        return sum(estimate_work(fit.task, 0, 1) for fit in self.final_fits)

    @cached_property
    def hyper(self) -> tuple[Setting, ...]:
        """Chosen settings, with the estimates of references."""
        return tuple(fit.setting | reference_hyper(fit.task, fit.split) for fit in self.final_fits)


def _evaluation_count(schedule: EvaluationSchedule | None, snapshot: Snapshot) -> int | None:
    """Return the count at which a snapshot is a point of the curve; None if it is none."""
    if schedule is None:
        return None
    if snapshot.last:
        return schedule.axis_count(snapshot.counters)
    return schedule.due(snapshot.counters)


Group = SearchGroup | FinalGroup


def group_final_fits(final_fits: Iterable[FinalFit], folder: Path | None = None) -> list[Group]:
    """Make a group of each slot batch of final fits.

    If there are several tasks, those of a split train side by side.
    """
    # stable: the tasks of a split, which share draws of their streams, stay in their order
    fits = sorted(final_fits, key=lambda fit: fit.split)
    slot_batches = groupby(fits, key=lambda fit: find_slot_batch(fit.task, "final", fit.split))
    return [FinalGroup(tuple(batch_fits), folder) for _, batch_fits in slot_batches]


def run_group(group: Group, report: Report) -> list[FitResult]:
    """Run a group; if it dies, its splits become failed final rows that carry the traceback.

    A full disk is no fault of the fits, and is raised. All work of a group that dies is reported,
    so that the progress of the run reaches its end.
    """
    reported_work, start = 0, time.perf_counter()

    def count_and_report(work: int) -> None:
        nonlocal reported_work
        reported_work += work
        report(work)

    try:
        first_task = group.members[0][0]
        with warnings.catch_warnings():
            # warnings about the compiler's own code
            warnings.filterwarnings("ignore", category=FutureWarning, module=r"torch\._inductor")
            with enforce_limits(first_task.benchmark.limits):
                return group.run(count_and_report)
    # SystemExit: a method that calls sys.exit ends its fits, not the run
    except (Exception, SystemExit) as error:
        if is_full_disk(error):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from None
        report(max(0, group.work - reported_work))
        # one line, as it becomes a cell of tables; the traceback is kept whole in the details
        summary = (str(error).strip().splitlines() or [""])[0]
        reason = f"{type(error).__name__}: {summary}"
        seconds = time.perf_counter() - start
        return make_failed_results(
            group, reason, {"traceback": traceback.format_exc()}, seconds=seconds
        )


def make_failed_results(
    group: Group, reason: str, details: dict[str, Any], *, seconds: float = 0.0
) -> list[FitResult]:
    """Make the final rows of a group that has no results; `seconds` are those of all."""
    share = seconds / len(group.members)
    return [
        FitResult(make_failed_row(*member, reason, details, share)) for member in group.members
    ]


def make_failed_row(
    task: Task, split: int, reason: str, details: dict[str, Any], seconds: float = 0.0
) -> Row:
    """Make the final row of a split that has no result."""
    return Row(*task.key, "final", split, 0, 0, "failed", reason, {}, {}, seconds, details)


def _checkpoint(folder: Path | None, key: object) -> Checkpoint | None:
    return None if folder is None else Checkpoint(folder, json.dumps(key, sort_keys=True))


def _layout(task: Task, stage: Stage, split: int) -> list[object]:
    """Return the rows of each slot of a split's slot batch, and how it is computed.

    They decide the bits of a fit.
    """
    rows = None if task.settings.training is None else count_slot_rows(task, stage, split)
    return [rows, task.device, is_stage_compiled(task, stage)]


def reference_hyper(task: Task, split: int) -> Setting:
    """Return the hyper-parameters that the reference estimates."""
    names = task.settings.from_reference
    if not names:
        return {}
    reference = compute_truth(task, split)
    return {name: float(reference.hyper[name]) for name in names} if reference else {}

"""Build the objects that the trials of a task train with: training setup, fitting, evaluations."""

from collections.abc import Mapping, Sequence
from typing import cast

from bdl.methods.base import StreamMethod
from bdl.plan.task import Task
from bdl.plan.workload import build_schedule, count_min_slots, count_slot_rows
from bdl.training.fitting import EvaluationSchedule, Fitting
from bdl.training.setup import TrainingSetup
from bdl.training.slots import SlotBatch
from bdl.training.streaming import StreamFitting, StreamTrial
from bdl.training.trials import Pool

TaskSplit = tuple[Task, int]
"""A task, and one of its splits."""


def build_evaluation_schedule(task: Task) -> EvaluationSchedule | None:
    """Return when fits of the task are evaluated while they run; None for at their end alone."""
    record = task.benchmark.record_of(task.dataset, task.entry)
    if record is None:
        return None
    return EvaluationSchedule(record.unit, record.every, record.log, record.first)


def build_training_setup(task: Task) -> TrainingSetup:
    """Build what the trials share, with the data on the device."""
    schedule = build_schedule(task)
    return TrainingSetup(
        dataset=task.data,
        pool=Pool.load(task.data, task.device, schedule.dtype if schedule else "float32"),
        problem=task.problem,
        method=task.settings.method.build(),
        schedule=schedule,
        samples=task.benchmark.evaluation_of(task.entry).samples,
    )


def build_final_fitting(
    members: Sequence[TaskSplit],
    hyper: Sequence[Mapping[str, float]],
    compile: bool,
    *,
    alone: bool = False,
) -> Fitting:
    """Build the fitting of the chosen settings, one a member, on all training rows.

    Members are splits of one slot batch of a task, or `alone` and of none; or of several tasks
    whose streams are learnt from as one batch, those of a split side by side.
    """
    task = members[0][0]
    if task.settings.streams:
        return StreamFitting(
            cast(StreamMethod, task.settings.method.build()),
            [
                StreamTrial(member.stream, split, member.benchmark.seed + split + 1)
                for member, split in members
            ],
        )
    setup = build_training_setup(task)
    splits = [split for _, split in members]
    identities = [(*task.identity, split, "final") for split in splits]
    trials = setup.trials(identities, [task.rows(split).train for split in splits], hyper)
    if setup.schedule is None:
        return setup.fitting(trials, rows_to_predict=[task.rows(split).test for split in splits])
    if alone:
        return setup.fitting(trials, compile=compile)
    slot_rows = count_slot_rows(task, "final", splits[0])
    slots = [list(slot_rows).index(split) for split in splits]
    slot_batch = SlotBatch(list(slot_rows.values()), slots, count_min_slots(task))
    return setup.fitting(trials, compile=compile, slot_batch=slot_batch)

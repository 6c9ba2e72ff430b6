"""Work of a task in counts: fits, updates, numbers of an update, and slot batches.

Splits train side by side in slot batches, for which see `bdl.training.slots`. Batches are wide
enough for the launches of kernels to weigh little, and no wider than that, so that one split by
itself costs little more than its share.
"""

from functools import lru_cache
from math import prod

from bdl.data.splits import Split
from bdl.methods.base import MinibatchMethod
from bdl.models.base import LayeredModel
from bdl.models.modules import Module
from bdl.models.problem import Problem
from bdl.plan.task import Task
from bdl.records.row import Stage
from bdl.training.schedule import Schedule
from bdl.training.slots import NUMBERS_PER_UPDATE
from bdl.training.updates import compilation_pays

_CONCURRENT_FITS_FOR_ONE_SPLIT = 32
"""Fits of a search from which a split is a slot batch of its own: launches of kernels weigh
little by then.
"""


def find_slot_batch(task: Task, stage: Stage, split: int) -> range:
    """Return the splits that share a slot batch with a split, itself among them.

    The last slot batch has as many as the others: splits that do not exist keep slots. Where
    nothing trains side by side, all splits are one slot batch.
    """
    count = count_splits_per_batch(task, stage)
    first = split // count * count
    return range(first, first + count)


def list_slot_splits(task: Task, stage: Stage, split: int) -> dict[int, Split]:
    """List the splits of a slot batch, by number.

    One that does not exist has the rows of the last.
    """
    last = count_splits(task) - 1
    rows_of = task.rows if stage == "final" else task.data.split
    return {number: rows_of(min(number, last)) for number in find_slot_batch(task, stage, split)}


def count_slot_rows(task: Task, stage: Stage, split: int) -> dict[int, int]:
    """Count the training rows of each split of a slot batch."""
    splits = list_slot_splits(task, stage, split)
    return {number: len(rows.train) for number, rows in splits.items()}


def count_splits_per_batch(task: Task, stage: Stage) -> int:
    """Count the splits of a slot batch.

    It is one where many settings of a search train together, which fill the cache of a CPU.
    """
    splits, training, search = count_splits(task), task.settings.training, task.settings.search
    # a fit with a limit of time is alone in its group, whose process can be ended
    if training is None:
        return 1 if search or task.settings.limited else splits
    concurrent_fits = count_concurrent_fits(task, stage)
    searches_at_once = (
        stage == "search"
        and search
        and task.device == "cpu"
        and concurrent_fits == search.trials * search.folds
    )
    if searches_at_once and concurrent_fits >= _CONCURRENT_FITS_FOR_ONE_SPLIT:
        return 1
    widest = max(
        count_min_slots(task),
        NUMBERS_PER_UPDATE[task.device] // (concurrent_fits * _count_numbers(task)),
    )
    # Batches of nearly equal sizes: first how many there are, then how many splits each has.
    slot_batches = -(-splits // widest)
    return -(-splits // slot_batches)


def count_min_slots(task: Task) -> int:
    """Count the slots that a batch has at least.

    One on a GPU, and for a fit that is larger by itself than a batch should be; two otherwise.
    """
    one_suffices = task.device == "cuda" or (
        task.settings.training and _count_numbers(task) > NUMBERS_PER_UPDATE[task.device]
    )
    return 1 if one_suffices else 2


def _count_numbers(task: Task) -> int:
    """Count the numbers of one update of a fit, layer outputs and minibatches included."""
    training, problem = task.settings.training, task.problem
    assert training is not None, "only minibatch methods get here"
    if problem.dim == 0:  # the likelihood does not fit the data, which is refused later
        return 1
    inputs = count_batches_per_step(task) * training.batch_size * problem.d_in
    outputs = _count_widest_output(problem) * training.batch_size
    return max(inputs, count_update_numbers(task) * max(problem.dim, outputs) // problem.dim)


@lru_cache(maxsize=1024)
def _count_widest_output(problem: Problem) -> int:
    """Count the values that the widest layer puts out for one row.

    Inputs do not count: all samples of a fit share them.
    """
    model = problem.model
    if isinstance(model, LayeredModel):  # `widths` is slow, hence the cache
        return max(model.widths(problem.d_in, problem.d_out)[1:])
    return problem.widest


def count_concurrent_fits(task: Task, stage: Stage) -> int:
    """Count the fits of a split that train side by side.

    One final fit, or the folds of all settings of a round of the search.
    """
    # imported here since its sampler is heavy, and tables do without
    from bdl.search.proposals import count_settings_per_round

    search = task.settings.search
    if stage == "final" or search is None:
        return 1
    return search.folds * count_settings_per_round(search)


def count_update_numbers(task: Task) -> int:
    """Count the numbers of one update of a fit.

    The parameters times the minibatches of a step, or the normals that are drawn where these are
    more.
    """
    if task.settings.streams:
        return task.stream.dim
    method = task.settings.method.build()
    if not isinstance(method, MinibatchMethod):
        return task.problem.dim
    noise = method.step_noise(task.problem)
    return max(method.batches_per_step * task.problem.dim, sum(map(prod, noise.values())))


def count_batches_per_step(task: Task) -> int:
    """Count the minibatches of an update; 1 for a method that has none."""
    method = task.settings.method.build()
    return method.batches_per_step if isinstance(method, MinibatchMethod) else 1


def count_splits(task: Task) -> int:
    """Count the splits that the spec lists and the data set has."""
    existing = (task.stream if task.settings.streams else task.data).splits
    listed = task.benchmark.splits_of(task.dataset).stop
    return listed if existing is None else min(listed, existing)


def build_schedule(task: Task) -> Schedule | None:
    """Return the entry's schedule; None for a method without minibatches."""
    return task.settings.training.build() if task.settings.training else None


def count_updates(task: Task, rows: int) -> int:
    """Count the updates of one fit on so many rows."""
    schedule = build_schedule(task)
    return 0 if schedule is None else schedule.updates(rows, count_batches_per_step(task))


def count_fits(task: Task, stage: Stage) -> int:
    """Count the fits of one split in a stage."""
    search = task.settings.search
    if stage == "final":
        return 1
    return search.trials * search.folds if search else 0


def count_stage_updates(task: Task, stage: Stage) -> int:
    """Count the updates of one fit in a stage.

    A stream has as many as observations. A fit without minibatches counts as 1.
    """
    if task.settings.streams:
        return task.stream.length
    if task.settings.direct:
        return 1
    search = task.settings.search
    rows = len(task.data.split(0).train)  # of split 0, whichever splits run
    return count_updates(
        task, search.training_rows(rows) if stage == "search" and search else rows
    )


def is_stage_compiled(task: Task, stage: Stage) -> bool:
    """Decide whether a stage is compiled.

    The decision rests on all splits of the benchmark, whichever of them run now, so that a split
    run alone gives what it gives among the others. Networks of images are not on a CPU, where
    their convolutions stay what they are: to compile ResNet-18 takes a core four minutes.
    """
    if task.compile is not None:
        return task.compile
    if task.settings.training is None:
        return False
    model = task.problem.model
    if task.device == "cpu" and isinstance(model, Module) and model.shape is not None:
        return False
    width = count_fits_per_batch(task, stage)
    updates = count_fits(task, stage) * count_stage_updates(task, stage) * count_splits(task)
    return compilation_pays(
        updates // width, width * count_batches_per_step(task), task.problem.dim
    )


def count_fits_per_batch(task: Task, stage: Stage) -> int:
    """Count the fits of a slot batch in a stage, whichever of them run."""
    if task.settings.direct:
        return 1
    return count_splits_per_batch(task, stage) * count_concurrent_fits(task, stage)

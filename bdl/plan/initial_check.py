"""Call methods and likelihoods where training starts: what is wrong there stops a run at once."""

from collections.abc import Iterable, Sequence
from typing import Any, cast

import torch
from torch import Tensor

from bdl.errors import InputError, summarise_error
from bdl.methods.base import MinibatchMethod
from bdl.metrics.predictions import SHARED_STATISTICS
from bdl.models.priors import PrecisionPrior
from bdl.models.problem import Hyper, Problem
from bdl.plan.fittings import build_training_setup
from bdl.plan.task import Task
from bdl.posteriors.base import is_multimodal
from bdl.posteriors.tensors import as_type
from bdl.registry import locate_outside_error, outside_file
from bdl.search.proposals import Setting
from bdl.spec import to_canonical_json
from bdl.training.first_calls import check_first_update, check_initial_state
from bdl.training.fitting import make_initial_state
from bdl.training.setup import TrainingSetup
from bdl.training.trials import Trials, View

Start = tuple[Task, dict[str, float]]
"""A task, and hyper-parameters that one of its fits may start with."""

_STARTS_AT_ONCE = 64
"""Starts that are evaluated together."""
_MAX_CHECKED_ROWS = 5000
"""The first training rows, which are evaluated: enough to overflow, and little memory."""
_MAX_LAYER_VALUES = 1 << 24
"""Values of the widest layer: there are fewer rows where these are large images."""


def check_initial_likelihood(tasks: Iterable[Task]) -> None:
    """Evaluate the likelihood of each task's first split at the mean of the initial posterior.

    Hyper-parameters that are searched are tried with all at their lower and all at their upper
    ends. `InputError` if it is not finite, float32 does not hold what is trained in it, or the
    posterior has several modes that would share the running statistics of the model; or if a
    function of the method returns something of a wrong type or shape. `step` is called if the
    method is from outside the package, or the prior has no precision, which most methods need.
    """
    tasks_by_start: dict[object, list[Task]] = {}
    for task in tasks:
        if task.settings.training is not None and not task.settings.from_reference:
            tasks_by_start.setdefault(_start_key(task), []).append(task)
    for similar_tasks in tasks_by_start.values():
        starts: list[Start] = []
        for task in similar_tasks:
            for hyper in list_extreme_settings(task):
                starts.append((task, hyper))
        for first in range(0, len(starts), _STARTS_AT_ONCE):
            _check_starts(starts[first : first + _STARTS_AT_ONCE])


def _start_key(task: Task) -> object:
    """Return a key that tasks share whose fits start alike except for their hyper-parameters."""
    training = task.settings.training
    assert training is not None, "only minibatch methods get here"
    preparation = to_canonical_json(task.benchmark.preparation.dump_on(task.dataset))
    data = task.dataset.key, preparation, task.splits[0], task.device
    return task.settings.method.build(), task.problem, *data, training.model_dump_json()


def _check_starts(starts: Sequence[Start]) -> None:
    """Refuse the first start whose likelihood is not finite; all share their `_start_key`."""
    for (task, hyper), finite in zip(starts, _evaluate_starts(starts), strict=True):
        if not finite:
            values = ", ".join(f"{name} {value:g}" for name, value in hyper.items())
            raise InputError(
                f"entries.{task.entry}: on {task.dataset} the likelihood is not finite at the "
                f"start, with {values}; change the hyper-parameters or their ranges"
            )


def list_extreme_settings(task: Task) -> list[dict[str, float]]:
    """List two settings of a task: all that is searched at its lower, and at its upper end.

    Without a search there is one.
    """
    fixed, search = dict(task.settings.hyper), task.settings.search
    if search is None:
        return [fixed]
    ranges = {name: (bounds.low, bounds.high) for name, bounds in search.space.items()}
    ranges |= {name: (min(values), max(values)) for name, values in search.grid.items()}
    return [fixed | {name: bounds[i] for name, bounds in ranges.items()} for i in (0, 1)]


def _evaluate_starts(starts: Sequence[Start]) -> list[bool]:
    """Return for each start whether its likelihood is finite."""
    first_task = starts[0][0]
    setup = build_training_setup(first_task)
    pool = setup.pool
    count = max_rows_at_once(setup.problem, len(starts))
    rows = first_task.data.split(first_task.splits[0]).train[:count]
    identities = [(*task.identity, "start") for task, _ in starts]
    trials = setup.trials(identities, [rows] * len(starts), [hyper for _, hyper in starts])
    _check_range(starts, trials, pool.dtype)
    # an update shows whether a method of the package can use a prior without a precision
    needs_update = bool(outside_file(setup.method)) or not isinstance(
        setup.problem.prior, PrecisionPrior
    )
    _check_method(first_task, setup, trials, update=needs_update)
    state = make_initial_state(
        cast(MinibatchMethod, setup.method), setup.problem, trials, pool.device, pool.dtype
    )

    indices = torch.as_tensor(rows, device=pool.device)
    x, y = pool.x[indices], pool.y[indices]

    def likelihood(state: Any, view: View, values: Hyper) -> Tensor:
        posterior = setup.method.posterior(state)
        # running statistics are those of one network; networks of several modes have others
        if setup.problem.buffers() and is_multimodal(posterior):
            raise InputError(f"entries.{first_task.entry}: {SHARED_STATISTICS}")
        batch = view.batch(x, y)
        return setup.problem.log_likelihood(posterior.mean(), batch, values)

    log_likelihoods = torch.func.vmap(likelihood)(
        state, trials.view, as_type(dict(trials.hyper), pool.dtype)
    )
    finite: list[bool] = log_likelihoods.isfinite().tolist()
    return finite


def check_initial_posterior(task: Task) -> None:
    """Refuse a method whose initial state or posterior is not what it has to be.

    For tasks whose hyper-parameters are not known yet.
    """
    if task.settings.training is not None:
        setup = build_training_setup(task)
        rows = [task.data.split(task.splits[0]).train]
        trials = setup.trials([(*task.identity, "start")], rows, [dict(task.settings.hyper)])
        _check_method(task, setup, trials, update=False)


def _check_method(task: Task, setup: TrainingSetup, trials: Trials, *, update: bool) -> None:
    """Refuse a method whose functions do not return what they have to; `step` if `update`."""
    try:
        state = check_initial_state(setup, trials)
        if update:
            check_first_update(setup, trials, state)
    except Exception as error:
        location = locate_outside_error(error)
        if location is None and not isinstance(error, InputError):
            raise
        reason = summarise_error(error) + (f" ({location})" if location else "")
        raise InputError(
            f"entries.{task.entry}: on {task.dataset} {reason}; mend it: nothing was trained yet"
        ) from None


def check_range(task: Task, settings: Sequence[Setting]) -> None:
    """Refuse settings, and targets, that training would round to 0 or to infinity.

    One of the settings is to be chosen; without those out of range the choice would depend on the
    unit of the target.
    """
    setup = build_training_setup(task)
    rows = task.data.split(task.splits[0]).train
    starts: list[Start] = [(task, setting) for setting in settings]
    identities = [(*task.identity, "start")] * len(starts)
    trials = setup.trials(identities, [rows] * len(starts), [dict(hyper) for _, hyper in starts])
    _check_range(starts, trials, setup.pool.dtype)


def _check_range(starts: Sequence[Start], trials: Trials, dtype: torch.dtype) -> None:
    """Refuse numbers that training would round to 0 or to infinity."""
    limits = torch.finfo(dtype)
    numbers = {**trials.hyper, "the squared unit of the target": trials.view.y_unit.square()}
    for name, values in numbers.items():
        for value, (task, _) in zip(values.flatten().tolist(), starts, strict=True):
            # 0 itself is exact; below `tiny` numbers are subnormal and lose digits
            if value and not limits.tiny <= abs(value) <= limits.max:
                raise InputError(
                    f"entries.{task.entry}: on {task.dataset} {name} is {value:g}, beyond what "
                    f"{str(dtype)[6:]} holds: state the target in another unit, or set "
                    "training.dtype: float64"
                )


def max_rows_at_once(problem: Problem, trials: int = 1) -> int:
    """Return on how many rows so many models are evaluated at once: fewer for wide layers."""
    return max(2, min(_MAX_CHECKED_ROWS, _MAX_LAYER_VALUES // (problem.widest * trials)))

"""Before a run: sizes that no machine can do, and a look at where training starts, for likelihoods that overflow.

What is counted is what grows: the states of the fits that train together, three times over; the
outputs of their layers; the normals of an update; the data.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from math import prod
from typing import Any, cast

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from bdl import runtime
from bdl.errors import InputError
from bdl.methods.base import ExternalMethod, MinibatchMethod
from bdl.metrics.predictions import SHARED_STATISTICS
from bdl.models.base import LayeredModel
from bdl.models.problem import Hyper, Problem
from bdl.plan import Cell
from bdl.plan.programs import (
    batches_per_step,
    fits,
    load,
    program,
    schedule,
    scoring_seconds,
    updates_of,
    width,
)
from bdl.posteriors.base import multimodal
from bdl.posteriors.tensors import as_type
from bdl.spec import canonical
from bdl.store import STAGES
from bdl.training.fitting import initial_state
from bdl.training.trials import Trials, View

Counted = tuple[Cell, int]
"""A cell, and how many of its splits are meant."""

YEAR = 365.25 * 24 * 3600.0
_BASE = 600_000_000
"""Bytes that a process takes beside its data: the interpreter, PyTorch, its compiler, programs
and figures.
"""
ROW_BYTES = 2000
"""That a row takes in the store, in memory and where it is published."""
_NUMBER, _GROUP = 5e-9, 6e-4
"""Seconds that an update takes at the least: for each number that it goes through, and of each
group of fits.
"""
_FASTER = 5
"""Predictions take a fifth of what is estimated at the least."""
_SMALL = 1_000_000
"""Numbers up to which a state is made to be counted; for shapes alone PyTorch imports its
compiler, for a second.
"""


def check_sizes(plan: Sequence[Counted], jobs: int) -> None:
    """Refuse what needs more memory than there is, or more than a year.

    The message has the number.
    """
    there = runtime.available_memory()
    for cell, count in plan:
        need = _BASE + group_memory(cell, count)
        if cell.device == "cpu" and need > there:
            raise InputError(
                f"entries.{cell.entry}: on {cell.dataset} {count:,} splits, with {_most(cell, count):,} fits side by "
                f"side of {_dim(cell):,} parameters, need about {runtime.amount(need)} of memory, and "
                f"{runtime.amount(there)} are available; make the model, the settings or the splits smaller"
            )
    if (need := memory(plan, jobs)) > there and jobs > 1:
        raise InputError(
            f"--jobs {jobs}: so many processes need about {runtime.amount(need)} of memory, and "
            f"{runtime.amount(there)} are available; choose fewer"
        )
    years = {
        f"{cell.dataset}/{cell.entry}": least_seconds(cell, count) / YEAR for cell, count in plan
    }
    if (total := sum(years.values())) > 1:
        longest = max(years, key=lambda label: years[label])
        raise InputError(
            f"this would take {total:.2g} years of this machine at the least, {years[longest]:.2g} of them for "
            f"{longest}; lower epochs, samples, trials or --splits"
        )


def memory(plan: Iterable[Counted], jobs: int) -> int:
    """Estimate the peak of memory in bytes: so many processes, each with the largest group, and the one that waits."""
    largest = max((group_memory(cell, count) for cell, count in plan), default=0)
    return jobs * (_BASE + largest) + (_BASE if jobs > 1 else 0)


def most_jobs(plan: Sequence[Counted]) -> int:
    """Count the processes that cores and memory allow, one at least."""
    largest = max((group_memory(cell, count) for cell, count in plan), default=0)
    return max(
        1,
        min(runtime.available_cores(), (runtime.available_memory() - _BASE) // (_BASE + largest)),
    )


def group_memory(cell: Cell, splits: int) -> int:
    """Estimate the bytes of the largest group of a cell, of its data, and of the rows that are published."""
    rows = splits * sum(fits(cell, stage) for stage in STAGES)
    data = (
        0 if cell.settings.streams else 2 * (cell.data.x.nbytes + cell.data.y.nbytes)
    )  # one on the device
    return data + _most(cell, splits) * _fit_memory(cell) + rows * ROW_BYTES


def least_seconds(cell: Cell, splits: int) -> float:
    """Estimate the shortest time that a cell may take, as if all cores were put to use and everything compiled."""
    total = 0.0
    for stage in STAGES:
        count = splits * fits(cell, stage)
        if count:
            updates = 0 if cell.settings.direct else updates_of(cell, stage)
            per_fit = updates * (_GROUP / width(cell, stage) + _NUMBER * load(cell))
            total += count * (per_fit + scoring_seconds(cell, stage) / _FASTER)
    return total / runtime.available_cores()


def _most(cell: Cell, splits: int) -> int:
    return splits if cell.settings.streams else max(width(cell, stage) for stage in STAGES)


def _fit_memory(cell: Cell) -> int:
    plan = schedule(cell)
    if plan is None:
        method = cell.settings.method.build()
        draws = method.draws if isinstance(method, ExternalMethod) else 0
        return 3 * posterior_size(cell) + 8 * draws * _dim(cell)
    size = 8 if plan.dtype == "float64" else 4
    problem = cell.problem
    layers = (
        sum(problem.model.widths(problem.d_in, problem.d_out))
        if isinstance(problem.model, LayeredModel)
        else 0
    )
    rows = min(plan.batch_size, len(cell.data.y)) * batches_per_step(cell)
    return 3 * posterior_size(cell) + 2 * size * (rows * max(layers, problem.widest) + load(cell))


def posterior_size(cell: Cell) -> int:
    """Count the bytes that the state of one fit holds.

    What may be large is counted by the shapes of its tensors.
    """
    if cell.settings.direct:
        return 8 * _dim(cell)
    target = cell.stream.dim if cell.settings.streams else cell.problem
    training = cell.settings.training
    size = 8 if training and training.dtype == "float64" else 4
    with suppress(
        Exception
    ):  # a state that depends on values; one that cannot be is refused later, with a reason
        return _shaped(cell.settings.method.build(), target, size)
    return 16 * _dim(cell)


@lru_cache(maxsize=1024)
def _shaped(method: Any, target: Problem | int, size: int) -> int:
    """Count the bytes of a state on a problem, or of a stream of so many parameters, with `size` bytes a number."""
    if not isinstance(target, int):
        target.buffers()  # what is kept of a model must not be made of shapes alone
    shapes: Mapping[str, Sequence[int]] = method.init_noise(target)
    with torch.device("cpu" if _bound(method, target) <= _SMALL else "meta"):
        noise = {name: torch.zeros(shape) for name, shape in shapes.items()}
        state = method.init(noise) if isinstance(target, int) else method.init(target, noise)
    return size * sum(
        prod(leaf.shape) for leaf in tree_leaves(state) if isinstance(leaf, torch.Tensor)
    )


def _bound(method: Any, target: Problem | int) -> int:
    """Bound the numbers of a state: vectors as many as parameters, or as all counts among the settings multiplied."""
    dim = target if isinstance(target, int) else target.dim
    return dim * max(
        dim, prod(value for value in vars(method).values() if isinstance(value, int) and value > 1)
    )


def _dim(cell: Cell) -> int:
    return cell.stream.dim if cell.settings.streams else cell.problem.dim


def check(cells: Iterable[Cell]) -> None:
    """Evaluate the likelihood of each cell's first split at the mean of the initial posterior.

    Hyper-parameters that are searched are tried with all at their lower and all at their upper
    ends. `InputError` if it is not finite, float32 does not hold what is trained in it, or the
    posterior has several modes that would share the running statistics of the model.
    """
    alike: dict[object, list[Cell]] = {}
    for cell in cells:
        if cell.settings.training is not None and not cell.settings.from_reference:
            alike.setdefault(_start(cell), []).append(cell)
    for own in alike.values():
        starts = [(cell, hyper) for cell in own for hyper in ends(cell)]
        for first in range(0, len(starts), _AT_ONCE):
            _check(starts[first : first + _AT_ONCE])


def _start(cell: Cell) -> object:
    """Return what cells have in common that start alike but for their hyper-parameters."""
    training = cell.settings.training
    assert training is not None, "asked of minibatch methods"
    prepared = canonical(cell.benchmark.preparation.dump_on(cell.dataset))
    data = cell.dataset.key, prepared, cell.splits[0], cell.device
    return cell.settings.method.build(), cell.problem, *data, training.model_dump_json()


def _check(starts: Sequence[tuple[Cell, dict[str, float]]]) -> None:
    """Refuse the first of some starts, all alike but for their hyper-parameters, whose likelihood is not finite."""
    for (cell, hyper), finite in zip(starts, _finite(starts), strict=True):
        if not finite:
            values = ", ".join(f"{name} {value:g}" for name, value in hyper.items())
            raise InputError(
                f"entries.{cell.entry}: on {cell.dataset} the likelihood is not finite at the start, with "
                f"{values}; change the hyper-parameters or their ranges"
            )


def ends(cell: Cell) -> list[dict[str, float]]:
    """List the settings of a cell with all that is searched at its lower and at its upper end.

    One without a search.
    """
    fixed, search = dict(cell.settings.hyper), cell.settings.search
    if search is None:
        return [fixed]
    ranges = {name: (found.low, found.high) for name, found in search.space.items()}
    ranges |= {name: (min(values), max(values)) for name, values in search.grid.items()}
    return [fixed | {name: ends[i] for name, ends in ranges.items()} for i in (0, 1)]


def _finite(starts: Sequence[tuple[Cell, dict[str, float]]]) -> list[bool]:
    cell = starts[0][0]
    shared = program(cell)
    pool, rows = (
        shared.pool,
        cell.data.split(cell.splits[0]).train[: rows_at_once(shared.problem, len(starts))],
    )
    identities = [(*own.identity, "start") for own, _ in starts]
    trials = shared.trials(identities, [rows] * len(starts), [hyper for _, hyper in starts])
    _check_range(starts, trials, pool.dtype)
    state = initial_state(
        cast(MinibatchMethod, shared.method), shared.problem, trials, pool.device, pool.dtype
    )

    where = torch.as_tensor(rows, device=pool.device)
    x, y = pool.x[where], pool.y[where]

    def likelihood(state: Any, view: View, values: Hyper) -> Tensor:
        posterior = shared.method.posterior(state)
        if shared.problem.buffers() and multimodal(posterior):
            raise InputError(f"entries.{cell.entry}: {SHARED_STATISTICS}")
        batch = view.batch(x, y)
        return shared.problem.log_likelihood(posterior.mean(), batch, values)

    found = torch.func.vmap(likelihood)(
        state, trials.view, as_type(dict(trials.hyper), pool.dtype)
    )
    finite: list[bool] = found.isfinite().tolist()
    return finite


def _check_range(
    starts: Sequence[tuple[Cell, dict[str, float]]], trials: Trials, dtype: torch.dtype
) -> None:
    """Refuse numbers that training would round to 0 or to infinity."""
    limits = torch.finfo(dtype)
    given = {**trials.hyper, "the squared unit of the target": trials.view.y_unit.square()}
    for name, values in given.items():
        for value, (cell, _) in zip(values.flatten().tolist(), starts, strict=True):
            if value and not limits.tiny <= abs(value) <= limits.max:
                raise InputError(
                    f"entries.{cell.entry}: on {cell.dataset} {name} is {value:g}, beyond what {str(dtype)[6:]} holds: "
                    "state the target in another unit, or set training.dtype: float64"
                )


def rows_at_once(problem: Problem, trials: int = 1) -> int:
    """Return the number of rows that so many models are evaluated on at once: fewer where their layers are wide."""
    return max(2, min(_ROWS, _VALUES // (problem.widest * trials)))


_AT_ONCE = 64
"""Starts that are evaluated together."""
_ROWS = 5000
"""Rows that are looked at, the first of the training rows: enough to overflow, and little memory.
"""
_VALUES = 1 << 24
"""Values of the widest layer: there are fewer rows where these are large images."""

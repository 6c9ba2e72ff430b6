"""A look at where training starts, so that a likelihood that overflows stops a run before it trains."""

from collections.abc import Iterable, Sequence
from typing import Any, cast

import torch
from torch import Tensor

from bdl.errors import InputError
from bdl.methods.base import MinibatchMethod
from bdl.metrics.predictions import SHARED_STATISTICS
from bdl.models.problem import Hyper, Problem
from bdl.plan.cell import Cell
from bdl.plan.programs import program
from bdl.posteriors.base import multimodal
from bdl.posteriors.tensors import as_type
from bdl.search.study import Setting
from bdl.spec import canonical
from bdl.training.states import initial_state
from bdl.training.trials import Trials, View


def check(cells: Iterable[Cell]) -> None:
    """Evaluate the likelihood of each cell's first split at the mean of the initial posterior.

    Hyper-parameters that are searched are tried with all at their lower and all at their upper ends.

    Raises
    ------
    InputError
        If it is not finite, float32 does not hold what is trained in it, or the posterior has several modes that would
        share the running statistics of the model.
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


def _check(starts: Sequence[tuple[Cell, Setting]]) -> None:
    """Refuse the first of some starts, all alike but for their hyper-parameters, whose likelihood is not finite."""
    for (cell, hyper), finite in zip(starts, _finite(starts), strict=True):
        if not finite:
            values = ", ".join(f"{name} {value:g}" for name, value in hyper.items())
            raise InputError(
                f"entries.{cell.entry}: on {cell.dataset} the likelihood is not finite at the start, with "
                f"{values}; change the hyper-parameters or their ranges"
            )


def ends(cell: Cell) -> list[Setting]:
    """List the settings of a cell with all that is searched at its lower and at its upper end; one without a search."""
    fixed, search = dict(cell.settings.hyper), cell.settings.search
    if search is None:
        return [fixed]
    ranges = {name: (found.low, found.high) for name, found in search.space.items()}
    ranges |= {name: (min(values), max(values)) for name, values in search.grid.items()}
    return [fixed | {name: ends[i] for name, ends in ranges.items()} for i in (0, 1)]


def _finite(starts: Sequence[tuple[Cell, Setting]]) -> list[bool]:
    cell = starts[0][0]
    shared = program(cell)
    pool, rows = shared.pool, cell.data.split(cell.splits[0]).train[: rows_at_once(shared.problem, len(starts))]
    identities = [(*own.identity, "start") for own, _ in starts]
    trials = shared.trials(identities, [rows] * len(starts), [hyper for _, hyper in starts])
    _check_range(starts, trials, pool.dtype)
    state = initial_state(cast(MinibatchMethod, shared.method), shared.problem, trials, pool.device, pool.dtype)

    where = torch.as_tensor(rows, device=pool.device)
    x, y = pool.x[where], pool.y[where]

    def likelihood(state: Any, view: View, values: Hyper) -> Tensor:
        posterior = shared.posterior(state)
        if shared.problem.buffers() and multimodal(posterior):
            raise InputError(f"entries.{cell.entry}: {SHARED_STATISTICS}")
        batch = view.batch(x, y)
        return shared.problem.log_likelihood(posterior.mean(), batch, values)

    found = torch.func.vmap(likelihood)(state, trials.view, as_type(dict(trials.hyper), pool.dtype))
    finite: list[bool] = found.isfinite().tolist()
    return finite


def _check_range(starts: Sequence[tuple[Cell, Setting]], trials: Trials, dtype: torch.dtype) -> None:
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
"""Rows that are looked at, the first of the training rows: enough to overflow, and little memory."""
_VALUES = 1 << 24
"""Values of the widest layer: there are fewer rows where these are large images."""

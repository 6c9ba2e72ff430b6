"""A look at where training starts, so that a likelihood that overflows stops a run before it trains."""

from collections.abc import Iterable
from typing import Any, cast

import torch
from torch import Tensor

from bdl.errors import InputError
from bdl.methods.base import MinibatchMethod
from bdl.metrics.predictions import SHARED_STATISTICS
from bdl.models.problem import Hyper
from bdl.plan.cell import Cell
from bdl.plan.programs import program
from bdl.posteriors.base import multimodal
from bdl.posteriors.tensors import as_type
from bdl.search.study import Setting
from bdl.training.program import Program
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
    for cell in cells:
        if cell.settings.training is None or cell.settings.from_reference:
            continue
        shared = program(cell)
        for hyper in _ends(cell):
            if not _finite(shared, cell, hyper):
                values = ", ".join(f"{name} {value:g}" for name, value in hyper.items())
                raise InputError(
                    f"entries.{cell.entry}: on {cell.dataset} the likelihood is not finite at the start, with "
                    f"{values}; change the hyper-parameters or their ranges"
                )


def _ends(cell: Cell) -> list[Setting]:
    fixed, search = dict(cell.settings.hyper), cell.settings.search
    if search is None:
        return [fixed]
    ranges = {name: (found.low, found.high) for name, found in search.space.items()}
    ranges |= {name: (min(values), max(values)) for name, values in search.grid.items()}
    return [fixed | {name: ends[i] for name, ends in ranges.items()} for i in (0, 1)]


def _finite(shared: Program, cell: Cell, hyper: Setting) -> bool:
    most = max(2, min(_ROWS, _VALUES // shared.problem.widest))
    pool, rows = shared.pool, cell.data.split(cell.splits[0]).train[:most]
    trials = shared.trials([(*cell.identity, "start")], [rows], [hyper])
    _check_range(cell, trials, pool.dtype)
    state = initial_state(cast(MinibatchMethod, shared.method), shared.problem, trials, pool.device, pool.dtype)

    def likelihood(state: Any, view: View, values: Hyper) -> Tensor:
        posterior = shared.posterior(state)
        if shared.problem.buffers() and multimodal(posterior):
            raise InputError(f"entries.{cell.entry}: {SHARED_STATISTICS}")
        batch = view.batch(pool.x, pool.y, torch.as_tensor(rows, device=pool.device))
        return shared.problem.log_likelihood(posterior.mean(), batch, values)

    found = torch.func.vmap(likelihood)(state, trials.view, as_type(dict(trials.hyper), pool.dtype))
    return bool(found.isfinite().all())


def _check_range(cell: Cell, trials: Trials, dtype: torch.dtype) -> None:
    """Refuse numbers that training would round to 0 or to infinity."""
    limits = torch.finfo(dtype)
    for name, values in {**trials.hyper, "the squared unit of the target": trials.view.y_unit.square()}.items():
        value = float(values[0])
        if value and not limits.tiny <= abs(value) <= limits.max:
            raise InputError(
                f"entries.{cell.entry}: on {cell.dataset} {name} is {value:g}, beyond what {str(dtype)[6:]} holds: "
                "state the target in another unit, or set training.dtype: float64"
            )


_ROWS = 5000
"""Rows that are looked at, the first of the training rows: enough to overflow, and little memory."""
_VALUES = 1 << 24
"""Values of the widest layer: there are fewer rows where these are large images."""

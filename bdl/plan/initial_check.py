"""A look at where training starts, so that a likelihood that overflows stops a run before it trains."""

from collections.abc import Iterable
from typing import Any, cast

import torch
from torch import Tensor

from bdl.errors import InputError
from bdl.methods.base import Method
from bdl.models.problem import Hyper
from bdl.plan.cell import Cell
from bdl.plan.programs import program
from bdl.search.study import Setting
from bdl.training.program import Program
from bdl.training.states import initial_state
from bdl.training.trials import View


def check(cells: Iterable[Cell]) -> None:
    """Evaluate the likelihood of each cell's first split at the mean of the initial posterior.

    Hyper-parameters that are searched are tried with all at their lower and all at their upper ends.

    Raises
    ------
    InputError
        If it is not finite.
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
    state = initial_state(cast(Method, shared.method), shared.problem, trials, pool.device, pool.dtype)

    def likelihood(state: Any, view: View, values: Hyper) -> Tensor:
        batch = view.batch(pool.x, pool.y, torch.as_tensor(rows, device=pool.device))
        return shared.problem.log_likelihood(shared.posterior(state).mean(), batch, values)

    found = torch.func.vmap(likelihood)(state, trials.view, dict(trials.hyper))
    return bool(found.isfinite().all())


_ROWS = 5000
"""Rows that are looked at, the first of the training rows: enough to overflow, and little memory."""
_VALUES = 1 << 24
"""Values of the widest layer: there are fewer rows where these are large images."""

"""What stored posteriors say of a function of one input."""

from collections.abc import Sequence

import numpy as np
import torch

from bdl.errors import InputError
from bdl.execution.scoring import evaluation, examples
from bdl.metrics.evaluation import Evaluation
from bdl.metrics.predictions import Draws, tensors_of
from bdl.plan.cell import Cell
from bdl.plan.reference import recipe, truth
from bdl.posteriors import Empirical
from bdl.posteriors.base import Posterior
from bdl.posteriors.tensors import as_type
from bdl.reports.posteriors import Array, CredibleBand
from bdl.store import artefacts
from bdl.store.store import Store

POINTS = 401
"""Inputs at which a function is evaluated."""
WIDER = 0.5
"""How far they reach beyond the training rows to either side, in ranges of those; further if test rows do."""
TRUTH = "truth"
STEP = 2
"""First counter word of the draws; those of scores have others."""


def bands(cells: Sequence[Cell], store: Store) -> list[CredibleBand]:
    """Evaluate the stored posterior of each cell's first successful split, if its model is one function of one input.

    Of two classes it is the probability of the second.
    As many samples are drawn as the entry is scored with, other ones than those of its scores; a posterior that has no
    more vectors gives each of them once. The draws of a sampled reference come first, as the entry `TRUTH`.
    """
    found: list[CredibleBand] = []
    for cell in cells:
        if any(artefact for *_, artefact in store.artefacts(cell.key)) and _one_input(cell):
            row = next(row for row in store.rows("final", cell.key) if row.artefact)
            posterior, buffers = artefacts.read(store.posteriors, str(row.artefact))
            seen = evaluation(cell, row.split, as_type(posterior, torch.float32), buffers, row.hyper)
            if (exact := _sampled(cell, row.split)) and not any(band.dataset == str(cell.dataset) for band in found):
                found.append(_band(cell, row.split, seen, exact)._replace(entry=TRUTH))
            found.append(_band(cell, row.split, seen))
    return found


def _one_input(cell: Cell) -> bool:
    return cell.settings.likelihood is not None and cell.data.d == cell.problem.d_out == 1


def _sampled(cell: Cell, split: int) -> Empirical | None:
    """Return the draws of a sampled reference; None if there is none, or it is not certified."""
    if recipe(cell, split) is None:
        return None
    try:
        found = truth(cell, split)
    except InputError:
        return None
    return Empirical(found.chains.flatten(0, 1)) if found and found.chains is not None else None


def _band(cell: Cell, split: int, seen: Evaluation, posterior: Posterior | None = None) -> CredibleBand:
    rows = cell.data.split(split)
    inputs, new = (cell.data.x[part, 0] for part in (rows.train, rows.test))
    x = _widened(inputs, new)
    grid = examples(cell, split, x[:, None], np.zeros(POINTS))
    outputs = seen.outputs(grid, Draws(seen.samples, seen.key, STEP), posterior)
    values = cell.problem.likelihood.predictive(outputs, tensors_of(seen.hyper)).mean  # (S, m), in original units
    sd = values.std(0) if len(values) > 1 else torch.zeros_like(values[0])
    quartiles = values.quantile(torch.tensor([0.25, 0.5, 0.75], dtype=values.dtype), dim=0)
    return CredibleBand(
        *(str(cell.dataset), cell.entry, x, values.mean(0).numpy(), sd.numpy(), inputs, cell.data.y[rows.train]),
        *(quartiles.numpy(), np.stack([new, cell.data.y[rows.test]]), bool(cell.data.classes)),
    )


def _widened(inputs: Array, new: Array) -> Array:
    low, high = float(inputs.min()), float(inputs.max())
    low, high = low - WIDER * (high - low), high + WIDER * (high - low)
    return np.linspace(min([low, *new]), max([high, *new]), POINTS)

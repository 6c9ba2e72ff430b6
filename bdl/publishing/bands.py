"""What stored posteriors say of a function of one input."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from bdl.errors import InputError
from bdl.execution.scoring import evaluation
from bdl.metrics.evaluation import Evaluation
from bdl.metrics.predictions import Draws
from bdl.plan.cell import Cell
from bdl.plan.reference import recipe, truth
from bdl.posteriors import Empirical
from bdl.posteriors.base import Posterior
from bdl.posteriors.tensors import as_type
from bdl.reports.credible import CredibleBand
from bdl.reports.posteriors import Array
from bdl.store import artefacts
from bdl.store.store import Store

POINTS = 401
"""Inputs at which a function is evaluated."""
WIDER = 0.5
"""How far they reach beyond the training rows to either side, in ranges of those."""
TRUTH = "truth"
STEP = 2
"""First counter word of the draws; those of scores have others."""


def bands(cells: Sequence[Cell], store: Store) -> list[CredibleBand]:
    """Evaluate the stored posterior of each cell's first successful split, if its data are a regression on one input.

    As many samples are drawn as the entry is scored with, other ones than those of its scores; a posterior that has no
    more vectors gives each of them once. The draws of a sampled reference come first, as the entry `TRUTH`.
    """
    found: list[CredibleBand] = []
    for cell in cells:
        row = next((row for row in store.rows("final", cell.key) if row.artefact), None)
        if row is not None and _one_input(cell):
            posterior, buffers = artefacts.read(store.posteriors, str(row.artefact))
            seen = evaluation(cell, row.split, as_type(posterior, torch.float32), buffers, row.hyper)
            if (exact := _sampled(cell, row.split)) and not any(band.dataset == str(cell.dataset) for band in found):
                found.append(_band(cell, row.split, seen, exact)._replace(entry=TRUTH))
            found.append(_band(cell, row.split, seen))
    return found


def _one_input(cell: Cell) -> bool:
    likelihood = cell.settings.likelihood
    return likelihood is not None and likelihood.build().fits(0) and cell.data.d == 1


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
    inputs = cell.data.x[cell.data.split(split).train, 0]
    mean, sd = _moments(seen, _widened(seen.trained.x[:, 0].double().numpy()), posterior)
    targets = seen.trained.y.double().numpy()
    return CredibleBand(str(cell.dataset), cell.entry, _widened(inputs), mean.numpy(), sd.numpy(), inputs, targets)


def _widened(inputs: Array) -> Array:
    low, high = float(inputs.min()), float(inputs.max())
    return np.linspace(low - WIDER * (high - low), high + WIDER * (high - low), POINTS)


def _moments(seen: Evaluation, x: Array, posterior: Posterior | None) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of the function over samples, in original units: (m,) each."""
    draws = Draws(seen.samples, seen.key, STEP)
    rows = seen.trained._replace(x=torch.from_numpy(x).unsqueeze(1), rows=None)
    values = seen.outputs(rows, draws, posterior)[..., 0]
    return values.mean(0), values.std(0) if len(values) > 1 else torch.zeros_like(values[0])

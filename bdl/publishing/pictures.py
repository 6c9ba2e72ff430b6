"""What figures show of the posteriors that a store keeps."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, get_args

import numpy as np
import torch
from torch import Tensor

from bdl.errors import InputError
from bdl.execution.scoring import evaluation, examples
from bdl.metrics.evaluation import Evaluation
from bdl.metrics.predictions import Draws, tensors_of
from bdl.metrics.selective import Uncertainty, risks
from bdl.plan import Cell
from bdl.plan.truths import known_as_functions, recipe, truth
from bdl.posteriors import Empirical, Traced
from bdl.posteriors.base import Posterior
from bdl.posteriors.tensors import as_type
from bdl.reports.certainty import Labelled
from bdl.reports.distributions import LayerWeights
from bdl.reports.posteriors import CredibleBand, Gaussians
from bdl.reports.statistics import Array
from bdl.store import artefacts
from bdl.store.store import Store

POINTS = 401
"""Inputs at which a function is evaluated."""
WIDER = 0.5
"""How far they reach beyond the training rows to either side, in ranges of those; further if test
rows do.
"""
TRUTH = "truth"
STEP = 2
"""First counter word of the draws; those of scores have others."""

MOST = 1_000_000
"""Parameters of a model whose predictions are made again, which takes as long as its scores do."""


def pictures(cells: Sequence[Cell], store: Store) -> dict[str, Any]:
    """Gather fields of `bdl.reports.figures.Shown` from posteriors, of data sets all of whose posteriors are stored."""
    kept = of_whole_sets(cells, store)
    gather = {
        "posteriors": posteriors,
        "bands": bands,
        "labelled": labelled,
        "weights": layer_weights,
    }
    return {name: own(kept, store) for name, own in gather.items()}


def of_whole_sets(cells: Sequence[Cell], store: Store) -> list[Cell]:
    """Leave out data sets with fits that were imported without their posteriors."""
    lacking = {
        cell.dataset
        for cell in cells
        if any(
            status == "ok" and not artefact for _, status, artefact in store.artefacts(cell.key)
        )
    }
    return [cell for cell in cells if cell.dataset not in lacking]


def _first(cell: Cell, store: Store) -> tuple[int, str] | None:
    return next(
        ((split, artefact) for split, _, artefact in store.artefacts(cell.key) if artefact), None
    )


def _evaluations(cell: Cell, store: Store) -> Iterator[tuple[int, Evaluation]]:
    for row in store.rows("final", cell.key):
        if row.artefact:
            posterior, buffers = artefacts.read(store.posteriors, row.artefact)
            yield (
                row.split,
                evaluation(cell, row.split, as_type(posterior, torch.float32), buffers, row.hyper),
            )


def posteriors(cells: Sequence[Cell], store: Store) -> list[Gaussians]:
    """Pair the stored posterior of each cell's first successful split with its reference, where it has one."""
    found = []
    for cell in (cell for cell in cells if cell.benchmark.measures_distances):
        kept = _first(cell, store)
        reference = truth(cell, kept[0]) if kept and not known_as_functions(cell) else None
        if kept and reference is not None:
            posterior, _ = artefacts.read(store.posteriors, kept[1])
            moments = [
                part.double().numpy() for part in (posterior.mean(), posterior.covariance())
            ]
            known = reference.mean.numpy(), reference.covariance.numpy()
            density = _on_arrays(reference.log_density)
            pair = Gaussians(
                str(cell.dataset), cell.entry, moments[0], moments[1], known[0], known[1], density
            )
            if isinstance(posterior, Traced):
                pair = pair._replace(
                    start=posterior.start.double().numpy(), path=posterior.path.double().numpy()
                )
            found.append(pair)
    return found


def layer_weights(cells: Sequence[Cell], store: Store) -> list[LayerWeights]:
    """Gather the weights that a benchmark's first `weights_below` counts, of each cell's first successful split."""
    found = []
    for cell in cells:
        counted = next(
            (
                metric.build()
                for metric in cell.benchmark.metrics
                if metric.name == "weights_below"
            ),
            None,
        )
        kept = _first(cell, store)
        if counted and kept:
            posterior, _ = artefacts.read(store.posteriors, kept[1])
            values = posterior.mean()[cell.problem.layout.layers == counted.layer]
            found.append(LayerWeights(str(cell.dataset), cell.entry, values.double().numpy()))
    return found


def _on_arrays(log_density: Callable[[Tensor], Tensor] | None) -> Callable[[Array], Array] | None:
    return log_density and (lambda points: log_density(torch.from_numpy(points)).numpy())


def bands(cells: Sequence[Cell], store: Store) -> list[CredibleBand]:
    """Evaluate the stored posterior of each cell's first successful split, if its model is one function of one input.

    Of two classes it is the probability of the second. As many samples are drawn as the entry is
    scored with, but other ones; a posterior with fewer vectors gives each of them once. The draws
    of a sampled reference come first, as the entry `TRUTH`.
    """
    found: list[CredibleBand] = []
    for cell in cells:
        of_one_input = (
            cell.settings.likelihood is not None and cell.data.d == cell.problem.d_out == 1
        )
        if of_one_input and _first(cell, store):
            split, seen = next(_evaluations(cell, store))
            if (exact := _sampled(cell, split)) and not any(
                band.dataset == str(cell.dataset) for band in found
            ):
                found.append(_band(cell, split, seen, exact)._replace(entry=TRUTH))
            found.append(_band(cell, split, seen))
    return found


def _sampled(cell: Cell, split: int) -> Empirical | None:
    """Return the draws of a sampled reference; None if there is none, or it is not certified."""
    if recipe(cell, split) is None:
        return None
    try:
        found = truth(cell, split)
    except InputError:
        return None
    return Empirical(found.chains.flatten(0, 1)) if found and found.chains is not None else None


def _band(
    cell: Cell, split: int, seen: Evaluation, posterior: Posterior | None = None
) -> CredibleBand:
    rows = cell.data.split(split)
    inputs, new = (cell.data.x[part, 0] for part in (rows.train, rows.test))
    low, high = float(inputs.min()), float(inputs.max())
    beyond = WIDER * (high - low)
    x = np.linspace(min([low - beyond, *new]), max([high + beyond, *new]), POINTS)
    grid = examples(cell, split, x[:, None], np.zeros(POINTS))
    outputs = seen.outputs(grid, Draws(seen.samples, seen.key, STEP), posterior)
    values = cell.problem.likelihood.predictive(
        outputs, tensors_of(seen.hyper)
    ).mean  # (S, m), in original units
    sd = values.std(0) if len(values) > 1 else torch.zeros_like(values[0])
    quartiles = values.quantile(torch.tensor([0.25, 0.5, 0.75], dtype=values.dtype), dim=0)
    return CredibleBand(
        *(
            str(cell.dataset),
            cell.entry,
            x,
            values.mean(0).numpy(),
            sd.numpy(),
            inputs,
            cell.data.y[rows.train],
        ),
        *(quartiles.numpy(), np.stack([new, cell.data.y[rows.test]]), bool(cell.data.classes)),
    )


def labelled(cells: Sequence[Cell], store: Store) -> list[Labelled]:
    """Predict the test rows by the stored posterior of every split, as scores do.

    This is for benchmarks with `aurc` among the metrics, and models of at most `MOST` parameters.
    """
    scored = (
        cell for cell in cells if any(metric.name == "aurc" for metric in cell.benchmark.metrics)
    )
    found = []
    for cell in (cell for cell in scored if cell.problem.dim <= MOST):
        for _, seen in _evaluations(cell, store):
            by_order = {by: risks(seen, by).numpy() for by in get_args(Uncertainty)}
            labels = seen.tested.y.long().numpy()
            found.append(
                Labelled(
                    str(cell.dataset),
                    cell.entry,
                    seen.predictions.probabilities.numpy(),
                    labels,
                    by_order,
                )
            )
    return found

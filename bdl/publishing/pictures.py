"""Data of the figures that are drawn from the posteriors in a store."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, get_args

import numpy as np
import torch
from torch import Tensor

from bdl.errors import InputError
from bdl.execution.scoring import make_evaluation, standardise_examples
from bdl.metrics.evaluation import Evaluation
from bdl.metrics.predictions import Draws, as_tensors
from bdl.metrics.selective import Uncertainty, compute_risks
from bdl.plan.reference_posteriors import compute_truth, find_recipe, knows_functions_only
from bdl.plan.task import Task
from bdl.posteriors import Empirical, Traced
from bdl.posteriors.base import Posterior
from bdl.posteriors.tensors import as_type
from bdl.records.run_folder import RunFolder
from bdl.reports.certainty import LabelPredictions
from bdl.reports.distributions import LayerWeights
from bdl.reports.posteriors import CredibleBand, Gaussians
from bdl.types import Array

GRID_POINTS = 401
"""Inputs at which a function is evaluated."""
GRID_MARGIN = 0.5
"""Margin of these inputs beyond the training rows on either side, in ranges of those.

It is wider if test rows lie further out.
"""
TRUTH_ENTRY = "truth"
DRAW_STEP = 2
"""First counter word of the draws; those of scores have other words."""

MAX_PARAMETERS = 1_000_000
"""Largest model whose predictions are computed again, which takes as long as its scores."""


def gather_pictures(tasks: Sequence[Task], run_folder: RunFolder) -> dict[str, Any]:
    """Gather the fields of `bdl.reports.figures.FigureData` that come from posteriors.

    Data sets are left out unless all of their posteriors are stored.
    """
    complete = list_complete_cells(tasks, run_folder)
    gather = {
        "posteriors": pair_posteriors,
        "credible_bands": evaluate_credible_bands,
        "label_predictions": predict_labels,
        "weights": gather_layer_weights,
    }
    return {name: gather_picture(complete, run_folder) for name, gather_picture in gather.items()}


def list_complete_cells(tasks: Sequence[Task], run_folder: RunFolder) -> list[Task]:
    """List the cells of data sets whose posteriors are all stored, not imported without them."""
    incomplete: set[str] = set()
    for task in tasks:
        for _, status, artefact in run_folder.list_artefacts(task.key):
            # a failed fit has no posterior either, and is no gap
            if status == "ok" and not artefact:
                incomplete.add(task.dataset)
    return [task for task in tasks if task.dataset not in incomplete]


def _find_first_artefact(task: Task, run_folder: RunFolder) -> tuple[int, str] | None:
    for split, _, artefact in run_folder.list_artefacts(task.key):
        if artefact:
            return split, artefact
    return None


def _iterate_evaluations(task: Task, run_folder: RunFolder) -> Iterator[tuple[int, Evaluation]]:
    for row in run_folder.load_rows("final", task.key):
        if row.artefact:
            posterior, buffers = run_folder.posteriors.read(row.artefact)
            yield (
                row.split,
                make_evaluation(
                    task, row.split, as_type(posterior, torch.float32), buffers, row.hyper
                ),
            )


def pair_posteriors(tasks: Sequence[Task], run_folder: RunFolder) -> list[Gaussians]:
    """Pair the posterior of each cell's first successful split with its exact reference."""
    pairs = []
    for task in (task for task in tasks if task.benchmark.measures_distances):
        stored_fit = _find_first_artefact(task, run_folder)
        reference = (
            compute_truth(task, stored_fit[0])
            if stored_fit and not knows_functions_only(task)
            else None
        )
        if stored_fit and reference is not None:
            posterior, _ = run_folder.posteriors.read(stored_fit[1])
            moments = [
                moment.double().numpy() for moment in (posterior.mean(), posterior.covariance())
            ]
            true_moments = reference.mean.numpy(), reference.covariance.numpy()
            density = _wrap_for_arrays(reference.log_density)
            pair = Gaussians(
                str(task.dataset),
                task.entry,
                moments[0],
                moments[1],
                true_moments[0],
                true_moments[1],
                density,
            )
            if isinstance(posterior, Traced):
                pair = pair._replace(
                    start=posterior.start.double().numpy(), path=posterior.path.double().numpy()
                )
            pairs.append(pair)
    return pairs


def gather_layer_weights(tasks: Sequence[Task], run_folder: RunFolder) -> list[LayerWeights]:
    """Gather the weights of each cell's first successful split, in the layer that is scored.

    That is the layer of the benchmark's first `weights_below`.
    """
    weights = []
    for task in tasks:
        scores = [name for name in task.benchmark.metrics if name.name == "weights_below"]
        stored_fit = _find_first_artefact(task, run_folder)
        if scores and stored_fit:
            posterior, _ = run_folder.posteriors.read(stored_fit[1])
            layer = scores[0].build().layer
            values = posterior.mean()[task.problem.layout.layers == layer]
            weights.append(LayerWeights(str(task.dataset), task.entry, values.double().numpy()))
    return weights


def _wrap_for_arrays(
    log_density: Callable[[Tensor], Tensor] | None,
) -> Callable[[Array], Array] | None:
    return log_density and (lambda points: log_density(torch.from_numpy(points)).numpy())


def evaluate_credible_bands(tasks: Sequence[Task], run_folder: RunFolder) -> list[CredibleBand]:
    """Evaluate the posterior of each cell's first successful split on a grid of inputs.

    Only models that are one function of one input are evaluated. Of two classes it is the
    probability of the second. As many samples are drawn as the entry is scored with, but other
    ones; a posterior with fewer vectors yields each of them once. The draws of a sampled reference
    come first, as the entry `TRUTH_ENTRY`.
    """
    bands: list[CredibleBand] = []
    for task in tasks:
        of_one_input = (
            task.settings.likelihood is not None and task.data.d == task.problem.d_out == 1
        )
        if of_one_input and _find_first_artefact(task, run_folder):
            split, evaluation = next(_iterate_evaluations(task, run_folder))
            if (reference_draws := _load_reference_draws(task, split)) and not any(
                earlier_band.dataset == str(task.dataset) for earlier_band in bands
            ):
                bands.append(
                    _evaluate_band(task, split, evaluation, reference_draws)._replace(
                        entry=TRUTH_ENTRY
                    )
                )
            bands.append(_evaluate_band(task, split, evaluation))
    return bands


def _load_reference_draws(task: Task, split: int) -> Empirical | None:
    """Return the draws of a sampled reference; None if there is none, or it is not certified."""
    if find_recipe(task, split) is None:
        return None
    try:
        truth = compute_truth(task, split)
    except InputError:
        return None
    return Empirical(truth.chains.flatten(0, 1)) if truth and truth.chains is not None else None


def _evaluate_band(
    task: Task, split: int, evaluation: Evaluation, posterior: Posterior | None = None
) -> CredibleBand:
    rows = task.rows(split)
    inputs, test_inputs = (
        task.data.x[rows_of_part, 0] for rows_of_part in (rows.train, rows.test)
    )
    low, high = float(inputs.min()), float(inputs.max())
    beyond = GRID_MARGIN * (high - low)
    x = np.linspace(
        min([low - beyond, *test_inputs]), max([high + beyond, *test_inputs]), GRID_POINTS
    )
    grid = standardise_examples(task, split, x[:, None], np.zeros(GRID_POINTS))
    outputs = evaluation.outputs(
        grid, Draws(evaluation.samples, evaluation.key, DRAW_STEP), posterior
    )
    values = task.problem.likelihood.predictive(
        outputs, as_tensors(evaluation.hyper)
    ).mean  # (S, m), in original units
    sd = values.std(0) if len(values) > 1 else torch.zeros_like(values[0])
    quartiles = values.quantile(torch.tensor([0.25, 0.5, 0.75], dtype=values.dtype), dim=0)
    return CredibleBand(
        *(
            str(task.dataset),
            task.entry,
            x,
            values.mean(0).numpy(),
            sd.numpy(),
            inputs,
            task.data.y[rows.train],
        ),
        *(
            quartiles.numpy(),
            np.stack([test_inputs, task.data.y[rows.test]]),
            bool(task.data.classes),
        ),
    )


def predict_labels(tasks: Sequence[Task], run_folder: RunFolder) -> list[LabelPredictions]:
    """Predict the test rows by the stored posterior of every split, as scores do.

    This is for benchmarks with `aurc` among the metrics, and models of at most `MAX_PARAMETERS`
    parameters.
    """
    ranked_tasks = (
        task for task in tasks if any(metric.name == "aurc" for metric in task.benchmark.metrics)
    )
    predictions = []
    for task in (task for task in ranked_tasks if task.problem.dim <= MAX_PARAMETERS):
        for _, evaluation in _iterate_evaluations(task, run_folder):
            by_order = {by: compute_risks(evaluation, by).numpy() for by in get_args(Uncertainty)}
            labels = evaluation.tested.y.long().numpy()
            predictions.append(
                LabelPredictions(
                    str(task.dataset),
                    task.entry,
                    evaluation.predictions.probabilities.numpy(),
                    labels,
                    by_order,
                )
            )
    return predictions

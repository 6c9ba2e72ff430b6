"""The truth that a cell's posteriors are held against."""

from typing import Any

from bdl.plan.cell import Cell
from bdl.references.base import CertifiedReference, FunctionReference, SampledReference, Truth
from bdl.references.cache import Recipe
from bdl.runtime import one_thread
from bdl.training.direct import TrainingData


@one_thread()
def truth(cell: Cell, split: int) -> Truth | None:
    """Find the reference posterior of a split, None if the entry has none; hyper-parameters in original units.

    The truth of a stream is the distribution that it is drawn from.
    """
    if cell.settings.streams:
        model = cell.stream.model(split)
        return Truth(model.mean().double(), model.covariance().double(), {})
    if cell.settings.reference is None:
        return None
    data = training_data(cell, split)
    found: Truth = _reference(cell, split).fit(cell.problem, data.x, data.y, _hyper(cell, data))
    return found._replace(hyper=cell.problem.likelihood.to_original_units(found.hyper, data.y_unit))


def recipe(cell: Cell, split: int) -> Recipe | None:
    """Describe what the reference of a split samples; None if it does not sample, or there is none."""
    reference = _reference(cell, split) if cell.settings.reference else None
    if not isinstance(reference, SampledReference):
        return None
    data = training_data(cell, split)
    return reference.recipe(cell.problem, data.x, data.y, _hyper(cell, data))


def known_as_functions(cell: Cell) -> bool:
    """Return whether the reference knows functions only, since parameters mean nothing by themselves."""
    return cell.settings.reference is not None and isinstance(cell.settings.reference.build(), FunctionReference)


def evidence(cell: Cell, split: int) -> list[str]:
    """Describe by which numbers the reference of a split is known to be right, one a line; none where it tells none."""
    reference = cell.settings.reference.build() if cell.settings.reference else None
    if not isinstance(reference, CertifiedReference):
        return []
    data = training_data(cell, split)
    return reference.evidence(cell.problem, data.x, data.y, _hyper(cell, data))


def training_data(cell: Cell, split: int) -> TrainingData:
    """Return the training rows of a split as a model sees them, float64."""
    return TrainingData.of(cell.data, cell.data.split(split).train)


def _reference(cell: Cell, split: int) -> Any:
    """Build the reference; tell it the test rows if they matter, the training rows where there are none."""
    assert cell.settings.reference is not None, "cells that have one"
    reference, rows = cell.settings.reference.build(), cell.data.split(split)
    if not isinstance(reference, FunctionReference):
        return reference
    judged = TrainingData.of(cell.data, rows.train, rows.test if len(rows.test) else rows.train)
    return reference.at(judged.x, judged.y)


def _hyper(cell: Cell, data: TrainingData) -> Any:
    return data.hyper(cell.settings.hyper, cell.problem)

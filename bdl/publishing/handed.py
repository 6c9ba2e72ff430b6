"""A fit as those see it who have its predictions at the test rows, and nothing else of it."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import NamedTuple

from torch import Tensor

from bdl.errors import InputError
from bdl.execution.scoring import Scored, computed, evaluation, scores
from bdl.metrics.evaluation import Draws, Evaluation, Examples
from bdl.metrics.targets import answer
from bdl.plan.cell import Cell
from bdl.posteriors.base import Posterior
from bdl.posteriors.predictive import Answer, Outputs, is_predictive
from bdl.spec.labels import MetricName


@dataclass(frozen=True, eq=False)
class _Handed(Evaluation):
    """An evaluation of predictions."""

    def outputs(self, examples: Examples, draws: Draws, posterior: Posterior | None = None) -> Tensor:
        """Return the outputs that there are; others cannot be drawn."""
        if draws.step:
            raise InputError("this score draws samples of its own")
        return super().outputs(examples, draws, posterior)


class Recomputed(NamedTuple):
    """Scores that predictions give."""

    scores: dict[str, float | None]
    """Values by metric; None for one that is not finite."""
    others: frozenset[MetricName]
    """Metrics that need more of a fit than its predictions."""


def predicted(evaluated: Evaluation) -> Answer:
    """Return all that the predictive scores of a fit are made of, with the numbers of the test rows.

    Outputs of a model are as it computes them, float32 in its own units, which restores them to the last bit; what
    predicts by itself answers in float64.
    """
    rows, problem = evaluated.tested, evaluated.model
    if is_predictive(evaluated.posterior):
        found = answer(problem, evaluated.posterior, rows)
    else:
        units = rows._replace(y_unit=1.0, y_origin=0.0)
        found = Outputs(evaluated.outputs(units, Draws(evaluated.samples, evaluated.key)).float())
    return found._replace(rows=rows.rows)  # type: ignore[no-any-return]


def needs_predictions(cell: Cell) -> bool:
    """Return whether any score of a cell is one of predictions."""
    return any(metric.info.kind == "predictive" for metric in computed(cell))


def recomputed(cell: Cell, split: int, given: Answer, hyper: Mapping[str, float]) -> Recomputed:
    """Compute every score that predictions give, with our data.

    Parameters
    ----------
    cell, split
        Whose test rows are meant.
    given
        What `predicted` gave.
    hyper
        Hyper-parameters, original units.

    Raises
    ------
    InputError
        If the predictions are of other rows, or none of this cell.
    """
    tested = cell.rows(split).test
    if given.rows.tolist() != tested.tolist():
        raise InputError("its predictions are of other rows than the split tests")
    checked = given.checked(len(tested), cell.problem.d_out, cell.problem.classes)._replace(rows=given.rows)
    own = evaluation(cell, split, checked, {}, hyper)  # type: ignore[arg-type]  # as a stored answer is
    handed = _Handed(**{field.name: getattr(own, field.name) for field in fields(own)})
    try:
        handed.predictions  # noqa: B018  # where these fail, no score is excused
    except KeyError as error:
        raise InputError(f"its hyper-parameters lack {error}") from None
    predictive = [metric for metric in computed(cell) if metric.info.kind == "predictive"]
    found: Scored = scores(handed, predictive)
    beyond = {metric for metric in predictive if str(metric) in found.refused}
    others = beyond | {metric for metric in computed(cell) if metric.info.kind != "predictive"}
    values = {name: value for name, value in found.stored.items() if name not in found.refused}
    return Recomputed(values, frozenset(others))

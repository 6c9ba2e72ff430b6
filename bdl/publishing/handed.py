"""A fit as those see it who have its predictions at the test rows, and nothing else of it."""

from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, NamedTuple

from torch import Tensor

from bdl.errors import InputError
from bdl.execution.scoring import Scored, computed, evaluation, scores
from bdl.metrics.evaluation import Draws, Evaluation, Examples
from bdl.metrics.targets import answer
from bdl.plan.cell import Cell
from bdl.posteriors.base import Posterior
from bdl.posteriors.predictive import Outputs, is_predictive
from bdl.publishing.bundle import Given
from bdl.search.study import Setting
from bdl.spec.labels import MetricName


@dataclass(frozen=True, eq=False)
class _Handed(Evaluation):
    """An evaluation of predictions; `mean` as in `Given`."""

    mean: Tensor | None = None

    @cached_property
    def _at_mean(self) -> Evaluation:
        if self.mean is None:
            raise InputError("there are no predictions by the posterior's mean")
        known: Any = Outputs(self.mean, _numbers(self.tested))
        return replace(self, posterior=known, predicted=None)

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


def predicted(evaluated: Evaluation) -> Given:
    """Return all that the predictive scores of a fit are made of, with the numbers of the test rows.

    Outputs of a model are as it computes them, float32 in its own units, which restores them to the last bit; what
    predicts by itself answers in float64.
    """
    rows, problem = evaluated.tested, evaluated.model
    if is_predictive(evaluated.posterior):
        return Given(answer(problem, evaluated.posterior, rows)._replace(rows=_numbers(rows)), None)
    units = rows._replace(y_unit=1.0, y_origin=0.0)
    samples, mean = (
        evaluated.at(where).outputs(units, Draws(evaluated.samples, evaluated.key)).float()
        for where in ("samples", "mean")
    )
    return Given(Outputs(samples, _numbers(rows)), mean)


def needs_predictions(cell: Cell) -> bool:
    """Return whether any score of a cell is one of predictions."""
    return any(metric.info.kind == "predictive" for metric in computed(cell))


def recomputed(cell: Cell, split: int, given: Given, hyper: Setting) -> Recomputed:
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
    if given.samples.rows.tolist() != tested.tolist():
        raise InputError("its predictions are of other rows than the split tests")
    shape, rows = (len(tested), cell.problem.d_out, cell.problem.classes), given.samples.rows
    samples = given.samples.checked(*shape)._replace(rows=rows)
    mean = None if given.mean is None else Outputs(given.mean).checked(*shape).outputs
    own = evaluation(cell, split, samples, {}, hyper)
    handed = _Handed(**{field.name: getattr(own, field.name) for field in fields(own)}, mean=mean)
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


def _numbers(rows: Examples) -> Tensor:
    assert rows.rows is not None, "those of a data set have numbers"
    return rows.rows

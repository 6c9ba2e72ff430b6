"""Checking a bundle: its scores have to follow from its predictions, with our data and our splits.

Who checks has the predictions of a fit at the test rows, and nothing else of it.
"""

from collections import Counter
from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from functools import cached_property
from math import isclose, nan
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from torch import Tensor

from bdl.errors import InputError, short
from bdl.execution.scoring import computed, evaluation, scores
from bdl.metrics.evaluation import Evaluation
from bdl.metrics.predictions import Draws
from bdl.metrics.targets import Examples, answer
from bdl.plan import Cell, data_checksum, fit_hash
from bdl.posteriors.base import Posterior
from bdl.posteriors.predictive import Outputs, is_predictive
from bdl.publishing.bundle import (
    RUN,
    RUNTIME,
    Bundle,
    BundledCell,
    BundledRow,
    Given,
    decode,
    member,
)
from bdl.publishing.foreign import part, readable
from bdl.search import Setting
from bdl.spec import Entry
from bdl.spec.labels import MetricName

T = TypeVar("T")

_DIGITS, _SMALL = 1e-10, 1e-12
"""Relative and absolute difference of equal scores: processors round the same sums differently,
some 1e-15 a term.
"""


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

    def outputs(
        self, examples: Examples, draws: Draws, posterior: Posterior | None = None
    ) -> Tensor:
        """Return the outputs that there are; others cannot be drawn."""
        if draws.step:
            raise InputError("this score draws samples of its own")
        return super().outputs(examples, draws, posterior)


def predicted(evaluated: Evaluation) -> Given:
    """Return all that the predictive scores of a fit are made of, with the numbers of the test rows.

    Outputs of a model are as it computes them, float32 in its own units, which restores them to
    the last bit; what predicts by itself answers in float64.
    """
    rows, problem = evaluated.tested, evaluated.model
    if is_predictive(evaluated.posterior):
        return Given(
            answer(problem, evaluated.posterior, rows)._replace(rows=_numbers(rows)), None
        )
    units = rows._replace(y_unit=1.0, y_origin=0.0)
    samples, mean = (
        evaluated.at(where).outputs(units, Draws(evaluated.samples, evaluated.key)).float()
        for where in ("samples", "mean")
    )
    return Given(Outputs(samples, _numbers(rows)), mean)


def is_predicted(cell: Cell, status: str) -> bool:
    """Return whether a fit succeeded, and any score of its cell is one of predictions."""
    return status == "ok" and any(metric.info.kind == "predictive" for metric in computed(cell))


def recomputed(
    cell: Cell, split: int, given: Given, hyper: Setting
) -> tuple[dict[str, float | None], set[MetricName]]:
    """Compute every score that predictions give, with our data; `hyper` is in original units.

    Returned are the values by metric, None for one that is not finite; and the metrics that need
    more of a fit. `InputError` if the predictions are of other rows, or none of this cell.
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
    metrics = computed(cell)
    found = scores(handed, [metric for metric in metrics if metric.info.kind == "predictive"])
    others = {
        metric
        for metric in metrics
        if metric.info.kind != "predictive" or str(metric) in found.refused
    }
    return {
        name: value for name, value in found.stored.items() if name not in found.refused
    }, others


def _numbers(rows: Examples) -> Tensor:
    assert rows.rows is not None, "those of a data set have numbers"
    return rows.rows


class Verified(NamedTuple):
    """A cell of a bundle that was verified."""

    cell: str
    """Its label."""
    splits: int
    """Number of splits."""
    failed: int
    """Fits that failed, as the bundle says."""
    scores: tuple[str, ...]
    """Scores that follow from the predictions, on all splits."""
    reported: tuple[str, ...]
    """Scores that are taken on trust."""
    foreign: bool
    """Whether method, model or prior are from outside of this package; the identity of the fits
    is not checked then.
    """


def verify(path: Path) -> list[Verified]:
    """Check a bundle, and say what of it was checked.

    Nothing that it names is imported, but for parts of this package.

    `InputError` if it is none, or anything in it does not follow from its predictions, its spec
    and our data; with the data set, the method and the split.
    """
    with Bundle(path) as bundle, _named(str(path)):
        run = bundle.run()
        variant, foreign = readable(run.made)
        cells = part(variant)
        keys = [(own.dataset, own.entry, own.point) for own in run.cells]
        _check_list(keys, [cell.key for cell in cells], lambda key: f"{key[0]}/{key[1]}")
        pairs = list(zip(cells, run.cells, strict=True))
        found = [
            _verified(bundle, place, cell, own, foreign) for place, (cell, own) in enumerate(pairs)
        ]
        files = [
            member(place, row.split)
            for place, (cell, own) in enumerate(pairs)
            for row in own.rows
            if is_predicted(cell, row.status)
        ]
        if odd := sorted(bundle.members - {RUN, *files}):
            raise InputError(f"{odd[0]} belongs to no row")
        return found


def _check_list(given: Sequence[T], expected: Sequence[T], name: Callable[[T], str]) -> None:
    """Refuse a list that is not the expected one, and name an item that is wrong."""
    there, wanted = Counter(given), Counter(expected)
    for item in (*wanted, *there):
        if there[item] != wanted[item]:
            why = (
                "is missing"
                if not there[item]
                else "comes twice"
                if wanted[item]
                else "is not in the spec"
            )
            raise InputError(f"{name(item)} {why}")
    if list(given) != list(expected):
        raise InputError(f"{name(given[0])} and what follows are not in the order of the spec")


def _verified(
    bundle: Bundle, place: int, cell: Cell, own: BundledCell, foreign: Container[str]
) -> Verified:
    with _named(cell.label):
        if own.data != (ours := data_checksum(cell)):
            raise InputError(f"its data are not ours: checksum {short(own.data)}, ours {ours}")
        if cell.entry not in foreign and own.fit_hash != fit_hash(cell, own.versions):
            raise InputError(
                "its fits are not of the spec of the bundle: the hash that identifies them is another"
            )
        _check_list([row.split for row in own.rows], cell.splits, lambda split: f"split {split}")
    follow, trusted = set[str](), set[str]()
    for row in own.rows:
        with _named(f"{cell.label}, split {row.split}"):
            found = _check_row(bundle, cell, row, member(place, row.split))
        follow |= found
        trusted |= {
            name for name, value in row.scores.items() if value is not None and name not in found
        }
    failed = sum(row.status == "failed" for row in own.rows)
    names = dict.fromkeys(name for row in own.rows for name in row.scores)
    scores, reported = (
        tuple(name for name in names if name in kind) for kind in (follow - trusted, trusted)
    )
    return Verified(cell.label, len(own.rows), failed, scores, reported, cell.entry in foreign)


def _check_row(bundle: Bundle, cell: Cell, row: BundledRow, name: str) -> set[str]:
    """Return the scores of a row that follow from its predictions.

    Refuse it if another one should.
    """
    if row.status == "failed":
        if row.scores:
            raise InputError("it failed, and has scores")
        return set()
    _check_hyper(cell.settings, row.hyper)
    values: Mapping[str, float | None] = {}
    others: Collection[str] = computed(cell)
    if is_predicted(cell, row.status):
        values, others = recomputed(cell, row.split, decode(bundle.content(name)), row.hyper)
    for score in dict.fromkeys((*values, *others, RUNTIME, *row.scores)):
        if score not in row.scores:
            raise InputError(f"{score} is missing")
        if score in values:
            if not _equal(values[score], row.scores[score]):
                raise InputError(
                    f"{score} is {row.scores[score]}, and {values[score]} by its predictions"
                )
        elif score != RUNTIME and not any(
            score == own or score.startswith(f"{own}_") for own in others
        ):
            raise InputError(f"its benchmark has no score '{short(score)}'")
    return set(values)


def _check_hyper(entry: Entry, hyper: Mapping[str, float]) -> None:
    """Refuse hyper-parameters that the entry fixes at another value, or that its search cannot have found."""
    limits = {name: (value, value) for name, value in entry.hyper.items()}
    if entry.search:
        limits |= {name: (own.low, own.high) for name, own in entry.search.space.items()}
        limits |= {name: (min(own), max(own)) for name, own in entry.search.grid.items()}
    for name, (low, high) in limits.items():
        value = hyper.get(name, nan)
        if not (low <= value <= high or _equal(value, low) or _equal(value, high)):
            raise InputError(f"{name} is {value:g}, and from {low:g} to {high:g} in the spec")


def _equal(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return one is other
    return isclose(one, other, rel_tol=_DIGITS, abs_tol=_SMALL)


@contextmanager
def _named(where: str) -> Iterator[None]:
    try:
        yield
    except InputError as error:
        raise InputError(f"{where}: {error}") from None

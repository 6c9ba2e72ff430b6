"""Scores of a fit, after it or later: every metric of the benchmark is a function of one lazy evaluation."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from math import isfinite, nan
from types import MappingProxyType
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bdl.data.conversion import Inputs
from bdl.errors import in_one_line
from bdl.execution.details import is_finite, is_full_disk
from bdl.metrics.evaluation import Evaluation
from bdl.metrics.targets import Examples
from bdl.plan import Cell, score_hash
from bdl.plan.truths import truth
from bdl.posteriors.base import Posterior
from bdl.posteriors.predictive import is_predictive
from bdl.registry import outside_place
from bdl.rng import trial_keys
from bdl.runtime import OverLimit, one_thread
from bdl.search import Setting
from bdl.spec.labels import MetricName
from bdl.store import Row, artefacts
from bdl.store.artefacts import Damaged
from bdl.store.store import Store
from bdl.training.trials import fitted_scaling

Buffers = Mapping[str, Tensor]


def evaluation(
    cell: Cell, split: int, posterior: Posterior, buffers: Buffers, hyper: Setting
) -> Evaluation:
    """Make what scores of a fit are functions of; nothing is computed before a score asks for it.

    Hyper-parameters are in original units.
    """
    streams = cell.settings.streams
    drawn_with = None if streams else cell.data.generating
    return Evaluation(
        posterior=posterior,
        problem=None if streams else cell.problem,
        hyper=hyper,
        test=partial(_examples, cell, split, "test"),
        training=partial(_examples, cell, split, "train"),
        samples=cell.benchmark.evaluation_of(cell.entry).samples,
        key=trial_keys([(*cell.identity, split, "final")], "predict")[0],
        buffers=buffers,
        truth=partial(truth, cell, split),
        generating=None if drawn_with is None else torch.from_numpy(drawn_with[split]),
    )


class Scored(NamedTuple):
    """Scores of a fit."""

    values: dict[str, float]
    """By metric; what a score gives beside its value stands under ``<name>_<suffix>``."""
    refused: Mapping[str, str] = MappingProxyType({})
    """Why a score could not be computed, by metric."""
    without: tuple[str, ...] = ()
    """Scores of parameters, where the method left predictions alone."""

    @property
    def stored(self) -> dict[str, float | None]:
        """Values as rows have them: None where one is not finite, or could not be computed."""
        return {
            name: value if isfinite(value) else None for name, value in self.values.items()
        } | dict.fromkeys((*self.refused, *self.without))


def scores(evaluated: Evaluation, metrics: Iterable[MetricName]) -> Scored:
    """Compute metrics, NaN for a posterior that is not finite itself.

    One that raises leaves its own column empty, and does not stop the others; but for `OverLimit`
    when the time of the fits is over, and `OSError` if the disk is full, which are no fault of a
    score.
    """
    if not is_finite(evaluated.posterior):
        return Scored({str(metric): nan for metric in metrics})
    values: dict[str, float] = {}
    refused: dict[str, str] = {}
    without: list[str] = []
    for metric in metrics:
        if metric.info.kind in ("posterior", "distance") and is_predictive(evaluated.posterior):
            without.append(str(metric))
            continue
        try:
            with nullcontext() if metric.info.kind == "predictive" else one_thread():
                value = metric.build()(evaluated)
            parts = value if isinstance(value, Mapping) else {"": value}
            values |= {
                f"{metric}_{suffix}" if suffix else str(metric): float(part)
                for suffix, part in parts.items()
            }
        except (
            Exception,
            SystemExit,
        ) as error:  # a score that calls sys.exit ends its column, not the run
            if isinstance(error, OverLimit) or is_full_disk(error):
                raise
            refused[str(metric)] = reason_of(error)
    return Scored(values, refused, tuple(without))


def reason_of(error: BaseException) -> str:
    """Write an error in one line, with its place if that is in a component that was given as a file."""
    where = outside_place(error)
    return f"{in_one_line(error)} ({where})" if where else in_one_line(error)


def computed(cell: Cell) -> list[MetricName]:
    """List the metrics of a cell's benchmark that are computed from a fit, rather than timed."""
    return [metric for metric in cell.benchmark.metrics if metric.info.kind != "time"]


def codes(cell: Cell, names: Iterable[str]) -> dict[str, str]:
    """Return the score hash of each metric, and of what it gives beside its value."""
    hashes = {str(metric): score_hash(cell, metric) for metric in computed(cell)}
    owners = {
        name: [own for own in hashes if name == own or name.startswith(f"{own}_")]
        for name in names
    }
    return {name: hashes[max(own, key=len)] for name, own in owners.items() if own}


def examples(cell: Cell, split: int, x: Inputs, y: NDArray[np.float64]) -> Examples:
    """Standardise rows in original units, of the data set or new ones, as the trial of a split does."""
    scaling = fitted_scaling(cell.data, [cell.rows(split).train])
    inputs = np.asarray(
        (x.reshape(len(x), -1) - scaling.x_mean[0]) / scaling.x_scale[0], dtype=np.float64
    )
    return Examples(
        torch.from_numpy(inputs),
        torch.from_numpy(y),
        float(scaling.y_scale[0]),
        float(scaling.y_mean[0]),
    )


def _examples(cell: Cell, split: int, part: Literal["train", "test"]) -> Examples:
    rows = getattr(cell.rows(split), part)
    return examples(cell, split, cell.data.x[rows], cell.data.y[rows])._replace(
        rows=torch.from_numpy(rows)
    )


def rescore(cell: Cell, store: Store) -> None:
    """Return the stored final rows of a cell the scores that they lack, or that other code has computed.

    Fits stay as they are. A score that is not finite, or raises, is stored as None, the second
    with its reason; it is computed again each time. Rows without a posterior are left alone: those
    that failed, and those that were imported from published rows, which `beyond` lists. Rows whose
    posterior turns out to be damaged are removed.
    """
    stale, damaged = [], []
    for row, wanted in _stale(cell, store):
        if row.artefact:
            try:
                posterior, buffers = artefacts.read(store.posteriors, row.artefact)
            except Damaged:
                damaged.append(row)
                continue
            found = scores(evaluation(cell, row.split, posterior, buffers, row.hyper), wanted)
            own = codes(cell, found.stored)
            stale.append(
                replace(row, metrics=found.stored, codes=own, refused=dict(found.refused))
            )
    store.rescore(stale)
    store.remove(damaged)


def beyond(cell: Cell, store: Store) -> list[str]:
    """Name the scores that final rows of a cell lack, or that other code has computed, and that need the fits anew."""
    lacking = {
        metric for row, wanted in _stale(cell, store) if not row.artefact for metric in wanted
    }
    return [str(metric) for metric in computed(cell) if metric in lacking]


def _stale(cell: Cell, store: Store) -> Iterator[tuple[Row, list[MetricName]]]:
    current = {metric: score_hash(cell, metric) for metric in computed(cell)}
    for row in store.rows("final", cell.key):
        wanted = [
            metric
            for metric, code in current.items()
            if row.codes.get(str(metric)) != code or str(metric) in row.refused
        ]
        if wanted and row.status == "ok":
            yield row, wanted

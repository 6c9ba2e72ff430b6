"""Before anything is trained: components from outside are called once, and updates of unknown cells are timed.

Components of the package are not called: its tests do, and numbers that a posterior has before
training prove little.
"""

import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import islice

import torch

from bdl.errors import InputError, in_one_line
from bdl.execution.estimate import Left, Measured
from bdl.execution.groups import estimated
from bdl.execution.scoring import Buffers, computed, evaluation, reason_of, scores
from bdl.metrics import METRICS
from bdl.metrics.evaluation import Evaluation
from bdl.plan import Cell, outside_files
from bdl.plan.initial_check import ends, rows_at_once
from bdl.plan.programs import final_fitting, program, rough_seconds, updates_of, width
from bdl.posteriors.base import Posterior
from bdl.registry import outside_file, outside_place
from bdl.search import Setting
from bdl.spec.labels import MetricName
from bdl.store import STAGES, Stage
from bdl.training.fitting import EvaluationSchedule, Fitting
from bdl.training.traced import at_once

_FEW = 100
"""Training rows of a method without minibatches, and observations of one that learns from a
stream.
"""
_SAMPLES = 2
"""Posterior samples of a prediction."""


def rehearse(cells: Iterable[Cell]) -> None:
    """Call each method and score once, in cells that have a component from outside the package.

    The method makes one update on the first split (one without minibatches is fitted to a few
    rows), which is scored. Equal components are called for one cell alone. Guests, which may hang,
    are not called: their rows tell what goes wrong. `InputError` if one raises, with the file and
    the line where it does.
    """
    called = set[object]()
    for cell in cells:
        entry, outside = cell.settings, outside_files(cell)
        if entry.limited:
            continue
        steering = [entry.search.metric] if entry.search else []
        metrics = [
            own
            for own in [*computed(cell), *steering]
            if outside or outside_file(METRICS.get(own.name))
        ]
        parts = [
            part and part.name
            for part in (entry.method, entry.model, entry.likelihood, entry.prior)
        ]
        asked = {metric.key: metric for metric in metrics if (*parts, metric.key) not in called}
        if not asked and (not outside or tuple(parts) in called):
            continue
        called |= {tuple(parts), *((*parts, key) for key in asked)}
        _call(cell, list(asked.values()), bool(outside))


@contextmanager
def explained() -> Iterator[None]:
    """Let an error of a component that was given as a file be one line, with the place that it comes from."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        if (where := outside_place(error)) is None:
            raise
        raise InputError(f"{where}: {in_one_line(error)}") from None


def _call(cell: Cell, metrics: Iterable[MetricName], outside: bool) -> None:
    """Begin a fit of a cell, and compute scores.

    A fit with components of the package alone may not come about.
    """
    problems = {}
    try:
        found = scores(_few(evaluation(cell, cell.splits[0], *_begin(cell))), metrics)
        problems = {
            f"metric '{metric.name}'": found.refused.get(str(metric)) for metric in metrics
        }
    except (Exception, SystemExit) as error:
        if outside:
            problems = {f"entries.{cell.entry}": reason_of(error)}
    for what, why in problems.items():
        if why:
            raise InputError(f"{what} on {cell.dataset}: {why}; mend it: nothing was trained yet")


def _begin(cell: Cell) -> tuple[Posterior, Buffers, Setting]:
    """Make the first update of a cell's first split, at the lower ends of what is searched.

    Give what there is then.
    """
    split = cell.splits[0]
    hyper = {**ends(cell)[0], **estimated(cell, split)}
    fitting: Fitting
    if cell.settings.streams:
        fitting, evaluations = (
            final_fitting([(cell, split)], [hyper], False),
            EvaluationSchedule("observations", _FEW),
        )
    else:
        shared, rows = program(cell), cell.rows(split).train
        few = rows[:_FEW] if shared.schedule is None else rows
        trials = shared.trials([(*cell.identity, "start")], [few], [hyper])
        fitting, evaluations = (
            shared.fitting(trials, asked=[cell.rows(split).test]),
            EvaluationSchedule("updates", 1),
        )
    snapshot = next(iter(fitting.run(evaluations)))
    buffers = {name: value[0] for name, value in snapshot.buffers.items()}
    return fitting.posterior(snapshot, 0), buffers, hyper


def _few(whole: Evaluation) -> Evaluation:
    """Leave out rows where there are many, and most samples."""
    if whole.problem is None:
        return whole
    most = rows_at_once(whole.problem)
    test, training = (
        (lambda: whole.test().take(slice(most))),
        (lambda: whole.training().take(slice(most))),
    )
    return replace(whole, test=test, training=training, samples=_SAMPLES)


_UPDATES = 3
"""Updates of a cell, the first of which also prepares the others."""
_LONG = 60.0
"""Seconds of updates without a trace from which on it is worth while to time them with one."""
_BLOCK = 1000
"""Observations of a stream."""


def time_updates(
    left: Sequence[Left], known: Collection[Measured], seconds: float
) -> list[Measured]:
    """Time an update, not compiled, of cells that lack earlier fits, those with most work first.

    No cell is begun after so many seconds; the first always is. A method without updates is not
    timed.
    """
    there = {(one.cell, one.stage, one.device) for one in known}
    alike: dict[object, list[Left]] = {}
    for own in left:
        cell, stages = own.cell, [stage for stage in STAGES if own.fits(stage)]
        unknown = any((cell.key, stage, cell.device) not in there for stage in stages)
        if unknown and (cell.settings.streams or cell.settings.training):
            alike.setdefault(_kind(cell), []).append(own)
    found, end = list[Measured](), time.perf_counter() + seconds
    for kind in sorted(alike.values(), key=_work, reverse=True):
        # an error has its reason in the run itself; a generator of many normals would be compiled
        # for ten seconds
        with suppress(Exception), torch.compiler.set_stance("force_eager"):
            each = min(_updates(kind[0].cell))
            if (
                each * sum(fits * updates_of(*own) / width(*own) for own, fits in _stages(kind))
                > _LONG
            ):
                with at_once():
                    each = min(each, *_updates(kind[0].cell))
            for cell in (own.cell for own in kind):
                together = 1 if cell.settings.streams else width(cell, "final")
                how = each / together, 1, together, cell.device, False
                found.append(Measured(cell.key, "final", *how, "timed updates"))
        if time.perf_counter() > end:
            break
    return found


def _kind(cell: Cell) -> object:
    method, training = cell.settings.method.build(), cell.settings.training
    if training is None:
        return method, cell.stream.dim
    return method, cell.problem, training.model_dump_json(), width(cell, "final"), cell.device


def _stages(kind: Iterable[Left]) -> Iterator[tuple[tuple[Cell, Stage], int]]:
    return (((own.cell, stage), own.fits(stage)) for own in kind for stage in STAGES)


def _work(kind: Iterable[Left]) -> float:
    return sum(
        fits * rough_seconds(own[0], updates_of(*own), width(*own), False)
        for own, fits in _stages(kind)
    )


def _updates(cell: Cell) -> Iterator[float]:
    """Yield the seconds of an update of the first slot batch of a cell, at the lower ends of what is searched."""
    hyper = {**ends(cell)[0], **dict.fromkeys(cell.settings.from_reference, 1.0)}
    schedule = (
        EvaluationSchedule("observations", _BLOCK)
        if cell.settings.streams
        else EvaluationSchedule("updates", 1)
    )
    fitting = final_fitting([(cell, cell.splits[0])], [hyper], compile=False)
    start, done = time.perf_counter(), 0
    for snapshot in islice(fitting.run(schedule), _UPDATES):
        now = time.perf_counter()
        yield (now - start) / (snapshot.counters.updates - done)
        start, done = now, snapshot.counters.updates

"""How much work a cell is, for progress, to decide what is compiled, and to estimate how long it takes."""

from bdl.models.modules import Module
from bdl.plan.cell import Cell
from bdl.plan.programs import schedule
from bdl.plan.slot_batches import batches_per_step, fits_of_split, load, side_by_side, splits_of
from bdl.store.rows import Stage
from bdl.training.programs import update_seconds, worthwhile


def updates(cell: Cell, rows: int) -> int:
    """Count the updates of one fit on so many rows."""
    plan = schedule(cell)
    return 0 if plan is None else plan.updates(rows, batches_per_step(cell))


def fits(cell: Cell, stage: Stage) -> int:
    """Count the fits of one split in a stage."""
    search = cell.settings.search
    if stage == "final":
        return 1
    return search.trials * search.folds if search else 0


def minibatches(cell: Cell, stage: Stage) -> int:
    """Count the minibatches of one fit in a stage; the observations of a stream, or 1 of a guest."""
    if cell.settings.streams:
        return cell.stream.length
    if cell.settings.limited:
        return 1
    search = cell.settings.search
    rows = len(cell.data.split(0).train)  # whichever splits run
    if stage == "search" and search:
        rows = search.training_rows(rows)
    return updates(cell, rows) * batches_per_step(cell)


def unit(cell: Cell, stage: Stage) -> int:
    """Return the work of a model-minibatch, in the unit that progress is told in: about a nanosecond."""
    return max(
        1, round(1e9 * rough_seconds(cell, 1, width(cell, stage), compiles(cell, stage)) / batches_per_step(cell))
    )


def rough_seconds(cell: Cell, updates: float, width: int, compiled: bool) -> float:
    """Compute the share of a fit in the rough time of its group, from the numbers that its updates go through.

    It compares cells, stages and groups with one another; how long they take on a machine, only measurements tell.
    What has no updates counts as one.
    """
    shared = 1 if cell.settings.streams else width  # streams are learnt from in blocks, which are not shared
    return max(updates, 1.0) * update_seconds(shared * load(cell), compiled) / shared


def remaining_work(cell: Cell, search_fits: int, final_fits: int) -> int:
    """Work of so many fits of each stage, in the units that progress is told in."""
    counts: dict[Stage, int] = {"search": search_fits, "final": final_fits}
    return sum(count * minibatches(cell, stage) * unit(cell, stage) for stage, count in counts.items() if count)


def compiles(cell: Cell, stage: Stage) -> bool:
    """Decide whether a stage is compiled.

    The decision rests on all splits of the benchmark, whichever of them run now, so that a split run alone gives what
    it gives among the others.
    """
    if cell.compile is not None:
        return cell.compile
    if cell.settings.training is None or (cell.device == "cpu" and _convolves(cell)):
        return False
    per_step, at_once = batches_per_step(cell), width(cell, stage)
    total = fits(cell, stage) * minibatches(cell, stage) * splits_of(cell) // (at_once * per_step)
    return worthwhile(total, at_once * per_step, cell.problem.dim)


def _convolves(cell: Cell) -> bool:
    """Return whether images go through a module.

    To compile ResNet-18 takes a core four minutes, and on a CPU its convolutions stay what they are.
    """
    model = cell.problem.model
    return isinstance(model, Module) and model.shape is not None


# Measured on two cores, of predictions: seconds of a number that is drawn, and of a parameter of a sample for a row.
_DRAWN, _PREDICTED = 2e-8, 1e-9


def width(cell: Cell, stage: Stage) -> int:
    """Count the fits that train side by side in a stage: those of a slot batch, whichever of them run."""
    return 1 if cell.settings.direct else side_by_side(cell, stage) * fits_of_split(cell, stage)


def updates_of(cell: Cell, stage: Stage) -> int:
    """Count the updates of one fit in a stage; the observations of a stream."""
    return minibatches(cell, stage) // batches_per_step(cell)


def scoring_seconds(cell: Cell, stage: Stage) -> float:
    """Estimate what the samples take that predict the test rows of one fit, or the rows of a fold."""
    search, metrics = cell.settings.search, cell.benchmark.metrics
    if cell.settings.streams or not (stage == "search" or any(own.info.kind == "predictive" for own in metrics)):
        return 0.0
    split = cell.data.split(cell.splits[0])
    rows = len(split.test)
    if stage == "search" and search:
        rows = len(split.validation) if search.folds == 1 else len(split.train) // search.folds
    return cell.benchmark.evaluation_of(cell.entry).samples * float(cell.problem.dim) * (_DRAWN + rows * _PREDICTED)

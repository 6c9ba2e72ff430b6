"""What a command will do, checked before anything is written."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from bdl.data import Dataset, SplitScheme, Standardise, Stream, load, load_stream, prepare
from bdl.models.problem import Problem
from bdl.plan.checks import check, check_device
from bdl.plan.sources import source_hash
from bdl.references.base import SampledReference, Truth
from bdl.references.cache import Recipe
from bdl.spec import Benchmark, Entry
from bdl.store.store import Stage
from bdl.training.batches import updates_per_fit
from bdl.training.compiling import worthwhile
from bdl.training.direct import TrainingData
from bdl.training.engine import Schedule
from bdl.training.program import Program
from bdl.training.trials import Pool


@dataclass(frozen=True, eq=False)
class Cell:
    """One entry of a benchmark on one dataset, with the splits to run.

    Parameters
    ----------
    benchmark
        The spec, overrides applied.
    dataset, entry
        Names.
    splits
        Split numbers.
    device
        ``"cpu"`` or ``"cuda"``.
    compile
        True, False, or None to decide by the amount of work.
    """

    benchmark: Benchmark
    dataset: str
    entry: str
    splits: tuple[int, ...]
    device: str = "cpu"
    compile: bool | None = None

    @property
    def settings(self) -> Entry:
        """The entry's section of the spec."""
        return self.benchmark.entries[self.entry].on(self.dataset)

    @property
    def data(self) -> Dataset:
        """The dataset, loaded once, as the benchmark prepares it."""
        preparation = self.benchmark.preparation
        rows = preparation.rows.get(self.dataset)
        return _load(self.dataset, preparation.split, preparation.standardise, rows)

    @property
    def stream(self) -> Stream:
        """The stream, cut to the length that the benchmark says, for a method that learns from one."""
        stream = load_stream(self.dataset)
        return replace(stream, length=self.benchmark.preparation.rows.get(self.dataset, stream.length))

    @property
    def identity(self) -> tuple[object, ...]:
        """Start of the identities of the cell's trials."""
        return (self.benchmark.seed, self.benchmark.name, self.dataset, self.entry)

    @property
    def problem(self) -> Problem:
        """Model, likelihood and prior."""
        entry, data = self.settings, self.data
        assert entry.model is not None and entry.likelihood is not None, "only streams lack them"  # noqa: PT018
        likelihood = entry.likelihood.build()
        return Problem(
            entry.model.build(),
            likelihood,
            data.x.shape[1],
            likelihood.outputs(data.classes),
            entry.prior.bias_precision,
        )

    def program(self) -> Program:
        """Make what the trials share, with the data on the device."""
        entry = self.settings
        training = entry.training
        return Program(
            dataset=self.data,
            pool=Pool.load(self.data, self.device),
            problem=self.problem,
            method=entry.method.build(),
            schedule=Schedule(training.epochs, training.batch_size) if training else None,
            samples=self.benchmark.evaluation_of(self.entry).samples,
        )

    def truth(self, split: int) -> Truth | None:
        """Find the reference posterior of a split, None if the entry has none; noise precision in original units.

        The truth of a stream is the distribution that it is drawn from.
        """
        if self.settings.streams:
            model = self.stream.model(split)
            return Truth(model.mean().double(), model.covariance().double(), {})
        if self.settings.reference is None:
            return None
        data = self._training_data(split)
        found = self.settings.reference.build().fit(self.problem, data.x, data.y, data.hyper(self.settings.hyper))
        units = {"noise_precision": data.y_unit**2}
        return found._replace(hyper={name: value / units.get(name, 1) for name, value in found.hyper.items()})

    def recipe(self, split: int) -> Recipe | None:
        """Say what the reference of a split samples; None if it does not sample, or there is none."""
        reference = self.settings.reference.build() if self.settings.reference else None
        if not isinstance(reference, SampledReference):
            return None
        data = self._training_data(split)
        return reference.recipe(self.problem, data.x, data.y, data.hyper(self.settings.hyper))

    def _training_data(self, split: int) -> TrainingData:
        return TrainingData.of(self.data, self.data.split(split).train)

    def fingerprint(self) -> str:
        """Hash what decides the cell's numbers: its spec, the data and the sources."""
        parts = (
            self.benchmark.cell_hash(self.dataset, self.entry),
            (self.stream if self.settings.streams else self.data).checksum,
            source_hash(type(self.settings.method.build())),
        )
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()

    def updates(self, rows: int) -> int:
        """Count the updates of one fit on so many rows."""
        training = self.settings.training
        if training is None:
            return 0
        return updates_per_fit(rows, training.batch_size, training.epochs, self.batches_per_step)

    @property
    def batches_per_step(self) -> int:
        """Minibatches of an update; 1 for a method that has none."""
        return 1 if self.settings.direct else self.settings.method.build().batches_per_step

    def fits(self, stage: Stage) -> int:
        """Count the fits of one split in a stage."""
        search = self.settings.search
        if stage == "final":
            return 1
        return search.trials * search.folds if search else 0

    def minibatches(self, stage: Stage) -> int:
        """Count the minibatches of one fit in a stage, for progress and for `compiles`."""
        if self.settings.streams:
            return self.stream.length
        search = self.settings.search
        rows = len(self.data.split(self.splits[0]).train)
        if stage == "search" and search:
            rows -= -(-rows // search.folds)
        return self.updates(rows) * self.batches_per_step

    @property
    def cost(self) -> int:
        """Relative time that a model-minibatch takes; a small model costs as much as 200 parameters at least."""
        return 200 + (self.stream.dim if self.settings.streams else self.problem.dim)

    def compiles(self, stage: Stage, width: int) -> bool:
        """Decide whether a stage is compiled, whose groups have `width` fits each."""
        if self.compile is not None:
            return self.compile
        per_step = self.batches_per_step
        updates = self.fits(stage) * self.minibatches(stage) * len(self.splits) // (width * per_step)
        return worthwhile(updates, width * per_step, self.problem.dim)


def plan(
    benchmark: Benchmark,
    *,
    splits: Sequence[int],
    device: str = "cpu",
    compile: bool | None = None,
) -> list[Cell]:
    """Lay out the cells of a run, in the order of the spec, and check each.

    Raises
    ------
    InputError
        If the device or data are missing, or a cell cannot work.
    """
    check_device(device)
    cells = [Cell(benchmark, *pair, tuple(splits), device, compile) for pair in benchmark.pairs]
    for cell in cells:
        check(cell)
    return cells


@lru_cache(maxsize=16)
def _load(name: str, split: SplitScheme, standardise: Standardise, rows: int | None) -> Dataset:
    return prepare(load(name), split, standardise, rows)

"""What a command will do, checked before anything is written."""

import ast
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from inspect import getfile
from pathlib import Path

import torch

import bdl
from bdl.data import Dataset, load
from bdl.errors import InputError
from bdl.models.problem import Problem
from bdl.spec import Benchmark, Entry
from bdl.training.batches import updates_per_fit
from bdl.training.compiling import worthwhile
from bdl.training.engine import Schedule
from bdl.training.program import Program
from bdl.training.trials import Pool

_SOURCES = (
    "data/scaling.py",
    "data/splits.py",
    "methods/optim.py",
    "models",
    "posteriors",
    "search",
    "training",
)
"""Parts of the package that decide a trial's numbers, beside the method's own file."""


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
        return self.benchmark.entries[self.entry]

    @property
    def data(self) -> Dataset:
        """The dataset, loaded once."""
        return _load(self.dataset)

    @property
    def identity(self) -> tuple[object, ...]:
        """Start of the identities of the cell's trials."""
        return (self.benchmark.seed, self.benchmark.name, self.dataset, self.entry)

    @property
    def problem(self) -> Problem:
        """Model, likelihood and prior."""
        entry, data = self.settings, self.data
        likelihood = entry.likelihood.build()
        return Problem(
            entry.model.build(),
            likelihood,
            data.x.shape[1],
            likelihood.outputs(2),
            entry.prior.bias_precision,
        )

    def program(self) -> Program:
        """Make what the trials share, with the data on the device."""
        entry = self.settings
        return Program(
            dataset=self.data,
            pool=Pool.load(self.data, self.device),
            problem=self.problem,
            method=entry.method.build(),
            schedule=Schedule(entry.training.epochs, entry.training.batch_size),
            samples=self.benchmark.evaluation.samples,
        )

    def fingerprint(self) -> str:
        """Hash what decides the cell's numbers: its spec, the data and the sources."""
        parts = (
            self.benchmark.cell_hash(self.dataset, self.entry),
            self.data.checksum,
            _source_hash(getfile(type(self.settings.method.build()))),
        )
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()

    def check(self) -> None:
        """Refuse what cannot work.

        Raises
        ------
        InputError
            If a split does not exist, the method does not fit the model, or there are too few rows.
        """
        self.settings.method.build().check(self.problem)
        search = self.settings.search
        for split in self.splits:
            rows = len(self.data.split(split).train)
            smallest = rows if search is None else rows - -(-rows // search.folds)
            if search is not None and search.folds > rows:
                raise InputError(
                    f"entries.{self.entry}.search.folds: {search.folds} folds but {self.dataset} has {rows} "
                    f"training rows; choose at most {rows}"
                )
            if self.updates(smallest) == 0:
                raise InputError(
                    f"entries.{self.entry}.training: no update fits into {smallest} rows of {self.dataset}; "
                    "lower batch_size or raise epochs"
                )

    def updates(self, rows: int) -> int:
        """Count the updates of one fit on so many rows."""
        training, method = self.settings.training, self.settings.method.build()
        return updates_per_fit(rows, training.batch_size, training.epochs, method.batches_per_step)

    def minibatches(self, stage: str) -> int:
        """Count the model-minibatches of one split in a stage, for progress and for `compiles`."""
        search = self.settings.search
        rows = len(self.data.split(self.splits[0]).train)
        n_fits = 1
        if stage == "search":
            if search is None:
                return 0
            rows, n_fits = rows - -(-rows // search.folds), search.trials * search.folds
        return n_fits * self.updates(rows) * self.settings.method.build().batches_per_step

    @property
    def cost(self) -> int:
        """Relative time that a model-minibatch takes; a small model costs as much as 200 parameters at least."""
        return 200 + self.problem.dim

    def compiles(self, stage: str, width: int, groups: int) -> bool:
        """Decide whether a stage of `groups` groups of `width` trials is compiled."""
        if self.compile is not None:
            return self.compile
        per_step = self.settings.method.build().batches_per_step
        updates = self.minibatches(stage) * len(self.splits) // (width * per_step)
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
    _check_device(device)
    cells = [
        Cell(benchmark, dataset, entry, tuple(splits), device, compile)
        for dataset in benchmark.datasets
        for entry in benchmark.entries
    ]
    for cell in cells:
        cell.check()
    return cells


def _check_device(device: str) -> None:
    if not re.fullmatch(r"cpu|cuda(:\d+)?", device):
        raise InputError(f"--device {device}: use cpu, cuda or cuda:N")
    if device == "cpu":
        return
    if not torch.cuda.is_available():
        raise InputError(f"--device {device}: PyTorch finds no CUDA device here; use --device cpu")
    if (torch.device(device).index or 0) >= torch.cuda.device_count():
        raise InputError(f"--device {device}: there are {torch.cuda.device_count()} CUDA devices, counted from 0")


@lru_cache(maxsize=16)
def _load(name: str) -> Dataset:
    return load(name)


@lru_cache(maxsize=32)
def _source_hash(method_file: str) -> str:
    """Hash the code that decides numbers; comments and layout do not count."""
    root = Path(bdl.__file__).parent
    found = [
        path
        for part in _SOURCES
        for path in ([root / part] if part.endswith(".py") else sorted((root / part).glob("*.py")))
    ]
    code = [ast.unparse(ast.parse(path.read_text("utf-8"))) for path in (*found, Path(method_file))]
    return hashlib.sha256("\n".join(code).encode()).hexdigest()

"""What the reports read: the part of a benchmark that concerns them, and posteriors beside the truth."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class PaperTables(Protocol):
    """Printed tables that a benchmark reproduces."""

    @property
    def paper(self) -> str:
        """Identifier of the paper, for example ``"vifa2023"``."""

    @property
    def tables(self) -> Sequence[str]:
        """Tables in order of preference, for example ``["Table 1", "Table 11"]``."""

    @property
    def task(self) -> str:
        """The paper's experiment, for example ``"uci_nn_predictions"``."""

    @property
    def methods(self) -> Mapping[str, str]:
        """Benchmark entry to the paper's method, for example ``{"vifa-lr": "vifa_lr"}``."""

    @property
    def datasets(self) -> Mapping[str, str]:
        """Our data set to the paper's and its setting; empty where the names are the same."""

    @property
    def metrics(self) -> Mapping[str, str]:
        """Our metric to the paper's, ``{"joint_nll": "-test_ll"}`` if it has the opposite sign; empty for all metrics
        that have the same name."""

    @property
    def split(self) -> int | None:
        """The split whose values are printed, if it is one alone."""


class Note(Protocol):
    """A remark about the cells it names; None stands for any."""

    @property
    def dataset(self) -> str | None:
        """Dataset of the cells."""

    @property
    def entry(self) -> str | None:
        """Entry of the cells."""

    @property
    def metric(self) -> str | None:
        """Metric of the cells."""

    @property
    def statistic(self) -> str | None:
        """``"mean"`` or ``"median"``."""

    @property
    def text(self) -> str:
        """The remark."""

    @property
    def verdict(self) -> str | None:
        """``"print in error"`` if the printed numbers of the cells are known to be wrong."""


class Method(Protocol):
    """How an entry finds its estimate."""

    @property
    def name(self) -> str:
        """Identifier of the method, for example ``"online-em"``."""


class Entry(Protocol):
    """A row of the tables."""

    @property
    def method(self) -> Method:
        """Its method."""


class Point(Protocol):
    """One value for each axis of a sweep."""

    @property
    def texts(self) -> Mapping[str, str]:
        """Path of each axis to the canonical JSON of its value; empty without a sweep."""


class Benchmark(Protocol):
    """What was run, and what it is compared with."""

    @property
    def name(self) -> str:
        """Identifier of the benchmark."""

    @property
    def title(self) -> str:
        """Heading for people."""

    @property
    def datasets(self) -> Sequence[str]:
        """Datasets, in table order."""

    @property
    def splits(self) -> int:
        """Splits of each dataset."""

    @property
    def entries(self) -> Mapping[str, Entry]:
        """Entries by name, in table order."""

    @property
    def baseline(self) -> str | None:
        """Entry that the others are held against, split by split; None for none."""

    @property
    def pairs(self) -> Sequence[tuple[str, str]]:
        """The (dataset, entry) that were run, in table order."""

    @property
    def axes(self) -> Sequence[str]:
        """Paths of the axes of its sweep; empty without one."""

    @property
    def cells(self) -> Sequence[tuple[str, str, Point]]:
        """The (dataset, entry, point of the sweep) that were run, in table order."""

    @property
    def metrics(self) -> Sequence[str]:
        """Metrics, in table order."""

    @property
    def papers(self) -> Sequence[PaperTables]:
        """Printed tables, the preferred first."""

    @property
    def notes(self) -> Sequence[Note]:
        """Remarks about cells."""


class Gaussians(NamedTuple):
    """Moments of an approximation and of the truth, for one fit."""

    dataset: str
    entry: str
    mean: Array
    """(D,)."""
    covariance: Array
    """(D, D)."""
    true_mean: Array
    """(D,)."""
    true_covariance: Array
    """(d, d), of the first d parameters."""
    true_log_density: Callable[[Array], Array] | None = None
    """Log-density of parameters up to a constant, (m, D) -> (m,); None where the moments are all that is known."""


class Band(NamedTuple):
    """What an approximation says of a function of one input, for one fit; all in original units."""

    dataset: str
    entry: str
    x: Array
    """Inputs, ascending, (m,)."""
    mean: Array
    """Mean of the function there, (m,)."""
    sd: Array
    """Its standard deviation, without the noise of targets, (m,)."""
    inputs: Array
    """Of the training rows, (n,)."""
    targets: Array
    """Of the training rows, (n,)."""

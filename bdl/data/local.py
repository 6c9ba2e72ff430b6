"""A user's own data, in files of rows and columns or from OpenML, and settings to read them."""

import warnings
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from annotated_types import Ge, Gt, Len, Lt

from bdl.data.dataset import Dataset, Task
from bdl.data.files import data_directory
from bdl.errors import InputError

if TYPE_CHECKING:
    import pandas as pd


ClassName = str | int | float | bool
_COMPRESSED_ENDINGS = (".gz", ".bz2", ".xz", ".zst", ".zip")


_TEST_SHARE = 0.1
"""Share of the rows that test."""


@dataclass(frozen=True, kw_only=True)
class Table(ABC):
    """Rows and columns with names, one of which is the target; the others are inputs.

    Columns of text become one column of 0 and 1 a category, in alphabetical order; text that is a
    number, a date or a time is refused. Rows are counted from 1.

    Parameters
    ----------
    task
        ``regression`` or ``classification``; None for a classification if the target is text, else
        a regression. Classes are numbered in the order of an ordered dictionary of Parquet, of
        numbers, or of the alphabet; that of the alphabet is none for scores of ordered classes.
    classes
        All classes in their order, such as ``[low, medium, high]``; makes a classification.
    positive
        Class of two that precision, recall, F1 and AUROC are of; None for the second one.
    missing
        Treatment of rows with a gap or an infinite number: ``refuse`` names the first, ``drop``
        leaves them out.
    leave_out
        Columns that are no inputs.
    categories
        Columns that are categories, whatever their values look like: codes, years, text with
        numbers.
    split_column
        Column that says which rows test: ``train`` or ``test``, which is one split; or names of
        parts, each of which tests once. Like `group` and `time`, of which one at most is given, it
        is no input.
    group
        Column whose rows of one value stay together, in the folds of a search as well: split i
        draws at random which groups test.
    time
        Column by which rows are ordered, numbers or dates such as 2026-01-31: the last ones test,
        in the only split, and folds of a search are blocks of time, each of which validates once.
    test_share
        Share of the groups, or of the rows by time, that test.

    Notes
    -----
    Without `split_column`, `group` and `time`, split i takes 90 % of the rows at random to train
    on, as `bdl.data.splits.recipe_split` does. With `split_column` or `group`, rows are permuted by
    their contents, so that folds do not rest on their order in the file.
    """

    task: Task | None = None
    classes: tuple[ClassName, ...] = ()
    positive: ClassName | None = None
    missing: Literal["refuse", "drop"] = "refuse"
    leave_out: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    split_column: str | None = None
    group: str | None = None
    time: str | None = None
    test_share: Annotated[float, Gt(0), Lt(1)] = _TEST_SHARE
    version: ClassVar[int] = 1
    """Version of how a table is read; `bdl.versions` says when it goes up."""

    def __post_init__(self) -> None:
        splitters = [
            name for name in ("split_column", "group", "time") if getattr(self, name) is not None
        ]
        if len(splitters) > 1:
            raise InputError(f"{' and '.join(splitters)} are ways to split: keep one")
        if self.task == "regression" and (self.classes or self.positive is not None):
            raise InputError("classes and positive are of a classification: say no task, or that")

    @property
    @abstractmethod
    def display_name(self) -> str:
        """Name in tables and figures, unless a benchmark has a label for it."""

    @abstractmethod
    def read(self) -> "tuple[pd.DataFrame, str]":
        """Return the columns and the name of the target; errors as in `__call__`."""

    def __call__(self) -> Dataset:
        """Load it.

        `InputError` if it cannot be read, lacks a column, has gaps, texts among numbers or text
        that is a number, a date or a time, or cannot be split so.
        """
        # here, since it imports pandas, which a list of names can do without
        from bdl.data.tables import to_dataset

        # here, so that results of before can be read
        if self.test_share != _TEST_SHARE and self.group is None and self.time is None:
            raise InputError(
                f"{self.display_name}: test_share is of group and time, and others test a tenth: "
                "leave it out, or say one of these"
            )
        frame, target = self.read()
        return to_dataset(self, frame, target)


@dataclass(frozen=True, kw_only=True)
class _InFile(Table):
    """Rows and columns in a file.

    Parameters
    ----------
    path
        The file, relative to the working directory; it may be compressed by gzip, bzip2, xz, lzma,
        zstd, or zip with one file.
    target
        Name of the column that is predicted.
    """

    path: str
    target: str
    origin_phrase: ClassVar[str] = "your file"

    @property
    def display_name(self) -> str:
        path = Path(self.path)
        if path.suffix.lower() in _COMPRESSED_ENDINGS:
            path = path.with_suffix("")
        return path.stem


@dataclass(frozen=True, kw_only=True)
class Csv(_InFile):
    """A file of text with a line a row.

    Parameters
    ----------
    separator
        Character between values; None for that of comma, semicolon, tab and bar that the first
        line has most of.
    decimal
        Decimal point.
    thousands
        Character between groups of three digits: ``,`` in 1,234.5; None if there is none.
    gaps
        Texts that stand for a gap, as ``NA``; None for those of `pandas.read_csv`, of which words
        such as ``NA`` and ``None`` are refused among categories, as they may be one.
    encoding
        Encoding of the text, as Python names it: ``utf-8``, ``latin-1``, ``utf-16``.
    header
        Whether the first line has the names of the columns; without it they are called 0, 1, 2,
        ...
    """

    version: ClassVar[int] = 2

    separator: Annotated[str, Len(1, 1)] | None = None
    decimal: Literal[".", ","] = "."
    thousands: Literal[",", ".", "'", " "] | None = None
    gaps: tuple[str, ...] | None = None
    encoding: str = "utf-8"
    header: bool = True

    def read(self) -> "tuple[pd.DataFrame, str]":
        from bdl.data.table_files import read_csv

        return read_csv(self), self.target


@dataclass(frozen=True, kw_only=True)
class Parquet(_InFile):
    """A file in the Parquet format."""

    version: ClassVar[int] = 2

    def read(self) -> "tuple[pd.DataFrame, str]":
        from bdl.data.table_files import read_parquet

        return read_parquet(Path(self.path)), self.target


@dataclass(frozen=True, kw_only=True)
class OpenML(Table):
    """A data set of OpenML, which scikit-learn downloads once into the data directory.

    Parameters
    ----------
    id
        Number of the data set.
    target
        Name of the column that is predicted; None for the one that OpenML names.
    """

    id: Annotated[int, Ge(1)]
    target: str | None = None
    origin_phrase: ClassVar[str] = "from OpenML"

    @property
    def display_name(self) -> str:
        return f"openml_{self.id}"

    def read(self) -> "tuple[pd.DataFrame, str]":
        from sklearn.datasets import fetch_openml

        try:
            with warnings.catch_warnings():
                # one for each attempt without a network, which the error says once
                warnings.simplefilter("ignore", UserWarning)
                download = fetch_openml(
                    data_id=self.id,
                    as_frame=True,
                    parser="pandas",
                    data_home=str(data_directory() / "openml"),
                )
        except (OSError, ValueError) as error:  # those of HTTP among them
            raise InputError(
                f"cannot get data set {self.id} of OpenML ({str(error).splitlines()[0]})"
            ) from None
        targets = download.target_names
        if self.target is None and len(targets) != 1:
            raise InputError(
                f"data set {self.id} of OpenML has {len(targets)} targets: name one as target"
            )
        return download.frame, self.target or targets[0]

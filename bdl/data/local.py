"""Data of one's own, in files of rows and columns: CSV, Parquet, and the sets of OpenML by number."""

import warnings
from abc import abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

from annotated_types import Ge

from bdl.data.dataset import Dataset
from bdl.data.files import data_directory
from bdl.data.table_settings import CsvSettings, TableSettings
from bdl.errors import InputError

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, kw_only=True)
class Table(TableSettings):
    """Rows and columns that are read when the data set is loaded."""

    @abstractmethod
    def read(self) -> "tuple[pd.DataFrame, str]":
        """Read the columns, and name the target; errors as in `__call__`."""

    def __call__(self) -> Dataset:
        """Load it.

        Raises
        ------
        InputError
            If it cannot be read, lacks a column, has gaps, texts among numbers or text that is a number, a date or a
            time, or cannot be split so.
        """
        from bdl.data.tables import to_dataset  # imports pandas, which those who only list names can do without

        frame, target = self.read()
        return to_dataset(self, frame, target)


@dataclass(frozen=True, kw_only=True)
class Csv(CsvSettings, Table):
    """A file of text with a line a row."""

    comes: ClassVar[str] = "your file"

    def read(self) -> "tuple[pd.DataFrame, str]":
        """Read the columns, and name the target."""
        from bdl.data.table_files import read_csv

        return read_csv(self), self.target


@dataclass(frozen=True, kw_only=True)
class Parquet(Table):
    """A file in the Parquet format.

    Parameters
    ----------
    path
        The file, relative to the working directory.
    target
        Name of the column that is predicted.
    """

    path: str
    target: str
    comes: ClassVar[str] = "your file"

    @property
    def called(self) -> str:
        """The file's name without its ending."""
        return Path(self.path).stem

    def read(self) -> "tuple[pd.DataFrame, str]":
        """Read the columns, and name the target."""
        from bdl.data.table_files import read_parquet

        return read_parquet(Path(self.path)), self.target


@dataclass(frozen=True, kw_only=True)
class OpenML(Table):
    """A data set of OpenML by its number, which scikit-learn downloads once into the data directory.

    Parameters
    ----------
    id
        Number of the data set.
    target
        Name of the column that is predicted; None for the one that OpenML names.
    """

    id: Annotated[int, Ge(1)]
    target: str | None = None
    comes: ClassVar[str] = "from OpenML"

    @property
    def called(self) -> str:
        """``openml_`` and the number."""
        return f"openml_{self.id}"

    def read(self) -> "tuple[pd.DataFrame, str]":
        """Download or read the columns, and name the target."""
        from sklearn.datasets import fetch_openml

        try:
            with warnings.catch_warnings():  # one for each attempt without a network, which the error says once
                warnings.simplefilter("ignore", UserWarning)
                found = fetch_openml(
                    data_id=self.id, as_frame=True, parser="pandas", data_home=str(data_directory() / "openml")
                )
        except (OSError, ValueError) as error:  # those of HTTP among them
            raise InputError(f"cannot get data set {self.id} of OpenML ({str(error).splitlines()[0]})") from None
        if self.target is None and len(found.target_names) != 1:
            raise InputError(f"data set {self.id} of OpenML has {len(found.target_names)} targets: name one as target")
        return found.frame, self.target or found.target_names[0]

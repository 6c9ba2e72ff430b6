"""A data set in downloaded files: what all of them have in common."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from bdl.data.conversion import Inputs
from bdl.data.dataset import Dataset, Task
from bdl.data.files import RemoteFile
from bdl.data.splits import Split
from bdl.errors import InputError

Array = NDArray[np.float64]


@dataclass(frozen=True)
class FileSet(ABC):
    """What is known of a data set before its files are read; calling it loads the data set.

    Parameters
    ----------
    name
        Identifier, as in the registry.
    about
        One line for people: what the target is.
    n
        Number of rows.
    d
        Number of inputs.
    splits
        Number of published splits.
    """

    name: str
    about: str
    n: int
    d: int
    splits: int
    task: ClassVar[Task] = "classification"
    version: ClassVar[int] = 1
    """Version of how its files are read; `bdl.versions` says when it goes up."""

    @property
    @abstractmethod
    def files(self) -> Sequence[RemoteFile]:
        """All files, split files included."""

    @abstractmethod
    def table(self) -> tuple[Inputs, Array]:
        """Read inputs and targets: float64, or images of uint8, with n rows; and (n,)."""

    @abstractmethod
    def split(self, index: int) -> Split:
        """Return one published split."""

    def __call__(self) -> Dataset:
        """Load the data set; its splits are read when they are asked for.

        Raises
        ------
        InputError
            If a file cannot be had or is corrupt, or the content is not what is said here.
        """
        x, y = self.table()
        dataset = Dataset(self.name, x, y, self.task, splits=self.splits, published=self.split)
        self.expect("(rows, inputs)", (len(x), dataset.d), (self.n, self.d))
        return dataset

    def expect(self, what: str, found: object, expected: object) -> None:
        """Refuse content that is not what is said here."""
        if found != expected:
            raise InputError(
                f"dataset '{self.name}': files have {what} = {found}, expected {expected}; "
                f"bring {type(self).__module__} and the files into line"
            )

"""What a loaded data set is."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from bdl.data.splits import Split, recipe_split
from bdl.errors import InputError

Task = Literal["regression", "classification"]
Standardise = Literal["both", "inputs", "none"]


@dataclass(frozen=True, eq=False)
class Dataset:
    """Inputs and targets in original units, or class labels, and the way they are split.

    Parameters
    ----------
    name
        Identifier, as in the registry.
    x
        Inputs, float64, shape (n, d).
    y
        Targets, float64, shape (n,); for a classification the labels 0, ..., C - 1, each there at least once.
    task
        What is learnt: a number, or a class.
    splits
        Number of published splits; None if there are none, and then every index is a split.
    published
        Reads published split `i`; None if splits follow `recipe_split`.
    standardise
        What a trial scales by its training rows: inputs and targets, the inputs alone, or nothing. Labels are
        never scaled: for a classification "both" is the same as "inputs".

    Raises
    ------
    InputError
        If shapes, types or labels are not as said, or a value is not finite.
    """

    name: str
    x: NDArray[np.float64] = field(repr=False)
    y: NDArray[np.float64] = field(repr=False)
    task: Task = "regression"
    splits: int | None = None
    published: Callable[[int], Split] | None = field(default=None, repr=False)
    standardise: Standardise = "both"

    def __post_init__(self) -> None:
        if self.x.ndim != 2 or self.y.shape != self.x.shape[:1]:
            raise InputError(f"dataset '{self.name}': x is {self.x.shape} and y {self.y.shape}; give (n, d) and (n,)")
        if self.x.dtype != np.float64 or self.y.dtype != np.float64:
            raise InputError(
                f"dataset '{self.name}': x is {self.x.dtype} and y {self.y.dtype}; convert both to float64"
            )
        if not (np.isfinite(self.x).all() and np.isfinite(self.y).all()):
            raise InputError(f"dataset '{self.name}': x or y has NaN or infinite values; drop or fill those rows")
        if self.task == "classification":
            _check_labels(self.name, self.y)

    @property
    def classes(self) -> int:
        """Number of classes C; 0 for a regression."""
        return int(self.y.max()) + 1 if self.task == "classification" else 0

    @cached_property
    def checksum(self) -> str:
        """SHA-256 (hex) over the bytes of x, then y, as little-endian float64 in row order."""
        content = sha256()
        for values in (self.x, self.y):
            content.update(np.ascontiguousarray(values, dtype="<f8").data)
        return content.hexdigest()

    def split(self, index: int) -> Split:
        """Give the training and test rows of one split.

        Parameters
        ----------
        index
            Number of the split, from 0.

        Raises
        ------
        InputError
            If there is no such split, or its files cannot be had.
        """
        if index < 0 or (self.splits is not None and index >= self.splits):
            known = "from 0 up" if self.splits is None else f"0 to {self.splits - 1}"
            raise InputError(f"dataset '{self.name}' has no split {index}; choose {known}")
        return recipe_split(len(self.y), index) if self.published is None else self.published(index)


def _check_labels(name: str, y: NDArray[np.float64]) -> None:
    found = np.unique(y)
    if len(found) < 2:
        raise InputError(f"dataset '{name}': all labels are the same; a classification needs two classes or more")
    if not np.array_equal(found, np.arange(len(found))):
        shown = ", ".join(f"{label:g}" for label in found[:4]) + (", ..." if len(found) > 4 else "")
        raise InputError(
            f"dataset '{name}': labels are {shown}; they must be 0 to C - 1 with none left out: "
            "recode them with np.unique(y, return_inverse=True)[1].astype(float)"
        )

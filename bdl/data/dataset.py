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

Standardise = Literal["both", "inputs", "none"]


@dataclass(frozen=True, eq=False)
class Dataset:
    """Inputs and targets in original units, and the way they are split.

    Parameters
    ----------
    name
        Identifier, as in the registry.
    x
        Inputs, float64, shape (n, d).
    y
        Targets, float64, shape (n,).
    task
        What is learnt.
    splits
        Number of published splits; None if there are none, and then every index is a split.
    published
        Reads published split `i`; None if splits follow `recipe_split`.
    standardise
        What a trial scales by its training rows: inputs and targets, the inputs alone, or nothing.

    Raises
    ------
    InputError
        If shapes or types are not as said, or a value is not finite.
    """

    name: str
    x: NDArray[np.float64] = field(repr=False)
    y: NDArray[np.float64] = field(repr=False)
    task: Literal["regression"] = "regression"
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

    @cached_property
    def checksum(self) -> str:
        """SHA-256 (hex) over the bytes of x, then y, as little-endian float64 in row order."""
        content = sha256()
        for values in (self.x, self.y):
            content.update(values.astype("<f8").tobytes(order="C"))
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

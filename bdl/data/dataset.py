"""A loaded data set: inputs, targets, and the way they are split."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from math import prod
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from bdl.data.conversion import Inputs, as_inputs, as_targets, column_names
from bdl.data.splits import Rows, Split, folds, group_folds, recipe_split
from bdl.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

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
        Inputs, shape (n, d), numbers of any type in an array, a frame or lists, kept as float64;
        or images of grey values or colours, uint8, shape (n, H, W) or (n, C, H, W). Bytes of shape
        (n, d) are numbers of a table.
    y
        Targets, shape (n,), kept as float64; for a classification the labels 0, ..., C - 1, each
        there at least once.
    task
        Whether a number or a class is learnt.
    splits
        Number of published splits; None if there are none, and then every index is a split.
    published
        Reads published split `i`; None if splits follow `recipe_split`. Folds of a search are cut
        from the training rows in the order in which it gives them, which should be random, or that
        of time.
    gap
        Reads published gap split `i`, 0 to d - 1, whose test rows have values of input i between
        those that train; None if there are none.
    standardise
        Scaled by the training rows of a trial: inputs and targets, the inputs alone, or nothing.
        Labels are never scaled: for a classification "both" is the same as "inputs". Images are
        divided by 255 where inputs are scaled, and by nothing fitted to the rows.
    augment
        Changes training inputs at random: (M, d) as the model sees them and standard normals (M,
        k) to (M, d); None leaves them.
    augment_noise
        Standard normals that `augment` takes for a row, k.
    split_key
        Bytes that decide the splits, besides the number of rows, the groups and the code; part of
        the checksum.
    origin
        Digest of what `x` was computed from, if rounding makes it differ between processors; the
        checksum has it in place of `x`.
    simulated
        Whether the rows are drawn from a known law. Name, settings and version then say which they
        are, since sums round differently on other processors.
    generating
        Of simulated rows, the parameters of a model that the targets of each split were drawn
        with, (splits, D); None where there are none.
    columns
        Names of the d inputs, by which frames are matched at a prediction; those of `x` if it is a
        frame, and none if they have no names.
    read_as
        How each column was read, for people: ``"colour: 3 categories"``; empty if there was
        nothing to decide.
    groups
        Number of the group of each row, whole numbers of shape (n,), whose rows the folds of a
        search keep together; None for folds of single rows. Whether splits keep them together,
        `published` decides.
    ordered
        Whether the labels are in an order that means something, such as grades, which scores of
        ordered classes need.

    Raises
    ------
    InputError
        If shapes, types or labels are not as said, a value is not finite or masked, or there is no
        row or column.
    """

    name: str
    x: Inputs = field(repr=False)
    y: NDArray[np.float64] = field(repr=False)
    task: Task = "regression"
    splits: int | None = None
    published: Callable[[int], Split] | None = field(default=None, repr=False)
    gap: Callable[[int], Split] | None = field(default=None, repr=False)
    standardise: Standardise = "both"
    augment: "Callable[[Tensor, Tensor], Tensor] | None" = field(default=None, repr=False)
    augment_noise: int = 0
    split_key: bytes = field(default=b"", repr=False)
    origin: str = ""
    simulated: bool = False
    generating: NDArray[np.float64] | None = field(default=None, repr=False)
    columns: tuple[str, ...] = field(default=(), repr=False)
    read_as: tuple[str, ...] = field(default=(), repr=False)
    groups: NDArray[np.int64] | None = field(default=None, repr=False)
    ordered: bool = False

    def __post_init__(self) -> None:
        # the class is frozen; names first, since the conversion of x to an array loses them
        object.__setattr__(self, "columns", tuple(self.columns) or column_names(self.x))
        object.__setattr__(self, "x", as_inputs(self.x, f"dataset '{self.name}': x"))
        object.__setattr__(self, "y", as_targets(self.y, f"dataset '{self.name}': y"))
        if len(self.y) != len(self.x):
            raise InputError(
                f"dataset '{self.name}': x has {len(self.x)} rows and y {len(self.y)}: "
                "give one target a row"
            )
        if self.augment_noise < 0 or (self.augment_noise and self.augment is None):
            raise InputError(
                f"dataset '{self.name}': augment_noise is {self.augment_noise}; give the number "
                "of normals that augment takes for a row, and 0 without augment"
            )
        if self.groups is not None:
            object.__setattr__(self, "groups", _as_groups(self.name, self.groups, len(self.y)))
        if self.task == "classification":
            _check_labels(self.name, self.y)

    @property
    def d(self) -> int:
        """Number of inputs of a row."""
        return prod(self.x.shape[1:])

    @property
    def images(self) -> bool:
        """Whether the inputs are images of uint8."""
        return self.x.dtype == np.uint8

    @property
    def x_unit(self) -> float:
        """Number that inputs are divided by before a model sees them, 1 if they are no images."""
        return 255.0 if self.images and self.standardise != "none" else 1.0

    @property
    def classes(self) -> int:
        """Number of classes C; 0 for a regression."""
        return int(self.y.max()) + 1 if self.task == "classification" else 0

    @cached_property
    def checksum(self) -> str:
        """SHA-256 (hex) over the bytes of x, y, `split_key` and the groups, if there are any.

        Rows are in order, numbers little-endian float64, groups int64, and images uint8. `origin` stands for x
        if there is one.
        """
        content = sha256()
        x = np.ascontiguousarray(self.x, dtype="u1" if self.images else "<f8").data
        content.update(self.origin.encode() or x)
        content.update(np.ascontiguousarray(self.y, dtype="<f8").data)
        content.update(self.split_key)
        if self.groups is not None:
            content.update(np.ascontiguousarray(self.groups, dtype="<i8").data)
        return content.hexdigest()

    def split(self, index: int) -> Split:
        """Return the training and test rows of a split, counted from 0.

        `InputError` if there is no such split.
        """
        if index < 0 or (self.splits is not None and index >= self.splits):
            choices = "from 0 up"
            if self.splits is not None:
                setting = f"preparation: {{splits: {{{self.name}: {self.splits}}}}}"
                choices = f"0 to {self.splits - 1}, or give the benchmark {setting}"
            raise InputError(f"dataset '{self.name}' has no split {index}; choose {choices}")
        if self.published is None:
            return recipe_split(len(self.y), index)
        return self.published(index)

    def folds(self, rows: Rows, k: int) -> list[tuple[Rows, Rows]]:
        """Return the training and the validation rows of `k` folds of some rows, in their order.

        Groups stay whole. `k` is at least 2 and at most the result of `count_fold_units`.
        """
        if self.groups is None:
            positions = folds(len(rows), k)
        else:
            positions = group_folds(self.groups[rows], k)
        return [(rows[training], rows[validation]) for training, validation in positions]

    def count_fold_units(self, rows: Rows) -> int:
        """Count the rows, or the groups where there are any, that folds of some rows divide."""
        return len(rows if self.groups is None else np.unique(self.groups[rows]))


def _as_groups(name: str, groups: object, n: int) -> Rows:
    numbers = np.asarray(groups)
    if numbers.shape != (n,) or not np.issubdtype(numbers.dtype, np.integer):
        raise InputError(
            f"dataset '{name}': groups must be a whole number for each of the {n} rows: "
            "number them with np.unique(groups, return_inverse=True)[1]"
        )
    return numbers.astype(np.int64)


def _check_labels(name: str, y: NDArray[np.float64]) -> None:
    labels = np.unique(y)
    if len(labels) < 2:
        raise InputError(
            f"dataset '{name}': all labels are the same; "
            "a classification needs two classes or more"
        )
    if not np.array_equal(labels, np.arange(len(labels))):
        listed_labels = [f"{label:g}" for label in labels[:4]]
        if len(labels) > 4:
            listed_labels.append("...")
        raise InputError(
            f"dataset '{name}': labels are {', '.join(listed_labels)}; "
            "they must be 0 to C - 1 with none left out: "
            "recode them with np.unique(y, return_inverse=True)[1].astype(float)"
        )

"""How an experiment splits and standardises a data set, where that differs from the set's own way."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Literal

import numpy as np

from bdl.data.dataset import Dataset, Standardise
from bdl.data.splits import Split, tail_split
from bdl.errors import InputError

SplitScheme = Literal["published", "first", "other-first", "half", "other-half", "gap", "tail"]


def prepare(dataset: Dataset, split: SplitScheme, standardise: Standardise, rows: int | None = None) -> Dataset:
    """Return a data set the splits and the standardisation of an experiment.

    Parameters
    ----------
    dataset
        As loaded.
    split
        ``"published"`` keeps the set's own splits. ``"gap"`` are its published gap splits, one for each input, and
        ``"tail"`` those of `bdl.data.splits.tail_split`. The others make every split the same, so that split numbers
        are replicates. ``"first"`` is the first of the set's own splits, and under ``"other-first"`` the rows that it
        tests train and the others are left out. ``"half"`` is half of the rows: permuted by the legacy generator
        seeded with 1, the second half trains and the first, on which the settings were tuned by hand, is left out
        (Brownlie 2022, section 5.2.2); it trains under ``"other-half"``.
    standardise
        What is scaled to mean 0 and standard deviation 1 on the training rows.
    rows
        Training rows that are kept, the first so many in the order of the split; None keeps all.

    Raises
    ------
    InputError
        If the data set has no gap splits, or is of images and so has no tails; from the `split` of the result, if the
        split has fewer training rows.
    """
    # each split's own parameters, which mean something for its rows as they are
    own = split == "published" and standardise == "none"
    changed = replace(dataset, standardise=standardise, generating=dataset.generating if own else None)
    if split in ("gap", "tail"):
        changed = replace(changed, splits=dataset.d, published=_along_inputs(dataset, split))
    elif split != "published":
        changed = replace(changed, splits=None, published=partial(_same, _constant(dataset, split)))
    return changed if rows is None else replace(changed, published=partial(_shortened, changed, rows))


def _along_inputs(dataset: Dataset, split: SplitScheme) -> Callable[[int], Split]:
    """Return what makes the splits that follow one input each."""
    if split == "gap" and dataset.gap is not None:
        return dataset.gap
    if split == "tail" and not dataset.images:
        return partial(tail_split, dataset.x)
    have = "the UCI regressions" if split == "gap" else "tables"
    raise InputError(
        f"preparation.split: dataset '{dataset.name}' has no {split} splits, which {have} have; choose published"
    )


def _constant(dataset: Dataset, split: SplitScheme) -> Split:
    """Return the split of which all splits are replicates."""
    if split in ("first", "other-first"):
        first = dataset.split(0)
        return first if split == "first" else Split(first.test, first.test[:0])
    n = len(dataset.y)
    order = np.random.RandomState(1).permutation(n).astype(np.int64)
    return Split(order[n // 2 :] if split == "half" else order[: n // 2], order[:0])


def _same(split: Split, index: int) -> Split:
    return split


def _shortened(dataset: Dataset, rows: int, index: int) -> Split:
    split = dataset.split(index)
    train = split.train
    if rows > len(train):
        raise InputError(
            f"preparation.rows: split {index} of dataset '{dataset.name}' has {len(train)} training rows, so {rows} "
            f"cannot be kept; choose at most {len(train)}"
        )
    return split._replace(train=train[:rows])

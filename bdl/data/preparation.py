"""How an experiment splits and standardises a data set, where that differs from the set's own way."""

from dataclasses import replace
from typing import Literal

import numpy as np

from bdl.data.dataset import Dataset, Standardise
from bdl.data.splits import Split

SplitScheme = Literal["published", "half"]


def prepare(dataset: Dataset, split: SplitScheme, standardise: Standardise) -> Dataset:
    """Give a data set the splits and the standardisation of an experiment.

    Parameters
    ----------
    dataset
        As loaded.
    split
        ``"published"`` keeps the set's own splits. ``"half"`` makes every split the same half: rows permuted by
        the legacy generator seeded with 1, the second half trains and the first, on which the settings were tuned
        by hand, is left out (Brownlie 2022, section 5.2.2). Split numbers then are replicates.
    standardise
        What is scaled to mean 0 and standard deviation 1 on the training rows.
    """
    changed = replace(dataset, standardise=standardise)
    if split == "published":
        return changed
    order = np.random.RandomState(1).permutation(len(dataset.y)).astype(np.int64)
    half = Split(order[len(order) // 2 :], order[:0])
    return replace(changed, splits=None, published=lambda index: half)

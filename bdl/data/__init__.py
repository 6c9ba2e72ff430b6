"""Data sets with checksums, published splits, and scaling fitted on training rows only."""

from bdl.data.catalogue import DATASETS, FetchCount, fetch, load, status
from bdl.data.dataset import Dataset
from bdl.data.files import RemoteFile, State
from bdl.data.scaling import Scaling
from bdl.data.splits import Split, folds, recipe_split

__all__ = [
    "DATASETS",
    "Dataset",
    "FetchCount",
    "RemoteFile",
    "Scaling",
    "Split",
    "State",
    "fetch",
    "folds",
    "load",
    "recipe_split",
    "status",
]

"""Data sets with checksums, published splits, and scaling fitted on training rows only."""

from bdl.data.catalogue import DATASETS, FetchCount, fetch, load, status
from bdl.data.dataset import Dataset, Standardise
from bdl.data.files import RemoteFile, State
from bdl.data.preparation import SplitScheme, prepare
from bdl.data.scaling import Scaling
from bdl.data.splits import Split, folds, recipe_split

__all__ = [
    "DATASETS",
    "Dataset",
    "FetchCount",
    "RemoteFile",
    "Scaling",
    "Split",
    "SplitScheme",
    "Standardise",
    "State",
    "fetch",
    "folds",
    "load",
    "prepare",
    "recipe_split",
    "status",
]

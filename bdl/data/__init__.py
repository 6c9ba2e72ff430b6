"""Data sets with checksums, published splits, and scaling fitted on training rows only."""

from bdl.data.catalogue import (
    DATASETS,
    SplitScheme,
    about,
    fetch,
    load,
    load_stream,
    prepare,
    status,
)
from bdl.data.dataset import Dataset, Standardise, Task
from bdl.data.files import RemoteFile
from bdl.data.splits import Scaling, Split, folds, half_split, leading_split, recipe_split
from bdl.data.streams import Stream, draw

__all__ = [
    "DATASETS",
    "Dataset",
    "RemoteFile",
    "Scaling",
    "Split",
    "SplitScheme",
    "Standardise",
    "Stream",
    "Task",
    "about",
    "draw",
    "fetch",
    "folds",
    "half_split",
    "leading_split",
    "load",
    "load_stream",
    "prepare",
    "recipe_split",
    "status",
]

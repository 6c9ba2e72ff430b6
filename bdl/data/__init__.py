"""Data sets with checksums, published splits, and scaling fitted on training rows only."""

from bdl.data.catalogue import (
    DATASETS,
    SplitScheme,
    describe_dataset,
    fetch_dataset,
    file_states,
    load_dataset,
    load_stream,
    prepare_dataset,
)
from bdl.data.dataset import Dataset, Standardise, Task
from bdl.data.files import RemoteFile
from bdl.data.splits import Scaling, Split, folds, half_split, leading_split, recipe_split
from bdl.data.streams import Stream, draw_blocks

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
    "describe_dataset",
    "draw_blocks",
    "fetch_dataset",
    "file_states",
    "folds",
    "half_split",
    "leading_split",
    "load_dataset",
    "load_stream",
    "prepare_dataset",
    "recipe_split",
]

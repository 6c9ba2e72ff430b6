"""Data sets by name.

Load one, prepare it for an experiment, download its files, or list the states of its files.
"""

import traceback
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from inspect import getdoc
from typing import Any, Literal

import numpy as np

from bdl.data.dataset import Dataset, Standardise
from bdl.data.files import FileSet, FileState, RemoteFile
from bdl.data.splits import Split, tail_split
from bdl.data.streams import Stream
from bdl.errors import InputError, with_plural
from bdl.registry import Label, Registry

DATASETS = Registry(
    "dataset",
    {
        "boston": "bdl.data.uci:boston",
        "concrete": "bdl.data.uci:concrete",
        "energy": "bdl.data.uci:energy",
        "kin8nm": "bdl.data.uci:kin8nm",
        "naval": "bdl.data.uci:naval",
        "power": "bdl.data.uci:power",
        "protein": "bdl.data.uci:protein",
        "wine": "bdl.data.uci:wine",
        "yacht": "bdl.data.uci:yacht",
        "diabetes": "bdl.data.uci:diabetes",
        "synthetic": "bdl.data.simulations:synthetic",
        "australian": "bdl.data.uci:australian",
        "breast_cancer": "bdl.data.uci:breast_cancer",
        "a1a": "bdl.data.uci:a1a",
        "usps_3v5": "bdl.data.images:usps_3v5",
        "usps_3v5_smoothed": "bdl.data.images:usps_3v5_smoothed",
        "mnist": "bdl.data.images:mnist",
        "mnist_validated": "bdl.data.images:mnist_validated",
        "retinamnist": "bdl.data.fundus:RetinaMnist",
        "aptos2019": "bdl.data.fundus:Aptos2019",
        "synthetic_logistic": "bdl.data.simulations:synthetic_logistic",
        "cubic": "bdl.data.simulations:Cubic",
        "sparse_linear": "bdl.data.teachers:SparseLinear",
        "sparse_network": "bdl.data.teachers:SparseNetwork",
        "teacher_unit": "bdl.data.simulations:UnitTeacher",
        "teacher_network": "bdl.data.simulations:NetworkTeacher",
        "waves": "bdl.data.simulations:Waves",
        "overlapping_classes": "bdl.data.simulations:OverlappingClasses",
        "prior_draws": "bdl.data.teachers:PriorDraws",
        "gap_curve": "bdl.data.simulations:gap_curve",
        "two_moons": "bdl.data.simulations:two_moons",
        "fa": "bdl.data.streams:Stream",
        "csv": "bdl.data.local:Csv",
        "parquet": "bdl.data.local:Parquet",
        "openml": "bdl.data.local:OpenML",
    },
)
"""A registered component is called without arguments and returns a `Dataset` or a `Stream`. It may
be a frozen dataclass, whose fields are then the settings that a benchmark file gives, and
whose instance is called.

If it needs downloaded files it lists them in an attribute ``files`` (a sequence of `RemoteFile`),
as a `FileSet` does, and those that gap splits need as well in ``gap_files``.
"""


def load_dataset(name: str) -> Dataset:
    """Load a table by name, and download its files that are missing.

    The name is one in `DATASETS`, ``module:attribute``, ``path/to/file.py:attribute``, or a
    `Label`. All files are verified. `InputError` if the name is unknown or that of a stream,
    settings are missing, a file cannot be had, a cached file is corrupt, or the function that
    makes the data set fails or returns something else.
    """
    dataset = _call_component(name)
    if isinstance(dataset, Stream):
        raise InputError(
            f"dataset '{name}' is a stream of parameter vectors: use a method that learns from one"
        )
    return dataset


def load_stream(name: str) -> Stream:
    """Return a stream of parameter vectors.

    `InputError` if the name is unknown, or not that of a stream.
    """
    stream = _call_component(name)
    if not isinstance(stream, Stream):
        raise InputError(
            f"dataset '{name}' is a table: methods that learn from a stream need a stream, "
            "such as {name: fa, dim: 100, top: 10}"
        )
    return stream


def describe_dataset(name: str) -> list[str]:
    """Describe a data set without reading its files: its target, and its size if known."""
    component = _find_component(name)
    if isinstance(component, Stream):
        return [component.description]
    if not isinstance(component, FileSet):
        first_paragraph = (getdoc(component) or "no description").split("\n\n")[0]
        return [" ".join(first_paragraph.split())]
    splits = with_plural(component.splits, "published split")
    return [component.description, f"{component.n} rows, {component.d} inputs, {splits}"]


def file_states(name: str, *, gaps: bool = True) -> list[tuple[str, FileState]]:
    """Return path and state of every file of a data set, split files included.

    Files of gap splits are included if `gaps`.
    """
    return [(file.path, file.state()) for file in _list_files(name, gaps)]


def fetch_dataset(name: str) -> tuple[int, int]:
    """Download the files of a data set that are missing or corrupt, split files included.

    Return how many were already right, and how many were downloaded. `InputError` if the name is
    unknown or a file cannot be had; files downloaded before that stay.
    """
    files = _list_files(name)
    stale_files = [file for file in files if file.state() != "ok"]
    for file in stale_files:
        file.download()
    return len(files) - len(stale_files), len(stale_files)


def _list_files(name: str, gaps: bool = True) -> list[RemoteFile]:
    component = _find_component(name)
    files = getattr(component, "files", ())
    if isinstance(files, property):  # of a class: only an instance, with its settings, has files
        return []
    return [*files, *(getattr(component, "gap_files", ()) if gaps else ())]


def _find_component(name: str) -> Any:
    """Return the component that loads a data set.

    That is an instance for a `Label`, which has the settings, and the registered function or class
    for a name alone.
    """
    if isinstance(name, Label):
        return DATASETS.build(name.name, name.settings)
    return DATASETS.get(name)


def _call_component(name: str) -> Dataset | Stream:
    """Build the component of a data set and call it; it may be a user's function that fails."""
    if isinstance(name, Label):
        component = DATASETS.build(name.name, name.settings)
    else:
        component = DATASETS.build(name, {})
    try:
        dataset = component()
    except (InputError, OSError):
        raise
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise InputError(
            f"dataset '{name}' failed with {reason} ({frame.filename}, line {frame.lineno})"
        ) from error
    if not isinstance(dataset, Dataset | Stream):
        raise InputError(
            f"dataset '{name}' gave {type(dataset).__name__}; return a bdl.data.Dataset"
        )
    return dataset


SplitScheme = Literal["published", "first", "other-first", "half", "other-half", "gap", "tail"]


def prepare_dataset(
    dataset: Dataset, split: SplitScheme, standardise: Standardise, rows: int | None = None
) -> Dataset:
    """Return a data set with the splits and the standardisation of an experiment.

    ``"published"`` keeps the set's own splits. ``"gap"`` has its published gap splits, one for
    each input, and ``"tail"`` those of `bdl.data.splits.tail_split`. The other schemes make every
    split the same, so that split numbers are replicates. ``"first"`` is the first of the set's own
    splits, and under ``"other-first"`` the rows that it tests train and all others are left out.
    ``"half"`` is half of the rows: permuted by the legacy generator seeded with 1, the second half
    trains and the first, on which the settings were tuned by hand, is left out (Brownlie 2022,
    section 5.2.2); it trains under ``"other-half"``.

    Of the training rows the first `rows` in the order of the split are kept; None keeps all.
    `InputError` if the data set has no gap splits, or is of images and so has no tails, or the
    scheme would cut its groups or ignore its times or parts; from the `split` of the result, if it
    has fewer training rows.
    """
    # rows of both parts of "first" are those that the set's own rule puts there
    keeps_rule = split in ("published", "first", "other-first")
    if not keeps_rule and dataset.groups is not None:
        raise InputError(
            f"split: {split} does not keep the groups of '{dataset.name}' together: leave one out"
        )
    if not keeps_rule and dataset.split_key:
        raise InputError(
            f"split: {split} does not heed what '{dataset.name}' says of the rows that test (time "
            "or split_column): leave one out"
        )
    # the parameters that generated a split describe its rows only as they are
    keeps_generating = split == "published" and standardise == "none"
    prepared = replace(
        dataset,
        standardise=standardise,
        generating=dataset.generating if keeps_generating else None,
    )
    if split in ("gap", "tail"):
        prepared = replace(prepared, splits=dataset.d, published=_splits_by_input(dataset, split))
    elif split != "published":
        replicate = partial(_ignore_index, _replicated_split(dataset, split))
        prepared = replace(prepared, splits=None, published=replicate)
    if rows is None:
        return prepared
    return replace(prepared, published=partial(_shorten_split, prepared, rows))


def _splits_by_input(dataset: Dataset, split: SplitScheme) -> Callable[[int], Split]:
    """Return the function from the index of an input to the split that follows this input."""
    if split == "gap" and dataset.gap is not None:
        return dataset.gap
    if split == "tail" and not dataset.images:
        return partial(tail_split, dataset.x)
    owners = "the UCI regressions" if split == "gap" else "tables"
    raise InputError(
        f"preparation.split: dataset '{dataset.name}' has no {split} splits, "
        f"which {owners} have; choose published"
    )


def _replicated_split(dataset: Dataset, split: SplitScheme) -> Split:
    """Return the split of which all splits are replicates."""
    if split in ("first", "other-first"):
        first = dataset.split(0)
        return first if split == "first" else Split(first.test, first.test[:0])
    n = len(dataset.y)
    order = np.random.RandomState(1).permutation(n).astype(np.int64)
    return Split(order[n // 2 :] if split == "half" else order[: n // 2], order[:0])


def _ignore_index(split: Split, index: int) -> Split:
    return split


def _shorten_split(dataset: Dataset, rows: int, index: int) -> Split:
    split = dataset.split(index)
    train = split.train
    if rows > len(train):
        raise InputError(
            f"preparation.rows: split {index} of dataset '{dataset.name}' has {len(train)} "
            f"training rows, so {rows} cannot be kept; choose at most {len(train)}"
        )
    return split._replace(train=train[:rows])

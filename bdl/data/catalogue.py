"""The data sets by name: load one, prepare it for an experiment, download its files, tell the state of its files."""

import traceback
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from inspect import getdoc
from typing import Any, Literal

import numpy as np

from bdl.data.dataset import Dataset, Standardise
from bdl.data.files import FileSet, RemoteFile, State
from bdl.data.splits import Split, tail_split
from bdl.data.streams import Stream
from bdl.errors import InputError
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
"""A registered component is called without arguments and gives a `Dataset`, or a `Stream`. It may
be a frozen dataclass, whose fields are then the settings that a benchmark file gives, and
whose instance is called.

If it needs downloaded files it lists them in an attribute ``files`` (a sequence of `RemoteFile`),
as a `FileSet` does, and those that gap splits need as well in ``gap_files``.
"""


def load(name: str) -> Dataset:
    """Load a table by its name in `DATASETS`, ``module:attribute`` or ``path/to/file.py:attribute``, or a `Label`.

    Files that are missing are downloaded, and all are verified. `InputError` if the name is
    unknown or that of a stream, settings are missing, a file cannot be had, a cached file is
    corrupt, or the function that makes it fails or gives something else.
    """
    found = _called(name)
    if isinstance(found, Stream):
        raise InputError(
            f"dataset '{name}' is a stream of parameter vectors: use a method that learns from one"
        )
    return found


def load_stream(name: str) -> Stream:
    """Return a stream of parameter vectors.

    `InputError` if the name is unknown, or not that of a stream.
    """
    found = _called(name)
    if not isinstance(found, Stream):
        raise InputError(
            f"dataset '{name}' is a table: methods that learn from a stream need a stream, such as "
            "{name: fa, dim: 100, top: 10}"
        )
    return found


def about(name: str) -> list[str]:
    """Describe a data set, without reading its files: its target, then its size if that is known."""
    dataset = _described(name)
    if isinstance(dataset, Stream):
        return [dataset.about]
    if not isinstance(dataset, FileSet):
        return [" ".join((getdoc(dataset) or "no description").split("\n\n")[0].split())]
    splits = f"{dataset.splits} published split{'s' if dataset.splits > 1 else ''}"
    return [dataset.about, f"{dataset.n} rows, {dataset.d} inputs, {splits}"]


def status(name: str, *, gaps: bool = True) -> list[tuple[str, State]]:
    """Return path and state of every file of a data set, split files included.

    Those of gap splits if `gaps`.
    """
    return [(file.path, file.state()) for file in _files(name, gaps)]


def fetch(name: str) -> tuple[int, int]:
    """Download the files of a data set that are missing or corrupt, split files included.

    Return how many were already right, and how many were downloaded. `InputError` if the name is
    unknown or a file cannot be had; files downloaded before that stay.
    """
    files = _files(name)
    wanted = [file for file in files if file.state() != "ok"]
    for file in wanted:
        file.download()
    return len(files) - len(wanted), len(wanted)


def _files(name: str, gaps: bool = True) -> list[RemoteFile]:
    component = _described(name)
    files = getattr(component, "files", ())
    if isinstance(files, property):  # without settings, a class may not know them
        return []
    return [*files, *(getattr(component, "gap_files", ()) if gaps else ())]


def _described(name: str) -> Any:
    """Return what loads a data set, or its class, where settings that it may need are not given."""
    return (
        DATASETS.build(name.name, name.settings) if isinstance(name, Label) else DATASETS.get(name)
    )


def _called(name: str) -> Dataset | Stream:
    """Call what makes a data set, which may be a user's function with faults of its own."""
    component = DATASETS.build(
        *((name.name, name.settings) if isinstance(name, Label) else (name, {}))
    )
    try:
        found = component()
    except (InputError, OSError):
        raise
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        what = " ".join(f"{type(error).__name__}: {error}".split())
        raise InputError(
            f"dataset '{name}' failed with {what} ({where.filename}, line {where.lineno})"
        ) from error
    if not isinstance(found, Dataset | Stream):
        raise InputError(
            f"dataset '{name}' gave {type(found).__name__}; return a bdl.data.Dataset"
        )
    return found


SplitScheme = Literal["published", "first", "other-first", "half", "other-half", "gap", "tail"]


def prepare(
    dataset: Dataset, split: SplitScheme, standardise: Standardise, rows: int | None = None
) -> Dataset:
    """Return a data set with the splits and the standardisation of an experiment.

    ``"published"`` keeps the set's own splits. ``"gap"`` are its published gap splits, one for
    each input, and ``"tail"`` those of `bdl.data.splits.tail_split`. The others make every split
    the same, so that split numbers are replicates. ``"first"`` is the first of the set's own
    splits, and under ``"other-first"`` the rows that it tests train and the others are left out.
    ``"half"`` is half of the rows: permuted by the legacy generator seeded with 1, the second half
    trains and the first, on which the settings were tuned by hand, is left out (Brownlie 2022,
    section 5.2.2); it trains under ``"other-half"``.

    Of the training rows the first `rows` in the order of the split are kept; None keeps all.
    `InputError` if the data set has no gap splits, or is of images and so has no tails; from the
    `split` of the result, if it has fewer training rows.
    """
    # each split's own parameters, which mean something for its rows as they are
    own = split == "published" and standardise == "none"
    changed = replace(
        dataset, standardise=standardise, generating=dataset.generating if own else None
    )
    if split in ("gap", "tail"):
        changed = replace(changed, splits=dataset.d, published=_along_inputs(dataset, split))
    elif split != "published":
        changed = replace(
            changed, splits=None, published=partial(_same, _constant(dataset, split))
        )
    return (
        changed if rows is None else replace(changed, published=partial(_shortened, changed, rows))
    )


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

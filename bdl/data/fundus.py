"""Fundus photographs graded for diabetic retinopathy: APTOS 2019 and RetinaMNIST."""

import io
import os
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import numpy as np
from annotated_types import Ge

from bdl.data.conversion import Inputs
from bdl.data.dataset import Dataset
from bdl.data.files import RemoteFile, data_directory
from bdl.data.images import Network, compute_features, decode_pictures, number_distinct_pictures
from bdl.data.splits import Split, three_way_split
from bdl.errors import InputError
from bdl.types import Array

_SUFFIXES = {".png", ".jpg", ".jpeg"}
_APTOS = "aptos2019"
_GRADES = 5


def read_graded_pictures(folder: Path) -> tuple[list[Path], Array]:
    """Return the pictures of a folder in Kaggle's layout, and their grades, (n,).

    Both are in the order of the folder's table. `InputError` if the layout is another, an
    identifier comes twice, a grade is out of range, or pictures and table do not belong together;
    with the count and the first example.
    """
    import pandas as pd

    table, picture_folder = folder / "train.csv", folder / "train_images"
    if not table.is_file() or not picture_folder.is_dir():
        raise InputError(
            f"dataset '{_APTOS}': {folder} has another layout; "
            "it should have train.csv (id_code,diagnosis) and train_images/"
        )
    # as text: identifiers of digits keep their zeros, and one such as "NA" is a name; a mark of
    # the byte order, which some programs write first, is no letter of the first column
    rows = pd.read_csv(table, dtype=str, keep_default_na=False, encoding="utf-8-sig")
    if not {"id_code", "diagnosis"} <= set(rows.columns) or not len(rows):
        raise InputError(
            f"dataset '{_APTOS}': {table} has no rows of id_code,diagnosis: use Kaggle's"
        )
    keys, grades = rows["id_code"], rows["diagnosis"]
    pictures = [file for file in picture_folder.iterdir() if file.suffix.lower() in _SUFFIXES]
    files = {file.stem: file for file in pictures}
    n = len(keys)
    _refuse_if_any("identifiers", keys[keys.duplicated()], n, f"come twice in {table}")
    out_of_range = ~grades.isin([str(grade) for grade in range(_GRADES)])
    bad_labels = grades[out_of_range] + " of " + keys[out_of_range]
    _refuse_if_any("labels", bad_labels, n, f"are not 0 to {_GRADES - 1}")
    without_image = keys[~keys.isin(files.keys())]
    _refuse_if_any("identifiers", without_image, n, f"have no image in {picture_folder}")
    _refuse_if_any("images", sorted({*files} - {*keys}), len(files), f"are not in {table}")
    return [files[key] for key in keys], grades.to_numpy(np.float64)


def _refuse_if_any(kind: str, offenders: Iterable[str], total: int, reason: str) -> None:
    names = list(offenders)
    if names:
        raise InputError(
            f"dataset '{_APTOS}': {len(names)} of {total} {kind} {reason}, "
            f"the first is {names[0]}; mend the folder or the table"
        )


FOLDER = "BDL_APTOS_DIR"
"""Environment variable that names the folder of the download."""


@dataclass(frozen=True)
class Aptos2019:
    """Whether a photograph shows retinopathy to be referred (grade 2 to 4).

    3662 images that you download from Kaggle.

    The folder with ``train.csv`` and ``train_images/`` is ``BDL_APTOS_DIR``, or ``aptos2019`` in
    the data directory or the mirror. Five splits into 50 % training, 20 % validation and 30 %
    test; split i has the seed i. 123 photographs are there twice or more, the same to the pixel,
    and 30 of them with grades that differ.

    Parameters
    ----------
    size
        Height and width in pixels to which images are squeezed; the VIFA paper has 256.
    split
        ``"random"`` as published; ``"stratified"`` has the shares of the grades in every part;
        ``"grouped"`` keeps photographs that are the same to the pixel together.
    target
        ``"referable"``, or the ``"grade"`` itself, 0 to 4.
    features
        Null for the pixels; ``"efficientnet-lite0"`` for 1280 features by that network, trained on
        ImageNet at a size of 224; ``"efficientnet-lite0-maps"`` for what enters its last stage,
        (192, 7, 7) at that size, which the model ``module`` may train with the factory
        ``bdl.models.efficientnet:last_stage``. They need the extra ``vision``, and are computed
        once, in minutes.
    """

    size: Annotated[int, Ge(8)] = 256
    split: Literal["random", "stratified", "grouped"] = "random"
    target: Literal["referable", "grade"] = "referable"
    features: Network | None = None

    origin_phrase: ClassVar[str] = "your download"

    @staticmethod
    def missing_download() -> str | None:
        """Return how to get the download if it is missing, else None."""
        try:
            _find_folder()
        except InputError as error:
            return str(error)
        return None

    def __call__(self) -> Dataset:
        """Read the table and decode the images, which takes minutes for Kaggle's own once.

        `InputError` if there is no such folder, what it has is not as it should be, or the weights
        are not installed.
        """
        files, grades = read_graded_pictures(_find_folder())
        images = decode_pictures(_APTOS, files, self.size)
        groups, strata = np.arange(len(grades)), np.zeros(len(grades), dtype=np.int64)
        if self.split == "grouped":
            groups = number_distinct_pictures(images)
        elif self.split == "stratified":
            strata = grades.astype(np.int64)
        y = grades if self.target == "grade" else (grades >= 2).astype(np.float64)
        x: Inputs = images
        origin = ""
        if self.features is not None:
            x, origin = compute_features(_APTOS, images, self.features)
        return Dataset(
            _APTOS,
            x,
            y,
            "classification",
            splits=5,
            published=partial(three_way_split, strata, groups),
            groups=groups if self.split == "grouped" else None,
            ordered=self.target == "grade",
            origin=origin,
        )


def _find_folder() -> Path:
    """Find the folder of the download; `InputError` if there is none.

    The environment variable says where it is. Without one it is looked for in the data directory
    and in a mirror that is a directory.
    """
    folder, mirror = os.environ.get(FOLDER), os.environ.get("BDL_DATA_MIRROR", "")
    if folder:
        candidates = [Path(folder)]
    else:
        candidates = [data_directory() / _APTOS, Path(mirror or ".") / _APTOS]
    for candidate in candidates:
        if candidate.expanduser().is_dir():
            return candidate.expanduser()
    raise InputError(
        f"dataset '{_APTOS}': there is no folder {candidates[0]}; download the training images "
        f"from kaggle.com/c/aptos2019-blindness-detection and set {FOLDER} to the folder of "
        "train.csv and train_images/"
    )


_SUBSETS = ("train", "val", "test")
_NAME = "retinamnist"


@dataclass(frozen=True)
class RetinaMnist:
    """Whether a photograph of 28 x 28 pixels shows retinopathy to be referred (grade 2 to 4).

    Parameters
    ----------
    target
        ``"referable"``, or the ``"grade"`` itself, 0 to 4.
    """

    target: Literal["referable", "grade"] = "referable"

    files: ClassVar[tuple[RemoteFile, ...]] = (
        RemoteFile(
            _NAME,
            "retinamnist/retinamnist.npz",
            "https://zenodo.org/records/10519652/files/retinamnist.npz?download=1",
            "254915f5f0a2074665c4676356824cf4ef4a3bcab233894b4bafcaf48962bd69",
        ),
    )

    def __call__(self) -> Dataset:
        """Load it; its one split has 1080 training, 120 validation and 400 test rows."""
        return medmnist_dataset(_NAME, self.files[0].read_bytes(), self.target)


def medmnist_dataset(name: str, content: bytes, target: Literal["referable", "grade"]) -> Dataset:
    """Make a data set of an npz archive in the format of MedMNIST.

    It has ``{train,val,test}_images`` of uint8, (n, H, W, 3), and ``{train,val,test}_labels``, (n,
    1).
    """
    archive = np.load(io.BytesIO(content))
    # channels before rows and columns, as PyTorch has them
    images = [np.moveaxis(archive[f"{subset}_images"], 3, 1) for subset in _SUBSETS]
    labels = np.concatenate([archive[f"{subset}_labels"][:, 0] for subset in _SUBSETS])
    grades = labels.astype(np.float64)
    ends = np.cumsum([len(subset_images) for subset_images in images])
    train, validation, test = np.split(np.arange(len(grades)), ends[:2])
    y = grades if target == "grade" else (grades >= 2).astype(np.float64)
    split = Split(train, test, validation)
    x = np.ascontiguousarray(np.concatenate(images))
    return Dataset(
        name,
        x,
        y,
        "classification",
        splits=1,
        published=[split].__getitem__,
        ordered=target == "grade",
    )

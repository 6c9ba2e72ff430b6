"""Fundus photographs graded for diabetic retinopathy: APTOS 2019 in Kaggle's layout, and RetinaMNIST."""

import csv
import io
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, ClassVar, Literal, NamedTuple

import numpy as np
from annotated_types import Ge

from bdl.data.dataset import Dataset
from bdl.data.files import Array, RemoteFile, data_directory
from bdl.data.images import Network, decoded, features, same_pictures
from bdl.data.splits import Split, three_way_split
from bdl.errors import InputError

_SUFFIXES = {".png", ".jpg", ".jpeg"}


class Labelled(NamedTuple):
    """What a table and its folder have, in the order of the table."""

    files: list[Path]
    labels: Array
    """(n,)."""


@dataclass(frozen=True)
class Layout:
    """Where a table and the folder of its pictures are, below one folder.

    Pictures are called by their identifiers. Labels are whole numbers from 0 up, fewer than `classes`.
    """

    table: str
    images: str
    identifiers: str
    labels: str
    classes: int

    def read(self, name: str, folder: Path) -> Labelled:
        """Read the table in a folder, and find each picture.

        `InputError` if the layout is another, an identifier comes twice, a label is out of range, or pictures and table
        do not belong together; with the count and the first example.
        """
        found = self._labels(name, folder)
        files = {file.stem: file for file in (folder / self.images).iterdir() if file.suffix.lower() in _SUFFIXES}
        place, table = folder / self.images, folder / self.table
        _refuse(
            name, "identifiers", [key for key in found if key not in files], len(found), f"have no image in {place}"
        )
        _refuse(name, "images", [key for key in sorted(files) if key not in found], len(files), f"are not in {table}")
        return Labelled([files[key] for key in found], np.array(list(found.values()), dtype=np.float64))

    def _labels(self, name: str, folder: Path) -> Mapping[str, int]:
        rows = self._rows(name, folder)
        keys = [row[self.identifiers] for row in rows]
        seen = set[str]()
        twice = [key for key in keys if key in seen or seen.add(key)]  # type: ignore[func-returns-value]
        _refuse(name, "identifiers", twice, len(keys), f"come twice in {folder / self.table}")
        known = {str(label): label for label in range(self.classes)}
        wrong = [f"{row[self.labels]} of {row[self.identifiers]}" for row in rows if row[self.labels] not in known]
        _refuse(name, "labels", wrong, len(keys), f"are not 0 to {self.classes - 1}")
        return {key: known[row[self.labels]] for key, row in zip(keys, rows, strict=True)}

    def _rows(self, name: str, folder: Path) -> list[dict[str, str]]:
        table, lacking = folder / self.table, f"{self.table} ({self.identifiers},{self.labels}) and {self.images}/"
        if not table.is_file() or not (folder / self.images).is_dir():
            raise InputError(f"dataset '{name}': {folder} has another layout; it should have {lacking}")
        with table.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file)
            rows = list(reader)
        if not {self.identifiers, self.labels} <= set(reader.fieldnames or ()) or not rows:
            raise InputError(f"dataset '{name}': {table} has no rows of {self.identifiers},{self.labels}: use Kaggle's")
        return rows


def _refuse(name: str, what: str, wrong: list[str], total: int, why: str) -> None:
    if wrong:
        raise InputError(
            f"dataset '{name}': {len(wrong)} of {total} {what} {why}, the first is {wrong[0]}; "
            "mend the folder or the table"
        )


LAYOUT = Layout("train.csv", "train_images", "id_code", "diagnosis", 5)
FOLDER = "BDL_APTOS_DIR"
"""Environment variable that names the folder of the download."""


@dataclass(frozen=True)
class Aptos2019:
    """Whether a photograph shows retinopathy to be referred (grade 2 to 4); 3662 images that you download from Kaggle.

    The folder with ``train.csv`` and ``train_images/`` is ``BDL_APTOS_DIR``, or ``aptos2019`` in the data directory or
    the mirror. Five splits into 50 % training, 20 % validation and 30 % test; split i has the seed i. 123 photographs
    are there twice or more, the same to the pixel, and 30 of them with grades that differ.

    Parameters
    ----------
    size
        Height and width in pixels to which images are squeezed; the VIFA paper has 256.
    split
        ``"random"`` as published; ``"stratified"`` has the shares of the grades in every part; ``"grouped"`` keeps
        photographs that are the same to the pixel together.
    target
        ``"referable"``, or the ``"grade"`` itself, 0 to 4.
    features
        Null for the pixels; ``"efficientnet-lite0"`` for 1280 features by that network, trained on ImageNet at a size
        of 224; ``"efficientnet-lite0-maps"`` for what enters its last stage, (192, 7, 7) at that size, which the model
        ``module`` may train with the factory ``bdl.models.efficientnet:last_stage``. They need the extra ``vision``,
        and are computed once, in minutes.
    """

    size: Annotated[int, Ge(8)] = 256
    split: Literal["random", "stratified", "grouped"] = "random"
    target: Literal["referable", "grade"] = "referable"
    features: Network | None = None

    comes: ClassVar[str] = "your download"

    @staticmethod
    def lacking() -> str | None:
        """Describe what to do if the download is not here."""
        try:
            _folder()
        except InputError as error:
            return str(error)
        return None

    def __call__(self) -> Dataset:
        """Read the table and decode the images, which takes minutes for Kaggle's own once.

        `InputError` if there is no such folder, what it has is not as it should be, or the weights are not installed.
        """
        name = "aptos2019"
        files, grades = LAYOUT.read(name, _folder())
        images = decoded(name, files, self.size)
        alike = np.arange(len(grades)) if self.split != "grouped" else same_pictures(images)
        strata = grades.astype(np.int64) if self.split == "stratified" else np.zeros(len(grades), dtype=np.int64)
        y = grades if self.target == "grade" else (grades >= 2).astype(np.float64)
        x, origin = (images, "") if self.features is None else features(name, images, self.features)
        return Dataset(
            name, x, y, "classification", splits=5, published=partial(three_way_split, strata, alike), origin=origin
        )


def _folder() -> Path:
    """Find the download: where the environment says, in the data directory, or in a mirror that is a directory."""
    given, mirror = os.environ.get(FOLDER), os.environ.get("BDL_DATA_MIRROR", "")
    places = [Path(given)] if given else [data_directory() / "aptos2019", Path(mirror or ".") / "aptos2019"]
    for place in places:
        if place.expanduser().is_dir():
            return place.expanduser()
    raise InputError(
        f"dataset 'aptos2019': there is no folder {places[0]}; download the training images from "
        f"kaggle.com/c/aptos2019-blindness-detection and set {FOLDER} to the folder of train.csv and train_images/"
    )


_PARTS = ("train", "val", "test")
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
        return parts_dataset(_NAME, self.files[0].read_bytes(), self.target)


def parts_dataset(name: str, content: bytes, target: Literal["referable", "grade"]) -> Dataset:
    """Make a data set of an npz archive as MedMNIST has them; `InputError` if it has something else.

    It has ``{train,val,test}_images`` of uint8, (n, H, W, 3), and ``{train,val,test}_labels``, (n, 1).
    """
    try:
        archive = np.load(io.BytesIO(content))
        images = [np.moveaxis(archive[f"{part}_images"], 3, 1) for part in _PARTS]
        grades = np.concatenate([archive[f"{part}_labels"][:, 0] for part in _PARTS]).astype(np.float64)
    except (KeyError, ValueError, IndexError, OSError) as error:
        raise InputError(f"dataset '{name}': the file is no MedMNIST archive of colour images ({error})") from None
    rows = np.split(np.arange(len(grades)), np.cumsum([len(part) for part in images])[:2])
    y = grades if target == "grade" else (grades >= 2).astype(np.float64)
    split = Split(rows[0], rows[2], rows[1])
    x = np.ascontiguousarray(np.concatenate(images))
    return Dataset(name, x, y, "classification", splits=1, published=lambda index: split)

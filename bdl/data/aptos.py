"""APTOS 2019, fundus photographs graded for diabetic retinopathy, in Kaggle's layout; the reader downloads them."""

import os
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import numpy as np
from annotated_types import Ge

from bdl.data.dataset import Dataset
from bdl.data.features import Network, features
from bdl.data.files import data_directory
from bdl.data.images import decoded, same_pictures
from bdl.data.labelled import Layout
from bdl.data.splits import three_way_split
from bdl.errors import InputError

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

        Raises
        ------
        InputError
            If there is no such folder, what it has is not as it should be, or the network's weights are not installed.
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

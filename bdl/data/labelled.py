"""Labelled pictures in Kaggle's layout: a table of identifiers and labels beside a folder of images."""

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bdl.data.fileset import Array
from bdl.errors import InputError

_SUFFIXES = {".png", ".jpg", ".jpeg"}


class Labelled(NamedTuple):
    """What a table and its folder have, in the order of the table."""

    files: list[Path]
    labels: Array
    """(n,)."""


@dataclass(frozen=True)
class Layout:
    """Where a table and its pictures are, below one folder.

    Parameters
    ----------
    table
        The CSV file.
    images
        The folder of images, each called by its identifier.
    identifiers, labels
        Columns of the table.
    classes
        Labels are whole numbers from 0 up, fewer than this.
    """

    table: str
    images: str
    identifiers: str
    labels: str
    classes: int

    def read(self, name: str, folder: Path) -> Labelled:
        """Read the table, and find each picture.

        Parameters
        ----------
        name
            Of the data set, for messages.
        folder
            What has the layout.

        Raises
        ------
        InputError
            If the layout is another, an identifier comes twice, a label is out of range, or pictures and table do not
            belong together; with the count and the first example.
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

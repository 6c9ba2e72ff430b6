"""RetinaMNIST, small fundus photographs graded for diabetic retinopathy (Yang et al. 2023, MedMNIST v2; CC BY 4.0)."""

import io
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from bdl.data.dataset import Dataset
from bdl.data.files import RemoteFile
from bdl.data.splits import Split
from bdl.errors import InputError

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
        """Load it; its one split has 1080 training, 120 validation and 400 test rows.

        Raises
        ------
        InputError
            If the file cannot be had or is corrupt.
        """
        return parts_dataset(_NAME, self.files[0].read_bytes(), self.target)


def parts_dataset(name: str, content: bytes, target: Literal["referable", "grade"]) -> Dataset:
    """Make a data set of an npz archive as MedMNIST has them.

    Parameters
    ----------
    name
        Of the data set.
    content
        The archive: ``{train,val,test}_images`` of uint8, (n, H, W, 3), and ``{train,val,test}_labels``, (n, 1).
    target
        As in `RetinaMnist`.

    Raises
    ------
    InputError
        If the archive has something else.
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

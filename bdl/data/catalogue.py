"""The data sets by name: load one, download its files, tell the state of its files."""

from typing import NamedTuple

from bdl.data.dataset import Dataset
from bdl.data.files import RemoteFile, State
from bdl.registry import Registry

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
        "diabetes": "bdl.data.bundled:diabetes",
        "synthetic": "bdl.data.synthetic:synthetic",
    },
)
"""A registered component is called without arguments and gives a `Dataset`.

If it needs downloaded files it lists them in an attribute ``files`` (a sequence of `RemoteFile`).
"""


class FetchCount(NamedTuple):
    """What `fetch` did: files that were already right, and files downloaded."""

    present: int
    downloaded: int


def load(name: str) -> Dataset:
    """Load a data set; files that are missing are downloaded, all are verified.

    Parameters
    ----------
    name
        A name in `DATASETS`, or ``module:attribute``, or ``path/to/file.py:attribute``.

    Raises
    ------
    InputError
        If the name is unknown, a file cannot be had, or a cached file is corrupt.
    """
    dataset: Dataset = DATASETS.get(name)()
    return dataset


def status(name: str) -> list[tuple[str, State]]:
    """Tell the state of every file of a data set, split files included.

    Returns
    -------
    list of (path in the data directory, state)
        Empty for a data set that needs no download.

    Raises
    ------
    InputError
        If the name is unknown.
    """
    return [(file.path, file.state()) for file in _files(name)]


def fetch(name: str) -> FetchCount:
    """Download the files of a data set that are missing or corrupt, split files included.

    Raises
    ------
    InputError
        If the name is unknown or a file cannot be had; files downloaded before that stay.
    """
    files = _files(name)
    wanted = [file for file in files if file.state() != "ok"]
    for file in wanted:
        file.download()
    return FetchCount(present=len(files) - len(wanted), downloaded=len(wanted))


def _files(name: str) -> list[RemoteFile]:
    return list(getattr(DATASETS.get(name), "files", ()))

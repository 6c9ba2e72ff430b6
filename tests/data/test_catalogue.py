"""Names, loading by name, fetching and verifying; a third-party set; what an import costs."""

import hashlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from bdl.data import DATASETS, FetchCount, about, fetch, load, load_stream, status
from bdl.errors import InputError

from .conftest import CONTENT, NOWHERE, write

THIRD_PARTY = f"""
import numpy as np
from bdl.data import Dataset, RemoteFile

class Toy:
    files = [
        RemoteFile("toy", "toy/data.txt", "{NOWHERE}/data.txt", "{hashlib.sha256(CONTENT).hexdigest()}"),
        RemoteFile("toy", "toy/more.txt", "{NOWHERE}/more.txt", "{hashlib.sha256(b"more").hexdigest()}"),
    ]

    def __call__(self):
        table = np.loadtxt(self.files[0].read().splitlines())
        return Dataset("toy", table[:, :2], table[:, 2])

toy = Toy()
"""


@pytest.fixture
def toy(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Write a data set in a single file, with a mirror that has both of its files; give its name."""
    (tmp_path / "toy_set.py").write_text(THIRD_PARTY)
    write(tmp_path / "mirror")
    (tmp_path / "mirror/toy/more.txt").write_bytes(b"more")
    monkeypatch.setenv("BDL_DATA_MIRROR", str(tmp_path / "mirror"))
    return f"{tmp_path}/toy_set.py:toy"


def test_names() -> None:
    uci = {"boston", "concrete", "energy", "kin8nm", "naval", "power", "protein", "wine", "yacht"}
    classifications = {"australian", "breast_cancer", "a1a", "usps_3v5", "mnist", "synthetic_logistic"}
    streams = {name for name in DATASETS.builtin if name.startswith("fa_")}
    assert set(DATASETS.builtin) == uci | {"diabetes", "synthetic"} | classifications | streams
    assert len(streams) == 12


@pytest.mark.parametrize("name", DATASETS.builtin)
def test_every_name_resolves_to_its_own_set(name: str) -> None:
    component = DATASETS.get(name)
    assert callable(component)
    assert getattr(component, "name", component.__class__.__name__) in (name, "function")


def test_unknown_name() -> None:
    with pytest.raises(InputError, match="unknown dataset 'bostn': did you mean boston"):
        load("bostn")


def test_about_reads_no_file(cache: Path) -> None:
    assert about("a1a") == [
        "whether a person earns more than 50,000 USD a year (1) or not",
        "32561 rows, 123 inputs, 1 published split",
    ]
    assert about("yacht")[1] == "308 rows, 6 inputs, 20 published splits"
    assert about("synthetic_logistic") == [
        "Ten draws of a logistic regression with two parameters and 3000 rows; split i is draw i."
    ]
    with pytest.raises(InputError, match="unknown dataset 'a2a': did you mean a1a"):
        about("a2a")


def test_streams_and_tables_are_told_apart() -> None:
    assert (load_stream("fa_1000_100").dim, load_stream("fa_100_10_columns").scaling) == (1000, "columns")
    assert about("fa_100_10") == [
        "100000 vectors of 100 parameters from a factor-analysis model of rank 10, rows scaled by 1 to 10"
    ]
    with pytest.raises(InputError, match="dataset 'fa_100_10' is a stream of parameter vectors: use a method that"):
        load("fa_100_10")
    with pytest.raises(
        InputError, match="dataset 'diabetes' is a table: methods that learn from a stream need a stream"
    ):
        load_stream("diabetes")


def test_load_fetches_only_what_it_reads(toy: str) -> None:
    assert status(toy) == [("toy/data.txt", "missing"), ("toy/more.txt", "missing")]
    dataset = load(toy)
    np.testing.assert_array_equal(dataset.x[:2], [[0.5, 1.5], [1, 2]])
    np.testing.assert_array_equal(dataset.y[:2], [2, 3])
    assert status(toy) == [("toy/data.txt", "ok"), ("toy/more.txt", "missing")]


def test_fetch_mends_what_is_missing_or_corrupt(toy: str, cache: Path) -> None:
    assert fetch(toy) == FetchCount(present=0, downloaded=2)
    assert fetch(toy) == FetchCount(present=2, downloaded=0)
    write(cache, CONTENT[:-1])
    assert status(toy) == [("toy/data.txt", "corrupt"), ("toy/more.txt", "ok")]
    assert fetch(toy) == FetchCount(present=1, downloaded=1)
    assert {state for _, state in status(toy)} == {"ok"}


def test_diabetes_needs_no_files() -> None:
    assert status("diabetes") == []
    assert fetch("diabetes") == FetchCount(present=0, downloaded=0)


def test_uci_without_network(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bdl.data.uci.PUBLIC", NOWHERE)
    assert status("yacht")[0] == ("uci/yacht/data.txt", "missing")
    with pytest.raises(InputError) as caught:
        load("yacht")
    message = str(caught.value)
    assert "\n" not in message
    assert f"{NOWHERE}/yacht/data/data.txt: ConnectionError" in message
    assert "'bdl-bench data fetch yacht'" in message


def test_import_is_light() -> None:
    program = "import sys, bdl.data; print(sorted({'torch', 'sklearn', 'pooch', 'pandas'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"

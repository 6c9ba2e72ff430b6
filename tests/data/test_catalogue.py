"""Names, loading by name, fetching and verifying; a third-party set; what an import costs."""

import hashlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from bdl.data import DATASETS, FetchCount, Stream, about, fetch, load, load_stream, status
from bdl.errors import InputError
from bdl.registry import Label

from .conftest import CONTENT, NOWHERE, write

COLUMNS = Label("mine", "fa", {"dim": 100, "top": 10, "scaling": "columns"})
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
    classifications = {
        "australian",
        "breast_cancer",
        "a1a",
        "usps_3v5",
        "usps_3v5_smoothed",
        "mnist",
        "synthetic_logistic",
    }
    drawn = {"overlapping_classes", "waves", "teacher_unit", "teacher_network", "gap_curve", "two_moons", "prior_draws"}
    photographs = {"mnist_validated", "retinamnist", "aptos2019"}
    others = {"diabetes", "synthetic", "cubic", "fa", "sparse_linear", "sparse_network"}
    assert set(DATASETS.builtin) == uci | classifications | others | photographs | drawn | {"csv", "parquet", "openml"}


@pytest.mark.parametrize("name", DATASETS.builtin)
def test_every_name_resolves_to_its_own_set(name: str) -> None:
    component = DATASETS.get(name)
    assert callable(component)
    assert getattr(component, "name", component.__class__.__name__) in (name, "function") or isinstance(component, type)


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
    assert load_stream(COLUMNS) == Stream(100, 10, "columns")
    assert about(COLUMNS) == [
        "100000 vectors of 100 parameters from a factor-analysis model of rank 10, columns scaled by 1 to 10"
    ]
    (line,) = about("fa")
    assert line.startswith("Streams of parameter vectors, each from a factor-analysis model of its own")
    with pytest.raises(InputError, match="dataset 'mine' is a stream of parameter vectors: use a method that"):
        load(COLUMNS)
    with pytest.raises(
        InputError, match="dataset 'diabetes' is a table: methods that learn from a stream need a stream"
    ):
        load_stream("diabetes")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("fa", "dataset 'fa': dim: Field required"),
        (Label("x", "fa", {"dim": 100, "top": 0.5}), "dataset 'fa': top: Input should be greater than or equal to 1"),
        (Label("x", "fa", {"dim": 10, "top": 2}), "dataset 'fa': dim: Input should be greater than or equal to 11"),
        (Label("x", "diabetes", {"dim": 10}), "dataset 'diabetes' has no settings: remove dim"),
    ],
)
def test_settings_are_checked(name: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        load_stream(name)


def test_a_set_with_settings_knows_its_files_when_it_has_them(tmp_path: Path) -> None:
    (tmp_path / "set.py").write_text(
        "from dataclasses import dataclass\n"
        "from bdl.data import RemoteFile\n"
        "@dataclass(frozen=True)\n"
        "class Parts:\n"
        "    count: int\n"
        "    @property\n"
        "    def files(self):\n"
        "        return [RemoteFile('parts', f'parts/{i}', '', '') for i in range(self.count)]\n"
    )
    name = f"{tmp_path}/set.py:Parts"
    assert status(name) == []
    assert status(Label("parts_2", name, {"count": 2})) == [("parts/0", "missing"), ("parts/1", "missing")]


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
    monkeypatch.setattr("bdl.data.uci.UCI_URL", NOWHERE)
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


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("return None", "gave NoneType; return a bdl.data.Dataset"),
        ("return 3", "gave int; return a bdl.data.Dataset"),
        ("raise ValueError('not\\ntoday')", r"failed with ValueError: not today \(.*mine.py, line 2\)"),
        ("return 1 / 0", "failed with ZeroDivisionError: division by zero"),
    ],
)
def test_functions_that_give_no_data_set_are_told_in_one_line(tmp_path: Path, body: str, message: str) -> None:
    (tmp_path / "mine.py").write_text(f"def numbers():\n    {body}\n", "utf-8")
    with pytest.raises(InputError, match=message) as caught:
        load(f"{tmp_path / 'mine.py'}:numbers")
    assert "\n" not in str(caught.value)

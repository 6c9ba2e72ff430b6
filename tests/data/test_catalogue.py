"""Names, loading by name, fetching and verifying; a third-party set; what an import costs."""

import hashlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from bdl.data import (
    Stream,
    describe_dataset,
    fetch_dataset,
    file_states,
    load_dataset,
    load_stream,
)
from bdl.errors import InputError
from bdl.registry import Label

from .conftest import CONTENT, NOWHERE, write

COLUMNS = Label("mine", "fa", {"dim": 100, "top": 10, "scaling": "columns"})
THIRD_PARTY = f"""
from dataclasses import dataclass

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

@dataclass(frozen=True)
class Parts:
    count: int

    @property
    def files(self):
        return [RemoteFile("parts", f"parts/{{i}}", "", "") for i in range(self.count)]

toy = Toy()
none = lambda: None

def failing():
    raise ValueError("not\\ntoday")
"""


@pytest.fixture
def third_party(tmp_path: Path) -> str:
    """Write data sets in a single file; give its path."""
    (tmp_path / "toy_set.py").write_text(THIRD_PARTY)
    return f"{tmp_path}/toy_set.py"


def test_about_reads_no_file(cache: Path) -> None:
    assert describe_dataset("a1a") == [
        "whether a person earns more than 50,000 USD a year (1) or not",
        "32561 rows, 123 inputs, 1 published split",
    ]
    assert describe_dataset("synthetic_logistic") == [
        "Ten draws of a logistic regression with two parameters and 3000 rows; split i is draw i."
    ]
    assert describe_dataset(COLUMNS) == [
        "100000 vectors of 100 parameters from a factor-analysis model of rank 10, columns scaled by 1 to 10"
    ]


@pytest.mark.parametrize(
    ("call", "name", "message"),
    [
        (load_dataset, "bostn", "unknown dataset 'bostn': did you mean boston"),
        (describe_dataset, "a2a", "unknown dataset 'a2a': did you mean a1a"),
        (
            load_dataset,
            COLUMNS,
            "dataset 'mine' is a stream of parameter vectors: use a method that",
        ),
        (
            load_stream,
            "diabetes",
            "dataset 'diabetes' is a table: methods that learn from a stream need a stream",
        ),
    ],
)
def test_names_and_settings_are_checked(call, name: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        call(name)


def test_a_stream_is_loaded_with_its_settings() -> None:
    assert load_stream(COLUMNS) == Stream(100, 10, "columns")


def test_a_set_with_settings_knows_its_files_when_it_has_them(third_party: str) -> None:
    assert file_states(f"{third_party}:Parts") == []
    parts = Label("parts_2", f"{third_party}:Parts", {"count": 2})
    assert file_states(parts) == [("parts/0", "missing"), ("parts/1", "missing")]


def test_files_are_got_as_they_are_read_and_mended(third_party: str, cache: Path, mirror) -> None:
    toy = f"{third_party}:toy"
    (mirror().parent / "more.txt").write_bytes(b"more")
    dataset = load_dataset(toy)
    np.testing.assert_array_equal(dataset.x[:2], [[0.5, 1.5], [1, 2]])
    np.testing.assert_array_equal(dataset.y[:2], [2, 3])
    assert file_states(toy) == [("toy/data.txt", "ok"), ("toy/more.txt", "missing")]
    write(cache, CONTENT[:-1])
    assert file_states(toy)[0] == ("toy/data.txt", "corrupt")
    assert fetch_dataset(toy) == (0, 2)
    assert fetch_dataset(toy) == (2, 0)
    assert (file_states("diabetes"), fetch_dataset("diabetes")) == ([], (0, 0))


def test_import_is_light() -> None:
    program = (
        "import sys, bdl.data; bdl.data.describe_dataset('csv');"
        "print(sorted({'torch', 'sklearn', 'pooch', 'pandas'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("none", "gave NoneType; return a bdl.data.Dataset$"),
        ("failing", r"failed with ValueError: not today \(.*toy_set.py, line 29\)$"),
    ],
)
def test_functions_that_give_no_data_set_are_told_in_one_line(
    third_party: str, function: str, message: str
) -> None:
    with pytest.raises(InputError, match=f"^.*{message}"):
        load_dataset(f"{third_party}:{function}")

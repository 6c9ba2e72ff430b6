"""The UCI sets: shapes, values, published splits against the recipe, lazy reading."""

import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bdl.data import Dataset, FetchCount, fetch, load, prepare, recipe_split, status
from bdl.data import uci as table
from bdl.errors import InputError

pytestmark = [pytest.mark.data, pytest.mark.usefixtures("files")]

# name: (rows, inputs, published splits, first input of row 0, target of row 0)
KNOWN = {
    "boston": (506, 13, 20, 0.00632, 24.0),
    "concrete": (1030, 8, 20, 540.0, 79.99),
    "energy": (768, 8, 20, 0.98, 15.55),
    "kin8nm": (8192, 8, 20, -0.015119, 0.536524),
    "naval": (11934, 16, 20, 1.138, 0.95),
    "power": (9568, 4, 20, 8.34, 480.48),
    "protein": (45730, 9, 5, 13558.3, 17.284),
    "wine": (1599, 11, 20, 7.4, 5.0),
    "yacht": (308, 6, 20, -2.3, 0.11),
}


@pytest.mark.parametrize("name", KNOWN)
def test_content(name: str) -> None:
    n, d, splits, x00, y0 = KNOWN[name]
    dataset = load(name)
    assert (dataset.name, dataset.x.shape, dataset.y.shape, dataset.splits) == (name, (n, d), (n,), splits)
    assert dataset.x.dtype == dataset.y.dtype == np.float64
    assert dataset.x.flags.c_contiguous
    assert (round(dataset.x[0, 0], 6), round(dataset.y[0], 6)) == (x00, y0)


@pytest.mark.parametrize("name", KNOWN)
def test_recipe_reproduces_every_published_split(name: str) -> None:
    dataset = load(name)
    for index in range(KNOWN[name][2]):
        published, drawn = dataset.split(index), recipe_split(len(dataset.y), index)
        np.testing.assert_array_equal(published.train, drawn.train)
        np.testing.assert_array_equal(published.test, drawn.test)
        assert published.train.dtype == published.test.dtype == np.int64


def test_targets() -> None:
    """Energy predicts the heating load; naval the compressor decay, and its last column goes unused."""
    energy, naval = load("energy").y, load("naval")
    assert (energy.min(), energy.max()) == (6.01, 43.1)  # heating load; the cooling load spans 10.90 to 48.03
    assert (naval.y.min(), naval.y.max()) == (0.95, 1.0)  # compressor; the turbine's spans 0.975 to 1
    assert not any(np.array_equal(naval.x[:, column], naval.y) for column in range(16))


def test_splits_end() -> None:
    with pytest.raises(InputError, match="dataset 'protein' has no split 5; choose 0 to 4"):
        load("protein").split(5)


def test_files_are_got_when_needed(cache: Path, source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BDL_DATA_MIRROR", source)
    folder = cache / "uci/yacht"
    dataset = load("yacht")
    tables = {"data.txt", "index_features.txt", "index_target.txt", "n_splits.txt"}
    assert {path.name for path in folder.iterdir()} == tables
    dataset.split(7)
    assert {path.name for path in folder.iterdir()} == tables | {"index_train_7.txt", "index_test_7.txt"}
    assert fetch("yacht") == FetchCount(present=6, downloaded=44)
    assert [state for _, state in status("yacht")] == ["ok"] * 50
    assert [path for path, _ in status("yacht", gaps=False)] == [path for path, _ in status("yacht")][:44]
    (folder / "index_test_7.txt").write_text("0\n")
    with pytest.raises(InputError, match=r"corrupt data file .*index_test_7.txt: expected sha256"):
        dataset.split(7)
    assert fetch("yacht") == FetchCount(present=49, downloaded=1)


# name: (number of test rows of every gap split, the first row of split 0)
GAPS = {
    "boston": (168, 244),
    "concrete": (344, 854),
    "energy": (256, 120),
    "kin8nm": (2730, 2292),
    "naval": (3978, 9833),
    "power": (3190, 1723),
    "protein": (15244, 3),
    "wine": (532, 214),
    "yacht": (102, 88),
}


@pytest.mark.parametrize("name", KNOWN)
def test_gap_splits_test_the_middle_third(name: str) -> None:
    """One split for each input, by which half of the training rows lie below all test rows and half above, or equal."""
    n, d, *_ = KNOWN[name]
    size, first = GAPS[name]
    dataset = prepare(load(name), "gap", "both")
    assert (dataset.splits, dataset.split(0).test[0]) == (d, first)
    for index in range(d):
        split, x = dataset.split(index), dataset.x[:, index]
        assert len(split.test) == size
        assert sorted([*split.train, *split.test]) == list(range(n))
        assert split.train.dtype == split.test.dtype == np.int64
        third = len(split.train) // 2
        low, high = np.sort(x[split.train])[[third - 1, -third]]
        assert low <= x[split.test].min() <= x[split.test].max() <= high
    assert dataset.split(0).train.tolist() != sorted(dataset.split(0).train), "folds are contiguous"
    with pytest.raises(InputError, match=f"has no split {d}; choose 0 to {d - 1}"):
        dataset.split(d)


def test_changed_gap_files_are_refused(cache: Path, source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BDL_DATA_MIRROR", source)
    dataset = prepare(load("yacht"), "gap", "both")
    assert dataset.split(1).test[0] != dataset.split(0).test[0] == 88
    file = cache / "uci_gap/yacht/index_test_1.txt"
    rows = file.read_text().split()
    file.write_text("\n".join([rows[1], rows[0], *rows[2:]]) + "\n")  # the same rows in another order
    with pytest.raises(InputError, match=r"corrupt data file .*uci_gap/yacht/index_test_1.txt: expected sha256"):
        dataset.split(1)


def test_which_sets_have_gaps_and_tails() -> None:
    with pytest.raises(InputError, match="'diabetes' has no gap splits, which the UCI regressions have; choose"):
        prepare(load("diabetes"), "gap", "both")
    tails = prepare(load("diabetes"), "tail", "both")
    assert (tails.splits, len(tails.split(9).test), len(tails.split(9).train)) == (10, 2 * 147, 442 - 2 * 147)
    images = Dataset("images", np.zeros((2, 2, 2), np.uint8), np.arange(2.0))
    with pytest.raises(InputError, match="'images' has no tail splits, which tables have; choose published"):
        prepare(images, "tail", "both")


def test_content_must_match_the_table() -> None:
    with pytest.raises(InputError, match=r"\(rows, inputs\) = \(308, 6\), expected \(307, 6\); bring bdl.data.uci"):
        replace(table.yacht, n=307)()
    with pytest.raises(InputError, match="splits = 20, expected 19"):
        replace(table.yacht, splits=19)()


def test_pickles_for_worker_processes() -> None:
    dataset = load("yacht")
    copy = pickle.loads(pickle.dumps(dataset))
    assert copy.checksum == dataset.checksum
    np.testing.assert_array_equal(copy.split(4).test, dataset.split(4).test)

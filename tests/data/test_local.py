"""Files of one's own as data sets: what is refused first, then what the numbers are."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bdl.data import DATASETS, Dataset, about, status
from bdl.errors import InputError
from bdl.registry import Label
from bdl.spec.labels import DatasetName

HOUSES = "packages,colour,chain,price\n1,red,a,10\n2,blue,b,20\n3,red,a,30\n4,green,c,40\n"


@pytest.fixture
def csv(tmp_path: Path):
    """Load a text as a data set, with settings."""

    def load(text: str | bytes, **settings: object) -> Dataset:
        path = tmp_path / "houses.csv"
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        dataset: Dataset = DATASETS.build("csv", {"path": str(path), "target": "price", **settings})()
        return dataset

    return load


@pytest.mark.parametrize(
    ("text", "settings", "message"),
    [
        ("", {}, "houses.csv is empty: give a header"),
        ("a,price\n", {}, "houses has no rows: give one line a row"),
        ("a,price\n", {"missing": "drop"}, "houses has no rows: give one line a row"),
        ("price\n1\n2\n", {}, "houses has no column of inputs beside 'price': give at least one"),
        ("a,a,price\n1,2,3\n", {}, "houses.csv: the header has 'a' twice: rename one"),
        ("1,2,3\n4,5,6\n", {}, "houses.csv: the first line has numbers only: say header: false if it is no header"),
        ("a,price\n1,2\n3,4,5\n", {}, "cannot read .*houses.csv: .*; give every line as many values as the first"),
        ("a,price\n1,2,3\n3,4,5\n", {}, "cannot read .*houses.csv: .*; give every line as many values as the first"),
        (b"a,price\n\xff,2\n", {}, "cannot read .*houses.csv: it is not UTF-8 text"),
        (HOUSES, {"target": "prise"}, "houses: unknown column 'prise': did you mean price"),
        (HOUSES, {"leave_out": ["colou"]}, "houses: unknown column 'colou': did you mean colour"),
        (HOUSES, {"group": "chains"}, "houses: unknown column 'chains': did you mean chain"),
        (HOUSES, {"group": "chain", "time": "packages"}, "^group and time are ways to split: keep one"),
        (
            HOUSES,
            {"task": "regression", "target": "colour"},
            "target 'colour' is text such as 'red': say task",
        ),
        ("a,price\n1,2\n,3\n4,\n", {}, "row 2 has no finite value in column 'a', and 2 of 3 rows have such gaps"),
        ("a,price\n1,2\n3,inf\n", {}, "row 2 has no finite value in column 'price', and 1 of 2 rows have such gaps"),
        ("a,price\n,2\n3,\n", {"missing": "drop"}, "houses has no rows without gaps"),
        ("a,price\n1,2\n?,3\n4,5\n", {}, "row 2 has '\\?' in column 'a', where others have numbers"),
        ("a,price\n1,2\n2,n/k\n4,5\n", {}, "row 2 has 'n/k' in column 'price', where others have numbers"),
        ("a,price\n,1\n1,2\n?,3\n4,5\n", {"missing": "drop"}, "row 3 has '\\?' in column 'a'"),
        (
            "a,price\n" + "".join(f"n{i},1\n" for i in range(101)),
            {},
            "column 'a' has 101 different values, such as",
        ),
        ("a,price,s\n1,2,x\n2,3,x\n", {"split_column": "s"}, "column 's' leaves no rows to train on"),
        ("a,price,s\n1,2,x\n2,3,x\n", {"group": "s"}, "column 's' leaves no rows to train on"),
        ("a,price,s\n1,2,x\n2,3,y\n", {"time": "s"}, "column 's' has no dates or numbers"),
        (HOUSES, {"test_share": 1.0}, "dataset 'csv': test_share: Input should be less than 1"),
        (HOUSES, {"separator": ", "}, "dataset 'csv': separator: .* at most 1 character"),
    ],
)
def test_bad_input_is_told_in_one_line(csv, text, settings, message) -> None:
    with pytest.raises(InputError, match=message) as caught:
        csv(text, **settings)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["csv", "parquet"])
def test_a_file_that_is_not_there(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match=r"cannot read .*none\.x: No such file or directory"):
        DATASETS.build(name, {"path": str(tmp_path / "none.x"), "target": "y"})()


def test_a_file_that_is_not_parquet(tmp_path: Path) -> None:
    (tmp_path / "mine.parquet").write_text(HOUSES)
    with pytest.raises(InputError, match=r"cannot read .*mine\.parquet: "):
        DATASETS.build("parquet", {"path": str(tmp_path / "mine.parquet"), "target": "price"})()


def test_columns_become_numbers(csv) -> None:
    found = csv(HOUSES, leave_out=["chain"])
    assert (found.name, found.task, found.splits) == ("houses", "regression", None)
    #                      packages, blue, green, red
    assert found.x.tolist() == [[1, 0, 0, 1], [2, 1, 0, 0], [3, 0, 0, 1], [4, 0, 1, 0]]
    assert found.y.tolist() == [10, 20, 30, 40]


@pytest.mark.parametrize("text", [HOUSES.replace(",", mark) for mark in ";\t|"] + ["﻿" + HOUSES])
def test_separators_are_found(csv, text: str) -> None:
    np.testing.assert_array_equal(csv(text).x, csv(HOUSES).x)


def test_decimal_commas_and_quotes(csv) -> None:
    found = csv('"a;b";price\n"1,5";2,25\n-3;4\n', decimal=",", separator=";")
    assert (found.x.tolist(), found.y.tolist()) == ([[1.5], [-3.0]], [2.25, 4.0])


def test_no_header(csv) -> None:
    found = csv("1,2\n3,4\n", header=False, target="0")
    assert (found.x.tolist(), found.y.tolist()) == ([[2], [4]], [1, 3])


def test_gaps_are_dropped(csv) -> None:
    found = csv("a,b,price\n1,x,2\n,x,3\n4,,5\n6,y,\n7,y,8\n", missing="drop")
    assert (found.x.tolist(), found.y.tolist()) == ([[1, 1, 0], [7, 0, 1]], [2, 8])


def test_the_target_tells_the_task(csv) -> None:
    text = csv(HOUSES, target="colour", leave_out=["chain"])
    assert (text.task, text.y.tolist()) == ("classification", [2, 0, 2, 1])
    numbers = csv("a,price\n1,30\n2,7\n3,30\n", task="classification")
    assert (numbers.task, numbers.y.tolist()) == ("classification", [1, 0, 1])
    truth = csv("a,price\n1,True\n2,False\n")
    assert (truth.task, truth.y.tolist()) == ("classification", [1, 0])


def test_parquet_equals_csv(csv, tmp_path: Path) -> None:
    expected, path = csv(HOUSES), tmp_path / "same.parquet"
    frame = pd.read_csv(tmp_path / "houses.csv").astype({"colour": "category"})
    frame.to_parquet(path)
    found = DATASETS.build("parquet", {"path": str(path), "target": "price"})()
    assert (found.name, found.checksum) == ("same", expected.checksum)
    frame.assign(when=pd.Timestamp("2020-01-01")).to_parquet(path)
    with pytest.raises(InputError, match="same: column 'when' has dates: leave it out, or split by it"):
        DATASETS.build("parquet", {"path": str(path), "target": "price"})()


class TestSplits:
    """Inputs are the row numbers from 1."""

    TEXT = "row,part,when,price\n" + "".join(
        f"{i},{part},{when},0\n"
        for i, part, when in zip(range(1, 7), "abcabc", (f"2020-0{m}-01" for m in (3, 1, 6, 2, 5, 4)), strict=True)
    )

    def rows(self, dataset: Dataset, index: int) -> tuple[list[int], list[int]]:
        train, test = (dataset.x[rows, 0].astype(int).tolist() for rows in dataset.split(index)[:2])
        return train, test

    def test_by_seed(self, csv) -> None:
        found = csv(self.TEXT, leave_out=["part", "when"])
        train, test = self.rows(found, 3)
        assert (len(train), sorted(train + test)) == (5, [1, 2, 3, 4, 5, 6])

    def test_by_column(self, csv) -> None:
        found = csv(self.TEXT, split_column="part", leave_out=["when"])
        assert (found.d, found.splits) == (1, 3)
        assert [self.rows(found, i)[1] for i in range(3)] == [[1, 4], [2, 5], [3, 6]]
        assert self.rows(found, 1)[0] == [1, 3, 4, 6]
        with pytest.raises(InputError, match="dataset 'houses' has no split 3; choose 0 to 2"):
            found.split(3)

    def test_by_train_and_test(self, csv) -> None:
        text = self.TEXT.replace(",a,", ",test,").replace(",b,", ",train,").replace(",c,", ",train,")
        found = csv(text, split_column="part", leave_out=["when"])
        assert found.splits == 1
        assert self.rows(found, 0) == ([2, 3, 5, 6], [1, 4])

    def test_by_group(self, csv) -> None:
        found = csv(self.TEXT, group="part", leave_out=["when"])
        pairs = {(1, 4), (2, 5), (3, 6)}
        tested = [tuple(self.rows(found, i)[1]) for i in range(20)]
        assert set(tested) == pairs  # one of three groups, each of them at some time
        assert self.rows(found, 7) == self.rows(found, 7)
        two = csv(self.TEXT, group="part", leave_out=["when"], test_share=0.7)
        assert all(len(self.rows(two, i)[1]) == 4 for i in range(5))
        most = csv(self.TEXT, group="part", leave_out=["when"], test_share=0.99)
        assert len(self.rows(most, 0)[0]) == 2  # one group is left to train on

    def test_by_time(self, csv) -> None:
        found = csv(self.TEXT, time="when", leave_out=["part"], test_share=0.3)
        assert found.splits == 1
        assert self.rows(found, 0) == ([1, 2, 4, 6], [3, 5])  # June and May

    def test_the_checksum_has_the_splits(self, csv) -> None:
        moved = self.TEXT.replace("1,a", "1,b")
        one, other = (csv(text, split_column="part", leave_out=["when"]) for text in (self.TEXT, moved))
        np.testing.assert_array_equal(one.x, other.x)
        assert one.checksum != other.checksum


def test_openml_is_read_through_scikit_learn(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked = {}

    def fetch(**arguments: object) -> object:
        asked.update(arguments)
        frame = pd.DataFrame({"a": [1, 2, 3], "b": pd.Categorical(["u", "v", "u"]), "kind": list("xyx")})
        return type("Bunch", (), {"frame": frame, "target_names": ["kind"]})

    monkeypatch.setattr("sklearn.datasets.fetch_openml", fetch)
    monkeypatch.setenv("BDL_DATA_DIR", str(tmp_path))
    found = DATASETS.build("openml", {"id": 61})()
    assert (asked["data_id"], asked["data_home"]) == (61, str(tmp_path / "openml"))
    assert (found.name, found.task, found.y.tolist()) == ("openml_61", "classification", [0, 1, 0])
    assert found.x.tolist() == [[1, 1, 0], [2, 0, 1], [3, 1, 0]]
    assert DATASETS.build("openml", {"id": 61, "target": "a", "leave_out": ["kind"]})().task == "regression"


def test_openml_that_cannot_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    def fetch(**arguments: object) -> None:
        raise ConnectionError("no route\nto host")

    monkeypatch.setattr("sklearn.datasets.fetch_openml", fetch)
    with pytest.raises(InputError, match=r"cannot get data set 61 of OpenML \(no route\)$"):
        DATASETS.build("openml", {"id": 61})()
    with pytest.raises(InputError, match="dataset 'openml': id: Input should be greater than or equal to 1"):
        DATASETS.build("openml", {"id": 0})


def test_what_it_is_called(tmp_path: Path) -> None:
    (tmp_path / "wave.py").write_text("def wave(): ...\ndef flat(): ...\n")
    (tmp_path / "sub").mkdir()
    mine = {"name": "csv", "path": "data/mine.csv", "target": "y"}
    given = [mine, mine | {"label": "other"}, {"name": "openml", "id": 61}, f"{tmp_path}/wave.py:wave"]
    assert [DatasetName.read(one) for one in given] == ["mine", "other", "openml_61", "wave"]
    assert DatasetName.read(f"{tmp_path}/wave.py:flat") == "wave_flat"
    again = DatasetName.read(json.loads(json.dumps(DatasetName.read(mine).plain)))
    assert (again, again.name, again.settings["path"]) == ("mine", "csv", "data/mine.csv")


def test_described_without_being_read() -> None:
    name = Label("mine", "csv", {"path": "none.csv", "target": "y"})
    assert status(name) == []
    assert about(name) == ["A file of text with a line a row; UTF-8."]
    code = "import sys; from bdl.data import about; about('csv'); print('pandas' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"


MINE = """name: mine
title: Houses
datasets: [{name: csv, path: HOUSES, target: price, group: colour, leave_out: [chain]}]
splits: 2
entries:
  exact:
    model: {name: linear}
    likelihood: {name: gaussian}
    method: {name: conjugate}
    hyper: {prior_precision: 1, noise_precision: 1}
    by_dataset: {houses: {hyper: {noise_precision: 0.01}}}
metrics: [rmse]
"""


def test_a_benchmark_on_a_file_of_ones_own(tmp_path: Path, invoke) -> None:
    path, spec, results = tmp_path / "houses.csv", tmp_path / "mine.yaml", str(tmp_path / "results")
    path.write_text(HOUSES)
    spec.write_text(MINE.replace("HOUSES", str(path)))
    code, out, err = invoke("run", str(spec), "--results", results, "--tracking", "none")
    assert (code, err) == (0, ""), out + err
    rows = pd.read_parquet(tmp_path / "results/mine/trials.parquet")
    assert list(rows.dataset) == ["houses"] * 2
    assert set(rows.hyper_noise_precision) == {0.01}
    assert "\nhouses " in out
    code, out, err = invoke("run", str(spec), "--results", results, "--dry-run")
    assert (code, "everything is done" in out) == (0, True), out + err

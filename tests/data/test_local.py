"""Files of one's own as data sets: what is refused first, then what the numbers are."""

import datetime
import json
import re
import subprocess
import sys
import warnings
from contextlib import suppress
from decimal import Decimal
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


NUMBERS = [
    "1,5",
    "1,234",
    "1.234,5",
    "5%",
    "$5",
    "(5)",
    "0x1F",
    "1_000",
    "1'234",
    "1\u00a0234",
    "1/2",
    "\u22125",
    "1d5",
]
DATES = ["2026-01-31", "2026-01", "31.12.2026", "1/31/26", "2026-01-31T10:00:00Z", "2026-01-31 10:00", "Jan 5, 2026"]
DATES += ["05-JAN-26", "Mon, 5 January 2026", "2020Q1", "2020-W05"]
TIMES = ["10:30", "10:30 PM", "5 pm", "1 days 02:00:00", "1h 30m", "PT5H", "90s", "-1:02:03.5"]
TEXTS = [(text, kind) for kind, texts in (("number", NUMBERS), ("date", DATES), ("time", TIMES)) for text in texts]


@pytest.mark.parametrize(("text", "kind"), TEXTS)
@pytest.mark.parametrize("role", ["input", "target"])
def test_text_that_is_a_number_a_date_or_a_time_is_no_category(csv, tmp_path: Path, text, kind, role) -> None:
    """In a CSV file and in a Parquet file alike, whatever the column is for."""
    frame = pd.DataFrame({"a": ["red", text, text, text], "price": [1, 2, 3, 4]})
    if role == "target":
        frame = frame.set_axis(["price", "a"], axis=1)
    column = "a" if role == "input" else "price"
    message = f"column '{column}' has text that is a {kind}, .* in row 2: .*categories: \\[\"{column}\"\\]|say "
    with pytest.raises(InputError, match=message):
        csv(frame.to_csv(index=False, sep=";"))
    path = tmp_path / "same.parquet"
    frame.to_parquet(path)
    with pytest.raises(InputError, match=message):
        DATASETS.build("parquet", {"path": str(path), "target": "price"})()
    declared = csv(frame.to_csv(index=False, sep=";"), categories=[column])
    assert (declared.d, declared.task) == ((2, "regression") if role == "input" else (1, "classification"))


@pytest.mark.parametrize(
    "words", ["red A1", "20-29 30-39", "4+ 5+", "1.2.3 1.2.4", "1st 2nd", "2020-2021 2021-2022", "mon tue"]
)
def test_other_texts_are_categories(csv, words: str) -> None:
    found = csv("a,price\n" + "".join(f"{word},1\n" for word in words.split()))
    assert (found.d, found.columns) == (2, tuple(f"a={word}" for word in sorted(words.split())))


@pytest.mark.parametrize(
    ("texts", "cure", "settings", "values"),
    [
        (["1,5", "2", "-,25"], 'say decimal: ","', {"decimal": ","}, [1.5, 2, -0.25]),
        (["1,234", "5"], 'say thousands: "," or decimal: ","', {"thousands": ","}, [1234, 5]),
        (["1,234.5", "1,234,567"], 'say thousands: ","', {"thousands": ","}, [1234.5, 1234567]),
        (["1.234,5", "5"], 'say decimal: "," and thousands: "."', {"decimal": ",", "thousands": "."}, [1234.5, 5]),
        (["1'234", "5"], 'say thousands: "\'"', {"thousands": "'"}, [1234, 5]),
        (["1 234", "5"], 'say thousands: " "', {"thousands": " "}, [1234, 5]),
    ],
)
def test_the_setting_that_is_told_cures(csv, texts, cure, settings, values) -> None:
    text = "a;price\n" + "".join(f"{one};7\n" for one in texts)
    with pytest.raises(InputError, match=re.escape(cure) + "$"):
        csv(text)
    assert csv(text, **settings).x[:, 0].tolist() == values


def test_a_wrong_mark_of_thousands_is_refused(csv) -> None:
    with pytest.raises(InputError, match="'1,5' \\(row 2 of column 'a'\\) has no groups of three digits"):
        csv("a;price\n1,234;1\n1,5;2\n", thousands=",")
    with pytest.raises(InputError, match=r'number, .1\.234. in row 1: say thousands: "\."'):
        csv("a;price\n1.234;1\n5;2\n", decimal=",")
    with pytest.raises(InputError, match="decimal and thousands are both ','"):
        csv(HOUSES, decimal=",", thousands=",")


def test_a_column_without_a_name_is_refused(csv, tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": [3, 1, 2], "price": [1, 2, 3]})
    message = 'column 1 has no name, as row numbers that pandas writes: say leave_out: \\["Unnamed: 0"\\]'
    for text in (frame.to_csv(), '"","a","price"\n1,3,1\n2,1,2\n', frame.to_csv().replace(",a", "Unnamed: 0,a", 1)):
        with pytest.raises(InputError, match=message):
            csv(text)
    found = csv(frame.to_csv(), leave_out=["Unnamed: 0"])
    assert (found.columns, found.x.tolist()) == (("a",), [[3], [1], [2]])
    with pytest.raises(InputError, match="column 3 has no name"):
        csv("a,price,\n1,2,\n3,4,\n")
    path = tmp_path / "houses.parquet"
    build = lambda: DATASETS.build("parquet", {"path": str(path), "target": "price"})()  # noqa: E731
    frame[::-1].to_parquet(path)  # has row labels without a name
    assert build().columns == ("a",)
    frame.rename_axis("day").to_parquet(path)
    assert build().columns == ("a",)
    frame.set_index("a").to_parquet(path)  # an index that has a name is a column, as it is in a CSV file
    assert build().columns == ("a",)
    frame.assign(**{"Unnamed: 0": 1}).to_parquet(path)
    with pytest.raises(InputError, match="column 3 has no name"):
        build()


@pytest.mark.parametrize("word", ["NA", "None", "null", "nan", "n/a"])
def test_a_word_for_a_gap_among_categories_is_decided_by_a_setting(csv, word: str, caplog) -> None:
    text = f"a,price\nred,1\n{word},2\nred,3\n,4\n"
    with pytest.raises(InputError, match=f"'{word}' \\(row 2 of column 'a'\\) may be a gap or a category: say gaps: "):
        csv(text, missing="drop")
    assert csv(text, missing="drop", gaps=[word]).columns == ("a=red",)
    assert "houses: 2 of 4 rows dropped, which have gaps in a (2)" in caplog.text
    assert set(csv(text, missing="drop", gaps=[]).columns) == {"a=red", f"a={word}"}
    assert csv(text.replace("red", "7"), missing="drop").x.tolist() == [[7], [7]]  # among numbers it is a gap


def test_dropped_rows_are_told_with_their_columns(csv, caplog) -> None:
    csv("a,b,price\n1,x,2\n,x,3\n4,,5\n6,y,\n,,8\n", missing="drop")
    assert [record.getMessage() for record in caplog.records] == [
        "houses: 4 of 5 rows dropped, which have gaps in a (2), b (2), price (1)"
    ]


def test_text_that_differs_in_every_row_is_no_category(csv) -> None:
    rows = [f"n{i}" for i in range(60)]
    text = "a,price\n" + "".join(f"{one},1\n" for one in rows)
    with pytest.raises(InputError, match=r"column 'a' is text that differs in most rows \(60 values, such as 'n0'"):
        csv(text)
    assert csv(text, categories=["a"]).d == 60


def test_how_columns_were_read_is_kept(csv) -> None:
    assert csv(HOUSES, group="chain").read_as == (
        "price (target): numbers",
        "packages: numbers that count the rows",
        "colour: 3 categories",
        "chain (split): 3 groups",
    )
    numbers = csv("a,price\n" + "1,0\n2,1\n" * 5).read_as[0]
    assert numbers == "price (target): numbers, 2 different ones (task: classification makes classes of them)"
    assert csv(HOUSES, target="colour").read_as[0] == "colour (target): 3 classes, blue, green, red"
    assert csv(HOUSES, categories=["packages"], leave_out=["chain"]).read_as[1:] == (
        "packages: 4 categories",
        "colour: 3 categories",
    )


@pytest.mark.parametrize(
    ("column", "said"),
    [
        ([[1.0], [2.0]], "lists, mappings or values of several kinds"),
        ([{"a": 1}, {"a": 2}], "lists, mappings or values of several kinds"),
        (pd.period_range("2026-01", periods=2, freq="M"), "period"),
        (pd.to_timedelta([1, 2], unit="h"), "lengths of time"),
        ([b"x", b"y"], "bytes"),
        ([datetime.time(10, 30), datetime.time(11)], "time"),
        (pd.interval_range(0, 2), "interval"),
        ([datetime.date(2026, 1, 1), datetime.date(2026, 1, 2)], "dates"),
        (pd.date_range("2026-01-01", periods=2, tz="UTC"), "dates"),
        (["1", "2"], "text that is a number, '1' in row 1: store it as numbers"),
    ],
)
@pytest.mark.parametrize("name", ["a", "price"])
def test_columns_of_other_types_are_refused(tmp_path: Path, name, column, said) -> None:
    frame, path = (
        pd.DataFrame({"b": [1, 2], "a": [1, 2], "price": [1, 2]}).assign(**{name: column}),
        tmp_path / "odd.parquet",
    )
    frame.to_parquet(path)
    with pytest.raises(InputError, match=f"odd: column '{name}' has {said}") as caught:
        DATASETS.build("parquet", {"path": str(path), "target": "price"})()
    assert "\n" not in str(caught.value)
    settings = {"path": str(path), "target": "price" if name == "a" else "a", "leave_out": [name]}
    assert DATASETS.build("parquet", settings)().d == 1


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        ([Decimal("1.5"), Decimal("2.5")], [[1.5], [2.5]]),
        (pd.array([1, 2], dtype="Int64"), [[1], [2]]),
        (pd.array([1.5, 2.5], dtype="double[pyarrow]"), [[1.5], [2.5]]),
        (pd.array([True, False], dtype="boolean"), [[0, 1], [1, 0]]),
        (pd.Categorical([10, 9]), [[0, 1], [1, 0]]),
        (pd.Categorical(["1", "2"]), [[1, 0], [0, 1]]),
        ([" red", "red "], [[1], [1]]),
        (["red", "blue"], [[0, 1], [1, 0]]),
    ],
)
def test_columns_of_parquet_become_numbers(tmp_path: Path, column, expected) -> None:
    path = tmp_path / "odd.parquet"
    pd.DataFrame({"a": column, "price": [1, 2]}).to_parquet(path)
    assert DATASETS.build("parquet", {"path": str(path), "target": "price"})().x.tolist() == expected


def test_classes_that_are_numbers_keep_their_order(tmp_path: Path) -> None:
    path = tmp_path / "odd.parquet"
    pd.DataFrame({"a": [1, 2, 3], "price": pd.Categorical([10, 9, 10])}).to_parquet(path)
    found = DATASETS.build("parquet", {"path": str(path), "target": "price"})()
    assert (found.y.tolist(), found.read_as[0]) == ([1, 0, 1], "price (target): 2 classes, 9, 10")


def test_damaged_files_are_told_in_one_line(csv, tmp_path: Path) -> None:
    path = tmp_path / "damaged.parquet"
    pd.DataFrame({"a": np.arange(500.0), "k": list("uvwxy") * 100, "price": np.arange(500.0)}).to_parquet(path)
    whole, rng = path.read_bytes(), np.random.default_rng(0)
    for i in range(60):
        content = bytearray(whole[: rng.integers(len(whole))] if i < 20 else whole)
        for place in rng.integers(len(content) or 1, size=5) if i >= 20 else ():
            content[place] = rng.integers(256)
        path.write_bytes(bytes(content))
        with suppress(InputError):
            DATASETS.build("parquet", {"path": str(path), "target": "price"})()
    for i in range(60):
        text = bytearray(HOUSES.encode())
        for place in rng.integers(len(text), size=3):
            text[place] = rng.choice(list(b"\0\xff\",;\n\r\t '9x"))
        with suppress(InputError):
            csv(bytes(text), missing=("refuse", "drop")[i % 2])


def test_a_column_is_numbers_once_rows_with_gaps_elsewhere_are_dropped(csv) -> None:
    found = csv("a;b;price\n?;;1\n1,5;1;2\n2;1;3\n", missing="drop", decimal=",")
    assert found.x.tolist() == [[1.5, 1], [2, 1]]
    with pytest.raises(InputError, match="row 1 has '2026-01-31' in column 'a', where others have numbers"):
        csv("a,price\n2026-01-31,1\n1,2\n2,3\n")


def test_other_encodings_are_read_when_they_are_said(csv) -> None:
    text = "größe,price\n1,2\n3,4\n"
    for encoding in ("latin-1", "utf-16"):
        with pytest.raises(InputError, match="it is not UTF-8 text: say encoding: latin-1 or another"):
            csv(text.encode(encoding))
        assert csv(text.encode(encoding), encoding=encoding).columns == ("größe",)
    with pytest.raises(InputError, match="encoding: there is no latin-99: say utf-8"):
        csv(text, encoding="latin-99")


def test_a_header_of_numbers_in_any_notation_is_none(csv) -> None:
    with pytest.raises(InputError, match="the first line has numbers only"):
        csv("1,5;2,5\n3,5;4\n")
    found = csv("1,5;2,5\n3,5;4\n", header=False, decimal=",", target="1")
    assert (found.x.tolist(), found.y.tolist()) == ([[1.5], [3.5]], [2.5, 4])


def test_parts_are_not_what_rows_are_for(csv) -> None:
    for words in ("train test val", "True False True"):
        text = "a,price,s\n" + "".join(f"{i},1,{word}\n" for i, word in enumerate(words.split()))
        with pytest.raises(
            InputError, match=r"column 's' has '.*' beside other values than train and test: write train"
        ):
            csv(text, split_column="s")


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


@pytest.mark.filterwarnings("error")
def test_openml_that_cannot_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    def fetch(**arguments: object) -> None:
        warnings.warn("a network error occurred: retrying", stacklevel=1)
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
    assert about(name) == ["A file of text with a line a row."]
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
    told = "houses: 4 rows; price (target): numbers; packages: numbers that count the rows; colour (split): 3 groups\n"
    assert out.startswith(told)
    code, out, err = invoke("run", str(spec), "--results", results, "--dry-run")
    assert out.startswith(told)
    assert (code, "everything is done" in out) == (0, True), out + err

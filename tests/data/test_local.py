"""Files of one's own as data sets: what is refused first, then what the numbers are."""

import bz2
import datetime
import gzip
import io
import json
import lzma
import re
import tarfile
import warnings
import zipfile
from contextlib import suppress
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet
import pytest

from bdl.data import DATASETS, Dataset, describe_dataset, file_states, prepare_dataset
from bdl.errors import InputError
from bdl.records.run_folder import RunFolder
from bdl.registry import Label
from bdl.spec.labels import DatasetName

HOUSES = "packages,colour,chain,price\n1,red,a,10\n2,blue,b,20\n3,red,a,30\n4,green,c,40\n"


@pytest.fixture
def csv(tmp_path: Path):
    """Load a text as a data set, with settings."""

    def load(text: str | bytes, **settings: object) -> Dataset:
        path = tmp_path / "houses.csv"
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        dataset: Dataset = DATASETS.build(
            "csv", {"path": str(path), "target": "price", **settings}
        )()
        return dataset

    return load


@pytest.fixture
def parquet(tmp_path: Path):
    """Load a frame, or bytes, as a data set, with settings."""

    def load(frame: pd.DataFrame | bytes, **settings: object) -> Dataset:
        path = tmp_path / "odd.parquet"
        if isinstance(frame, bytes):
            path.write_bytes(frame)
        else:
            frame.to_parquet(path)
        dataset: Dataset = DATASETS.build(
            "parquet", {"path": str(path), "target": "price", **settings}
        )()
        return dataset

    return load


def column_of(*texts: str) -> str:
    return "a,price\n" + "".join(f"{text},1\n" for text in texts)


@pytest.mark.parametrize(
    ("text", "settings", "message"),
    [
        ("", {}, "houses.csv is empty: give a header"),
        ("\na,b\n1,2\n", {}, "houses.csv begins with a line that is blank: give a header"),
        ("a,price\n", {}, "houses has no rows: give one line a row"),
        ("price\n1\n2\n", {}, "houses has no column of inputs beside 'price': give at least one"),
        ("a,a,price\n1,2,3\n", {}, "houses.csv: the header has 'a' twice: rename one"),
        ("a,price,\n1,2,\n3,4,\n", {}, "column 3 has no name"),
        (
            "1,2,3\n4,5,6\n",
            {},
            "houses.csv: the first line has numbers only: say header: false if it is no header",
        ),
        ("1,5;2,5\n3,5;4\n", {}, "the first line has numbers only"),
        (
            "a,price\n1,2\n3,4,5\n",
            {},
            "cannot read .*houses.csv: .*; give every line as many values as the first",
        ),
        (
            "sep=,\na,b,price\n1,2,3\n3,4,5\n",
            {},
            "cannot read .*houses.csv: .*; remove the first line, which is no header",
        ),
        ("a," + "b" * 140_000 + "\n1,2\n", {}, "cannot read .*houses.csv: field larger than"),
        ("a price\n1 2\n3 4\n", {}, "the header has blanks and no separator: say separator:"),
        (
            "a,price\n1,2,3\n3,4,5\n",
            {},
            "cannot read .*houses.csv: .*; give every line as many values as the first",
        ),
        (
            b"a,price\n\xff,2\n",
            {},
            "cannot read .*houses.csv: it is not UTF-8 text: say encoding: latin-1 or another",
        ),
        (HOUSES, {"encoding": "latin-99"}, "encoding: there is no latin-99: say utf-8"),
        (HOUSES, {"target": "prise"}, "houses: unknown column 'prise': did you mean price"),
        (HOUSES, {"leave_out": ["colou"]}, "houses: unknown column 'colou': did you mean colour"),
        (
            HOUSES,
            {"group": "chain", "time": "packages"},
            "^group and time are ways to split: keep one",
        ),
        (
            HOUSES,
            {"task": "regression", "target": "colour"},
            "target 'colour' is text such as 'red': say task",
        ),
        (
            "a,price\n1,2\n,3\n4,\n",
            {},
            "row 2 has no finite value in column 'a', and 2 of 3 rows have such gaps",
        ),
        (
            "a,price\n1,2\n3,inf\n",
            {},
            "row 2 has no finite value in column 'price', and 1 of 2 rows have such gaps",
        ),
        ("a,price\n,2\n3,\n", {"missing": "drop"}, "houses has no rows without gaps"),
        (
            "a,price\n1,2\n?,3\n4,5\n",
            {},
            "row 2 has '\\?' in column 'a', where others have numbers",
        ),
        (
            "a,price\n1,2\n2,n/k\n4,5\n",
            {},
            "row 2 has 'n/k' in column 'price', where others have numbers",
        ),
        ("a,price\n,1\n1,2\n?,3\n4,5\n", {"missing": "drop"}, "row 3 has '\\?' in column 'a'"),
        (
            column_of("2026-01-31", "1", "2"),
            {},
            "row 1 has '2026-01-31' in column 'a', where others have numbers",
        ),
        (
            column_of(*(f"n{i}" for i in range(101))),
            {},
            "column 'a' has 101 different values, such as",
        ),
        (
            "a,price,s\n1,2,x\n2,3,x\n",
            {"split_column": "s"},
            "column 's' leaves no rows to train on",
        ),
        ("a,price,s\n1,2,x\n2,3,y\n", {"time": "s"}, "column 's' has no dates or numbers"),
        (
            "a,price,s\n1,1,train\n2,1,test\n3,1,val\n",
            {"split_column": "s"},
            "column 's' has 'train' beside other values than train and test: write train",
        ),
        (
            "a,price,s\n1,1,True\n2,1,False\n",
            {"split_column": "s"},
            "column 's' has 'True' beside other values than",
        ),
        (HOUSES, {"test_share": 1.0}, "dataset 'csv': test_share: Input should be less than 1"),
        (HOUSES, {"separator": ", "}, "dataset 'csv': separator: .* at most 1 character"),
        (HOUSES, {"decimal": ",", "thousands": ","}, "decimal and thousands are both ','"),
        (
            "a;price\n1,234;1\n1,5;2\n",
            {"thousands": ","},
            "'1,5' \\(row 2 of column 'a'\\) has no groups of three digits",
        ),
    ],
)
def test_bad_input_is_told_in_one_line(csv, text, settings, message) -> None:
    with pytest.raises(InputError, match=message) as caught:
        csv(text, **settings)
    assert "\n" not in str(caught.value)


def test_files_that_cannot_be_read(parquet, tmp_path: Path) -> None:
    for name in ("csv", "parquet"):
        with pytest.raises(InputError, match=r"cannot read .*none\.x: No such file or directory"):
            DATASETS.build(name, {"path": str(tmp_path / "none.x"), "target": "y"})()
    with pytest.raises(InputError, match=r"cannot read .*odd\.parquet: "):
        parquet(HOUSES.encode())


def compress_zip(content: bytes, *names: str) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in names:
            archive.writestr(name, content)
    return file.getvalue()


def compress_tar(content: bytes) -> bytes:
    file, member = io.BytesIO(), tarfile.TarInfo("houses.csv")
    member.size = len(content)
    with tarfile.open(fileobj=file, mode="w:gz") as archive:
        archive.addfile(member, io.BytesIO(content))
    return file.getvalue()


COMPRESS = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "lzma": lambda content: lzma.compress(content, lzma.FORMAT_ALONE),
    "zst": lambda content: pyarrow.compress(content, "zstd", asbytes=True),
    "zip": lambda content: compress_zip(content, "houses.csv", "__MACOSX/._houses.csv"),
}
"""By what names of such files end in."""


@pytest.mark.parametrize("ending", COMPRESS)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_compressed_files_are_read_whatever_their_names(csv, parquet, ending, encoding) -> None:
    """The fixture names the file houses.csv."""
    text = HOUSES.replace("red", "r\u00f6d")
    dataset, expected = (
        csv(content, encoding=encoding, leave_out=["packages"])
        for content in (COMPRESS[ending](text.encode(encoding)), text.encode(encoding))
    )
    np.testing.assert_array_equal(dataset.x, expected.x)
    assert (dataset.columns, dataset.y.tolist()) == (expected.columns, [10, 20, 30, 40])
    frame = pd.DataFrame({"a": [1.0, 2.0], "price": [3.0, 4.0]})
    plain = io.BytesIO()
    frame.to_parquet(plain)
    assert parquet(COMPRESS[ending](plain.getvalue())).y.tolist() == [3, 4]


NO_TEXT = {
    "part of a gzip": (gzip.compress(HOUSES.encode())[:8], r"compressed \(gzip\) .*: unpack it"),
    "tar": (compress_tar(HOUSES.encode()), r"is an archive \(tar\): unpack it"),
    "plain tar": (
        gzip.decompress(compress_tar(HOUSES.encode())),
        r"is an archive \(tar\): unpack it",
    ),
    "twice": (gzip.compress(gzip.compress(b"a,b")), r"is compressed \(gzip\): unpack it and name"),
    "no file": (compress_zip(b""), "is a zip archive without a file: name another"),
    "RAR": (b"Rar!\x1a\x07\x00abc", r"is compressed \(RAR\): unpack it and name a file"),
    "7-Zip": (b"7z\xbc\xaf\x27\x1c\x00", r"is compressed \(7-Zip\): unpack it and name a file"),
    "two files": (compress_zip(b"1", "a.csv", "b.csv"), "a zip archive of 2 files: unpack it and"),
    "workbook": (compress_zip(b"1", "[Content_Types].xml", "xl/a.xml"), "a workbook .*: save the"),
    "Parquet": (b"PAR1" + bytes(20), "is a Parquet file: say name: parquet"),
    "bytes": (bytes(range(256)), "it is not .* text: say its encoding"),
    "bytes at the end": (HOUSES.encode() + 5000 * b"x" + b"\x00\x1b[31m", "."),
    "colour": (HOUSES.replace("red", "\x1b[31mr\x85").encode() + b"1\n", "."),
    "header": (HOUSES.replace("colour", "\x9b").replace("chain", "\x9b").encode(), "."),
}
for ending, compress in COMPRESS.items():
    NO_TEXT[ending] = compress(HOUSES.encode())[:-12], r"compressed \(\w+\) and damaged"


@pytest.mark.parametrize("kind", NO_TEXT)
@pytest.mark.parametrize("settings", [{}, {"encoding": "latin-1"}, {"target": "\x1b[31m"}])
def test_no_message_has_bytes_that_are_no_text(csv, kind, settings) -> None:
    content, message = NO_TEXT[kind]
    with pytest.raises(InputError, match=message) as caught:
        csv(content, **settings)
    assert str(caught.value).isprintable()


def test_damaged_files_raise_nothing_else(csv, parquet, tmp_path: Path) -> None:
    frame = pd.DataFrame(
        {"a": np.arange(500.0), "k": list("uvwxy") * 100, "price": np.arange(500.0)}
    )
    assert parquet(frame).d == 6
    whole, rng = (tmp_path / "odd.parquet").read_bytes(), np.random.default_rng(0)
    for i in range(60):
        content = bytearray(whole[: rng.integers(len(whole))] if i < 20 else whole)
        for place in rng.integers(len(content) or 1, size=5) if i >= 20 else ():
            content[place] = rng.integers(256)
        with suppress(InputError):
            parquet(bytes(content))
    for i in range(60):
        text = bytearray(HOUSES.encode())
        for place in rng.integers(len(text), size=3):
            text[place] = rng.choice(list(b"\0\xff\",;\n\r\t '9x"))
        with suppress(InputError):
            csv(bytes(text), missing=("refuse", "drop")[i % 2])


CATEGORIES = ["10 kg", "12 men", "size 42", "3-4", "V8", "2 bed", "18+", "rs7903146", "kr1", "18-"]
CATEGORIES += [
    "12ABC1234",
    "12-LOT-2020",
    "2 door 2010",
    "2011-10 red",
    "5000m1",
    "1.1.",
    "2020_1",
]
CATEGORIES += ['13"', "5'10\"", "10 Main 2020"]


@pytest.mark.parametrize("text", CATEGORIES)
def test_a_category_with_a_number_in_it_is_a_category(csv, text) -> None:
    frame = pd.DataFrame({"a": [text, "red", text], "price": [1, 2, 3]})
    assert csv(frame.to_csv(index=False)).d == 2


def test_columns_become_numbers(csv) -> None:
    found = csv(HOUSES, leave_out=["chain"])
    assert (found.name, found.task, found.splits) == ("houses", "regression", None)
    #                      packages, blue, green, red
    assert found.x.tolist() == [[1, 0, 0, 1], [2, 1, 0, 0], [3, 0, 0, 1], [4, 0, 1, 0]]
    assert found.y.tolist() == [10, 20, 30, 40]


@pytest.mark.parametrize(
    "text",
    [HOUSES.replace(",", mark) for mark in ";\t|"]
    + [mark + HOUSES for mark in ("\ufeff", "\ufeff\ufeff")],
)
def test_separators_are_found(csv, text: str) -> None:
    np.testing.assert_array_equal(csv(text).x, csv(HOUSES).x)


def test_a_name_of_two_lines_is_no_header_of_blanks(csv) -> None:
    data = csv('"size in\nm2",price\n1,2\n3,4\n')
    assert data.x.tolist() == [[1], [3]]


@pytest.mark.parametrize(
    ("text", "settings", "x", "y"),
    [
        (
            '"a;b";price\n"1,5";2,25\n-3;4\n',
            {"decimal": ",", "separator": ";"},
            [[1.5], [-3.0]],
            [2.25, 4.0],
        ),
        ("1,2\n3,4\n", {"header": False, "target": "0"}, [[2], [4]], [1, 3]),
        (
            "1,5;2,5\n3,5;4\n",
            {"header": False, "decimal": ",", "target": "1"},
            [[1.5], [3.5]],
            [2.5, 4],
        ),
        (
            "a,b,price\n1,x,2\n,x,3\n4,,5\n6,y,\n7,y,8\n",
            {"missing": "drop"},
            [[1, 1, 0], [7, 0, 1]],
            [2, 8],
        ),
        # a column is numbers once rows with gaps elsewhere are dropped
        (
            "a;b;price\n?;;1\n1,5;1;2\n2;1;3\n",
            {"missing": "drop", "decimal": ","},
            [[1.5, 1], [2, 1]],
            [2, 3],
        ),
    ],
)
def test_texts_and_their_numbers(csv, text, settings, x, y) -> None:
    found = csv(text, **settings)
    assert (found.x.tolist(), found.y.tolist()) == (x, y)


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16"])
def test_other_encodings_are_read_when_they_are_said(csv, encoding: str) -> None:
    text = "größe,price\n1,2\n3,4\n".encode(encoding)
    with pytest.raises(InputError, match="it is not UTF-8 text"):
        csv(text)
    assert csv(text, encoding=encoding).columns == ("größe",)


def test_the_target_tells_the_task(csv, parquet) -> None:
    order = pd.DataFrame({"a": [1, 2, 3], "price": pd.Categorical([10, 9, 10])})
    for found, classes in (
        (csv(HOUSES, target="colour", leave_out=["chain"]), [2, 0, 2, 1]),
        (csv("a,price\n1,30\n2,7\n3,30\n", task="classification"), [1, 0, 1]),
        (csv("a,price\n1,True\n2,False\n"), [1, 0]),
        (parquet(order), [1, 0, 1]),
    ):
        assert (found.task, found.y.tolist()) == ("classification", classes)


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
    "'4.5'",
    '="4.5"',
    "4.5-",
    "4\u00b75",
    "US$4.5",
    "R$ 4.5",
    "4.5 kr",
    "4.5 z\u0142",
    "4.5 percent",
]
DATES = [
    "2026-01-31",
    "2026-01",
    "31.12.2026",
    "1/31/26",
    "2026-01-31T10:00:00Z",
    "2026-01-31 10:00",
    "Jan 5, 2026",
]
DATES += ["05-JAN-26", "Mon, 5 January 2026", "2020Q1", "2020-W05"]
DATES += ["01JAN2020", "01JAN2020:12:30:00", "01/Jan/2020:10:00:00 +0000", "2020-Jan-05"]
DATES += ["25.Jan.2020", "2020-01-25Z", "2020_01_25", "2020M01", "25 janv. 2020", "25.01."]
DATES += ["2020-01-25 (Sat)", "2020\u5e7401\u670825\u65e5"]
TIMES = ["10:30", "10:30 PM", "5 pm", "1 days 02:00:00", "1h 30m", "PT5H", "90s", "-1:02:03.5"]
TEXTS = [
    (text, kind)
    for kind, texts in (("number", NUMBERS), ("date", DATES), ("time", TIMES))
    for text in texts
]


@pytest.mark.parametrize(("text", "kind"), TEXTS)
def test_text_that_is_a_number_a_date_or_a_time_is_no_category(csv, parquet, text, kind) -> None:
    """In a CSV file and in a Parquet file alike, as an input and as a target."""
    texts, numbers = ["red", text, text, text], [1, 2, 3, 4]
    for column, frame in (
        ("a", pd.DataFrame({"a": texts, "price": numbers})),
        ("price", pd.DataFrame({"price": texts, "a": numbers})),
    ):
        message = f"column '{column}' has text that is a {kind}, .* in row 2: .*categories: \\[\"{column}\"\\]|say "
        lines = frame.to_csv(index=False, sep=";")
        for load, given in ((csv, lines), (parquet, frame)):
            with pytest.raises(InputError, match=message):
                load(given)
        declared = csv(lines, categories=[column])
        assert (declared.d, declared.task) == (
            (2, "regression") if column == "a" else (1, "classification")
        )


@pytest.mark.parametrize(
    "words",
    ["red A1", "20-29 30-39", "4+ 5+", "1.2.3 1.2.4", "1st 2nd", "2020-2021 2021-2022", "mon tue"],
)
def test_other_texts_are_categories(csv, words: str) -> None:
    found = csv(column_of(*words.split()))
    assert (found.d, found.columns) == (2, tuple(f"a={word}" for word in sorted(words.split())))


@pytest.mark.parametrize(
    ("texts", "cure", "settings", "values"),
    [
        (["1,5", "2", "-,25"], 'say decimal: ","', {"decimal": ","}, [1.5, 2, -0.25]),
        (["1,234", "5"], 'say thousands: "," or decimal: ","', {"thousands": ","}, [1234, 5]),
        (["1,234.5", "1,234,567"], 'say thousands: ","', {"thousands": ","}, [1234.5, 1234567]),
        (
            ["1.234,5", "5"],
            'say decimal: "," and thousands: "."',
            {"decimal": ",", "thousands": "."},
            [1234.5, 5],
        ),
        (["1'234", "5"], 'say thousands: "\'"', {"thousands": "'"}, [1234, 5]),
        (["1 234", "5"], 'say thousands: " "', {"thousands": " "}, [1234, 5]),
    ],
)
def test_the_setting_that_is_told_cures(csv, texts, cure, settings, values) -> None:
    text = "a;price\n" + "".join(f"{one};7\n" for one in texts)
    with pytest.raises(InputError, match=re.escape(cure) + "$"):
        csv(text)
    assert csv(text, **settings).x[:, 0].tolist() == values


def test_thousands_are_not_taken_for_decimals(csv) -> None:
    with pytest.raises(InputError, match=r'number, .1\.234. in row 1: say thousands: "\."'):
        csv("a;price\n1.234;1\n5;2\n", decimal=",")


def test_a_column_without_a_name_is_refused(csv, parquet) -> None:
    frame = pd.DataFrame({"a": [3, 1, 2], "price": [1, 2, 3]})
    message = 'column 1 has no name, as row numbers that pandas writes: say leave_out: \\["Unnamed: 0"\\]'
    for text in (
        frame.to_csv(),
        '"","a","price"\n1,3,1\n2,1,2\n',
        frame.to_csv().replace(",a", "Unnamed: 0,a", 1),
    ):
        with pytest.raises(InputError, match=message):
            csv(text)
    found = csv(frame.to_csv(), leave_out=["Unnamed: 0"])
    assert (found.columns, found.x.tolist()) == (("a",), [[3], [1], [2]])
    # row labels without a name are none; an index that has a name is a column, as it is in a CSV
    # file
    for labelled in (frame[::-1], frame.rename_axis("day"), frame.set_index("a")):
        assert parquet(labelled).columns == ("a",)
    with pytest.raises(InputError, match="column 3 has no name"):
        parquet(frame.assign(**{"Unnamed: 0": 1}))


@pytest.mark.parametrize("word", ["NA", "None", "nan", "n/a"])
def test_a_word_for_a_gap_among_categories_is_decided_by_a_setting(csv, word: str) -> None:
    text = f"a,price\nred,1\n{word},2\nred,3\n,4\n"
    with pytest.raises(
        InputError,
        match=f"'{word}' \\(row 2 of column 'a'\\) may be a gap or a category: say gaps: ",
    ):
        csv(text, missing="drop")
    assert csv(text, missing="drop", gaps=[word]).columns == ("a=red",)
    assert set(csv(text, missing="drop", gaps=[]).columns) == {"a=red", f"a={word}"}
    assert csv(text.replace("red", "7"), missing="drop").x.tolist() == [
        [7],
        [7],
    ]  # among numbers it is a gap


def test_dropped_rows_are_told_with_their_columns(csv, caplog) -> None:
    csv("a,b,price\n1,x,2\n,x,3\n4,,5\n6,y,\n,,8\n", missing="drop")
    assert caplog.messages == [
        "houses: 4 of 5 rows dropped, which have gaps in a (2), b (2), price (1)"
    ]


def test_text_that_differs_in_every_row_is_no_category(csv) -> None:
    text = column_of(*(f"n{i}" for i in range(60)))
    with pytest.raises(
        InputError, match=r"column 'a' is text that differs in most rows \(60 values, such as 'n0'"
    ):
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
    assert (
        numbers
        == "price (target): numbers, 2 different ones (task: classification makes classes of them)"
    )
    assert (
        csv(HOUSES, target="colour").read_as[0] == "colour (target): 3 classes, blue, green, red"
    )
    assert csv(HOUSES, categories=["packages"]).read_as[1] == "packages: 4 categories"


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
        (
            [datetime.date(2026, 1, 1), datetime.date(2026, 1, 2)],
            "dates: leave it out, or split by it",
        ),
        (pd.date_range("2026-01-01", periods=2, tz="UTC"), "dates"),
        (["1", "2"], "text that is a number, '1' in row 1: store it as numbers"),
    ],
)
@pytest.mark.parametrize("name", ["a", "price"])
def test_columns_of_other_types_are_refused(parquet, name, column, said) -> None:
    frame = pd.DataFrame({"b": [1, 2], "a": [1, 2], "price": [1, 2]}).assign(**{name: column})
    with pytest.raises(InputError, match=f"^odd: column '{name}' has {said}[^\n]*$"):
        parquet(frame)
    assert parquet(frame, target="price" if name == "a" else "a", leave_out=[name]).d == 1


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
def test_columns_of_parquet_become_numbers(parquet, column, expected) -> None:
    assert parquet(pd.DataFrame({"a": column, "price": [1, 2]})).x.tolist() == expected


def test_two_columns_of_one_name_are_refused(parquet) -> None:
    file = io.BytesIO()
    columns = [pyarrow.array([1.0, 2.0])] * 3
    pyarrow.parquet.write_table(pyarrow.table(columns, names=["a", "a", "price"]), file)
    with pytest.raises(InputError, match=r"odd\.parquet has the column 'a' twice: rename one"):
        parquet(file.getvalue())


def test_parquet_equals_csv(csv, parquet, tmp_path: Path) -> None:
    expected = csv(HOUSES)
    found = parquet(pd.read_csv(tmp_path / "houses.csv").astype({"colour": "category"}))
    assert (found.name, found.checksum) == ("odd", expected.checksum)


PARTS = (
    "row,part,when,price\n1,a,2020-03-01,0\n2,b,2020-01-01,0\n3,c,2020-06-01,0\n4,a,2020-02-01,0\n"
)
PARTS += "5,b,2020-05-01,0\n6,c,2020-04-01,0\n"
"""The row number, from 1, is what is left as an input."""


def ordered_rows(dataset: Dataset, index: int) -> tuple[list[int], list[int]]:
    train, test = (dataset.x[part, 0].astype(int).tolist() for part in dataset.split(index)[:2])
    return train, test


def rows(dataset: Dataset, index: int) -> tuple[list[int], list[int]]:
    train, test = ordered_rows(dataset, index)
    return sorted(train), sorted(test)


def test_splits_by_seed_part_train_and_test_or_time(csv) -> None:
    by_seed = csv(PARTS, leave_out=["part", "when"])
    train, test = rows(by_seed, 3)
    assert (len(train), sorted(train + test)) == (5, [1, 2, 3, 4, 5, 6])
    by_part = csv(PARTS, split_column="part", leave_out=["when"])
    assert (by_part.d, by_part.splits) == (1, 3)
    assert [rows(by_part, i)[1] for i in range(3)] == [[1, 4], [2, 5], [3, 6]]
    assert rows(by_part, 1)[0] == [1, 3, 4, 6]
    with pytest.raises(
        InputError,
        match=r"dataset 'houses' has no split 3; choose 0 to 2, or .*\{splits: \{houses: 3\}\}",
    ):
        by_part.split(3)
    text = PARTS.replace(",a,", ",test,").replace(",b,", ",train,").replace(",c,", ",train,")
    by_name = csv(text, split_column="part", leave_out=["when"])
    assert (by_name.splits, rows(by_name, 0)) == (1, ([2, 3, 5, 6], [1, 4]))
    by_time = csv(PARTS, time="when", leave_out=["part"], test_share=0.3)
    left_out = csv(PARTS, time="when", leave_out=["part", "when"], test_share=0.3)
    assert left_out.x.tolist() == by_time.x.tolist(), "it is no input in any case"
    # training rows in order of time, January to April, since folds are cut in it
    assert (by_time.splits, ordered_rows(by_time, 0)) == (1, ([2, 4, 1, 6], [5, 3]))


def test_groups_stay_together(csv) -> None:
    found = csv(PARTS, group="part", leave_out=["when"])
    tested = [tuple(rows(found, i)[1]) for i in range(20)]
    assert set(tested) == {
        (1, 4),
        (2, 5),
        (3, 6),
    }  # one of three groups, each of them at some time
    assert rows(found, 7) == rows(found, 7)
    for share in (0.7, 0.99):  # one group is left to train on
        assert len(rows(csv(PARTS, group="part", leave_out=["when"], test_share=share), 0)[0]) == 2


LEVELS = ["low", "medium", "high", "low", "high"]


def write_levels() -> str:
    return "a,price\n" + "".join(f"{i},{level}\n" for i, level in enumerate(LEVELS))


@pytest.mark.parametrize(
    "declared", [["low", "medium", "high"], ["none", "low", "medium", "high"]]
)
@pytest.mark.parametrize("writer", ["pandas", "arrow"])
def test_an_ordered_dictionary_of_parquet_orders_the_classes(
    parquet, tmp_path: Path, declared: list[str], writer: str
) -> None:
    """Classes without rows are left out."""
    frame = pd.DataFrame({"a": range(5), "price": LEVELS})
    frame["price"] = pd.Categorical(LEVELS, categories=declared, ordered=True)
    if writer == "pandas":
        dataset = parquet(frame)
    else:
        file = io.BytesIO()
        table = pyarrow.Table.from_pandas(frame).replace_schema_metadata()
        pyarrow.parquet.write_table(table, file)
        dataset = parquet(file.getvalue())
    assert (dataset.y.tolist(), dataset.ordered) == ([0, 1, 2, 0, 2], True)
    assert dataset.read_as[0] == "price (target): 3 classes in this order, low, medium, high"
    unordered = parquet(frame.astype({"price": pd.CategoricalDtype(declared)}))
    assert (unordered.y.tolist(), unordered.ordered) == ([1, 2, 0, 1, 0], False)
    assert unordered.read_as[0] == "price (target): 3 classes, high, low, medium"


@pytest.mark.parametrize(
    ("text", "settings", "y", "ordered", "description"),
    [
        (
            write_levels(),
            {"classes": ["low", "medium", "high"]},
            [0, 1, 2, 0, 2],
            True,
            "3 classes in this order, low, medium, high",
        ),
        (write_levels(), {}, [1, 2, 0, 1, 0], False, "3 classes, high, low, medium"),
        (
            "a,price\n1,yes\n2,no\n3,yes\n",
            {},
            [1, 0, 1],
            False,
            "2 classes, no, yes (positive: yes)",
        ),
        (
            "a,price\n1,yes\n2,no\n3,yes\n",
            {"positive": "no"},
            [0, 1, 0],
            False,
            "2 classes, yes, no (positive: no)",
        ),
        (
            "a,price\n1,1.0\n2,2.0\n3,10.0\n",
            {"task": "classification"},
            [0, 1, 2],
            True,
            "3 classes in this order, 1.0, 2.0, 10.0",
        ),
        (
            "a,price\n1,1.0\n2,2.0\n3,10.0\n",
            {"classes": [10, 2, 1]},
            [2, 1, 0],
            True,
            "3 classes in this order, 10.0, 2.0, 1.0",
        ),
        (
            "a,price\n1,True\n2,False\n",
            {"positive": False},
            [0, 1],
            False,
            "2 classes, True, False (positive: False)",
        ),
    ],
)
def test_settings_order_the_classes(csv, text, settings, y, ordered, description) -> None:
    dataset = csv(text, **settings)
    assert (dataset.task, dataset.y.tolist()) == ("classification", y)
    assert (dataset.read_as[0], dataset.ordered) == (f"price (target): {description}", ordered)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"classes": ["low", "high"]}, "classes lacks 'medium', which column 'price' has: list"),
        ({"classes": ["low", "mid", "high"]}, "no class 'mid': name one of high, low, medium"),
        ({"classes": ["high", "high", "low"]}, "classes has 'high' twice: name each once"),
        ({"positive": "low"}, "positive is the second of two classes, and .* 'price' has 3"),
        ({"positive": "low", "task": "regression"}, "classes and positive are of a classifi"),
    ],
)
def test_settings_of_classes_that_are_refused(csv, settings, message) -> None:
    with pytest.raises(InputError, match=message):
        csv(write_levels(), **settings)


ORDERED = """name: levels
title: Levels
datasets: [{name: csv, path: FILE, target: price}]
splits: 1
entries:
  exact:
    model: {name: linear}
    likelihood: {name: categorical}
    method: {name: laplace}
    hyper: {prior_precision: 1}
metrics: [rps]
"""


def test_scores_of_ordered_classes_need_an_order(tmp_path: Path, invoke) -> None:
    path, spec = tmp_path / "levels.csv", tmp_path / "b.yaml"
    path.write_text("a,price\n" + "".join(f"{i},{LEVELS[i % 5]}\n" for i in range(40)))
    command = ("run", str(spec), "--results", str(tmp_path / "results"), "--tracking", "none")
    spec.write_text(ORDERED.replace("FILE", str(path)))
    code, _, err = invoke(*command)
    assert code == 2
    assert "'rps' scores ordered classes, and the 3 classes of dataset 'levels' have no" in err
    for metric in ("precision", "recall", "f1", "auroc"):
        code, _, err = invoke(*command, "--set", f"metrics=[{metric}]")
        assert code == 2
        assert f"'{metric}' scores two classes, and dataset 'levels' has 3: use" in err
    spec.write_text(ORDERED.replace("FILE", f"{path}, classes: [low, medium, high]"))
    code, out, err = invoke(*command)
    assert (code, err) == (0, ""), out + err
    assert "price (target): 3 classes in this order, low, medium, high" in out


def write_by_kind() -> pd.DataFrame:
    """Sixty rows sorted by the target, with a column for each way to split."""
    generator, number = np.random.default_rng(0), np.arange(60)
    return pd.DataFrame(
        {
            "row": number,
            "x": generator.normal(size=60),
            "price": np.repeat(["s", "t", "u"], 20),
            "role": np.where(number % 5 == 0, "test", "train"),
            "part": number % 3,
            "who": [f"p{i // 4:02d}" for i in number],
            "when": number // 7,
        }
    )


@pytest.mark.parametrize(
    "way", [{"split_column": "role"}, {"split_column": "part"}, {"group": "who"}, {"time": "when"}]
)
@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_folds_do_not_rest_on_the_order_of_the_file(csv, parquet, way, form) -> None:
    (column,) = way.values()
    frame = write_by_kind()
    settings = way | {"leave_out": sorted({"role", "part", "who", "when"} - {column})}

    def fold_contents(frame: pd.DataFrame) -> list[list[list[int]]]:
        if form == "csv":
            dataset = csv(frame.to_csv(index=False), **settings)
        else:
            dataset = parquet(frame, **settings)
        return [
            [dataset.x[fold, 0].astype(int).tolist() for fold in pair]
            for index in range(dataset.splits or 3)
            for pair in dataset.folds(dataset.split(index).train, 4)
        ]

    contents = fold_contents(frame)
    for seed in range(3):
        assert fold_contents(frame.sample(frac=1, random_state=seed)) == contents
    for training, validation in contents:
        if "time" in way:  # blocks of time
            times = [row // 7 for row in validation]
            assert times == sorted(times)
        else:
            assert training != sorted(training)
            assert {row // 20 for row in training} == {0, 1, 2}
        if "group" in way:
            assert not {row // 4 for row in training} & {row // 4 for row in validation}


GROUPED = """name: grouped
title: Groups
datasets: [{name: csv, path: FILE, target: y, group: who}]
splits: 2
entries:
  exact:
    model: {name: linear}
    likelihood: {name: gaussian}
    method: {name: conjugate}
    hyper: {noise_precision: 1}
    search: {sampler: grid, folds: FOLDS, metric: rmse, grid: {prior_precision: [0.001, 1, 1000]}}
metrics: [rmse]
"""


def test_a_search_keeps_groups_whole(tmp_path: Path, invoke) -> None:
    """Targets of other groups are noise of deviation 3; repeats of a row within a group are not.

    In folds of single rows the precision 1 has an error of 0.9, and is chosen.
    """
    generator = np.random.default_rng(0)
    group = np.repeat(np.arange(40), 3)
    frame = pd.DataFrame(generator.normal(size=(40, 30))[group]).add_prefix("x")
    frame["y"] = 3 * generator.normal(size=40)[group] + 0.1 * generator.normal(size=120)
    frame["who"] = [f"p{i}" for i in group]
    path, spec, results = tmp_path / "rows.csv", tmp_path / "b.yaml", tmp_path / "results"
    frame.sample(frac=1, random_state=0).to_csv(path, index=False)
    command = ("run", str(spec), "--results", str(results), "--tracking", "none")
    spec.write_text(GROUPED.replace("FILE", str(path)).replace("FOLDS", "37"))
    code, _, err = invoke(*command)
    assert (code, err.count("\n")) == (2, 1)
    assert "search.folds: 37 folds but rows has 36 groups that train; choose at most 36" in err
    spec.write_text(GROUPED.replace("FILE", str(path)).replace("FOLDS", "5"))
    code, out, err = invoke(*command)
    assert (code, err) == (0, ""), out + err
    trials = RunFolder(results / "grouped").tabulate()
    scores = trials[trials.stage == "search"].groupby("hyper_prior_precision").rmse.mean()
    assert scores.min() > 2.5
    assert set(trials[trials.stage == "final"].hyper_prior_precision) == {1000}


def test_the_checksum_has_the_splits(csv) -> None:
    one, other = (
        csv(text, split_column="part", leave_out=["when"])
        for text in (PARTS, PARTS.replace("1,a", "1,b"))
    )
    np.testing.assert_array_equal(one.x, other.x)
    assert one.checksum != other.checksum


@pytest.mark.filterwarnings("error")
def test_openml_is_read_through_scikit_learn(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked = {}

    def fetch(**arguments: object) -> object:
        asked.update(arguments)
        frame = pd.DataFrame(
            {"a": [1, 2, 3], "b": pd.Categorical(["u", "v", "u"]), "kind": list("xyx")}
        )
        return type("Bunch", (), {"frame": frame, "target_names": ["kind"]})

    def without_network(**arguments: object) -> None:
        warnings.warn("a network error occurred: retrying", stacklevel=1)
        raise ConnectionError("no route\nto host")

    monkeypatch.setattr("sklearn.datasets.fetch_openml", fetch)
    monkeypatch.setenv("BDL_DATA_DIR", str(tmp_path))
    found = DATASETS.build("openml", {"id": 61})()
    assert (asked["data_id"], asked["data_home"]) == (61, str(tmp_path / "openml"))
    assert (found.name, found.task, found.y.tolist()) == ("openml_61", "classification", [0, 1, 0])
    assert found.x.tolist() == [[1, 1, 0], [2, 0, 1], [3, 1, 0]]
    assert (
        DATASETS.build("openml", {"id": 61, "target": "a", "leave_out": ["kind"]})().task
        == "regression"
    )
    monkeypatch.setattr("sklearn.datasets.fetch_openml", without_network)
    with pytest.raises(InputError, match=r"cannot get data set 61 of OpenML \(no route\)$"):
        DATASETS.build("openml", {"id": 61})()


def test_what_it_is_called(tmp_path: Path) -> None:
    (tmp_path / "wave.py").write_text("def wave(): ...\ndef flat(): ...\n")
    mine = {"name": "csv", "path": "data/mine.csv", "target": "y"}
    given = [mine, mine | {"label": "other"}, {"name": "openml", "id": 61}]
    given += [f"{tmp_path}/wave.py:wave", f"{tmp_path}/wave.py:flat"]
    assert [DatasetName.read(one) for one in given] == [
        "mine",
        "other",
        "openml_61",
        "wave",
        "wave_flat",
    ]
    again = DatasetName.read(json.loads(json.dumps(DatasetName.read(mine).file_form)))
    assert (again, again.name, again.settings["path"]) == ("mine", "csv", "data/mine.csv")
    name = Label("mine", "csv", {"path": "none.csv", "target": "y"})
    assert (file_states(name), describe_dataset(name)) == (
        [],
        ["A file of text with a line a row."],
    )


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
    path, spec, results = (
        tmp_path / "houses.csv",
        tmp_path / "mine.yaml",
        str(tmp_path / "results"),
    )
    path.write_text(HOUSES)
    spec.write_text(MINE.replace("HOUSES", str(path)))
    code, out, err = invoke("run", str(spec), "--results", results, "--tracking", "none")
    assert (code, err) == (0, ""), out + err
    found = RunFolder(tmp_path / "results/mine").tabulate()
    assert list(found.dataset) == ["houses"] * 2
    assert set(found.hyper_noise_precision) == {0.01}
    assert "\nhouses " in out
    told = "houses: 4 rows; price (target): numbers; packages: numbers that count the rows; colour (split): 3 groups\n"
    assert out.startswith(told)
    code, out, err = invoke("run", str(spec), "--results", results, "--dry-run")
    assert out.startswith(told)
    assert (code, "everything is done" in out) == (0, True), out + err


def test_rows_of_one_time_test_whatever_their_target(csv) -> None:
    """The cut falls within the last year: of its 40 rows, half of either class, 20 test."""
    rng = np.random.default_rng(3)
    lines = [f"{2015 + row // 40},{rng.normal():.4f},{row % 2}" for row in range(200)]
    text = "year,a,price\n" + "\n".join(lines)
    dataset = csv(text, time="year", task="classification")
    test = dataset.split(0).test
    assert len(test) == 20
    assert 4 <= dataset.y[test].sum() <= 16
    turned = csv("year,a,price\n" + "\n".join(lines[::-1]), time="year", task="classification")
    np.testing.assert_array_equal(turned.x[turned.split(0).test], dataset.x[test])


def test_times_that_differ_by_a_hundred_nanoseconds_differ(csv) -> None:
    stamps = [f"2026-01-01T00:00:00.000000{n}00" for n in (3, 1, 2)]
    text = "when,a,price\n" + "\n".join(f"{stamp},{n},{n}" for n, stamp in enumerate(stamps))
    assert csv(text, time="when").split(0).test.tolist() == [0]


def test_classes_are_told_apart_by_all_their_digits(csv) -> None:
    text = "a,price\n1,1000001\n2,1000002\n3,1000001\n"
    for positive, y in ((1000001, [1, 0, 1]), (1000002, [0, 1, 0])):
        dataset = csv(text, task="classification", positive=positive)
        assert dataset.y.tolist() == y


def test_a_share_that_nothing_uses_is_refused(csv) -> None:
    with pytest.raises(InputError, match="test_share is of group and time"):
        csv(HOUSES, test_share=0.5)


def test_groups_are_not_cut_by_other_schemes(csv) -> None:
    dataset = csv(HOUSES, group="chain")
    with pytest.raises(InputError, match="tail does not keep the groups"):
        prepare_dataset(dataset, "tail", "none")
    first = prepare_dataset(dataset, "first", "none")
    assert first.split(3).test.tolist() == dataset.split(0).test.tolist()


@pytest.mark.parametrize("scheme", ["half", "tail"])
def test_times_are_not_ignored_by_other_schemes(csv, scheme) -> None:
    dataset = csv(HOUSES, time="packages")
    with pytest.raises(InputError, match=f"{scheme} does not heed what .* says of the rows"):
        prepare_dataset(dataset, scheme, "none")


def test_gaps_with_blanks_around_them_are_gaps(csv) -> None:
    text = "c,price\nred,1\n? ,2\n?,3\nblue,4\nred,5\n"
    dataset = csv(text, gaps=["?"], missing="drop")
    assert dataset.y.tolist() == [1, 4, 5]
    assert dataset.columns == ("c=blue", "c=red")


def test_codes_are_told_apart_as_text(csv) -> None:
    """Numbers order their categories, unless they would lose zeros or digits."""
    text = "code,price\n007,1\n7,2\n07,3\n8,4\n008,5\n"
    assert csv(text, categories=["code"]).columns == (
        "code=007", "code=008", "code=07", "code=7", "code=8",
    )  # fmt: skip
    plain = "code,price\n10,1\n9,2\n10,3\n"
    assert csv(plain, categories=["code"]).columns == ("code=9", "code=10")
    padded = "code,price\n01,1\n-9 ,2\n1,3\n"
    dropped = csv(padded, categories=["code"], gaps=["-9"], missing="drop")
    assert dropped.columns == ("code=01", "code=1")


def test_numbers_that_are_equal_are_one_group(csv) -> None:
    """Rows of a group are never on both sides, however its number is written."""
    text = "g,a,price\n1.0,1,1\n1,2,2\n2,3,3\n2.0,4,4\nTAIL"
    dataset = csv(text.replace("TAIL", "3,5,5\n"), group="g")
    assert dataset.groups.tolist() == [0, 0, 1, 1, 2]


def test_times_may_be_far_away(csv) -> None:
    text = "when,a,price\n9999-12-31,1,1\n1500-01-01,2,2\n2026-01-01,3,3\n"
    assert csv(text, time="when").split(0).test.tolist() == [0]

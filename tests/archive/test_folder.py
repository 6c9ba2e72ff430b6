"""One door to results: a folder with a store, with published rows, or with both."""

import json
from pathlib import Path

import pytest

import bdl
from bdl.archive import ResultsFolder
from bdl.archive.frames import folder, write_frames
from bdl.archive.loading import load_results, open_results
from bdl.errors import InputError
from bdl.plan.planning import cells_of
from bdl.spec import load_variant
from bdl.store import Outcome, Reading, Row
from bdl.store.store import Store

PACKAGE = Path(bdl.__file__).parent
ENTRIES = ["vifa-lr", "vifa-nn"]


def asked(**part):
    return load_variant("uci-regression", "quick", **part)


def final(cell, split, nmll):
    row = Row(*cell.key, "final", split, 0, 0, "ok", None, {}, {"nmll": nmll}, 2.0, {"width": 1, "updates": 7})
    return Outcome(row, (Reading("epochs", 1, "nmll", nmll + 1),))


@pytest.fixture
def place(tmp_path):
    """Split 0 of two entries is published, and split 1 was made since."""
    path, cells = folder(tmp_path, asked()), cells_of(asked().benchmark)[:2]
    with Store(path / "store.sqlite") as store:
        store.remember(json.dumps(asked().dump()))
        store.append([final(cell, 0, nmll) for nmll, cell in enumerate(cells)])
        write_frames(cells, store, path, store.made)
        store.append([final(cell, 1, 5.0) for cell in cells])
    return path


@pytest.mark.parametrize(
    ("missing", "latest", "splits"),
    [
        (None, False, [0, 0]),
        (None, True, [0, 1, 0, 1]),
        ("trials.parquet", False, [0, 1, 0, 1]),
        ("store.sqlite", True, [0, 0]),
    ],
)
def test_published_rows_come_first_and_the_store_is_the_latest(place, missing, latest, splits):
    if missing:
        (place / missing).unlink()
    with ResultsFolder(place, asked(), latest=latest) as here:
        assert here.has_rows
        assert here.finals.split.tolist() == splits
        assert here.rows().split.tolist() == splits
        assert here.points.value.tolist() == [nmll + 1 for nmll in here.finals.nmll]
        assert here.published == (len(splits) == 2)
        assert (here.store is None) == (missing == "store.sqlite")
        basis = "the same cells" if len(splits) == 4 else "the same cells in other or published runs"
        assert {(one.seconds, one.updates, one.basis) for one in here.timings(own=True)} == {(2.0, 7, basis)}


@pytest.mark.parametrize("missing", ["trials.parquet", "store.sqlite"])
def test_a_part_is_selected_from_the_whole(place, missing):
    (place / missing).unlink()
    part = load_results(asked(entries=ENTRIES[1:]), place.parents[1])
    assert (part.place, part.made.entries) == (place, ("vifa-nn",))
    assert set(part.rows.entry) == set(part.points.entry) == {"vifa-nn"}
    with pytest.raises(InputError, match=r"no results in .*splits-1"):
        open_results(asked(splits="1"), place.parents[1])


@pytest.mark.parametrize("missing", ["trials.parquet", "store.sqlite"])
def test_a_folder_says_what_its_rows_were_made_with(place, missing):
    (place / missing).unlink()
    with ResultsFolder(place) as here:
        assert here.made.asked == "uci-regression --profile quick"


def test_an_empty_store_hides_no_published_rows(place, tmp_path):
    """A run that was stopped at once leaves one."""
    (place / "store.sqlite").unlink()
    Store(place / "store.sqlite").__exit__(None, None, None)
    for latest in (False, True):
        with open_results(asked(), tmp_path, latest=latest) as here:
            assert here.has_rows


def test_an_empty_store_has_no_rows(tmp_path):
    with ResultsFolder(tmp_path) as here:
        assert (here.store, here.has_rows) == (None, False)
    Store(tmp_path / "store.sqlite").__exit__(None, None, None)
    with ResultsFolder(tmp_path) as here:
        assert not here.has_rows


def test_a_provenance_that_is_damaged_is_told_in_one_line(place):
    with ResultsFolder(place) as here:
        assert here.provenance == {}
    (place / "provenance.json").write_text("{")
    with ResultsFolder(place) as here:
        assert here.made.benchmark.name == "uci-regression", "tables do not need it"
        with pytest.raises(InputError, match=r"cannot read .*provenance.json .*; remove it and run again"):
            _ = here.provenance


def test_no_other_package_knows_which_files_there_are():
    names = "trials.parquet", "points.parquet", "store.sqlite"
    knowing = {
        path.relative_to(PACKAGE).parts[0]
        for path in PACKAGE.rglob("*.py")
        if any(name in path.read_text("utf-8") for name in names)
    }
    assert knowing == {"archive"}

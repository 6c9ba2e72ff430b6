"""One door to results: a folder with a store, with published rows, or with both."""

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import bdl
from bdl.errors import InputError
from bdl.plan.planning import list_tasks
from bdl.records.row import CurvePoint, FitResult, Row
from bdl.records.run_folder import RunFolder
from bdl.spec import load_request
from bdl.stored_results.folders import list_sibling_folders, locate_folder
from bdl.stored_results.loading import load_results, open_results
from bdl.stored_results.results_folder import FailedFits, ResultsFolder

PACKAGE = Path(bdl.__file__).parent
ENTRIES = ["vifa-lr", "vifa-nn"]


def asked(**part):
    return load_request("uci-regression", "check", **part)


def final(cell, split, nmll):
    row = Row(
        *cell.key,
        "final",
        split,
        0,
        0,
        "ok",
        None,
        {},
        {"nmll": nmll},
        2.0,
        {"width": 1, "updates": 7},
    )
    return FitResult(row, (CurvePoint("epochs", 1, "nmll", nmll + 1),))


def remove(path: Path) -> None:
    """Remove a file or a folder; published rows go with their flat table."""
    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    if path.name == "rows.parquet":
        path.with_name("trials.parquet").unlink()


@pytest.fixture
def place(tmp_path):
    """Split 0 of two entries is published, and split 1 was made since."""
    path, cells = locate_folder(tmp_path, asked()), list_tasks(asked().benchmark)[:2]
    with RunFolder(path / "store") as store:
        store.record_request(json.dumps(asked().dump()))
        store.append([final(cell, 0, nmll) for nmll, cell in enumerate(cells)])
        store.publish(path, [cell.key for cell in cells])
        store.append([final(cell, 1, 5.0) for cell in cells])
    return path


@pytest.mark.parametrize(
    ("missing", "latest", "splits"),
    [
        ("nothing", False, [0, 0]),
        ("nothing", True, [0, 1, 0, 1]),
        ("rows.parquet", False, [0, 1, 0, 1]),
        ("store", True, [0, 0]),
    ],
)
def test_published_rows_come_first_and_the_store_is_the_latest(place, missing, latest, splits):
    remove(place / missing)
    here = ResultsFolder(place, asked(), prefer_store=latest)
    assert here.has_rows
    assert here.final_rows.split.tolist() == here.load_rows().split.tolist() == splits
    assert here.curve_points.value.tolist() == [nmll + 1 for nmll in here.final_rows.nmll]
    assert here.reads_published_rows == (len(splits) == 2)
    assert (here.store is None) == (missing == "store")
    basis = "the same cells" if len(splits) == 4 else "the same cells in other or published runs"
    assert {
        (one.seconds, one.updates, one.basis)
        for one in here.iterate_measured_fits(is_requested=True)
    } == {(2.0, 7, basis)}


@pytest.mark.parametrize("missing", ["rows.parquet", "store"])
def test_a_part_is_selected_from_the_whole_which_says_what_it_was_made_with(place, missing):
    remove(place / missing)
    part = load_results(asked(entries=ENTRIES[1:]), place.parents[1])
    assert (part.folder, part.recorded_request.entries) == (place, ("vifa-nn",))
    assert set(part.rows.entry) == set(part.points.entry) == {"vifa-nn"}
    with pytest.raises(InputError, match=r"no results in .*splits-1"):
        open_results(asked(splits="1"), place.parents[1])
    here = ResultsFolder(place)
    assert here.recorded_request.command_arguments == "uci-regression --profile check"


def test_an_empty_store_hides_no_published_rows_and_has_none(place, tmp_path):
    """A run that was stopped at once leaves one."""
    remove(place / "store")
    RunFolder(place / "store").append([])
    for latest in (False, True):
        here = open_results(asked(), tmp_path, prefer_store=latest)
        assert here.has_rows
    remove(place / "rows.parquet")
    here = ResultsFolder(place)
    assert not here.has_rows


def test_a_provenance_that_is_damaged_is_told_in_one_line(place):
    here = ResultsFolder(place)
    assert here.provenance == {}
    (place / "run.json").write_text("{")
    here = ResultsFolder(place)
    assert here.recorded_request.benchmark.name == "uci-regression", "tables do not need it"
    with pytest.raises(InputError, match=r"cannot read .*run.json .*; remove it and run again"):
        _ = here.provenance


def test_siblings_are_the_other_folders_of_the_benchmark(tmp_path):
    protocol, one, other = places = [
        tmp_path / "toy" / path for path in ("", "variants/one", "variants/other")
    ]
    for own in (one, other, tmp_path / "another"):
        own.mkdir(parents=True)
    for own in places:
        assert list_sibling_folders(own) == [
            path for path in (protocol, one, other) if path != own
        ]


def test_no_other_package_knows_which_files_there_are():
    names = "rows.parquet", "trials.parquet", "store.sqlite"
    knowing = {
        path.relative_to(PACKAGE).parts[0]
        for path in PACKAGE.rglob("*.py")
        if any(name in path.read_text("utf-8") for name in names)
    }
    assert knowing == {"stored_results", "records"}


def failures(asked, results):
    here = open_results(asked, results, prefer_store=True)
    return here.list_failed_fits()


def failed(cell, stage, split, reason, **details):
    return FitResult(Row(*cell.key, stage, split, 0, 0, "failed", reason, {}, {}, 0.0, details))


@pytest.fixture
def failing(tmp_path):
    """A folder of results in which fits have failed."""
    lr, nn = list_tasks(asked().benchmark)[:2]
    with RunFolder(locate_folder(tmp_path, asked()) / "store") as store:
        store.append(
            [
                final(lr, 0, 1.0),
                *(failed(lr, "final", split, "non-finite metric") for split in (2, 1)),
            ]
        )
        store.append(
            [failed(nn, "final", 0, "ValueError: no", traceback="Traceback ...\nValueError: no")]
        )
        store.append([failed(nn, "search", 0, "non-finite parameters in epoch 1")])
        store.publish(store.path.parent, [lr.key, nn.key])
    return tmp_path


def test_fits_of_a_cell_that_failed_alike_are_told_together(failing, invoke):
    """Of published rows, and of a part of them, too, without tracebacks; and by the command."""
    expected = [
        FailedFits("diabetes/vifa-lr", "final", (1, 2), 2, "non-finite metric", ""),
        FailedFits("diabetes/vifa-nn", "search", (0,), 1, "non-finite parameters in epoch 1", ""),
        FailedFits(
            "diabetes/vifa-nn", "final", (0,), 1, "ValueError: no", "Traceback ...\nValueError: no"
        ),
    ]
    part = asked(entries=["vifa-nn"])
    assert (failures(asked(), failing), failures(part, failing)) == (expected, expected[1:])
    words = ("failures", "uci-regression", "--profile", "check", "--results", failing)
    code, out, _ = invoke(*words)
    assert code == 0
    assert (
        out.splitlines()[0] == "diabetes/vifa-lr, final, 2 fits of splits 1-2: non-finite metric"
    )
    assert out.splitlines()[-1] == "--traceback shows where in the code"
    assert "Traceback ...\nValueError: no\n" in invoke(*words, "--traceback")[1]
    remove(locate_folder(failing, asked()) / "store")
    bare = [own._replace(traceback="") for own in expected]
    assert (failures(asked(), failing), failures(part, failing)) == (bare, bare[1:])


@pytest.fixture
def published(tmp_path):
    """Copy published rows without a store."""
    source = Path(__file__).parents[2] / "results/noisy-wine-splits"
    return Path(shutil.copytree(source, tmp_path / "noisy-wine-splits"))


def test_no_flipped_bit_of_published_rows_changes_a_table_silently(published):
    rows, whole = published / "rows.parquet", ResultsFolder(published).load_rows()
    content = rows.read_bytes()
    for flipped in np.random.default_rng(0).integers(len(content), size=100):
        damaged = bytearray(content)
        damaged[flipped] ^= 1 << int(flipped % 8)
        rows.write_bytes(damaged)
        with pytest.raises(InputError, match=r"its SHA-256 is not the one in run\.json"):
            ResultsFolder(published).load_rows()
    rows.write_bytes(content)
    pd.testing.assert_frame_equal(ResultsFolder(published).load_rows(), whole)


def test_pages_have_checksums_of_their_own(published):
    """A copy of the rows alone, without their provenance, still notices damage to its pages."""
    rows = published / "rows.parquet"
    (published / "run.json").unlink()
    content = bytearray(rows.read_bytes())
    content[len(content) // 2] ^= 1
    rows.write_bytes(content)
    with pytest.raises(InputError, match="cannot read"):
        ResultsFolder(published).load_rows()

"""Runs of parts take the place of published cells, and their provenance goes with them."""

import json
import shutil
from functools import reduce
from hashlib import sha256
from pathlib import Path

import merge_parts
import pandas as pd
import pytest
import torch
from run_folders import rewrite

from bdl.errors import InputError
from bdl.posteriors import Point
from bdl.publishing.provenance import write_provenance
from bdl.records import posterior_files
from bdl.records.run_folder import RunFolder

pytestmark = pytest.mark.usefixtures("blank_figures")

PUBLISHED = Path(__file__).parents[2] / "results" / "slang-uci"
CELL = ("yacht", "bbb")
KEY = (*CELL, "{}")


def table(folder: Path) -> pd.DataFrame:
    return RunFolder(folder).tabulate()


@pytest.fixture
def published(tmp_path):
    target = tmp_path / "published"
    target.mkdir()
    shutil.copy(PUBLISHED / "rows.parquet", target)
    rewrite(
        target,
        lambda rows: rows[
            rows.dataset.isin(["yacht", "energy"]) & rows.entry.isin(["bbb", "slang"])
        ],
    )
    origin = json.loads((PUBLISHED / "run.json").read_text("utf-8"))
    write_provenance(origin, target)
    return target


def without_origin(row):
    return {name: value for name, value in row.details.items() if name != "origin"}


@pytest.fixture
def part(published, tmp_path):
    """The run of one cell on another machine, whose errors are twice as large."""
    folder = tmp_path / "part"
    folder.mkdir()
    shutil.copy(published / "rows.parquet", folder)
    rewrite(
        folder,
        lambda rows: rows[is_cell(rows)].assign(rmse=lambda few: 2 * few.rmse),
        fit_hashes={KEY: "ours"},
        change_details=without_origin,
    )
    origin = json.loads((published / "run.json").read_text())
    told = {
        "fit_hashes": {"yacht/bbb": "ours"},
        "score_hashes": {"yacht/bbb": "its"},
        "compiled": {"yacht/bbb": []},
        "machine": {**origin["machine"], "processor": "another"},
        "written": "2999-01-01T00:00:00+00:00",
        "taken_from": [],
    }
    write_provenance(origin | told, folder)
    return folder


def is_cell(rows: pd.DataFrame) -> "pd.Series[bool]":
    return (rows.dataset == CELL[0]) & (rows.entry == CELL[1])


def test_a_part_takes_the_place_of_its_cell_in_rows_table_and_provenance(published, part):
    before = table(published)
    own, origin = is_cell(before), json.loads((published / "run.json").read_text())
    assert merge_parts.main([str(published), str(part)]) == 0
    after = table(published)
    expected = before.assign(rmse=before.rmse.where(~own, 2 * before.rmse))
    pd.testing.assert_frame_equal(after, expected, check_like=True)
    entries = json.loads((published / "table.json").read_text())
    [found] = [
        row
        for row in entries
        if (row["dataset"], row["method"], row["metric"], row["statistic"])
        == (*CELL, "rmse", "mean")
    ]
    ten_digits = pytest.approx(2 * before[own & (before.stage == "final")].rmse.mean(), rel=1e-9)
    assert found["ours"] == ten_digits

    told = json.loads((published / "run.json").read_text())
    assert told["machine"]["processor"] == "another"
    others = ["energy/bbb", "energy/slang", "yacht/slang"]
    assert told["fit_hashes"] == {name: origin["fit_hashes"][name] for name in others} | {
        "yacht/bbb": "ours"
    }
    elsewhere = {name: one["machine"] for one in told["taken_from"] for name in one["cells"]}
    made = {name: one["machine"] for one in origin["taken_from"] for name in one["cells"]}
    assert elsewhere == {name: made.get(name, origin["machine"]) for name in others}
    total = told["work_minutes"] + sum(one["work_minutes"] for one in told["taken_from"])
    assert total == pytest.approx(after[after.stage == "final"].runtime.sum(), abs=0.01)


def test_a_split_that_a_part_searched_without_a_fit_is_left_out(published, part):
    """A part that was stopped: rows of its search would stand beside the published ones."""
    rewrite(
        part,
        lambda rows: rows[(rows.split != 3) | (rows.stage == "search")],
        fit_hashes={KEY: RunFolder(published).find_fit_hash(KEY)},
    )
    known = json.loads((published / "run.json").read_text())
    hashes = {
        name: {"yacht/bbb": known[name]["yacht/bbb"]} for name in ("score_hashes", "compiled")
    }
    told = json.loads((part / "run.json").read_text()) | hashes
    (part / "run.json").write_text(json.dumps(told))
    before = table(published)
    assert merge_parts.main([str(published), str(part)]) == 0
    after = table(published)
    keys = ["dataset", "entry", "stage", "split", "trial", "fold"]
    assert not after.duplicated(keys).any()
    assert len(after) == len(before)


def third_details(row, machine):
    if row.stage == "final" and row.split in (0, 4, 7):
        return row.details | {"origin": {"machine": machine, "written": "1985-10-26"}}
    return row.details


def test_a_cell_of_two_machines_has_the_splits_of_each(published, part):
    """As a run with ``--published`` leaves it: some splits are imported, and the rest is made."""
    origin = json.loads((part / "run.json").read_text())
    third_machine = {**origin["machine"], "processor": "a third"}
    rewrite(part, change_details=lambda row: third_details(row, third_machine))
    rows = table(part)
    final = rows[rows.stage == "final"]
    assert merge_parts.main([str(published), str(part)]) == 0
    after = json.loads((published / "run.json").read_text())
    [third] = [
        found for found in after["taken_from"] if found["machine"]["processor"] == "a third"
    ]
    assert third["cells"] == {"yacht/bbb": [0, 4, 7]}
    assert third["work_minutes"] == pytest.approx(
        final[final.split.isin([0, 4, 7])].runtime.sum(), abs=1e-3
    )
    assert after["work_minutes"] == pytest.approx(
        final[~final.split.isin([0, 4, 7])].runtime.sum(), abs=1e-3
    )
    assert not any(
        "yacht/bbb" in found["cells"] for found in after["taken_from"] if found is not third
    )


def test_splits_of_several_runs_of_the_same_code_join(published, part, tmp_path):
    """The cell made anew in three runs of a few splits each, in any order, one split twice."""
    whole = shutil.copytree(published, tmp_path / "whole")
    assert merge_parts.main([str(whole), str(part)]) == 0
    anew = merge_parts.read(part)
    parts = []
    for number, splits in enumerate([range(12, 20), range(5), range(4, 12)]):
        folder = shutil.copytree(part, tmp_path / f"part-{number}")
        rewrite(folder, lambda rows, splits=splits: rows[rows.split.isin(splits)])
        parts.append(merge_parts.read(folder))
    joined = reduce(merge_parts.merge, parts)
    assert joined.splits == {KEY: list(range(20))}
    assert joined.results[KEY] != anew.results[KEY], "in another order"
    assert sorted(map(str, joined.results[KEY])) == sorted(map(str, anew.results[KEY]))

    assert (
        merge_parts.main([str(whole), *(str(tmp_path / f"part-{number}") for number in range(3))])
        == 0
    )
    assert merge_parts.main([str(published), str(part)]) == 0
    pd.testing.assert_frame_equal(table(whole), table(published))
    again, once = (json.loads((place / "run.json").read_text()) for place in (whole, published))
    assert again["taken_from"] == once["taken_from"]
    assert again == once


def test_a_part_of_other_code_with_fewer_splits_is_refused(published, part, capsys):
    rewrite(part, lambda rows: rows[rows.split != 3])
    before = (published / "rows.parquet").read_bytes()
    assert merge_parts.main([str(published), str(part)]) == 2
    assert "yacht/bbb: the part lacks splits" in capsys.readouterr().out
    assert (published / "rows.parquet").read_bytes() == before


def test_posteriors_travel_with_their_rows(published, part):
    """Those of the cell's splits are the part's.

    Of others they stay, and those of rows that went go with them.
    """

    old, new = (
        posterior_files.encode_posterior(Point(torch.full((2,), value)), {})
        for value in (0.0, 1.0)
    )
    sha_old, sha_new = (sha256(content).hexdigest() for content in (old, new))
    with_old = {("bbb", 0), ("bbb", 1), ("slang", 0)}

    def name_old(row):
        is_named = row.stage == "final" and row.dataset == "yacht"
        return sha_old if is_named and (row.entry, row.split) in with_old else None

    rewrite(published, change_artefact=name_old)
    RunFolder(published).posteriors.write_pack({sha_old: old})
    rewrite(
        part,
        change_artefact=lambda row: sha_new if (row.stage, row.split) == ("final", 1) else None,
    )
    RunFolder(part).posteriors.write_pack({sha_new: new})
    assert merge_parts.main([str(published), str(part)]) == 0
    found = {}
    for name in ("bbb", "slang"):
        for row in RunFolder(published).load_rows("final", ("yacht", name, "{}")):
            if row.artefact:
                content = RunFolder(published).posteriors.read_bytes(row.artefact)
                found[name, row.split] = content
    assert found == {("bbb", 1): new, ("slang", 0): old}


def test_parts_of_a_replicate_become_one(tiny, invoke):
    """The folder of the replicate is begun with the first of them."""
    words = ["run", "tiny.yaml", "--no-compile", "--tracking", "none"]
    assert invoke(*words)[0] == 0
    for split in ("0-0", "1-1"):
        assert invoke(*words, "--set", "seed=1", "--splits", split)[0] == 0
    folder = Path("results/tiny/seed-1")
    parts = sorted((folder / "variants").iterdir())
    with pytest.raises(SystemExit, match="2"):
        merge_parts.main([])
    assert len(parts) == 2
    merged = reduce(merge_parts.merge, map(merge_parts.read, parts))
    assert merged.splits == {("diabetes", "fixed", "{}"): [0, 1]}
    assert merged.provenance["overrides"] == {"seed": 1}
    with pytest.raises(InputError, match="overrides of the published rows"):
        merge_parts.merge(merge_parts.read(Path("results/tiny")), merged)

"""Runs of parts take the place of published cells, and their provenance goes with them."""

import json
import shutil
from functools import reduce
from pathlib import Path

import merge_parts
import pandas as pd
import pytest
import torch
from bdl.archive.frames import read_rows
from bdl.archive.posteriors import read_posteriors, write_posteriors

from bdl.errors import InputError
from bdl.posteriors import Point
from bdl.publishing.provenance import write_provenance
from bdl.records import posterior_files

pytestmark = pytest.mark.usefixtures("blank_figures")

PUBLISHED = Path(__file__).parents[2] / "results" / "slang-uci"
CELL = ("yacht", "bbb")


@pytest.fixture
def published(tmp_path):
    target = tmp_path / "published"
    target.mkdir()
    rows, _, made = read_rows(PUBLISHED)
    few = rows[
        rows.dataset.isin(["yacht", "energy"]) & rows.entry.isin(["bbb", "slang"])
    ].reset_index(drop=True)
    few.attrs["made"] = made
    few.to_parquet(target / "rows.parquet", index=False)
    origin = json.loads((PUBLISHED / "run.json").read_text("utf-8"))
    write_provenance(origin, target)
    return target


@pytest.fixture
def part(published, tmp_path):
    """The run of one cell on another machine, whose errors are twice as large."""
    folder = tmp_path / "part"
    folder.mkdir()
    rows, _, made = read_rows(published)
    own = rows[(rows.dataset == CELL[0]) & (rows.entry == CELL[1])].assign(
        rmse=lambda table: 2 * table.rmse
    )
    own.attrs["made"] = made
    own.to_parquet(folder / "rows.parquet", index=False)
    origin = json.loads((published / "run.json").read_text())
    del origin["checksums"]
    machine = {**origin["machine"], "processor": "another"}
    told = {
        "fit_hashes": {"yacht/bbb": "ours"},
        "score_hashes": {"yacht/bbb": "its"},
        "compiled": {"yacht/bbb": []},
    }
    new = {
        **origin,
        **told,
        "machine": machine,
        "written": "2999-01-01T00:00:00+00:00",
        "taken_from": [],
    }
    (folder / "run.json").write_text(json.dumps(new))
    return folder


def cell(folder: Path) -> pd.Series:
    rows, _, _ = read_rows(folder)
    return (rows.dataset == CELL[0]) & (rows.entry == CELL[1])


def test_a_part_takes_the_place_of_its_cell_in_rows_table_and_provenance(published, part):
    before, _, _ = read_rows(published)
    own, origin = cell(published), json.loads((published / "run.json").read_text())
    assert merge_parts.main([str(published), str(part)]) == 0
    after, _, _ = read_rows(published)
    expected = before.assign(rmse=before.rmse.where(~own, 2 * before.rmse))
    pd.testing.assert_frame_equal(after, expected, check_like=True)
    table = json.loads((published / "table.json").read_text())
    [found] = [
        row
        for row in table
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
    rows, _, made = read_rows(part)
    rows = rows[(rows.split != 3) | (rows.stage == "search")].reset_index(drop=True)
    rows.attrs["made"] = made
    rows.to_parquet(part / "rows.parquet", index=False)
    known = json.loads((published / "run.json").read_text())
    hashes = {name: {"yacht/bbb": known[name]["yacht/bbb"]} for name in merge_parts.BY_CELL}
    told = json.loads((part / "run.json").read_text()) | hashes
    (part / "run.json").write_text(json.dumps(told))
    before, _, _ = read_rows(published)
    assert merge_parts.main([str(published), str(part)]) == 0
    after, _, _ = read_rows(published)
    keys = ["dataset", "entry", "stage", "split", "trial", "fold"]
    assert not after.duplicated(keys).any()
    assert len(after) == len(before)


def test_rows_that_are_there_twice_are_refused(published, part, capsys):
    rows, _, made = read_rows(part)
    rows = pd.concat([rows, rows.tail(2)], ignore_index=True)
    rows.attrs["made"] = made
    rows.to_parquet(part / "rows.parquet", index=False)
    assert merge_parts.main([str(published), str(part)]) == 2
    assert "2 rows would be there twice" in " ".join(capsys.readouterr().out.split())


def test_a_cell_of_two_machines_has_the_splits_of_each(published, part):
    """As a run with ``--published`` leaves it: some splits are imported, and the rest is made."""
    origin = json.loads((part / "run.json").read_text())
    earlier = {
        **origin,
        "machine": {**origin["machine"], "processor": "a third"},
        "cells": {"yacht/bbb": [0, 4, 7]},
    }
    (part / "run.json").write_text(json.dumps({**origin, "taken_from": [earlier]}))
    rows, _, _ = read_rows(part)
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
    rows, _, made = read_rows(part)
    anew = merge_parts.read(part)
    parts = []
    for number, splits in enumerate([range(12, 20), range(5), range(4, 12)]):
        folder = shutil.copytree(part, tmp_path / f"part-{number}")
        few = rows[rows.split.isin(splits)]
        few.attrs["made"] = made
        few.to_parquet(folder / "rows.parquet", index=False)
        parts.append(merge_parts.read(folder))
    joined = reduce(merge_parts.merge, parts)
    assert joined.splits == {"yacht/bbb": list(range(20))}
    pd.testing.assert_frame_equal(joined.rows, anew.rows)
    assert (joined.origin["taken_from"], joined.origin["splits"]) == ([], list(range(20)))

    assert (
        merge_parts.main([str(whole), *(str(tmp_path / f"part-{number}") for number in range(3))])
        == 0
    )
    assert merge_parts.main([str(published), str(part)]) == 0
    pd.testing.assert_frame_equal(read_rows(whole)[0], read_rows(published)[0])
    assert (whole / "run.json").read_text() == (published / "run.json").read_text()


def test_a_part_of_other_code_with_fewer_splits_is_refused(published, part, capsys):
    rows, _, _ = read_rows(part)
    rows[rows.split != 3].to_parquet(part / "rows.parquet", index=False)
    before = (published / "rows.parquet").read_bytes()
    assert merge_parts.main([str(published), str(part)]) == 2
    assert "yacht/bbb: the part lacks splits" in capsys.readouterr().out
    assert (published / "rows.parquet").read_bytes() == before


def test_posteriors_travel_with_their_rows(published, part):
    """Those of the cell's splits are the part's.

    Of others they stay, and those of rows that went go with them.
    """

    def told(folder: Path, contents: dict) -> None:
        known = json.loads((folder / "run.json").read_text())
        known["posteriors"] = write_posteriors(contents, folder)
        (folder / "run.json").write_text(json.dumps(known))

    old, new = (
        posterior_files.encode_posterior(Point(torch.full((2,), value)), {})
        for value in (0.0, 1.0)
    )
    told(published, {"yacht/bbb": {0: old, 1: old}, "yacht/slang": {0: old}})
    told(part, {"yacht/bbb": {1: new}})
    assert merge_parts.main([str(published), str(part)]) == 0
    found = read_posteriors(published, json.loads((published / "run.json").read_text()))
    assert found == {"yacht/bbb": {1: new}, "yacht/slang": {0: old}}


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
    assert merged.splits == {"diabetes/fixed": [0, 1]}
    assert merged.origin["overrides"] == {"seed": 1}
    with pytest.raises(InputError, match="overrides of the published rows"):
        merge_parts.merge(merge_parts.read(Path("results/tiny")), merged)

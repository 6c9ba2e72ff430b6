"""Posteriors of a repeated run join published rows, if their scores are those that are published."""

import json
import shutil
from pathlib import Path

import attach_posteriors
import pandas as pd
import pytest
import stamp_published

import bdl
from bdl.archive.posteriors import POSTERIORS, read_posteriors
from bdl.spec import load_variant

SPEC = """
name: small
title: Small
datasets: [diabetes]
splits: 2
entries:
  one: &one
    model: {name: linear}
    likelihood: {name: gaussian}
    method: {name: conjugate}
    hyper: {prior_precision: 1, noise_precision: 0.0003}
  two: *one
evaluation: {samples: 5}
metrics: [nmll, rmse, runtime]
"""


@pytest.fixture(scope="module")
def repeated(tmp_path_factory) -> Path:
    """Results of a run."""
    folder = tmp_path_factory.mktemp("repeated")
    (folder / "small.yaml").write_text(SPEC, "utf-8")
    bdl.benchmark(folder / "small.yaml").run(compile=False, results=folder / "results")
    return folder


@pytest.fixture
def published(repeated, tmp_path, monkeypatch) -> Path:
    """Its rows as they were published before: one cell with another score, all with other times and no identity."""
    place = tmp_path / "small"
    place.mkdir()
    monkeypatch.setattr(
        stamp_published, "load_variant", lambda name, profile: load_variant(str(repeated / "small.yaml"), profile)
    )
    rows = pd.read_parquet(repeated / "results/small/trials.parquet")
    attrs = dict(rows.attrs)
    rows["runtime"] = 42.0
    rows.loc[(rows.entry == "two") & (rows.split == 1), "rmse"] *= 1.1
    rows.attrs = attrs
    rows.to_parquet(place / "trials.parquet")
    known = told(repeated / "results/small")
    del known["posteriors"]
    for name in ("fit_hashes", "score_hashes"):
        known[name] = dict.fromkeys(known[name])
    (place / "provenance.json").write_text(json.dumps(known), "utf-8")
    return place


def told(place: Path) -> dict:
    return json.loads((place / "provenance.json").read_text("utf-8"))


def test_cells_with_the_same_scores_get_posteriors_and_identities(repeated, published, capsys):
    before = (published / "trials.parquet").read_bytes()
    assert attach_posteriors.main([str(published), str(repeated / "results/small")]) == 1
    assert "diabetes/two: 1 of 2 splits were made again with the same scores" in capsys.readouterr().out
    known, run = told(published), told(repeated / "results/small")
    assert [*read_posteriors(published, known)] == ["diabetes/one"]
    for name in ("fit_hashes", "score_hashes"):
        assert known[name] == {"diabetes/one": run[name]["diabetes/one"], "diabetes/two": None}
    assert (published / "trials.parquet").read_bytes() == before


def test_new_scores_then_come_without_training_beside_the_published_times(repeated, published, tmp_path):
    attach_posteriors.main([str(published), str(repeated / "results/small")])
    (tmp_path / "small.yaml").write_text(SPEC.replace("rmse", "rmse, crps"), "utf-8")
    place = tmp_path / "results/small"
    shutil.copytree(published, place)
    made = bdl.benchmark(tmp_path / "small.yaml").run(compile=False, results=tmp_path / "results", published=True)
    rows = made.rows.set_index(["method", "split"])
    assert (rows.runtime["one"] == 42).all()
    assert (rows.runtime["two"] < 42).all()
    assert rows.crps.notna().all()
    assert {*read_posteriors(place, told(place))} == {"diabetes/one", "diabetes/two"}
    assert (place / POSTERIORS).stat().st_size > 0

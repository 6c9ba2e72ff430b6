"""Recorded scores leave the rows of fits, once."""

import json

import convert_results
import numpy as np
import pandas as pd
import pytest

from bdl.reports import compare
from bdl.reports.render import render
from bdl.spec import load_benchmark


@pytest.fixture
def old():
    """Rows of the old layout: two splits of one entry, a failed fit and a fold of a search."""
    return pd.DataFrame(
        {
            "dataset": "fa_100_10",
            "entry": ["em", "em", "svd", "svd"],
            "stage": ["final", "final", "final", "search"],
            "split": [1, 0, 0, 0],
            "status": ["ok", "ok", "failed", "ok"],
            "scaled_w2": [0.1, 0.2, np.nan, np.nan],
            "scaled_w2_at_1000": [0.1, 0.2, 9.0, 9.0],
            "rel_cov_dist_at_1000": [0.3, np.inf, 9.0, 9.0],
            "scaled_w2_at_200": [0.5, np.nan, 9.0, 9.0],
            "runtime": 1.0,
        }
    )


def test_columns_become_points(old, tmp_path):
    """Finite scores of successful final fits, in the order of fits, counts and metrics; other columns stay."""
    path = tmp_path / "trials.parquet"
    old.to_parquet(path)
    assert convert_results.convert(path) == 4
    points = pd.read_parquet(tmp_path / "points.parquet")
    assert list(points.columns) == ["dataset", "entry", "split", "axis", "at", "metric", "value"]
    assert points.drop(columns="dataset").to_numpy().tolist() == [
        ["em", 1, "observations", 200, "scaled_w2", 0.5],
        ["em", 1, "observations", 1000, "rel_cov_dist", 0.3],
        ["em", 1, "observations", 1000, "scaled_w2", 0.1],
        ["em", 0, "observations", 1000, "scaled_w2", 0.2],
    ]
    assert set(points["dataset"]) == {"fa_100_10"}
    kept = [name for name in old.columns if "_at_" not in name]
    pd.testing.assert_frame_equal(pd.read_parquet(path), old[kept], check_dtype=False)


def test_a_second_time_changes_nothing(old, tmp_path):
    old.to_parquet(tmp_path / "trials.parquet")
    convert_results.convert(tmp_path / "trials.parquet")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert set(before) == {"trials.parquet", "points.parquet"}
    assert convert_results.convert(tmp_path / "trials.parquet") == 0
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_columns_without_a_score_go_too(old, tmp_path):
    old.assign(status="failed").to_parquet(tmp_path / "trials.parquet")
    assert convert_results.convert(tmp_path / "trials.parquet") == 0
    assert not any("_at_" in name for name in pd.read_parquet(tmp_path / "trials.parquet").columns)


def test_tables_are_rendered_from_the_rows(tmp_path, capsys):
    """As the ordinary comparison renders them, of what has rows."""
    folder = tmp_path / "online-fa"
    folder.mkdir()
    rows = {"dataset": "fa_100_10", "entry": "online-em", "stage": "final", "split": [0, 1], "status": "ok"}
    scores = {"scaled_w2": [0.1, 0.2], "runtime": [1.0, 2.0], "scaled_w2_at_100": [0.3, 0.4]}
    pd.DataFrame(rows | scores).to_parquet(folder / "trials.parquet")
    convert_results.main(["--results", str(tmp_path)])
    assert "online-fa:2scoresmoved" in "".join(capsys.readouterr().out.split())  # wrapped anywhere
    table = json.loads((folder / "table.json").read_text("utf-8"))
    benchmark = load_benchmark("online-fa").select(["fa_100_10"], ["online-em"])
    benchmark = benchmark.model_copy(update={"metrics": ("scaled_w2", "runtime")})
    cells = compare(benchmark, pd.read_parquet(folder / "trials.parquet"))
    assert table == json.loads(str(render(cells, "json")))
    assert table[0]["ours"] == pytest.approx(0.15)
    assert (folder / "table.md").read_text("utf-8") == render(cells, "markdown")

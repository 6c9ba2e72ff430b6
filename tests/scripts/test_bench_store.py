"""The measurement of large stores: it runs, and writes a number for every command."""

import json

import bench_store
import pytest


@pytest.mark.slow  # processes that are measured
def test_every_command_is_measured(tmp_path):
    path = tmp_path / "found.json"
    assert bench_store.main(["--rows", "200", "--json", str(path)]) == 0
    (found,) = json.loads(path.read_text("utf-8"))
    assert found["rows"] == 200
    assert all(found[command]["peak_mb"] > 50 for command in bench_store.COMMANDS)

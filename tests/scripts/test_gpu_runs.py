"""Runs on a GPU: one after the other, interrupted when the time is up, and stopped by a failure."""

import json
import sys

import gpu_runs
import pytest

RUN = """
import json, pathlib, sys, time
calls = pathlib.Path(sys.argv[sys.argv.index("--results") + 1], "calls")
sys.argv[1] == "mnist-slang" or sys.exit(7)
with calls.open("a") as file:
    file.write(json.dumps(sys.argv[1:]) + "\\n")
try:
    time.sleep(60 * ("slang-8" in sys.argv))
except KeyboardInterrupt:
    with calls.open("a") as file:
        file.write('"interrupted"\\n')
    sys.exit(130)
"""


@pytest.fixture
def calls(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu_runs, "COMMAND", [sys.executable, "-S", "-c", RUN])
    monkeypatch.delenv("BDL_APTOS_DIR", raising=False)
    return lambda: [json.loads(line) for line in (tmp_path / "calls").read_text().splitlines()]


def test_the_run_at_work_is_interrupted_when_the_time_is_up(tmp_path, monkeypatch, capfd, calls):
    monkeypatch.setattr(gpu_runs, "count", lambda text: float(text) / 60)
    assert gpu_runs.main([str(tmp_path), "--minutes", "4"]) == 0
    *runs, last = calls()
    assert last == "interrupted"
    assert [run[2] for run in runs] == ["bbb", *["slang-1"] * 3, "slang-2", "slang-4", "slang-8"]
    assert runs[2][3:5] == ["--set", "seed=1"]
    options = ["--device", "cuda", "--results", str(tmp_path), "--tracking", "none"]
    assert all(run[-6:] == options for run in runs)
    assert "time is up" in capfd.readouterr().out


def test_a_run_that_fails_is_the_last(tmp_path, monkeypatch, calls):
    monkeypatch.setenv("BDL_APTOS_DIR", "photographs")
    monkeypatch.setattr(gpu_runs, "RANKS", (2,))
    assert gpu_runs.main([str(tmp_path)]) == 7
    assert [run[2] for run in calls()] == ["bbb", *["slang-1"] * 3, "slang-2"]

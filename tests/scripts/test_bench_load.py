"""Costs under load: the loops that make it end, and each contender has its own environment."""

import json
import os
import subprocess

import bench_load
import pytest


def test_loops_end_with_the_block(monkeypatch):
    loops, start = [], subprocess.Popen
    monkeypatch.setattr(
        bench_load.subprocess, "Popen", lambda *given: loops.append(start(*given)) or loops[-1]
    )
    with bench_load.busy_loops(2):
        assert [loop.poll() for loop in loops] == [None, None]
    assert None not in [loop.poll() for loop in loops]


def test_variables_are_those_of_before_after_the_block(monkeypatch):
    monkeypatch.setenv("GOMP_SPINCOUNT", "7")
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    with bench_load.environment({"GOMP_SPINCOUNT": None, "OMP_WAIT_POLICY": "PASSIVE"}):
        assert "GOMP_SPINCOUNT" not in os.environ
        assert os.environ["OMP_WAIT_POLICY"] == "PASSIVE"
    assert os.environ["GOMP_SPINCOUNT"] == "7"
    assert "OMP_WAIT_POLICY" not in os.environ


def test_costs_are_by_load_and_relative_to_the_engine(monkeypatch, tmp_path, capsys):
    load = [0]

    class Runner:
        def __init__(self, setting, trials, epochs):
            self.cost = 2e-6 if setting.processes > 1 else 1e-6

        def seconds(self):
            return self.cost * (1 + load[0])

        def close(self):
            load.append("closed")

    def loops(count):
        load[0] = count
        return bench_load.ExitStack()

    monkeypatch.setattr(bench_load, "Runner", Runner)
    monkeypatch.setattr(bench_load, "busy_loops", loops)
    file = tmp_path / "load.json"
    command = ["--threads", "2", "--repeats", "2", "--json", str(file)]
    assert bench_load.main([*command[:2], "--loads", "6", *command[4:]]) == 0
    assert [*json.loads(file.read_text())["loads"]] == ["6"]
    # another number of repeats: the file begins anew, and goes on from the second call to the third
    for loads in (["0", "2"], ["4"]):
        assert bench_load.main([*command, "--loads", *loads]) == 0
    loads = json.loads(file.read_text())["loads"]
    assert [*loads] == ["0", "2", "4"]
    for count, costs in loads.items():
        assert costs["engine"]["us"] == pytest.approx(1 + int(count))
        assert costs["engine, processes"]["ratio"] == pytest.approx(2)
    assert load.count("closed") == 3 * len(bench_load.settings(2))
    assert "4 busy loops" in capsys.readouterr().out

"""The suite for GPUs: it refuses a machine without one, stops in time, goes on, and measures what it says."""

import json

import gpu_suite
import pytest
import torch


def test_without_a_gpu_it_says_so_in_one_line(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert gpu_suite.main(["--json", str(tmp_path / "x.json")]) == 2
    error = capsys.readouterr().err.strip()
    assert "no CUDA device" in error
    assert "\n" not in error
    assert not (tmp_path / "x.json").exists()


def test_it_stops_in_time_and_goes_on(tmp_path, monkeypatch, capsys):
    calls = []

    def measured(self, *given):
        calls.append(given)
        return {"seconds": float(len(calls))}

    for name in ("networks", "digits", "photographs"):
        monkeypatch.setattr(gpu_suite.Suite, name, measured)
    file = tmp_path / "gpu.json"
    counters = iter(range(1000))
    monkeypatch.setattr(gpu_suite, "perf_counter", lambda: float(next(counters)))
    command = ["--device", "cpu", "--tiny", "--json", str(file), "--seconds", "4"]
    assert gpu_suite.main(command) == 0
    assert [*json.loads(file.read_text())["parts"]] == ["uci", "mnist-bbb", "mnist-1", "mnist-2"]
    assert "the same command goes on" in capsys.readouterr().out
    for _ in range(2):
        gpu_suite.main(command)
    parts = json.loads(file.read_text())["parts"]
    assert [*parts] == [*gpu_suite.Suite("cpu", True).parts]
    assert [part["seconds"] for part in parts.values()] == [float(i) for i in range(1, 11)]
    assert "VIFA's overhead: 1.111" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["uci", "mnist-8", "resnet-vifa"])
def test_parts_measure(name):
    found = gpu_suite.Suite("cpu", tiny=True).parts[name]()
    assert all(value > 0 for value in found.values())

"""The suite for GPUs: it refuses a machine without one, stops in time, goes on, and measures what it says."""

import json
import math
from types import SimpleNamespace

import gpu_suite
import pytest
import torch


def test_it_stops_in_time_and_goes_on(tmp_path, monkeypatch, capsys):
    calls = []

    def measured(self, *given, **named):
        calls.append(given)
        return {"seconds": float(len(calls)), "ratio": 1.5}

    for name in (
        "networks",
        "regression",
        "digits",
        "photographs",
        "pass_of_networks",
        "pass_of_heads",
        "loop",
    ):
        monkeypatch.setattr(gpu_suite.Suite, name, measured)
    file = tmp_path / "gpu.json"
    counters = iter(range(1000))
    monkeypatch.setattr(gpu_suite, "perf_counter", lambda: float(next(counters)))
    command = ["--device", "cpu", "--tiny", "--json", str(file), "--minutes", str(7 / 60)]
    assert gpu_suite.main(command) == 0
    begun = [
        "engine",
        "uci-boston",
        "uci-concrete",
        "uci-energy",
        "uci-yacht",
        "mnist-bbb",
        "mnist-1",
    ]
    assert [*json.loads(file.read_text())["parts"]] == begun
    assert "the same command goes on" in capsys.readouterr().out
    gpu_suite.main([*command, "--parts", "mnist-*"])
    assert [*json.loads(file.read_text())["parts"]] == [
        *begun,
        *(f"mnist-{rank}" for rank in (2, 4, 8, 16, 32)),
    ]
    gpu_suite.main([*command, "--minutes", "1"])
    report = json.loads(file.read_text())
    assert [*report["parts"]] == [*gpu_suite.Suite("cpu", True).parts]
    assert [part["seconds"] for part in report["parts"].values()] == [
        float(i) for i in range(1, 21)
    ]
    assert [*report["ratios"].values()] == [14 / 13, 16 / 15, 10 / 6, 19 / 20, 1.5, 1.5]
    assert "VIFA's minibatch of ResNet-18 to plain Adam's: 1.077" in capsys.readouterr().out


def test_without_a_gpu_it_runs_to_its_end_on_tiny_parts(tmp_path, capsys):
    """But for what takes long and differs from others by what is trained alone.

    That is a pass of whole networks, half a minute, and VIFA on the deeper network, whose trace takes seconds.
    """
    left_out = {"pass-resnet", "efficientnet-vifa"}
    file, parts = (
        tmp_path / "gpu.json",
        [part for part in gpu_suite.Suite("cpu", True).parts if part not in left_out],
    )
    for pattern in ("[!pe]*", "engine*", "efficientnet-adam", "pass-heads"):
        assert (
            gpu_suite.main(["--device", "cpu", "--tiny", "--json", str(file), "--parts", pattern])
            == 0
        )
    report = json.loads(file.read_text())
    assert sorted(report["parts"]) == sorted(parts)
    assert len(report["ratios"]) == 4
    numbers = [
        number
        for part in (*report["parts"].values(), report["ratios"])
        for number in part.values()
    ]
    assert all(math.isfinite(number) and number > 0 for number in numbers)
    assert "time is up" not in capsys.readouterr().out


@pytest.mark.parametrize("turns", [2, 5])
def test_a_pass_compares_neighbouring_turns(monkeypatch, turns):
    seconds = {"adam": [9.0, 1.0, 4.0, 1.0, 1.0], "vifa-two-stage": [9.0, 2.0, 8.0, 3.0, 2.0]}
    monkeypatch.setattr(
        gpu_suite.Suite,
        "_durations",
        lambda self, data, problem, name, *given, every: iter(seconds[name][:turns]),
    )
    found = gpu_suite.Suite("cpu", True).pass_of_heads()
    assert found == {
        "adam_seconds": 1 / 12,
        "vifa-two-stage_seconds": {2: 2.0, 5: 2.5}[turns] / 12,
        "ratio": 2.0,
    }


def test_kernels_are_timed_beside_an_update_on_a_gpu(monkeypatch):
    class Profile:
        def __init__(self, activities):
            pass

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def key_averages(self):
            return [SimpleNamespace(self_device_time_total=6e6)] * 2

    monkeypatch.setattr(gpu_suite, "profile", Profile)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda: None)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: 2e9)
    suite = gpu_suite.Suite("cuda", tiny=False)
    assert suite._update(iter([90.0, 50.0, 24.0, 24.0, 30.0])) == {
        "seconds": 2.0,
        "gigabytes": 2.0,
        "kernel_seconds": 1.0,
        "wall_to_kernels": 2.0,
    }
    assert suite._update(iter([24.0])) == {"seconds": 2.0, "gigabytes": 2.0}

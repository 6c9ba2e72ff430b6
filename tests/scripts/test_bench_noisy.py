"""The comparison of noisy methods with Adam: it measures what it says, and writes what it documents."""

import json

import bench_noisy
import pytest
import torch

from bdl.methods import METHODS


@pytest.mark.parametrize("name", bench_noisy.METHOD_NAMES)
def test_work_is_that_of_the_documentation(name):
    work = bench_noisy.digits(METHODS.get(name)(), 3)
    work.method.check(work.problem)
    assert (work.problem.dim, work.cost_units, work.batch_size) == (79_510, 3, 100)


def test_json(tmp_path, monkeypatch, capsys):
    """Costs of 1, 1.1, 4 and 0.5 seconds."""
    seconds = dict(zip(("Adam", "NoisyAdam", "NoisyKfac"), (1.0, 1.1, 4.0), strict=True))
    monkeypatch.setattr(bench_noisy, "engine_seconds", lambda work, *_: seconds[type(work.method).__name__])
    monkeypatch.setattr(bench_noisy, "loop", lambda updates: 0.5)
    file, threads = tmp_path / "noisy.json", str(torch.get_num_threads())
    assert bench_noisy.main(["--threads", threads, "--repeats", "1", "--updates", "1", "--json", str(file)]) == 0
    report = json.loads(file.read_text())
    assert set(report) == {"system", "settings", "costs", "targets"}
    assert {name: cost["ratio"] for name, cost in report["costs"].items()} == pytest.approx(
        {"adam": 1, "noisy-adam": 1.1, "noisy-kfac": 4, "PyTorch": 0.5}
    )
    assert {name: target["holds"] for name, target in report["targets"].items()} == {
        "noisy-adam": True,
        "noisy-kfac": False,
    }
    assert "at most 3 times Adam: does not hold" in capsys.readouterr().out


def test_the_plain_loop_trains():
    assert bench_noisy.loop(1) > 0

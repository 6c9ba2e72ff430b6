"""What is measured are the same searches everywhere, and the script writes what it documents."""

import json

import bench_jobs
import pytest

pytest.importorskip("distributed")


def test_a_chain_has_a_group_a_trial_and_one_of_the_final_fits():
    (cell,) = bench_jobs.cells(1, trials=3, epochs=1)
    search = cell.settings.search
    assert (search.trials, search.sampler, cell.splits, cell.settings.training.epochs) == (3, "bayesian", (0, 1), 1)
    assert len({own.key for own in bench_jobs.cells(4, 3, 1)}) == 4


@pytest.mark.slow  # a cluster, and two processes
def test_quick(tmp_path, capsys):
    assert bench_jobs.main(["--quick", "--json", str(tmp_path / "found.json")]) == 0
    found = json.loads((tmp_path / "found.json").read_text())
    assert set(found) == {"group_ms", "processes_ms_a_group", "dask_ms_a_group", "one", "two", "gain"}
    assert found["gain"] == pytest.approx(found["one"] / found["two"])
    assert "handed to a worker of Dask" in capsys.readouterr().out

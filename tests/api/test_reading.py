"""Running a benchmark, its results as frames, and the posteriors that it has left."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from run_folders import rewrite

import bdl
from bdl.api.benchmarks import build_request
from bdl.api.progress import Bar
from bdl.data import load_dataset
from bdl.errors import InputError
from bdl.metrics import METRICS
from bdl.records.run_folder import RunFolder

ROOT = Path(__file__).parents[2]
SPEC = """
name: small
title: Two fits of diabetes
datasets: [diabetes]
splits: 3
entries:
  exact:
    model: {name: linear}
    likelihood: {name: gaussian}
    method: {name: conjugate}
    hyper: {prior_precision: 1, noise_precision: 3e-4}
  vifa: &vifa
    model: {name: mlp, hidden: [5]}
    likelihood: {name: gaussian}
    method: {name: vifa, latent_dim: 1}
    training: {epochs: 2, batch_size: 50}
    hyper: {learning_rate: 0.01, prior_precision: 1, noise_precision: 3e-4}
  fails:
    <<: *vifa
    datasets: [diabetes]
    hyper: {learning_rate: 1e12, prior_precision: 1, noise_precision: 3e-4}
metrics: [nmll, rmse, runtime]
record: {unit: epochs, every: 1}
"""
TIMES = ["seconds", "runtime"]
QUICK = ["metrics=[rmse]", "record=null"]  # figures take most of the time of such a run


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("api")
    (folder / "small.yaml").write_text(SPEC)
    return folder


@pytest.fixture(scope="module")
def small(folder):
    return bdl.benchmark(folder / "small.yaml")


@pytest.fixture(scope="module")
def run(small, folder):
    """Two splits of two entries, run once."""
    return small.run(
        methods=["exact", "vifa"], splits="2", compile=False, results=folder / "results"
    )


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda small, none: bdl.benchmark("uci-regresion"),
            "unknown benchmark 'uci-regresion': did you mean uci-reg",
        ),
        (
            lambda small, none: bdl.benchmark(small.name_or_path, set=["seed=x"]),
            "--set seed=x: seed: ",
        ),
        (
            lambda small, none: small.run(methods=["vif"], results=none),
            "unknown method 'vif': did you mean vifa",
        ),
        (
            lambda small, none: small.run(splits=4, results=none),
            "splits '4': there are 3 splits, 0 to 2",
        ),
        (
            lambda small, none: small.results(results=none),
            r"no results in .*none/small; start with: bdl-bench run",
        ),
        (lambda small, none: small.run(jobs=-2, results=none), "run: jobs: .* or equal to 1"),
        (lambda small, none: bdl.results("smal"), "unknown benchmark 'smal'"),
    ],
)
def test_bad_input_is_told_as_on_the_command_line(small, tmp_path, call, message):
    with pytest.raises(InputError, match=message):
        call(small, tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_rows_are_those_of_the_command_line(run, folder, invoke):
    words = (
        "--method",
        "exact",
        "--method",
        "vifa",
        "--splits",
        "2",
        "--no-compile",
        "--tracking",
        "none",
    )
    code, _, err = invoke("run", str(folder / "small.yaml"), *words, "--results", folder / "cli")
    assert (code, err) == (0, "")
    (published,) = (folder / "cli").rglob("run.json")
    rows = RunFolder(published.parent).tabulate()
    pd.testing.assert_frame_equal(
        run.rows.drop(columns=[*TIMES, "method"]), rows.drop(columns=TIMES)
    )
    assert list(rows.entry) == ["exact"] * 2 + ["vifa"] * 2


def test_frames(run, folder):
    again = bdl.results(
        folder / "small.yaml", methods=["exact", "vifa"], splits="2", results=folder / "results"
    )
    for found in (again, bdl.results(run.folder)):
        assert found.folder == found.place == run.folder  # the second is an alias until 0.3
        pd.testing.assert_frame_equal(found.rows, run.rows)
        pd.testing.assert_frame_equal(found.points, run.points)
        assert "2 of 3 cells (diabetes/exact, diabetes/vifa); 2 of 3 splits (0-1)" in found.remark
    assert set(run.points["at"]) == {1, 2}
    for frame in (run.rows, run.points):
        assert list(frame.columns)[:3] == ["dataset", "method", "entry"]
        assert (frame.method == frame.entry).all()
    means = run.table.query("metric == 'rmse' and statistic == 'mean'").set_index("method").ours
    pd.testing.assert_series_equal(
        means, run.rows.groupby("method").rmse.mean(), check_names=False
    )


@pytest.mark.parametrize(
    ("splits", "numbers"),
    [(None, [0, 1, 2]), (1, [0]), ("0,2", [0, 2]), ([1], [1]), (range(1, 3), [1, 2])],
)
def test_splits_in_all_their_ways(folder, splits, numbers):
    asked = build_request(
        str(folder / "small.yaml"), "paper", "seed=1", "diabetes", ["exact"], splits
    )
    assert list(asked.split_numbers) == numbers
    assert (asked.changes, asked.entries) == ({"seed": 1}, ("exact",))


def test_progress_is_shown_if_wanted_and_interruptions_are_kept(
    run, small, folder, capsys, monkeypatch
):
    same = {
        "methods": ["exact", "vifa"],
        "splits": 2,
        "compile": False,
        "results": folder / "results",
    }
    assert small.run(**same).folder == run.folder
    assert capsys.readouterr().out == ""
    small.run(**same, progress=True)
    assert "small: RMSE" in capsys.readouterr().out

    def interrupted(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr("bdl.api.running.run_tasks", interrupted)
    with pytest.raises(KeyboardInterrupt, match="the same command goes on from here"):
        small.run(**same)


@pytest.mark.parametrize("entry", ["exact", "vifa"])
@pytest.mark.parametrize("split", [0, 1])
def test_predictions_give_the_stored_scores(run, entry, split):
    row = run.rows.query("entry == @entry and split == @split").iloc[0]
    fitted = run.posterior(*row[["dataset", "entry", "split"]])
    data = load_dataset("diabetes")
    rows = data.split(split).test
    x, y = data.x[rows], torch.from_numpy(data.y[rows])
    errors = torch.from_numpy(fitted.predict(x)) - y
    # To the last bit; but for a dense factor of a covariance, which lies in memory by columns
    # after a fit and by rows when it is read, so that products in float32 are rounded otherwise.
    close = pytest.approx if entry == "exact" else lambda value: value
    assert errors.square().mean().sqrt().item() == close(row.rmse)
    assert METRICS.build("nmll", {})(fitted.evaluation) == close(row.nmll)
    # The distribution adds the same densities in another order.
    assert -fitted.predict_distribution(x).log_prob(y).mean().item() == pytest.approx(
        row.nmll, rel=1e-6
    )
    assert fitted.hyper["noise_precision"] == 3e-4
    assert bdl.calibration(fitted).rows == len(rows)


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ({"method": "exac"}, "unknown method 'exac': did you mean exact"),
        ({"dataset": "yacht"}, "unknown dataset 'yacht'"),
        ({"split": 2}, "diabetes/exact has no fit of split 2; there are 0, 1"),
        ({"at": {"axis": 1}}, r"unknown point .*axis"),
    ],
)
def test_posteriors_that_are_not_there(run, named, message):
    with pytest.raises(InputError, match=message):
        run.posterior(**{"dataset": "diabetes", "method": "exact"} | named)


def test_failed_published_and_changed_fits_have_no_posteriors(folder, tmp_path, monkeypatch):
    quick = bdl.benchmark(folder / "small.yaml", set=QUICK)
    made = quick.run(methods=["exact", "fails"], splits="1", results=tmp_path)
    assert list(made.rows.status) == ["ok", "failed"]
    with pytest.raises(InputError, match="diabetes/fails, split 0 has no posterior: non-finite"):
        made.posterior("diabetes", "fails")
    cells = RunFolder(made.folder / "store").list_cells()
    rewrite(made.folder / "store", fit_hashes=dict.fromkeys(cells, "other"))
    with pytest.raises(InputError, match="holds diabetes/exact of another spec, data or code"):
        made.posterior("diabetes", "exact")
    monkeypatch.chdir(ROOT)
    published = bdl.results("slang-convergence")
    row = published.rows.iloc[0]
    with pytest.raises(
        InputError, match="slang-convergence has published rows alone, without posteriors"
    ):
        published.posterior(row.dataset, row.entry)


def test_sweeps_and_streams(tmp_path):
    spec = tmp_path / "small.yaml"
    spec.write_text(SPEC + "sweep: {model.hidden: [[2], [3]]}\n")
    made = bdl.benchmark(spec, set=QUICK).run(
        methods=["vifa"], splits="1", compile=False, results=tmp_path / "results"
    )
    dims = [
        made.posterior("diabetes", "vifa", at={"model.hidden": hidden}).posterior.dim
        for hidden in ([2], [3])
    ]
    assert dims == [10 * 2 + 2 + 2 + 1, 10 * 3 + 3 + 3 + 1]
    assert set(made.table["model.hidden"]) == {"[2]", "[3]"}
    only = ["datasets=[{name: fa, dim: 12, top: 2, length: 200}]", "metrics=[rel_cov_dist]"]
    streams = bdl.benchmark("online-fa", set=[*only, "record={unit: observations, every: 200}"])
    entry = next(iter(streams.spec.entries))
    made = streams.run(methods=[entry], splits="1", compile=False, results=tmp_path / "results")
    fitted = made.posterior("fa_12_2_200", entry)
    assert fitted.sample(2).shape == (2, 12)
    with pytest.raises(InputError, match="a stream has no rows to predict"):
        fitted.predict(np.zeros((1, 12)))


def test_results_are_tables_and_figures_in_a_notebook(run):
    shown = run._repr_html_()
    assert "<th>Mean ± SE</th>" in shown
    assert "small: RMSE (target units)" in shown
    figures = run.plot()
    assert [*figures] == ["nmll", "rmse", "runtime", "nmll-curve", "rmse-curve", "runtime-curve"][
        : len(figures)
    ]
    assert figures._repr_html_().count('src="data:image/png;base64,') == len(figures)
    (one,) = run.plot("rmse").values()
    assert "Two fits of diabetes" in one.get_suptitle()
    with pytest.raises(InputError, match="unknown figure 'rmsd'"):
        run.plot("rmsd")


@pytest.mark.parametrize(
    ("terminal", "drawn"), [(False, ""), (True, "small   0% |"), (None, "small   0% |")]
)
def test_a_bar_is_drawn_on_a_terminal_or_in_a_notebook_and_not_in_a_pipe(
    terminal, drawn, capsys, monkeypatch
):
    """None stands for a notebook, whose standard error is no terminal."""
    monkeypatch.setattr("rich.console.Console.is_terminal", property(lambda _: bool(terminal)))
    monkeypatch.setattr("rich.console._is_jupyter", lambda: terminal is None)
    with Bar("small") as bar:
        bar.begin(4)
        bar.advance(1)
        bar.advance(3)
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err == "" if not drawn else drawn in told.err


MINE = """
name: mine
title: A file of one's own
datasets: [{name: csv, path: PATH, target: "y:usd"}]
splits: 2
entries:
  exact:
    model: {name: linear}
    likelihood: {name: gaussian}
    method: {name: conjugate}
    hyper: {prior_precision: 1, noise_precision: 1}
metrics: [rmse]
"""


def write_houses(folder, scale):
    x, noise = np.random.default_rng(0).normal(size=(2, 40))
    table = pd.DataFrame({"cost[/kg]": x, "y:usd": scale * noise})
    table.to_csv(folder / "houses.csv", index=False)
    return folder / "houses.csv"


def test_a_file_that_changes_between_two_runs_of_a_program_is_read_again(tmp_path):
    """Its columns have brackets and colons, which are no mark-up and name no code."""
    (tmp_path / "mine.yaml").write_text(MINE.replace("PATH", str(write_houses(tmp_path, 1.0))))
    mine = bdl.benchmark(tmp_path / "mine.yaml")
    first = mine.run(results=tmp_path / "first", progress=True)
    write_houses(tmp_path, 1000.0)
    second = mine.run(results=tmp_path / "second")
    assert (second.rows.rmse > 100 * first.rows.rmse).all()
    assert len(mine.results(results=tmp_path / "second").rows) == 2


def test_a_report_that_a_stopped_run_did_not_write_is_written_by_the_next(folder):
    run = bdl.benchmark(folder / "small.yaml", set=QUICK).run(
        methods="exact", results=folder / "r"
    )
    report = run.folder / "report.html"
    report.unlink()
    bdl.benchmark(folder / "small.yaml", set=QUICK).run(methods="exact", results=folder / "r")
    assert "Two fits of diabetes" in report.read_text("utf-8")

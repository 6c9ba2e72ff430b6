"""The mirror against a real MLflow database, read back through MLflow's client."""

import json
import logging
import math
import os
import random
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import pytest

from bdl.errors import InputError
from bdl.plan.planning import cells_of
from bdl.publishing.logged import check_names, measurements, mirrored, open_ui, views
from bdl.publishing.mirror import mirror, parameters
from bdl.publishing.tracking import bring_along, connection, database
from bdl.spec import load_benchmark
from bdl.spec.labels import MetricName
from bdl.store import Outcome, Reading, Row

NAN, INF = math.nan, math.inf

TEXT = """
name: {name}
title: A small benchmark
seed: 7
datasets: [diabetes, yacht]
splits: 4
entries:
  searched:
    model: {{name: mlp, hidden: [50, 20]}}
    likelihood: {{name: gaussian}}
    method: {{name: vifa, latent_dim: 2}}
    training: {{epochs: 5, batch_size: 10}}
    hyper: {{noise_precision: 0.5}}
    search:
      trials: 4
      folds: 3
      metric: nmll
      space:
        learning_rate: {{low: 0.001, high: 0.01, scale: log}}
        prior_precision: {{low: 0.1, high: 10}}
evaluation: {{samples: 30}}
metrics: [nmll, rmse]
profiles:
  quick: {{splits: 1}}
"""

MIRROR_INTO_NEW_DATABASE = """
import sys
from pathlib import Path
from bdl.plan.planning import cells_of
from bdl.publishing.mirror import mirror
from bdl.store import Outcome, Row
from bdl.store.store import Store
from bdl.spec import load_benchmark

assert "mlflow" not in sys.modules
folder = Path(sys.argv[1])
uri = f"sqlite:///{folder}/mlflow.db"
benchmark = load_benchmark("uci-regression").select(["energy"], ["vifa-lr"])
(cell,) = cells_of(benchmark)
with Store(folder / "store.sqlite") as store:
    store.claim(cell.key, "f00d")
    store.append([Outcome(Row(*cell.key, "final", 0, 0, 0, "ok", None, {}, {"nmll": 1.0}, 1.0, {}))])
    mirror(benchmark, store, [cell], tracking_uri=uri,
           artifact_root=folder / "mlartifacts", tags={}, artifacts=[store.path])

from mlflow.telemetry import get_telemetry_client
from mlflow.telemetry.utils import is_telemetry_disabled
assert is_telemetry_disabled() and get_telemetry_client() is None
"""


@pytest.fixture(scope="module")
def creation(tmp_path_factory):
    """Make the module's database in a fresh process, whose output is kept."""
    folder = tmp_path_factory.mktemp("tracking")
    # Without pytest's and CI's variables, under which MLflow is private by itself.
    clean = {name: os.environ[name] for name in ("PATH", "HOME", "PYTHONPATH", "TMPDIR") if name in os.environ}
    command = [sys.executable, "-c", MIRROR_INTO_NEW_DATABASE, str(folder)]
    made = subprocess.run(command, capture_output=True, text=True, env=clean)
    return f"sqlite:///{folder}/mlflow.db", made


@pytest.fixture
def uri(creation):
    return creation[0]


@pytest.fixture
def client(uri):
    with connection(uri) as connected:
        yield connected


@pytest.fixture
def load(tmp_path):
    """Load the benchmark; it is named after the test's folder, so that each test has its own experiment."""

    def read(profile="paper", overrides=()):
        path = tmp_path / "benchmark.yaml"
        path.write_text(TEXT.format(name=tmp_path.name.lower()))
        return load_benchmark(str(path), profile, overrides)

    return read


@pytest.fixture
def send(store, uri, tmp_path):
    """Mirror data sets of a benchmark."""

    def call(benchmark, datasets=("yacht",), artifacts=(), tags=None, **changes):
        options = {"tracking_uri": uri, "artifact_root": tmp_path / "mlartifacts"} | changes
        cells = [cell for name in datasets for cell in cells_of(benchmark) if cell.dataset == name]
        return mirror(benchmark, store, cells, tags=tags or {}, artifacts=artifacts, **options)

    return call


def final(split, metrics, hyper=None, dataset="yacht", status="ok", stage="final", point="{}"):
    key = (dataset, "searched", point, stage, split, 0, 0, status, None if status == "ok" else "diverged")
    return Row(*key, hyper=hyper or {}, metrics=metrics, seconds=1.0, details={})


def append(store, *rows):
    store.append([Outcome(row) for row in rows])


def fill(store, dataset="yacht", fit_hash="f00d"):
    """Four good splits with nmll 1, 2, 4, 9 and one failed; a search row that must not be counted."""
    store.claim((dataset, "searched", "{}"), fit_hash)
    rows = [
        final(split, {"nmll": nmll, "rmse": 10 * nmll}, {"learning_rate": 0.01 * nmll}, dataset)
        for split, nmll in enumerate([1.0, 2.0, 4.0, 9.0])
    ]
    failed = final(4, {}, dataset=dataset, status="failed")
    append(store, *rows, failed, final(0, {"nmll": 77.0}, dataset=dataset, stage="search"))


def runs_of(client, benchmark_name):
    experiment = client.get_experiment_by_name(benchmark_name)
    found = client.search_runs([experiment.experiment_id]) if experiment else []
    return [run for run in found if "mlflow.parentRunId" not in run.data.tags]


def splits_of(client, run_id):
    """Runs below that of a cell, by their split."""
    experiment = client.get_run(run_id).info.experiment_id
    found = client.search_runs([experiment], f"tags.`mlflow.parentRunId` = '{run_id}'")
    return {int(run.data.tags["bdl.split"]): run for run in found}


def series(client, run_id, metric):
    return {point.step: point.value for point in client.get_metric_history(run_id, metric)}


SE = math.sqrt(38 / 3) / 2  # of 1, 2, 4, 9: squared deviations from 4 are 9 + 4 + 0 + 25


def test_mirroring_into_a_new_database_is_silent_and_private(creation):
    _, made = creation
    assert (made.returncode, made.stdout, made.stderr) == (0, "", "")


def test_every_number_is_read_back(store, client, load, send):
    fill(store)
    (run_id,) = send(load())
    assert client.get_run(run_id).data.metrics == pytest.approx(
        {
            **{"trials": 5, "trials_failed": 1},
            **{"nmll": 4, "nmll_median": 3, "nmll_se": SE},
            **{"rmse": 40, "rmse_median": 30, "rmse_se": 10 * SE},
        },
        rel=1e-15,
    )
    below = splits_of(client, run_id)
    assert {split: run.data.metrics for split, run in below.items()} == {
        **{split: {"nmll": nmll, "rmse": 10 * nmll} for split, nmll in enumerate([1, 2, 4, 9])},
        4: {},
    }
    assert {split: run.data.params for split, run in below.items()} == {
        **{split: {"hyper.learning_rate": rate} for split, rate in enumerate(["0.01", "0.02", "0.04", "0.09"])},
        4: {},
    }
    assert [below[split].info.status for split in range(5)] == ["FINISHED"] * 4 + ["FAILED"]
    assert below[3].info.run_name == "yacht/searched/3"


def test_the_table_and_the_run_say_what_is_shown(store, client, load, send, uri):
    """MLflow's own table has no metric: a view has, whose address the interface prints; a run has its data set."""
    fill(store)
    benchmark = load()
    (run_id,) = send(benchmark, tags={"bdl.protocol": "Not the protocol."})
    run = client.get_run(run_id)
    (inputs,) = run.inputs.dataset_inputs
    assert (inputs.dataset.name, inputs.dataset.source_type) == ("yacht", "code")
    assert run.data.tags["mlflow.note.content"].splitlines() == [
        "**searched** on **yacht**, 5 splits",
        "- NMLL (nats per test point), ↓ lower is better: 4.00 ± 1.8",
        "- RMSE (target units), ↓ lower is better: 40.0 ± 18",
        *("", "Not the protocol."),
    ]
    experiment = client.get_experiment(run.info.experiment_id)
    assert experiment.tags["mlflow.note.content"].startswith("A small benchmark\n")
    view = json.loads(experiment.tags["mlflow.sharedViewState.scores"])
    assert json.loads(view["state"])["selectedColumns"] == [
        *("attributes.`Dataset`", "metrics.`nmll`", "metrics.`rmse`")
    ]
    at = f"http://here/#/experiments/{experiment.experiment_id}/runs?viewStateShareKey=scores"
    assert f"{benchmark.name}: {at}" in views(database(uri), "http://here")


def test_what_is_there_already_is_found_without_mlflow(store, client, load, send, monkeypatch):
    fill(store)
    benchmark = load()
    sent = send(benchmark)
    with monkeypatch.context() as patch:
        patch.delattr("bdl.publishing.mirror.connection")
        assert send(benchmark) == sent
        with pytest.raises(NameError):
            send(benchmark, tags={"another": "tag"})
    client.set_terminated(sent[0], "FAILED")
    again = send(benchmark)
    assert again != sent, "one that was broken off is written anew"
    client.delete_run(again[0])
    assert send(benchmark) not in (sent, again)


def test_params_are_the_resolved_entry_with_dots(store, client, load, send):
    fill(store)
    benchmark = load()
    (run_id,) = send(benchmark)
    params = client.get_run(run_id).data.params
    expected = {
        **{"dataset": "yacht", "entry": "searched", "seed": "7", "evaluation.samples": "30"},
        **{"splits": "4", "split_numbers": "0-3"},
        **{"likelihood.name": "gaussian", "prior.name": "gaussian", "prior.bias_precision": "null"},
        **{"preparation.split": "published", "preparation.standardise": "both"},
        **{"reference": "null", "from_reference": "[]", "record": "null"},
        **{"training.epochs": "5", "training.batch_size": "10", "training.schedule.name": "constant"},
        **{"training.sampling": "without_replacement", "training.incomplete": "drop", "training.dtype": "float32"},
        **{"hyper.noise_precision": "0.5", "search.sampler": "random", "search.trials": "4"},
        **{"search.folds": "3", "search.metric.name": "nmll", "search.metric.label": "nmll"},
        **{"search.metric.at": "samples", "search.space.learning_rate.low": "0.001"},
        **{"search.space.learning_rate.high": "0.01", "search.space.learning_rate.scale": "log"},
        **{"search.space.prior_precision.low": "0.1", "search.space.prior_precision.high": "10.0"},
        **{"search.space.prior_precision.scale": "linear"},
    }
    entry = benchmark.entries["searched"]
    for part, component in (("model", entry.model), ("method", entry.method)):
        settings = component.model_dump(mode="json")
        written = {key: value if isinstance(value, str) else json.dumps(value) for key, value in settings.items()}
        expected |= {f"{part}.{key}": value for key, value in written.items()}
    assert params == expected
    assert (params["model.hidden"], params["method.latent_dim"]) == ("[50, 20]", "2")
    assert "method.optimizer" in params  # a default, not in the file


def test_name_tags_artifacts_and_status(store, client, load, send, tmp_path):
    fill(store)
    table = tmp_path / "table.md"
    table.write_text("| 4.0 |")
    (run_id,) = send(load("quick"), artifacts=[table], tags={"bdl.git_commit": "abc", "version.torch": "2"})
    run = client.get_run(run_id)
    name = f"{load().name} (quick)"
    experiment = client.get_experiment(run.info.experiment_id)
    assert experiment.name == name
    assert experiment.tags["mlflow.experimentKind"] == "custom_model_development"
    assert (run.info.run_name, run.info.status) == ("yacht/searched", "FINISHED")
    assert len(run.data.tags["bdl.content"]) == 64
    told = {
        key: value for key, value in run.data.tags.items() if not key.startswith("mlflow.") and "content" not in key
    }
    assert told == {
        **{"bdl.dataset": "yacht", "bdl.entry": "searched", "bdl.fit_hash": "f00d"},
        **{"bdl.git_commit": "abc", "version.torch": "2", "bdl.failures": "1 x diverged"},
    }
    assert [file.path for file in client.list_artifacts(run_id)] == ["table.md"]
    (copy,) = (tmp_path / "mlartifacts" / name).rglob("*.*")
    assert copy.read_text() == "| 4.0 |"


def test_one_run_a_cell_in_the_order_given(store, client, load, send):
    fill(store, "yacht")
    fill(store, "diabetes")
    ids = send(load(), ["diabetes", "yacht"])
    assert [client.get_run(i).info.run_name for i in ids] == ["diabetes/searched", "yacht/searched"]
    assert {run.info.run_id for run in runs_of(client, load().name)} == set(ids)


def test_mirroring_again_replaces_the_run(store, client, load, send):
    fill(store)
    (first,) = send(load())
    append(store, final(5, {"nmll": 14.0, "rmse": 1.0}))
    (second,) = send(load())
    assert [run.info.run_id for run in runs_of(client, load().name)] == [second] != [first]
    assert client.get_run(first).info.lifecycle_stage == "deleted"
    below = splits_of(client, second)
    assert {split: below[split].data.metrics["nmll"] for split in (0, 1, 2, 3, 5)} == {0: 1, 1: 2, 2: 4, 3: 9, 5: 14}
    assert splits_of(client, first) == {}, "deleted with it"
    assert client.get_run(second).data.metrics["nmll"] == 6


def test_what_is_unchanged_stays(store, client, load, send, tmp_path):
    """But a run that was not completed is written anew, and so is one whose file has changed."""
    fill(store)
    path = tmp_path / "table.md"
    path.write_text("one", "utf-8")
    (first,) = send(load(), artifacts=[path])
    assert send(load(), artifacts=[path]) == [first]
    path.write_text("two", "utf-8")
    (second,) = send(load(), artifacts=[path])
    assert second != first
    client.set_terminated(second, "FAILED")
    (third,) = send(load(), artifacts=[path])
    assert third not in (first, second)
    assert [run.info.run_id for run in runs_of(client, load().name)] == [third]


def test_another_fit_hash_is_another_run(store, client, load, send):
    fill(store)
    (first,) = send(load())
    store.forget([("yacht", "searched", "{}")])
    fill(store, fit_hash="beef")
    (second,) = send(load())
    assert {run.info.run_id for run in runs_of(client, load().name)} == {first, second}


def test_a_variant_replaces_no_run_of_the_protocol(store, client, load, send):
    """Its fits may have the same hash, and be fewer."""
    fill(store)
    (whole,) = send(load())
    (part,) = send(load(), variant="splits-1-0123abcd")
    append(store, final(5, {"nmll": 14.0, "rmse": 1.0}))
    (again,) = send(load(), variant="splits-1-0123abcd")
    name = load().name
    assert [run.info.run_id for run in runs_of(client, name)] == [whole]
    assert [run.info.run_id for run in runs_of(client, f"{name} (splits-1-0123abcd)")] == [again] != [part]


@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()])
def test_an_interrupted_run_is_failed_and_the_old_one_stays(store, client, load, send, tmp_path, monkeypatch, error):
    fill(store)
    (good,) = send(load())
    table = tmp_path / "table.md"
    table.touch()

    def broken(*_):
        raise error

    with monkeypatch.context() as patch:
        patch.setattr("mlflow.MlflowClient.log_artifact", broken)
        with pytest.raises(type(error)):
            send(load(), artifacts=[table])
    statuses = {run.info.run_id: run.info.status for run in runs_of(client, load().name)}
    assert statuses.pop(good) == "FINISHED"
    assert list(statuses.values()) == ["FAILED"]
    (again,) = send(load(), artifacts=[table])
    assert [run.info.run_id for run in runs_of(client, load().name)] == [again]


def test_large_cells_are_written_in_few_calls(store, client, load, send, monkeypatch):
    store.claim(("yacht", "searched", "{}"), "f00d")
    append(store, final(0, {"nmll": 1.0}), final(1, {"nmll": 2.0}))
    points = tuple(Reading("epochs", at, "nmll", float(at)) for at in range(2500))
    store.append([Outcome(final(2, {"nmll": 3.0}), points)])
    calls = []
    original = type(client).log_batch

    def spy(self, run_id, metrics=(), params=(), tags=()):
        calls.append((len(metrics), len(params), len(tags)))
        original(self, run_id, metrics=metrics, params=params, tags=tags)

    monkeypatch.setattr(type(client), "log_batch", spy)
    (run_id,) = send(load(), tags={f"tag{i}": str(i) for i in range(250)})
    n_params = len(client.get_run(run_id).data.params)
    numbers = [(1000, 0, 0), (1000, 0, 0), (505, 0, 0)]
    splits = [(1, 0, 0)] * 3
    assert calls == [(0, n_params, 0), *numbers, (0, 0, 100), (0, 0, 100), (0, 0, 51), *splits]
    assert series(client, run_id, "nmll_by_epochs") == {at: at for at in range(2500)}
    tags = client.get_run(run_id).data.tags
    assert {f"tag{i}": str(i) for i in range(250)}.items() <= tags.items()


def test_what_is_not_finite_is_counted_and_not_logged():
    rows = [
        final(0, {"nmll": 1.0, "rmse": 5.0}, {"a": INF}),
        final(1, {"nmll": NAN, "rmse": 6.0}),
        final(2, {"nmll": 3.0, "rmse": None}),
        final(3, {"nmll": -INF, "rmse": 7.0}),
        final(4, {"nmll": 5.0, "rmse": 8.0}, status="failed"),
    ]
    found = measurements(rows, ["nmll", "rmse"])
    assert len(found) == len({(name, step) for name, _, step in found})
    assert {(name, step): value for name, value, step in found} == {
        **{("trials", 0): 5, ("trials_failed", 0): 4},
        **{("nmll", 0): 2, ("nmll_median", 0): 2, ("nmll_se", 0): 1},
        **{("rmse", 0): 6, ("rmse_median", 0): 6, ("rmse_se", 0): pytest.approx(1 / math.sqrt(3), rel=1e-15)},
    }


def test_one_value_has_no_standard_error_and_none_has_no_mean():
    assert measurements([final(3, {"nmll": 2.0})], ["nmll"]) == [
        *[("nmll", 2.0, 0), ("nmll_median", 2.0, 0)],
        *[("trials", 1, 0), ("trials_failed", 0, 0)],
    ]
    assert measurements([final(0, {}, status="failed")], ["nmll"]) == [("trials", 1, 0), ("trials_failed", 1, 0)]


def readings(split, *values, axis="epochs"):
    """Scores after 10, 20, ... epochs."""
    return [(split, Reading(axis, 10 * i, "nmll", value)) for i, value in enumerate(values, start=1)]


def test_curves_are_means_over_the_splits_at_each_place():
    recorded = [*readings(0, 8.0, 4.0, NAN), *readings(1, 4.0, 1.0), *readings(2, INF, 1.0)]
    recorded += readings(0, 7.0, axis="updates")
    found = measurements([], ["nmll"], recorded)
    assert found[2:] == [("nmll_by_epochs", 6.0, 10), ("nmll_by_epochs", 2.0, 20), ("nmll_by_updates", 7.0, 10)]


def test_curves_are_read_back_as_series(store, client, load, send):
    store.claim(("yacht", "searched", "{}"), "f00d")
    for split, (early, late) in enumerate([(8.0, 4.0), (4.0, 1.0)]):
        evaluations = tuple(reading for _, reading in readings(split, early, late))
        store.append([Outcome(final(split, {"nmll": late}), evaluations)])
    (run_id,) = send(load())
    assert series(client, run_id, "nmll_by_epochs") == {10: 6.0, 20: 2.5}
    assert {split: run.data.metrics["nmll"] for split, run in splits_of(client, run_id).items()} == {0: 4.0, 1: 1.0}


def test_each_point_of_a_sweep_is_a_run(store, client, load, send):
    """All under one fit hash here: the point tells them apart."""
    benchmark = load(overrides=["sweep={model.hidden: [[5], [7, 7]]}"])
    texts = ['{"model.hidden":[5]}', '{"model.hidden":[7,7]}']
    for value, text in enumerate(texts):
        store.claim(("yacht", "searched", text), "f00d")
        append(store, final(0, {"nmll": value}, point=text))
    first, second = send(benchmark)
    runs = [client.get_run(run_id) for run_id in (first, second)]
    assert [run.info.run_name for run in runs] == [f"yacht/searched/{text}" for text in texts]
    assert [run.data.tags["bdl.point"] for run in runs] == texts
    assert [run.data.params["model.hidden"] for run in runs] == ["[5]", "[7, 7]"]
    assert [run.data.metrics["nmll"] for run in runs] == [0, 1]
    append(store, final(1, {"nmll": 2}, point=texts[1]))
    again = send(benchmark)
    assert {run.info.run_id for run in runs_of(client, benchmark.name)} == {*again}
    assert again[0] == first
    assert again[1] not in (first, second)


def test_the_splits_of_a_run_are_params(load):
    cell = cells_of(load())[0]
    found = [parameters(own) for own in (cell, cell.with_splits((0, 2, 3)))]
    assert [(params["splits"], params["split_numbers"]) for params in found] == [("4", "0-3"), ("3", "0, 2-3")]


def test_settings_of_a_data_set_are_params(store, client, load, send, tmp_path):
    streams = load_benchmark("online-fa", "quick", [f"name={tmp_path.name.lower()}"]).select([], ["online-em"])
    (cell,) = cells_of(streams)
    store.claim(cell.key, "f00d")
    append(store, Row(*cell.key, "final", 0, 0, 0, "ok", None, {}, {}, 1.0, {}))
    (run_id,) = send(streams, [cell.dataset])
    params = client.get_run(run_id).data.params
    assert params["dataset"] == "fa_100_10"
    assert {name: value for name, value in params.items() if name.startswith("dataset_settings.")} == {
        **{"dataset_settings.dim": "100", "dataset_settings.top": "10.0", "dataset_settings.scaling": "rows"},
        **{"dataset_settings.length": "100000", "dataset_settings.splits": "10"},
    }


def test_logging_is_as_before_after_the_block(uri):
    logging.disable(logging.DEBUG)
    try:
        with connection(uri):
            assert not logging.getLogger("alembic").isEnabledFor(logging.INFO)
            assert logging.getLogger("alembic").isEnabledFor(logging.ERROR)
        assert logging.root.manager.disable == logging.DEBUG
    finally:
        logging.disable(logging.NOTSET)


@contextmanager
def refused(*words):
    """Expect an InputError of one line with these words."""
    with pytest.raises(InputError) as caught:
        yield
    message = str(caught.value)
    assert "\n" not in message
    for word in words:
        assert word in message


def test_bad_databases_are_refused_at_once(store, load, send, tmp_path):
    fill(store)
    text = tmp_path / "notes.txt"
    text.write_text("not a database, though as long as the header of one" * 10)
    start = time.monotonic()
    with refused("no folder", "make it"):
        send(load(), tracking_uri=f"sqlite:///{tmp_path}/absent/mlflow.db")
    assert not (tmp_path / "absent").exists()
    with refused("cannot write", "unable to open", "choose another"):
        send(load(), tracking_uri=f"sqlite:///{tmp_path}")
    with refused("cannot write", "not a database", "choose another"):
        send(load(), tracking_uri=f"sqlite:///{text}")
    for bad in ("mlruns", "foo://x", "sqlite://", "sqlite:///", ""):
        with refused(f"'{bad}'", "sqlite:///path"):
            send(load(), tracking_uri=bad)
    assert time.monotonic() - start < 5  # MLflow alone retries for a minute


def test_a_server_that_is_not_there(store, load, send, monkeypatch):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    fill(store)
    with refused("http://127.0.0.1:9", "choose another"):
        send(load(), tracking_uri="http://127.0.0.1:9")


def test_bad_cells_and_files_are_refused_before_anything_is_written(store, client, load, send, tmp_path):
    fill(store)
    with refused("no rows of diabetes/searched", "run the benchmark"):
        send(load(), ["yacht", "diabetes"])
    with refused("table.md", "bdl-bench run"):
        send(load(), artifacts=[tmp_path / "table.md"])
    (tmp_path / "file").touch()
    with refused("cannot make", "--results"):
        send(load(), artifact_root=tmp_path / "file")
    assert client.get_experiment_by_name(load().name) is None


def test_a_deleted_experiment_names_the_command_that_restores_it(store, client, load, send):
    fill(store)
    send(load())
    identifier = client.get_experiment_by_name(load().name).experiment_id
    client.delete_experiment(identifier)
    with refused("was deleted", f"mlflow experiments restore -x {identifier}"):
        send(load())


def test_database_of_a_uri():
    assert database("sqlite:///results/mlflow.db") == Path("results/mlflow.db")
    assert database("sqlite:////tmp/mlflow.db") == Path("/tmp/mlflow.db")
    assert database("https://example.org") is None


def test_ui_refuses_what_it_cannot_show(uri, tmp_path):
    with refused("no MLflow database", "bdl-bench log"):
        open_ui(f"sqlite:///{tmp_path}/mlflow.db", 5000)
    with refused("is a server already", "browser"):
        open_ui("http://127.0.0.1:5000", 5000)
    with socket.create_server(("127.0.0.1", 0)) as busy, refused("Address already in use", "--port"):
        open_ui(uri, busy.getsockname()[1])
    with refused("port 99999", "--port"):
        open_ui(uri, 99999)


def test_ui_says_when_the_server_stops_by_itself(uri, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with refused("exit code 1"):
        open_ui(uri, free_port())


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
    return port


@pytest.mark.slow  # starts a server
def test_ui_serves_the_runs_until_interrupted(store, load, send, uri):
    fill(store)
    (run_id,) = send(load())
    port = free_port()
    heard = "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)"  # ignored under nohup
    script = f"{heard}\nfrom bdl.publishing.logged import open_ui\nopen_ui({uri!r}, {port})"
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as ui:
        try:
            assert ui.stdout.readline() == f"MLflow UI at http://127.0.0.1:{port} (Ctrl-C ends it)\n"
            found = fetch(f"http://127.0.0.1:{port}/api/2.0/mlflow/runs/get?run_id={run_id}")
            assert found["run"]["info"]["run_name"] == "yacht/searched"
            ui.send_signal(signal.SIGINT)
            assert ui.wait(30) == 0
        finally:
            ui.kill()
    socket.create_server(("127.0.0.1", port)).close()


def fetch(url, seconds=60):
    """Read JSON from a server that is starting."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            with urllib.request.urlopen(url, timeout=10) as reply:
                return json.load(reply)
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.3)


def test_a_cell_whose_fits_all_failed_is_failed_and_says_why(store, client, load, send):
    store.claim(("yacht", "searched", "{}"), "f00d")
    append(store, *(final(split, {}, status="failed") for split in range(3)))
    run = client.get_run(send(load())[0])
    assert run.info.status == "FAILED"
    assert run.data.tags["bdl.failures"] == "3 x diverged"


def test_a_folder_of_any_name_has_its_mirror(store, load, tmp_path, monkeypatch):
    """Database and artifacts are in the folder of that name, where MLflow finds them, and nothing is beside it."""
    place = tmp_path / "job%2Fx a b#c?d q'\"é:x p%20q"
    (place / "results").mkdir(parents=True)
    monkeypatch.chdir(place)
    before = set(tmp_path.iterdir())
    fill(store)
    (table := place / "table.md").write_text("rows")
    address, root = f"sqlite:///{place}/results/mlflow.db", place / "results" / "mlartifacts"
    cells = [cell for cell in cells_of(load()) if cell.dataset == "yacht"]
    (run_id,) = mirror(load(), store, cells, tracking_uri=address, artifact_root=root, tags={}, artifacts=[table])
    assert {path.name for path in place.rglob("*")} >= {"mlflow.db", "table.md"}
    assert len(list(root.rglob("table.md"))) == 1
    with connection(address) as connected:
        assert Path(connected.download_artifacts(run_id, "table.md")).read_text() == "rows"
    assert set(tmp_path.iterdir()) - before <= {tmp_path / "benchmark.yaml"}


MIRROR = """
import sys, time
from pathlib import Path
from bdl.publishing.tracking import connection
folder, ready = map(Path, sys.argv[1:])
import mlflow
ready.touch()
while len(list(folder.glob("ready*"))) < 2:
    time.sleep(0.001)
with connection(f"sqlite:///{folder}/mlflow.db") as client:
    client.create_experiment(ready.name)
"""


@pytest.mark.slow  # two processes with MLflow
def test_two_commands_make_one_database(tmp_path):
    """Both start in the same moment; what one has written is there when the other is through."""
    commands = [[sys.executable, "-c", MIRROR, str(tmp_path), str(tmp_path / f"ready{n}")] for n in range(2)]
    running = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for command in commands]
    assert [process.communicate()[1] for process in running] == ["", ""]
    assert [process.returncode for process in running] == [0, 0]
    with connection(f"sqlite:///{tmp_path}/mlflow.db") as connected:
        assert {"ready0", "ready1"} <= {found.name for found in connected.search_experiments()}


def test_results_that_moved_are_written_to_where_they_are(store, load, tmp_path):
    fill(store)
    cells = [cell for cell in cells_of(load()) if cell.dataset == "yacht"]
    (table := tmp_path / "table.md").write_text("rows")

    def write(place):
        options = {"tracking_uri": f"sqlite:///{place}/mlflow.db", "artifact_root": place / "mlartifacts"}
        return mirror(load(), store, cells, tags={}, artifacts=[table], **options)[0]

    (old := tmp_path / "old").mkdir()
    first = write(old)
    new = old.rename(tmp_path / "new %2F place")
    assert write(new) == first
    table.write_text("more rows")
    second = write(new)
    assert second != first
    assert not old.exists()
    with connection(f"sqlite:///{new}/mlflow.db") as connected:
        found = [Path(connected.download_artifacts(run, "table.md")).read_text() for run in (first, second)]
    assert found == ["rows", "more rows"]


def test_a_database_elsewhere_keeps_its_places(store, load, send, client, tmp_path):
    """It is shared by several folders of results: the first of them has the files."""
    fill(store)
    send(load())
    before = client.get_experiment_by_name(load().name).artifact_location
    bring_along(f"sqlite:///{tmp_path}/none.db", tmp_path / "mlartifacts")
    append(store, final(5, {"nmll": 5.0, "rmse": 5.0}))
    send(load(), artifact_root=tmp_path / "other" / "mlartifacts")
    assert client.get_experiment_by_name(load().name).artifact_location == before


def odd_names():
    """Names that are odd each in a way of its own, and 500 of random characters."""
    odd = ["misses_1e+06", "misses_1e_06", "a/../b", "a/b", ".", "..", "/a", "/", "a//b", "a:b", "a\nb", "é", "x" * 300]
    letters = [*map(chr, range(256)), "漢", "\u2028", "\U0001f600"]
    rng = random.Random(0)
    return [*odd, "x" * 301, *("".join(rng.choices(letters, k=rng.randint(1, 300))) for _ in range(500))]


def test_mlflow_takes_every_name():
    names = list(dict.fromkeys(odd_names()))
    from mlflow.utils.validation import _validate_metric_name, _validate_param_name

    found = [mirrored(name) for name in names]
    for name in found:
        _validate_metric_name(f"{name}_median")
        _validate_param_name(name)
    assert len(set(found)) == len(names)


def test_a_name_that_mlflow_takes_stays():
    assert [mirrored(name) for name in ("nmll", "training.batch_size", "splits/rmse")] == [
        "nmll",
        "training.batch_size",
        "splits/rmse",
    ]


@pytest.mark.parametrize("metrics", [["ece", "ece_median"], ["rmse", "trials"]])
def test_numbers_that_would_have_one_name_are_refused(metrics):
    with refused(f"'{metrics[1]}' is the name of another number", "label"):
        check_names(metrics)
    check_names(metrics[:1])


def test_a_run_with_odd_names_is_mirrored(store, load, send, client, monkeypatch):
    benchmark = load()
    benchmark = benchmark.model_copy(update={"metrics": ("nmll", MetricName("ece_1e+06", "ece"))})
    store.claim(("yacht", "searched", "{}"), "f00d")
    append(store, final(0, {"nmll": 1.0, "ece_1e+06": 0.5}, hyper={"a+b": 2.0}))
    (run_id,) = send(benchmark)
    found = client.get_run(run_id).data.metrics
    assert found[mirrored("ece_1e+06")] == 0.5
    (below,) = splits_of(client, run_id).values()
    assert below.data.params[mirrored("hyper.a+b")] == "2"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_server_ends_with_the_command(number, tmp_path):
    """Its process writes its number when it is up; afterwards nothing has that number."""
    place = tmp_path / "pid"
    server = f"import os, time; open({str(place)!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    script = (
        "import os, sys; from bdl.publishing.logged import attended; "
        f"sys.exit(attended([sys.executable, '-c', {server!r}], os.environ))"
    )
    with subprocess.Popen([sys.executable, "-c", script]) as command:
        deadline = time.monotonic() + 30
        while not (place.exists() and place.read_text()) and time.monotonic() < deadline:
            time.sleep(0.01)
        command.send_signal(number)
        assert command.wait(timeout=30) == 0
    with pytest.raises(ProcessLookupError):
        os.kill(int(place.read_text()), 0)

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
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
import urllib3

from bdl.errors import InputError
from bdl.plan.planning import list_tasks
from bdl.publishing.mlflow_export import export_run, list_parameters
from bdl.publishing.mlflow_names import (
    check_mlflow_names,
    list_measurements,
    to_mlflow_name,
)
from bdl.publishing.mlflow_ui import list_view_addresses, open_ui
from bdl.publishing.tracking import connect, parse_database_path, relocate_artifacts
from bdl.records.row import CurvePoint, FitResult, Row
from bdl.records.run_folder import RunFolder
from bdl.spec import load_benchmark
from bdl.spec.labels import MetricName

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
metrics: [nmll, rmse]
profiles:
  quick: {{splits: 1}}
"""

MAKE = """
import sys
from bdl.publishing import mlflow_export
from bdl.publishing.tracking import connect
assert "mlflow" not in sys.modules
with connect(sys.argv[1]) as client:
    client.log_text(client.create_run(client.create_experiment("first")).info.run_id, "text", "file")
from mlflow.telemetry import get_telemetry_client
from mlflow.telemetry.utils import is_telemetry_disabled
assert is_telemetry_disabled() and get_telemetry_client() is None
"""


@pytest.fixture(scope="module")
def creation(tmp_path_factory):
    """Make the module's database in a fresh process, whose output is kept."""
    uri = f"sqlite:///{tmp_path_factory.mktemp('tracking')}/mlflow.db"
    # Without pytest's and CI's variables, under which MLflow is private by itself.
    clean = {
        name: os.environ[name]
        for name in ("PATH", "HOME", "PYTHONPATH", "TMPDIR")
        if name in os.environ
    }
    return uri, subprocess.run(
        [sys.executable, "-c", MAKE, uri], capture_output=True, text=True, env=clean
    )


@pytest.fixture(scope="module")
def uri(creation):
    return creation[0]


@pytest.fixture(scope="module")
def client(uri):
    with connect(uri) as connected:
        yield connected


def read(folder, profile="paper", overrides=()):
    """Load the benchmark.

    It is named after its folder, so that each test has its own experiment.
    """
    path = folder / "benchmark.yaml"
    path.write_text(TEXT.format(name=folder.name.lower()))
    return load_benchmark(str(path), profile, overrides)


@pytest.fixture
def benchmark(tmp_path):
    return read(tmp_path)


@pytest.fixture
def send(store, uri, benchmark, tmp_path):
    """Mirror cells: by default all that have rows in the store."""

    def call(cells=None, artifacts=(), tags={}, **changes):
        options = {"tracking_uri": uri, "artifact_root": tmp_path / "mlartifacts"} | changes
        own = (
            [cell for cell in list_tasks(benchmark) if store.find_fit_hash(cell.key)]
            if cells is None
            else cells
        )
        return export_run(benchmark, store, own, tags=tags, artifacts=artifacts, **options)

    return call


def final(split, metrics, hyper={}, status="ok", stage="final", point="{}"):
    key = (
        "yacht",
        "searched",
        point,
        stage,
        split,
        0,
        0,
        status,
        None if status == "ok" else "diverged",
    )
    return Row(*key, hyper=hyper, metrics=metrics, seconds=1.0, details={})


def append(store, *rows):
    store.append([FitResult(row) for row in rows])


def fill(store, fit_hash="f00d"):
    """Four good splits with nmll 1, 2, 4, 9 and one failed.

    A search row that must not be counted.
    """
    store.claim(("yacht", "searched", "{}"), fit_hash)
    for split, nmll in enumerate([1.0, 2.0, 4.0, 9.0]):
        append(
            store, final(split, {"nmll": nmll, "rmse": 10 * nmll}, {"learning_rate": 0.01 * nmll})
        )
    append(store, final(4, {}, status="failed"), final(0, {"nmll": 77.0}, stage="search"))


def runs_of(client, benchmark_name):
    """Identifiers of the runs of cells, with their status."""
    found = client.search_runs([client.get_experiment_by_name(benchmark_name).experiment_id])
    return {
        run.info.run_id: run.info.status
        for run in found
        if "mlflow.parentRunId" not in run.data.tags
    }


def splits_of(client, run_id):
    """Runs below that of a cell, by their split."""
    experiment = client.get_run(run_id).info.experiment_id
    found = client.search_runs([experiment], f"tags.`mlflow.parentRunId` = '{run_id}'")
    return {int(run.data.tags["bdl.split"]): run for run in found}


def series(client, run_id, metric):
    return {point.step: point.value for point in client.get_metric_history(run_id, metric)}


def test_mirroring_into_a_new_database_is_silent_and_private(creation):
    _, made = creation
    assert (made.returncode, made.stdout, made.stderr) == (0, "", "")


ODD, MIRRORED = "ece_1e+06", to_mlflow_name("ece_1e+06")
PROTOCOL = "Not the protocol."


@pytest.fixture(scope="module")
def sent(client, uri, tmp_path_factory):
    """A cell of the quick profile that was mirrored with a file, tags, a metric and a hyper-parameter of odd names."""
    folder = tmp_path_factory.mktemp("sent")
    (table := folder / "table.md").write_text("| 4.0 |")
    odd = {"metrics": ("nmll", "rmse", MetricName(ODD, "ece"))}
    benchmark = read(folder, "quick").model_copy(update=odd)
    (cell,) = (cell for cell in list_tasks(benchmark) if cell.dataset == "yacht")
    tags = {"bdl.git_commit": "abc", "version.torch": "2", "bdl.protocol": PROTOCOL}
    with RunFolder(folder / "store") as store:
        fill(store)
        curve = [CurvePoint("epochs", 10, "nmll", 8.0), CurvePoint("epochs", 20, "nmll", 4.0)]
        store.append(
            [
                FitResult(
                    final(5, {"nmll": 4.0, "rmse": 40.0, ODD: 0.5}, {"a+b": 2.0}), tuple(curve)
                )
            ]
        )
        place = {"tracking_uri": uri, "artifact_root": folder / "mlartifacts"}
        (run_id,) = export_run(benchmark, store, [cell], tags=tags, artifacts=[table], **place)
    run = client.get_run(run_id)
    experiment = client.get_experiment(run.info.experiment_id)
    return SimpleNamespace(
        benchmark=benchmark, cell=cell, folder=folder, id=run_id, run=run, experiment=experiment
    )


SE = math.sqrt(38 / 4 / 5)
"""Of 1, 2, 4, 4, 9: squared deviations from 4 are 9 + 4 + 0 + 0 + 25."""


def test_every_number_is_read_back(sent, client):
    assert sent.run.data.metrics == pytest.approx(
        {
            **{
                "trials": 6,
                "trials_failed": 5,
                MIRRORED: 0.5,
                f"{MIRRORED}_median": 0.5,
                "nmll_by_epochs": 4,
            },
            **{"nmll": 4, "nmll_median": 4, "nmll_se": SE},
            **{"rmse": 40, "rmse_median": 40, "rmse_se": 10 * SE},
        },
        rel=1e-15,
    )
    assert series(client, sent.id, "nmll_by_epochs") == {10: 8.0, 20: 4.0}
    below = splits_of(client, sent.id)
    assert {split: run.data.metrics for split, run in below.items()} == {
        **{split: {"nmll": nmll, "rmse": 10 * nmll} for split, nmll in enumerate([1, 2, 4, 9])},
        **{4: {}, 5: {"nmll": 4, "rmse": 40, MIRRORED: 0.5}},
    }
    assert {split: run.data.params for split, run in below.items()} == {
        **{
            split: {"hyper.learning_rate": rate}
            for split, rate in enumerate(["0.01", "0.02", "0.04", "0.09"])
        },
        **{4: {}, 5: {to_mlflow_name("hyper.a+b"): "2"}},
    }
    assert [below[split].info.status for split in range(6)] == [
        *["FINISHED"] * 4,
        "FAILED",
        "FINISHED",
    ]
    assert below[3].info.run_name == "yacht/searched/3"


def test_names_tags_artifacts_and_status(sent, client):
    name = f"{sent.benchmark.name} (quick)"
    assert sent.experiment.name == name
    assert sent.experiment.tags["mlflow.experimentKind"] == "custom_model_development"
    assert (sent.run.info.run_name, sent.run.info.status) == ("yacht/searched", "FINISHED")
    tags = {
        key: value for key, value in sent.run.data.tags.items() if not key.startswith("mlflow.")
    }
    assert len(tags.pop("bdl.content")) == 64
    assert tags == {
        **{
            "bdl.dataset": "yacht",
            "bdl.entry": "searched",
            "bdl.fit_hash": "f00d",
            "bdl.protocol": PROTOCOL,
        },
        **{"bdl.git_commit": "abc", "version.torch": "2", "bdl.failures": "1 x diverged"},
    }
    assert [file.path for file in client.list_artifacts(sent.id)] == ["table.md"]
    (copy,) = (sent.folder / "mlartifacts" / name).rglob("*.*")
    assert copy.read_text() == "| 4.0 |"


def test_the_table_and_the_run_say_what_is_shown(sent, uri):
    """MLflow's own table has no metric: a view has, whose address the interface prints.

    A run has its data set.
    """
    (inputs,) = sent.run.inputs.dataset_inputs
    assert (inputs.dataset.name, inputs.dataset.source_type) == ("yacht", "code")
    text = sent.run.data.tags["mlflow.note.content"].splitlines()
    assert text[:3] == [
        "**searched** on **yacht**, 6 splits",
        "- NMLL (nats per test point), ↓ lower is better: 4.00 ± 1.4",
        "- RMSE (target units), ↓ lower is better: 40.0 ± 14",
    ]
    assert text[-1] == PROTOCOL
    tags, name = sent.experiment.tags, sent.experiment.name
    assert tags["mlflow.note.content"].startswith("A small benchmark\n")
    view = json.loads(tags["mlflow.sharedViewState.scores"])
    columns = [f"metrics.`{metric}`" for metric in ("nmll", "rmse", MIRRORED)]
    assert json.loads(view["state"])["selectedColumns"] == ["attributes.`Dataset`", *columns]
    at = f"http://here/#/experiments/{sent.experiment.experiment_id}/runs?viewStateShareKey=scores"
    assert f"{name}: {at}" in list_view_addresses(parse_database_path(uri), "http://here")


def test_params_are_the_resolved_entry_with_dots(sent):
    params = sent.run.data.params
    assert params == list_parameters(sent.cell)
    told = {
        **{
            "dataset": "yacht",
            "entry": "searched",
            "seed": "7",
            "splits": "1",
            "split_numbers": "0",
        },
        **{
            "model.hidden": "[50, 20]",
            "method.latent_dim": "2",
            "reference": "null",
            "training.epochs": "5",
        },
        **{
            "training.schedule.name": "constant",
            "preparation.split": "published",
            "hyper.noise_precision": "0.5",
        },
        **{"search.metric.label": "nmll", "search.space.learning_rate.scale": "log"},
    }
    assert {name: params[name] for name in told} == told
    assert "method.optimizer" in params, "a default, not in the file"
    found = list_parameters(sent.cell.with_splits((0, 2, 3)))
    assert (found["splits"], found["split_numbers"]) == ("3", "0, 2-3")
    (stream,) = list_tasks(load_benchmark("online-fa", "quick").select([], ["online-em"]))
    found = list_parameters(stream)
    assert found["dataset"] == "fa_100_10"
    settings = {"dim": "100", "top": "10.0", "scaling": "rows", "length": "100000", "splits": "10"}
    assert {name: found[f"dataset_settings.{name}"] for name in settings} == settings


def test_mirroring_again_replaces_what_has_changed_alone(
    store, client, benchmark, send, tmp_path, monkeypatch
):
    """What is there already is found without MLflow.

    A run that was broken off or deleted is written anew.
    """
    fill(store)
    (path := tmp_path / "table.md").write_text("one")
    (first,) = send(artifacts=[path])
    with monkeypatch.context() as patch:
        patch.delattr("bdl.publishing.mlflow_export.connect")
        assert send(artifacts=[path]) == [first]
        with pytest.raises(NameError):
            send(artifacts=[path], tags={"another": "tag"})
    path.write_text("two")
    (second,) = send(artifacts=[path])
    client.set_terminated(second, "FAILED")
    (third,) = send(artifacts=[path])
    client.delete_run(third)
    (fourth,) = send(artifacts=[path])
    append(store, final(5, {"nmll": 14.0, "rmse": 1.0}))
    (last,) = send(artifacts=[path])
    assert len({first, second, third, fourth, last}) == 5
    assert runs_of(client, benchmark.name) == {last: "FINISHED"}
    assert splits_of(client, fourth) == {}, "deleted with it"
    found = splits_of(client, last)
    assert {split: found[split].data.metrics["nmll"] for split in (0, 1, 2, 3, 5)} == {
        0: 1,
        1: 2,
        2: 4,
        3: 9,
        5: 14,
    }
    assert client.get_run(last).data.metrics["nmll"] == 6


def test_other_fits_and_variants_replace_no_run(store, client, benchmark, send):
    """The fits of a variant may have the same hash, and be fewer."""
    fill(store)
    (first,) = send()
    (part,) = send(variant="splits-1-0123abcd")
    append(store, final(5, {"nmll": 14.0, "rmse": 1.0}))
    (again,) = send(variant="splits-1-0123abcd")
    assert again != part
    assert runs_of(client, f"{benchmark.name} (splits-1-0123abcd)").keys() == {again}
    store.forget([("yacht", "searched", "{}")])
    fill(store, fit_hash="beef")
    (second,) = send()
    assert runs_of(client, benchmark.name).keys() == {first, second}


def test_an_interrupted_run_is_failed_and_the_old_one_stays(
    store, client, benchmark, send, tmp_path, monkeypatch
):
    fill(store)
    (good,) = send()
    (table := tmp_path / "table.md").touch()

    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("mlflow.MlflowClient.log_artifact", interrupted)
        with pytest.raises(KeyboardInterrupt):
            send(artifacts=[table])
    statuses = runs_of(client, benchmark.name)
    assert statuses.pop(good) == "FINISHED"
    assert [*statuses.values()] == ["FAILED"]
    (again,) = send(artifacts=[table])
    assert runs_of(client, benchmark.name).keys() == {again}


def test_large_cells_are_written_whole(store, client, send):
    """With more numbers, 1000, and more tags, 100, than MLflow's server takes in one call."""
    store.claim(("yacht", "searched", "{}"), "f00d")
    points = tuple(CurvePoint("epochs", at, "nmll", float(at)) for at in range(2500))
    store.append([FitResult(final(2, {"nmll": 3.0}), points)])
    tags = {f"tag{i}": str(i) for i in range(250)}
    (run_id,) = send(tags=tags)
    assert series(client, run_id, "nmll_by_epochs") == {at: at for at in range(2500)}
    assert tags.items() <= client.get_run(run_id).data.tags.items()


def test_what_is_not_finite_is_counted_and_not_logged():
    rows = [
        final(0, {"nmll": 1.0, "rmse": 5.0}, {"a": INF}),
        final(1, {"nmll": NAN, "rmse": 6.0}),
        final(2, {"nmll": 3.0, "rmse": None}),
        final(3, {"nmll": -INF, "rmse": 7.0}),
        final(4, {"nmll": 5.0, "rmse": 8.0}, status="failed"),
    ]
    assert list_measurements(rows, ["nmll", "rmse"]) == [
        *(
            ("nmll", 2, 0),
            ("nmll_median", 2, 0),
            ("nmll_se", 1, 0),
            ("rmse", 6, 0),
            ("rmse_median", 6, 0),
        ),
        *(
            ("rmse_se", pytest.approx(1 / math.sqrt(3), rel=1e-15), 0),
            ("trials", 5, 0),
            ("trials_failed", 4, 0),
        ),
    ]
    assert list_measurements([final(3, {"nmll": 2.0})], ["nmll"]) == [
        *[("nmll", 2.0, 0), ("nmll_median", 2.0, 0)],
        *[("trials", 1, 0), ("trials_failed", 0, 0)],
    ]
    assert list_measurements(rows[4:], ["nmll"]) == [("trials", 1, 0), ("trials_failed", 1, 0)]


def test_curves_are_means_over_the_splits_at_each_place():
    given = [
        (0, "epochs", [8.0, 4.0, NAN]),
        (1, "epochs", [4.0, 1.0]),
        (2, "epochs", [INF, 1.0]),
        (0, "updates", [7.0]),
    ]
    recorded = [
        (split, CurvePoint(axis, at, "nmll", value))
        for split, axis, values in given
        for at, value in zip((10, 20, 30), values, strict=False)
    ]
    found = list_measurements([], ["nmll"], recorded)
    assert found[2:] == [
        ("nmll_by_epochs", 6.0, 10),
        ("nmll_by_epochs", 2.0, 20),
        ("nmll_by_updates", 7.0, 10),
    ]


def test_each_point_of_a_sweep_is_a_run(store, client, uri, tmp_path):
    """All under one fit hash here: the point tells them apart."""
    benchmark = read(tmp_path, overrides=["sweep={model.hidden: [[5], [7, 7]]}"])
    cells = [cell for cell in list_tasks(benchmark) if cell.dataset == "yacht"]
    place = {
        "tracking_uri": uri,
        "artifact_root": tmp_path / "mlartifacts",
        "tags": {},
        "artifacts": (),
    }
    texts = ['{"model.hidden":[5]}', '{"model.hidden":[7,7]}']
    for text in texts:
        store.claim(("yacht", "searched", text), "f00d")
        append(store, final(0, {"nmll": 1.0}, point=text))
    first, second = export_run(benchmark, store, cells, **place)
    append(store, final(1, {"nmll": 2.0}, point=texts[1]))
    third, fourth = export_run(benchmark, store, cells, **place)
    assert third == first
    assert runs_of(client, benchmark.name).keys() == {first, fourth} != {first, second}
    runs = [client.get_run(run_id) for run_id in (first, fourth)]
    assert [run.info.run_name for run in runs] == [f"yacht/searched/{text}" for text in texts]
    assert [run.data.params["model.hidden"] for run in runs] == ["[5]", "[7, 7]"]


def test_a_cell_whose_fits_all_failed_is_failed_and_says_why(store, client, send):
    store.claim(("yacht", "searched", "{}"), "f00d")
    append(store, *(final(split, {}, status="failed") for split in range(3)))
    run = client.get_run(send()[0])
    assert (run.info.status, run.data.tags["bdl.failures"]) == ("FAILED", "3 x diverged")


def test_logging_is_as_before_after_the_block(uri):
    logging.disable(logging.DEBUG)
    try:
        with connect(uri):
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


def test_bad_databases_are_refused_at_once(store, send, tmp_path, monkeypatch):
    fill(store)
    text = tmp_path / "notes.txt"
    text.write_text("not a database, though as long as the header of one" * 10)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    start = time.monotonic()
    for bad, words in (
        (f"sqlite:///{tmp_path}/absent/mlflow.db", ("no folder", "make it")),
        (f"sqlite:///{tmp_path}", ("cannot write", "unable to open", "choose another")),
        (f"sqlite:///{text}", ("cannot write", "not a database", "choose another")),
        ("http://127.0.0.1:9", ("http://127.0.0.1:9", "choose another")),
        *(
            (bad, (f"'{bad}'", "sqlite:///path"))
            for bad in ("mlruns", "foo://x", "sqlite://", "sqlite:///", "")
        ),
    ):
        with refused(*words):
            send(tracking_uri=bad)
    assert not (tmp_path / "absent").exists()
    assert time.monotonic() - start < 5  # MLflow alone retries for a minute


def test_bad_cells_and_files_are_refused_before_anything_is_written(
    store, client, benchmark, send, tmp_path
):
    fill(store)
    with refused("no rows of diabetes/searched", "run the benchmark"):
        send(list_tasks(benchmark))
    with refused("table.md", "bdl-bench run"):
        send(artifacts=[tmp_path / "table.md"])
    (tmp_path / "file").touch()
    with refused("cannot write to", "--results"):
        send(artifact_root=tmp_path / "file")
    assert client.get_experiment_by_name(benchmark.name) is None
    send()
    identifier = client.get_experiment_by_name(benchmark.name).experiment_id
    client.delete_experiment(identifier)
    with refused("was deleted", f"mlflow experiments restore -x {identifier}"):
        send()


def test_ui_refuses_what_it_cannot_show(uri, tmp_path, monkeypatch):
    with refused("no MLflow database", "bdl-bench run"):
        open_ui(f"sqlite:///{tmp_path}/mlflow.db", 5000)
    with refused("is a server already", "browser"):
        open_ui("http://127.0.0.1:5000", 5000)
    with (
        socket.create_server(("127.0.0.1", 0)) as busy,
        refused("Address already in use", "--port"),
    ):
        open_ui(uri, busy.getsockname()[1])
    with refused("port 99999", "--port"):
        open_ui(uri, 99999)
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with refused("exit code 1"):
        open_ui(uri, free_port())


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
    return port


@pytest.mark.slow  # starts a server
def test_ui_serves_the_runs_until_interrupted(store, send, uri):
    fill(store)
    (run_id,) = send()
    port = free_port()
    # ignored under nohup
    heard = "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)"
    script = f"{heard}\nfrom bdl.publishing.mlflow_ui import open_ui\nopen_ui({uri!r}, {port})"
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as ui:
        try:
            assert (
                ui.stdout.readline() == f"MLflow UI at http://127.0.0.1:{port} (Ctrl-C ends it)\n"
            )
            patient = urllib3.PoolManager(
                retries=urllib3.Retry(60, backoff_factor=0.3, backoff_max=1)
            )
            reply = patient.request(
                "GET", f"http://127.0.0.1:{port}/api/2.0/mlflow/runs/get?run_id={run_id}"
            )
            assert reply.json()["run"]["info"]["run_name"] == "yacht/searched"
            ui.send_signal(signal.SIGINT)
            assert ui.wait(30) == 0
        finally:
            ui.kill()
    socket.create_server(("127.0.0.1", port)).close()


def test_a_server_ends_with_the_command(tmp_path):
    """Its process writes its number when it is up; afterwards nothing has that number."""
    place = tmp_path / "pid"
    server = f"import os, time; open({str(place)!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    script = (
        "import os, sys; from bdl.publishing.mlflow_ui import run_server; "
        f"sys.exit(run_server([sys.executable, '-c', {server!r}], os.environ))"
    )
    with subprocess.Popen([sys.executable, "-c", script]) as command:
        deadline = time.monotonic() + 30
        while not (place.exists() and place.read_text()) and time.monotonic() < deadline:
            time.sleep(0.01)
        command.terminate()
        assert command.wait(timeout=30) == 0
    with pytest.raises(ProcessLookupError):
        os.kill(int(place.read_text()), 0)


MIRROR = """
import sys, time
from pathlib import Path
from bdl.publishing.tracking import connect
folder, ready = map(Path, sys.argv[1:])
import mlflow
ready.touch()
while len(list(folder.glob("ready*"))) < 2:
    time.sleep(0.001)
with connect(f"sqlite:///{folder}/mlflow.db") as client:
    client.create_experiment(ready.name)
"""


@pytest.mark.slow  # two processes with MLflow
def test_two_commands_make_one_database(tmp_path):
    """Both start in the same moment; what one has written is there when the other is through."""
    commands = [
        [sys.executable, "-c", MIRROR, str(tmp_path), str(tmp_path / f"ready{n}")]
        for n in range(2)
    ]
    running = [
        subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for command in commands
    ]
    assert [process.communicate()[1] for process in running] == ["", ""]
    assert [process.returncode for process in running] == [0, 0]
    with connect(f"sqlite:///{tmp_path}/mlflow.db") as connected:
        assert {"ready0", "ready1"} <= {found.name for found in connected.search_experiments()}


def test_results_of_any_folder_are_mirrored_to_where_they_are(
    store, benchmark, tmp_path, monkeypatch
):
    """Database and artifacts are in the folder, whatever its name, and come along where it is moved to."""
    fill(store)
    cells = [cell for cell in list_tasks(benchmark) if cell.dataset == "yacht"]
    (table := tmp_path / "table.md").write_text("rows")
    (start := tmp_path / "start").mkdir()
    monkeypatch.chdir(start)

    def send(place):
        options = {
            "tracking_uri": f"sqlite:///{place}/mlflow.db",
            "artifact_root": place / "mlartifacts",
        }
        return export_run(benchmark, store, cells, tags={}, artifacts=[table], **options)[0]

    (old := tmp_path / "job%2Fx a b#c?d q'\"é:x p%20q").mkdir()
    first = send(old)
    assert {path.name for path in old.rglob("*")} >= {"mlflow.db", "mlartifacts", "table.md"}
    new = old.rename(tmp_path / "new %2F place")
    assert send(new) == first
    table.write_text("more rows")
    second = send(new)
    assert second != first
    assert not old.exists()
    with connect(f"sqlite:///{new}/mlflow.db") as connected:
        found = [
            Path(connected.download_artifacts(run, "table.md")).read_text()
            for run in (first, second)
        ]
    assert found == ["rows", "more rows"]
    assert not [*start.iterdir()]


def test_a_database_elsewhere_keeps_its_places(store, benchmark, send, client, tmp_path):
    """It is shared by several folders of results: the first of them has the files."""
    fill(store)
    send()
    before = client.get_experiment_by_name(benchmark.name).artifact_location
    relocate_artifacts(f"sqlite:///{tmp_path}/none.db", tmp_path / "mlartifacts")
    append(store, final(5, {"nmll": 5.0, "rmse": 5.0}))
    send(artifact_root=tmp_path / "other" / "mlartifacts")
    assert client.get_experiment_by_name(benchmark.name).artifact_location == before


def test_mlflow_takes_every_name_and_keeps_those_that_it_would():
    """Names that are odd each in a way of its own, and 500 of random characters."""
    from mlflow.utils.validation import _validate_metric_name, _validate_param_name

    odd = [
        "misses_1e+06",
        "misses_1e_06",
        "a/../b",
        "a/b",
        ".",
        "..",
        "/a",
        "/",
        "a//b",
        "a:b",
        "a\nb",
        "é",
        "x" * 300,
    ]
    letters = [*map(chr, range(256)), "漢", "\u2028", "\U0001f600"]
    rng = random.Random(0)
    given = {
        *odd,
        "x" * 301,
        *("".join(rng.choices(letters, k=rng.randint(1, 300))) for _ in range(500)),
    }
    found = {to_mlflow_name(name) for name in given}
    for name in found:
        _validate_metric_name(f"{name}_median")
        _validate_param_name(name)
    assert len(found) == len(given)
    kept = ["nmll", "training.batch_size", "splits/rmse"]
    assert [to_mlflow_name(name) for name in kept] == kept


@pytest.mark.parametrize("metrics", [["ece", "ece_median"], ["rmse", "trials"]])
def test_numbers_that_would_have_one_name_are_refused(metrics):
    with refused(f"'{metrics[1]}' is the name of another number", "label"):
        check_mlflow_names(metrics)
    check_mlflow_names(metrics[:1])

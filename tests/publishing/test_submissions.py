"""Bundles: what a run leaves in one, and what is refused of one that was changed, by accident or with skill."""

import json
import re
import shutil
import socket
import sqlite3
import subprocess
from getpass import getuser
from pathlib import Path
from zipfile import ZipFile

import pytest
import torch
from safetensors.torch import load, save

from bdl.api import benchmark
from bdl.archive.loading import open_results
from bdl.errors import InputError
from bdl.publishing.bundle import MANIFEST, RUN, write
from bdl.publishing.submitting import _anonymous, registered, submit
from bdl.publishing.verifying import Verified, verify
from bdl.spec import load_variant

SPEC = """
name: tiny
title: A tiny benchmark
datasets: [diabetes]
splits: 2
entries:
  lr:
    model: {name: linear}
    likelihood: {name: gaussian}
    method: &vifa {name: vifa, gradients_per_update: 2}
    training: &short {epochs: 1, batch_size: 10}
    search:
      trials: 2
      folds: 2
      metric: nmll
      space:
        prior_precision: {low: 0.1, high: 1, scale: log}
        learning_rate: {low: 0.01, high: 0.02, scale: log}
        noise_precision: {low: 0.0001, high: 0.001, scale: log}
  bad:
    model: {name: linear}
    likelihood: {name: gaussian}
    method: *vifa
    training: *short
    hyper: {learning_rate: 1.0e+30, prior_precision: 1, noise_precision: 1}
  guest:
    method: {name: "FOLDER/mine.py:Own"}
    search: {sampler: grid, folds: 2, metric: nmll, grid: {size: [1, 2]}}
evaluation: {samples: 5}
metrics: [nmll, rmse, joint_nll, {name: rmse, at: mean}, mse_at_mean, spread, runtime]
"""
LABELS = """
name: labels
title: Labels
datasets: [overlapping_classes]
splits: 1
entries:
  lr:
    model: {name: linear}
    likelihood: {name: bernoulli}
    method: {name: vifa, gradients_per_update: 2}
    training: {epochs: 1, batch_size: 10}
    hyper: {learning_rate: 0.01, prior_precision: 1}
evaluation: {samples: 5}
metrics: [nll, error, ece, brier, auroc, disagreement, training_nll]
"""
GUEST = """
from dataclasses import dataclass
import numpy as np
from bdl.methods.guest import Guest
from bdl.posteriors.predictive import MeanVariance

@dataclass(frozen=True)
class Own(Guest):
    self_tuned = True

    @property
    def hyper(self):
        return ("size",)

    def fit(self, train, hyper, seed):
        return lambda x: MeanVariance(x[:, 0].numpy(), np.full(len(x), hyper["size"]))
"""


def bundled(folder, spec):
    """Run a benchmark, and make a bundle of it."""
    path = folder / "spec.yaml"
    path.write_text(spec.replace("FOLDER", str(folder)), "utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bdl.publishing.outcome.draw_figures", lambda *_, pdf: [])
        benchmark(path).run(results=folder / "results", compile=False)
    made = folder / "made.zip"
    submit(load_variant(str(path)), folder / "results", made)
    return made


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a bundle, and with the results that it is of."""
    folder = tmp_path_factory.mktemp("submissions")
    (folder / "mine.py").write_text(GUEST, "utf-8")
    bundled(folder, SPEC)
    return folder


@pytest.fixture(scope="module")
def members(place):
    """Contents of the bundle by name, without the manifest."""
    with ZipFile(place / "made.zip") as file:
        return {name: file.read(name) for name in file.namelist() if name != MANIFEST}


@pytest.fixture
def forged(members, tmp_path):
    """Write a bundle with changed members, and with the digests that belong to them.

    None leaves one out.
    """

    def made(changes):
        path = tmp_path / "forged.zip"
        write(
            path,
            [
                (name, content)
                for name, content in (members | changes).items()
                if content is not None
            ],
        )
        return path

    return made


def changed(members, change):
    """Change the rows."""
    run = json.loads(members[RUN])
    change(run)
    return {RUN: json.dumps(run).encode()}


FIRST = "predictions/0-1.safetensors"
HERE = "diabetes/lr, split 1"


def test_every_score_of_predictions_is_recomputed_and_the_others_are_named(place, monkeypatch):
    monkeypatch.chdir(place.parent)  # the file of the guest is elsewhere
    own = ("nmll", "rmse", "joint_nll", "rmse_mean", "mse_at_mean")
    assert verify(place / "made.zip") == [
        Verified("diabetes/lr", 2, 0, own, ("spread", "runtime"), False),
        Verified("diabetes/bad", 2, 2, (), (), False),
        Verified("diabetes/guest", 2, 0, own[:3], ("runtime",), True),
    ]


def test_scores_of_labels_are_recomputed(tmp_path):
    (found,) = verify(bundled(tmp_path, LABELS))
    assert found.scores == ("nll", "error", "ece", "brier", "auroc", "disagreement")
    assert found.reported == ("training_nll", "runtime")


def test_rows_are_those_of_the_run(place, members):
    asked = load_variant(str(place / "spec.yaml"))
    with open_results(asked, place / "results", latest=True) as here:
        for cell, own in zip(here.cells, json.loads(members[RUN])["cells"], strict=True):
            assert (own["dataset"], own["entry"]) == (cell.dataset, cell.entry)
            for row, given in zip(here.store.rows("final", cell.key), own["rows"], strict=True):
                assert given["scores"].keys() == row.metrics.keys()
                for name, value in given["scores"].items():  # outputs are kept to the last bit
                    assert value == (
                        row.metrics[name] and pytest.approx(row.metrics[name], rel=1e-12)
                    ), name
                assert (given["split"], given["status"], given["hyper"]) == (
                    row.split,
                    row.status,
                    row.hyper,
                )
                assert (given["seconds"], given["reason"]) == (row.seconds, row.problem)


def test_what_a_clone_needs_is_in_it_and_nothing_private(place, members):
    run = json.loads(members[RUN])
    assert run["environment"].keys() == {"git_commit", "python", "packages", "machine"}
    assert run["made"]["spec"]["entries"]["guest"]["method"]["name"] == "mine.py:Own"
    text = b"".join(members.values()).decode("latin-1")
    for private in (str(place), str(place.parent), str(Path.home()), socket.gethostname()):
        assert private not in text
    assert not re.search(r"(?<![\w.])/\w+/", members[RUN].decode())
    text = f"InputError: cannot read /home/{getuser()}/my data/x.csv on {socket.gethostname()}:8786 (file.py, line 3)"
    assert (
        _anonymous(text) == "InputError: cannot read my data/x.csv on host:8786 (file.py, line 3)"
    )


def row(run):
    return run["cells"][0]["rows"][1]


def scaled(scores, name, factor):
    scores[name] *= factor


def spec(run):
    return run["made"]["spec"]


MINE = {"name": "csv", "path": "x.csv", "label": "mine"}
ROWS = {
    "a score": (
        lambda run: scaled(row(run)["scores"], "rmse", 1 + 1e-9),
        f"{HERE}: rmse is .* by its predictions",
    ),
    "a score of the mean": (
        lambda run: scaled(row(run)["scores"], "rmse_mean", 0.9),
        f"{HERE}: rmse_mean is ",
    ),
    "a score that is gone": (
        lambda run: row(run)["scores"].pop("nmll"),
        f"{HERE}: nmll is missing",
    ),
    "a reported score that is gone": (
        lambda run: row(run)["scores"].pop("spread"),
        f"{HERE}: spread is missing",
    ),
    "a score without a value": (
        lambda run: row(run)["scores"].update(nmll=None),
        f"{HERE}: nmll is None, and ",
    ),
    "a score of one's own": (
        lambda run: row(run)["scores"].update(best=1.0),
        f"{HERE}: .* no score 'best'",
    ),
    "a noise": (
        lambda run: scaled(row(run)["hyper"], "noise_precision", 1.0001),
        f"{HERE}: nmll is ",
    ),
    "a rate that was not searched": (
        lambda run: row(run)["hyper"].update(learning_rate=0.03),
        f"{HERE}: learning_rate is 0.03, and from 0.01 to 0.02 in the spec",
    ),
    "no hyper-parameter": (
        lambda run: row(run)["hyper"].clear(),
        f"{HERE}: prior_precision is nan, and from 0.1 to 1",
    ),
    "a version": (
        lambda run: run["cells"][0]["versions"].update(engine=7),
        "diabetes/lr: its fits are not of the spec",
    ),
    "a failure": (
        lambda run: row(run).update(status="failed"),
        f"{HERE}: it failed, and has scores",
    ),
    "a missing split": (
        lambda run: run["cells"][0]["rows"].pop(),
        "diabetes/lr: split 1 is missing",
    ),
    "a split twice": (lambda run: row(run).update(split=0), "diabetes/lr: split 0 comes twice"),
    "more splits": (
        lambda run: run["cells"][0]["rows"].append({**row(run), "split": 2}),
        "split 2 is not in the spec",
    ),
    "a missing cell": (lambda run: run["cells"].pop(1), "diabetes/bad is missing"),
    "other data": (
        lambda run: run["cells"][0].update(data="0" * 64),
        "diabetes/lr: its data are not ours",
    ),
    "another seed": (
        lambda run: spec(run).update(seed=1),
        "diabetes/lr: its fits are not of the spec of the bundle",
    ),
    "a metric from outside": (
        lambda run: spec(run)["metrics"].append("os:system"),
        "'os:system' is not a part of bdl",
    ),
    "a likelihood from outside": (
        lambda run: spec(run)["entries"]["guest"].update(likelihood={"name": "mine.py:Mine"}),
        "'mine.py:Mine' is not a part of bdl-bench",
    ),
    "data of one's own": (
        lambda run: spec(run)["datasets"].append(MINE),
        "data set 'mine' is a file that others do not have",
    ),
    "no spec": (lambda run: run["made"].pop("spec"), "what its rows were made with is damaged"),
    "a field": (lambda run: run.update(more=1), "run.json is damaged: unknown field 'more'"),
}


@pytest.mark.parametrize(("change", "message"), ROWS.values(), ids=ROWS)
def test_rows_that_do_not_follow_are_refused(forged, members, change, message):
    with pytest.raises(InputError, match=message):
        verify(forged(changed(members, change)))


PREDICTIONS = {
    "rows of another split": (
        lambda own: own.update(rows=own["rows"].flip(0)),
        "of other rows than the split tests",
    ),
    "too few": (
        lambda own: own.update(outputs=own["outputs"][:, :3].clone()),
        "outputs has shape",
    ),
    "not finite": (lambda own: own["outputs"][0, 0].fill_(torch.nan), "not finite"),
    "other names": (
        lambda own: own.update(logits=own.pop("outputs")),
        "fields logits, rows, which no answer has",
    ),
}


@pytest.mark.parametrize(("change", "message"), PREDICTIONS.values(), ids=PREDICTIONS)
def test_predictions_that_do_not_fit_are_refused(forged, members, change, message):
    tensors = load(members[FIRST])
    change(tensors)
    with pytest.raises(InputError, match=f"{HERE}: .*{message}"):
        verify(forged({FIRST: save(tensors)}))


@pytest.mark.parametrize("byte", [0, 3])
def test_a_byte_of_a_prediction_that_was_changed_is_noticed(forged, members, byte):
    """The first or last of a number of four in the middle.

    The forger has computed the digest again.
    """
    content = bytearray(members[FIRST])
    content[-(len(load(members[FIRST])["rows"]) * 8) - 400 + byte] ^= 64
    with pytest.raises(InputError, match=f"{HERE}: .* by its predictions|{HERE}: .*not finite"):
        verify(forged({FIRST: bytes(content)}))


def test_bytes_that_are_not_those_of_the_manifest_are_noticed(place, tmp_path):
    path = tmp_path / "altered.zip"
    with ZipFile(place / "made.zip") as old, ZipFile(path, "w") as new:
        for name in old.namelist():
            content = bytearray(old.read(name))
            content[-1] ^= name == FIRST
            new.writestr(name, bytes(content))
    with pytest.raises(
        InputError, match=f"{HERE}: {FIRST} has changed: its SHA-256 is not that of manifest.json"
    ):
        verify(path)


def test_swapped_additional_and_missing_files_are_refused(forged, members):
    other = "predictions/0-0.safetensors"
    for changes, message in (
        (
            {other: members[FIRST], FIRST: members[other]},
            "diabetes/lr, split 0: its predictions are of other rows",
        ),
        (
            {"predictions/9-9.safetensors": members[FIRST]},
            r"predictions/9-9\.safetensors belongs to no row",
        ),
        ({FIRST: None}, f"{HERE}: {FIRST} is missing"),
    ):
        with pytest.raises(InputError, match=message):
            verify(forged(changes))


def refused(result, *fragments):
    code, out, err = result
    assert (code, out, err.count("\n")) == (2, "", 1), out + err
    assert all(fragment in err for fragment in fragments), err


def test_the_commands_tell_what_was_verified_and_refuse_in_one_line(
    place, forged, members, tmp_path, invoke
):
    code, out, _ = invoke(
        "submit",
        place / "spec.yaml",
        "--results",
        place / "results",
        "--output",
        tmp_path / "a.zip",
    )
    assert (code, "8" not in out.split(":")[1], "bdl-bench verify" in out) == (0, True, True)
    assert (tmp_path / "a.zip").read_bytes() == (place / "made.zip").read_bytes(), (
        "equal content is equal bytes"
    )
    code, out, _ = invoke("verify", tmp_path / "a.zip")
    assert code == 0
    assert re.search(r"diabetes/guest \* .* 2 .* 0 .* nmll, rmse, joint_nll .* runtime", out)
    assert "self-reported, too: seconds" in out
    refused(
        invoke("verify", forged(changed(members, ROWS["a score"][0]))),
        "forged.zip: diabetes/lr, split 1: rmse is",
    )
    (tmp_path / "cut.zip").write_bytes((place / "made.zip").read_bytes()[:-30])
    refused(invoke("verify", tmp_path / "cut.zip"), "cut.zip", "no zip file, or damaged")
    with ZipFile(tmp_path / "other.zip", "w") as file:
        file.writestr("readme.txt", "hello")
    refused(invoke("verify", tmp_path / "other.zip"), "other.zip: it is no bundle")
    refused(invoke("verify", tmp_path / "none.zip"), "none.zip", "No such file")


def test_a_run_without_a_store_or_with_fits_to_come_is_refused_with_what_to_do(
    place, tmp_path, invoke
):
    path, results = place / "spec.yaml", tmp_path / "results"
    words = ("submit", path, "--results", results)
    refused(invoke(*words), "no results in", "bdl-bench run")
    shutil.copytree(place / "results/tiny", results / "tiny")
    with sqlite3.connect(results / "tiny/store.sqlite") as store:
        store.execute("DELETE FROM fits WHERE entry = 'lr' AND split = 1 AND stage = 'final'")
    refused(invoke(*words), "diabetes/lr has no fit of split 1 yet; go on with: bdl-bench run")
    (results / "tiny/store.sqlite").unlink()
    refused(
        invoke(*words), "published rows alone, without posteriors; they come with: bdl-bench run"
    )


def committed(folder, *names):
    """Commit files, all of them if none is named; return the commit."""

    def git(*words):
        own = ("-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false")
        return subprocess.run(
            ["git", "-C", folder, *own, *words], check=True, capture_output=True, text=True
        ).stdout

    if not (folder / ".git").exists():
        git("init", "-q")
    git("add", "-f", *(names or ["."]))
    git("commit", "-q", "-m", "a step")
    return git("rev-parse", "HEAD").strip()


@pytest.fixture
def repository(place, tmp_path):
    """A repository with a commit, and a bundle that is not committed."""
    (tmp_path / "submissions").mkdir()
    (tmp_path / "readme.txt").write_text("hello", "utf-8")
    committed(tmp_path, "readme.txt")
    shutil.copy(place / "made.zip", tmp_path / "submissions/made.zip")
    return tmp_path


FILE = SPEC.replace("FOLDER/", "/home/of/another/")
"""The spec as a file of the repository: folders of absolute paths are not in a bundle."""
REGISTERED = {
    "as it was run": (FILE, True),
    "other words": (
        FILE.replace("A tiny benchmark", "Tiny").replace("trials: 2", "trials: 2  # few"),
        True,
    ),
    "other defaults": (
        FILE.replace("evaluation: {samples: 5}", "evaluation: {samples: 5}\nseed: 0"),
        True,
    ),
    "with a profile": (FILE + "profiles: {more: {splits: 3}}", True),
    "another search": (FILE.replace("high: 0.02", "high: 0.03"), False),
    "another order of the search": (
        re.sub(r"( +prior_precision: .*\n)( +learning_rate: .*\n)", r"\2\1", FILE),
        False,
    ),
    "other scores": (FILE.replace("metrics: [nmll, rmse, ", "metrics: [nmll, "), False),
    "another search of a guest": (FILE.replace("size: [1, 2]", "size: [1]"), False),
    "a guest with training": (
        FILE.replace(
            "    search: {sampler: grid", "    training: {epochs: 2}\n    search: {sampler: grid"
        ),
        False,
    ),
    "another guest": (FILE.replace("mine.py:Own", "mine.py:Other"), False),
    "a guest with a setting": (FILE.replace('mine.py:Own"', 'mine.py:Own", depth: 3'), False),
    "no benchmark": ("- hello", False),
}


@pytest.mark.parametrize(("text", "found"), REGISTERED.values(), ids=REGISTERED)
def test_a_spec_that_was_committed_before_the_bundle_is_pre_registered(repository, text, found):
    (repository / "tiny.yaml").write_text(text, "utf-8")
    commit = committed(repository, "tiny.yaml")
    expected = (
        (commit, "") if found else (None, "no commit before it has a tiny.yaml with its spec")
    )
    (repository / "tiny.yaml").write_text("name: later", "utf-8")
    committed(repository, "tiny.yaml")
    assert registered(repository / "submissions/made.zip") == expected, (
        "the next commit may add the bundle"
    )
    committed(repository)
    assert registered(repository / "submissions/made.zip") == expected


@pytest.mark.parametrize("first", ["submissions/made.zip", "."])
def test_a_spec_that_comes_with_the_bundle_or_after_it_is_not(repository, first):
    (repository / "tiny.yaml").write_text(FILE, "utf-8")
    committed(repository, first)
    (repository / "more.txt").write_text("more", "utf-8")
    committed(repository)
    assert registered(repository / "submissions/made.zip").commit is None


def test_a_run_under_a_profile_is_of_the_spec_with_it(place, forged, members, repository):
    path = forged(
        changed(members, lambda run: run["made"]["spec"].update(profile="brief", seed=3))
    )
    shutil.move(path, repository / "submissions/made.zip")
    for seed in (4, 3):
        (repository / "tiny.yaml").write_text(
            f"{FILE}profiles: {{brief: {{seed: {seed}}}}}", "utf-8"
        )
        commit = committed(repository, "tiny.yaml")
        assert registered(repository / "submissions/made.zip").commit == (
            commit if seed == 3 else None
        )


def test_without_a_history_nothing_is_pre_registered(place, repository, tmp_path_factory, invoke):
    assert registered(place / "made.zip") == (None, "there is no git history here")
    (repository / "tiny.yaml").write_text(FILE, "utf-8")
    commit = committed(repository, "tiny.yaml")
    committed(repository)
    clone = tmp_path_factory.mktemp("clone") / "shallow"
    subprocess.run(["git", "clone", "-q", "--depth", "1", repository.as_uri(), clone], check=True)
    code, out, _ = invoke(
        "verify", repository / "submissions/made.zip", clone / "submissions/made.zip"
    )
    assert code == 0
    assert f"made.zip: pre-registered, its spec is in commit {commit[:12]}\n" in out
    assert "made.zip: not pre-registered: this clone is shallow: git fetch --unshallow\n" in out

"""Networks of torch.nn and images through an ordinary benchmark file, by one command."""

import json
import subprocess
import sys

import numpy as np
import pytest
import torch
import yaml
from torch.utils._pytree import tree_leaves

from bdl.data.fundus import Aptos2019
from bdl.methods.vifa_two_stage import TwoStageVifa
from bdl.models.likelihoods import Categorical
from bdl.models.modules import Module
from bdl.models.problem import Problem
from bdl.records.posterior_files import PosteriorFiles
from bdl.records.run_folder import RunFolder
from bdl.training.checkpoint import Checkpoint
from bdl.training.fitting import EvaluationSchedule, run_to_end
from bdl.training.schedule import Schedule
from bdl.training.setup import TrainingSetup
from bdl.training.trials import Pool

NET = '''
from torch import nn


def make(shape, d_out, width=4):
    """Two convolutions with batch norm."""
    return nn.Sequential(
        nn.Conv2d(shape[0], width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(), nn.Flatten(),
        nn.Linear(width * 16, d_out),
    )
'''
IMAGES = '''
import numpy as np
from bdl.data import Dataset


def stripes() -> Dataset:
    """Grey images of 8 x 8 with upright or level stripes, and noise."""
    rng = np.random.default_rng(0)
    labels = np.arange(400) % 2
    wave = 60 * np.sign(np.sin(np.pi * np.arange(8) / 2 + 0.1))
    x = np.where(labels[:, None, None] == 0, wave[None, :, None], wave[None, None, :])
    noisy = (128 + x + 40 * rng.standard_normal((400, 8, 8))).clip(0, 255).astype(np.uint8)
    return Dataset("stripes", noisy[:, None], labels.astype(float), task="classification")
'''


def test_a_convolutional_network_with_batch_norm_learns_and_keeps_its_statistics(
    tmp_path, ran, blank_figures
):
    (tmp_path / "net.py").write_text(NET, "utf-8")
    (tmp_path / "images.py").write_text(IMAGES, "utf-8")
    entry = {
        "model": {"name": "module", "factory": f"{tmp_path / 'net.py'}:make", "shape": [1, 8, 8]},
        "likelihood": {"name": "categorical"},
        "method": {"name": "bbb", "samples": 2, "initial_scale": None, "initial_rho": -5.0},
        "training": {"epochs": 4, "batch_size": 20},
        "hyper": {"learning_rate": 0.005, "prior_precision": 1},
    }
    content = {
        "name": "stripes",
        "title": "Stripes",
        "datasets": [f"{tmp_path / 'images.py'}:stripes"],
        "splits": 2,
        "entries": {"bbb": entry},
        "record": {"unit": "epochs", "every": 1},
        "metrics": ["error", "nll", "ece"],
    }
    (tmp_path / "stripes.yaml").write_text(yaml.safe_dump(content, sort_keys=False), "utf-8")
    ran(tmp_path, "run", "stripes.yaml", "--no-compile", "--tracking", "none")
    results = tmp_path / "results/stripes"
    rows = RunFolder(results).tabulate()
    assert list(rows.status) == ["ok", "ok"]
    assert (rows.error < 0.1).all(), "guessing errs in half of the rows"
    assert (rows.nll < 0.5).all()
    assert rows.ece.between(0, 1).all()
    points = RunFolder(results).tabulate_curve_points()
    curve = points[(points.metric == "nll") & (points.split == 0)].set_index("at").value
    assert list(curve.index) == [1, 2, 3, 4]
    assert curve[4] == rows.nll[0], "the last is the end of the fit"
    assert curve[4] < curve[1]

    file, _ = (results / "posteriors").iterdir()
    posterior, buffers = PosteriorFiles(file.parent).read(file.stem)
    assert set(buffers) == {
        f"{layer}.running_{part}" for layer in (1, 5) for part in ("mean", "var")
    }
    assert all(bool(value.isfinite().all()) for value in buffers.values())
    assert not torch.equal(buffers["1.running_mean"], torch.zeros(4)), "training has moved them"
    assert posterior.dim == (9 * 4 + 4) + 8 + (9 * 16 + 4) + 8 + (64 * 2 + 2)


@pytest.fixture
def eyes(tmp_path, monkeypatch, kaggle_folder, lite0_weights):
    """Photographs in Kaggle's layout."""
    monkeypatch.setenv("BDL_APTOS_DIR", str(tmp_path / "eyes"))
    monkeypatch.setenv("BDL_DATA_DIR", str(tmp_path / "data"))
    return kaggle_folder(tmp_path / "eyes", [0, 0, 2, 3, 4] * 12, size=20)


@pytest.mark.slow  # two cells, tables and figures
def test_a_download_becomes_tables_and_figures(eyes, invoke, tmp_path):
    """What the README of the benchmark says, on features of smaller images."""
    changes = [
        "datasets=[{name: aptos2019, size: 16, features: efficientnet-lite0, label: aptos2019}]",
        "entries.vifa.search.trials=2",
        "evaluation.samples=2",
        "metrics=[accuracy, {name: accuracy, kept: 0.8, by: disagreement}, aurc]",
    ]
    sets = [word for change in changes for word in ("--set", change)]
    narrowed = [
        "--splits",
        "0-0",
        "--method",
        "vifa",
        "--method",
        "last-layer-laplace",
        "--results",
        tmp_path / "out",
    ]
    options = ["--profile", "cpu", "--no-compile", "--tracking", "none", *narrowed, *sets]
    code, _, error = invoke("run", "blindness-detection", *options)
    assert code == 0, error
    (table,) = (tmp_path / "out").rglob("table.json")
    listed = json.loads(table.read_text())
    cells = {(cell["method"], cell["metric"], cell["statistic"]): cell for cell in listed}
    accuracy = cells["vifa", "accuracy_0.8_disagreement", "mean"]
    assert 0 <= accuracy["ours"] <= 1
    assert accuracy["paper"] == 0.975
    assert cells["last-layer-laplace", "aurc", "mean"]["n_failed"] == 0
    drawn = {path.name for path in table.parent.glob("figures/*.png")}
    refusals = {f"refusal-{what}" for what in ("risk", "reliability", "referral")}
    assert {
        f"blindness-detection-{name}.png" for name in ("selective-accuracy", *refusals)
    } <= drawn


def test_a_fit_that_is_cut_off_within_an_epoch_ends_with_the_same_bits(eyes, tmp_path):
    data = Aptos2019(size=16)()
    module = Module("bdl.models.resnet:narrow_resnet18", {}, (3, 16, 16))
    problem = Problem(module, Categorical(), 3 * 16 * 16, 2)
    method = TwoStageVifa(gradients_per_update=3, mean_epochs=1)
    program = TrainingSetup(
        data, Pool.load(data), problem, method, Schedule(3, 8, incomplete="keep")
    )
    hyper = {"learning_rate": 1e-3, "prior_precision": 1.0}
    trials = program.trials([("a",)], [data.split(0).train], [hyper])

    whole = run_to_end(program.fitting(trials))
    often = Checkpoint(tmp_path / "kept", "fit", 0.0)
    cut = program.fitting(trials).run(EvaluationSchedule("updates", 1), checkpoint=often)
    next(snapshot for snapshot in cut if snapshot.counters.updates == 7)  # of 4 an epoch
    cut.close()
    kept = Checkpoint(tmp_path / "kept", "fit").load(0)
    assert kept is not None
    assert kept[1] == {"updates": 6, "epochs": 1}
    again = run_to_end(program.fitting(trials), checkpoint=Checkpoint(tmp_path / "kept", "fit"))
    pairs = zip(
        tree_leaves((again.state, again.buffers)),
        tree_leaves((whole.state, whole.buffers)),
        strict=True,
    )
    assert all(torch.equal(one, other) for one, other in pairs)
    assert np.isfinite(whole.state.params["c"].numpy()).all()


DIGITS = """
name: digits
title: A network on MNIST
datasets: [mnist]
splits: 1
preparation: {standardise: inputs, rows: 12000}
entries:
  bbb: &entry
    model: {name: mlp, hidden: [400, 400]}
    likelihood: {name: categorical}
    method: {name: bbb, samples: 1, initial_scale: null, initial_rho: -4.0}
    training: {epochs: 1, batch_size: 200}
    hyper: {learning_rate: 0.001, prior_precision: 10}
  vifa:
    <<: *entry
    method: {name: vifa, gradients_per_update: 1, initial_scale: null, initial_std: 0.02}
evaluation: {samples: 5}
metrics: [error, nll, ece]
"""
# Not by getrusage, whose peak counts that of the process which started this one.
COMMAND = """
from bdl.cli import main
try:
    main()
finally:
    print("peak", open("/proc/self/status").read().partition("VmHWM:")[2].split()[0])
"""


@pytest.mark.data
@pytest.mark.slow  # 60 updates each, and 5 samples on 10,000 images twice
def test_bbb_and_vifa_learn_digits(tmp_path):
    """MNIST in a network of 478,410 parameters, within 4 GB."""
    (tmp_path / "digits.yaml").write_text(DIGITS, "utf-8")
    command = [
        sys.executable,
        "-c",
        COMMAND,
        "run",
        "digits.yaml",
        "--no-compile",
        "--tracking",
        "none",
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.rpartition("peak ")[2]) < 4 * 2**20, "kilobytes"
    rows = RunFolder(tmp_path / "results/digits").tabulate().set_index("entry")
    assert list(rows.updates) == [60, 60]
    assert (rows.error < 0.3).all(), "guessing errs in nine of ten"
    assert (rows.nll < 1).all()
    assert rows.ece.between(0, 0.5).all()

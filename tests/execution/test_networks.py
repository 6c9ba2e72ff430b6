"""Networks of torch.nn and images through an ordinary benchmark file."""

from pathlib import Path

import pandas as pd
import pytest
import torch
import yaml

from bdl.store import artefacts

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


@pytest.fixture(scope="module")
def results(tmp_path_factory, ran) -> Path:
    """Folder of a run."""
    tmp_path = tmp_path_factory.mktemp("stripes")
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
    path = tmp_path / "stripes.yaml"
    path.write_text(yaml.safe_dump(content, sort_keys=False), "utf-8")
    ran(tmp_path, "run", "stripes.yaml", "--no-compile", "--tracking", "none")
    return tmp_path / "results/stripes"


def test_a_convolutional_network_with_batch_norm_learns(results):
    rows = pd.read_parquet(results / "trials.parquet")
    assert list(rows.status) == ["ok", "ok"]
    assert (rows.error < 0.1).all(), "guessing errs in half of the rows"
    assert (rows.nll < 0.5).all()
    assert rows.ece.between(0, 1).all()
    points = pd.read_parquet(results / "points.parquet")
    curve = points[(points.metric == "nll") & (points.split == 0)].set_index("at").value
    assert list(curve.index) == [1, 2, 3, 4]
    assert curve[4] == rows.nll[0], "the last counters is the end of the fit"
    assert curve[4] < curve[1]


def test_its_running_statistics_are_kept_with_the_posterior(results):
    file, _ = (results / "posteriors").iterdir()
    posterior, buffers = artefacts.read(file.parent, file.stem)
    assert set(buffers) == {f"{layer}.running_{part}" for layer in (1, 5) for part in ("mean", "var")}
    assert all(bool(value.isfinite().all()) for value in buffers.values())
    assert not torch.equal(buffers["1.running_mean"], torch.zeros(4)), "training has moved them"
    assert posterior.dim == (9 * 4 + 4) + 8 + (9 * 16 + 4) + 8 + (64 * 2 + 2)

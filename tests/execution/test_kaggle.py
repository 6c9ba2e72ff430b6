"""From a folder in Kaggle's layout to tables and figures by one command; and a fit that is cut off within an epoch."""

import json

import numpy as np
import pytest
import torch
from torch.utils._pytree import tree_leaves

from bdl.data.fundus import Aptos2019
from bdl.methods.vifa_two_stage import TwoStageVifa
from bdl.models.likelihoods import Categorical
from bdl.models.modules import Module
from bdl.models.problem import Problem
from bdl.training.checkpoint import Checkpoint
from bdl.training.fitting import EvaluationSchedule, finished
from bdl.training.program import Program
from bdl.training.schedule import Schedule
from bdl.training.trials import Pool

NARROW = "bdl.models.resnet:narrow_resnet18"


@pytest.fixture
def folder(tmp_path, monkeypatch, kaggle_folder, lite0_weights):
    monkeypatch.setenv("BDL_APTOS_DIR", str(tmp_path / "eyes"))
    monkeypatch.setenv("BDL_DATA_DIR", str(tmp_path / "data"))
    return kaggle_folder(tmp_path / "eyes", [0, 0, 2, 3, 4] * 12, size=20)


def command(results, size: int = 16) -> list[str]:
    """What the README of the benchmark says, on features of smaller images."""
    changes = [
        f"datasets=[{{name: aptos2019, size: {size}, features: efficientnet-lite0, label: aptos2019}}]",
        "entries.vifa.search.trials=2",
        "evaluation.samples=2",
        "metrics=[accuracy, {name: accuracy, kept: 0.8, by: disagreement}, aurc]",
    ]
    sets = [word for change in changes for word in ("--set", change)]
    narrowed = ["--splits", "0-0", "--method", "vifa", "--method", "last-layer-laplace"]
    options = ["--profile", "cpu", "--no-compile", "--tracking", "none", "--results", str(results)]
    return ["run", "blindness-detection", *options, *narrowed, *sets]


@pytest.mark.slow  # two cells, tables and figures
def test_a_download_becomes_tables_and_figures(folder, invoke, tmp_path):
    code, _, error = invoke(*command(tmp_path / "results"))
    assert code == 0, error
    (table,) = (tmp_path / "results").rglob("table.json")
    listed = json.loads(table.read_text())
    cells = {(cell["method"], cell["metric"], cell["statistic"]): cell for cell in listed}
    accuracy = cells["vifa", "accuracy_0.8_disagreement", "mean"]
    assert 0 <= accuracy["ours"] <= 1
    assert accuracy["paper"] == 0.975
    assert cells["last-layer-laplace", "aurc", "mean"]["n_failed"] == 0
    drawn = {path.name for path in table.parent.glob("figures/*.png")}
    refusals = {f"refusal-{what}" for what in ("risk", "reliability", "referral")}
    assert {f"blindness-detection-{name}.png" for name in ("selective-accuracy", *refusals)} <= drawn


def test_a_damaged_image_ends_the_command_in_one_line(folder, invoke, tmp_path):
    path = sorted((folder / "train_images").iterdir())[9]
    path.write_bytes(path.read_bytes()[:100])
    code, _, error = invoke(*command(tmp_path / "results", size=18))  # a process loads a data set once
    assert code == 2
    assert "1 of 60 images cannot be read, the first is" in error
    assert "Traceback" not in error


def test_a_fit_that_is_cut_off_within_an_epoch_ends_with_the_same_bits(folder, tmp_path):
    data = Aptos2019(size=16)()
    problem = Problem(Module(NARROW, {}, (3, 16, 16)), Categorical(), 3 * 16 * 16, 2)
    method = TwoStageVifa(gradients_per_update=3, mean_epochs=1)
    program = Program(data, Pool.load(data), problem, method, Schedule(3, 8, incomplete="keep"))
    hyper = {"learning_rate": 1e-3, "prior_precision": 1.0}
    trials = program.trials([("a",)], [data.split(0).train], [hyper])

    whole = finished(program.fitting(trials))
    cut = program.fitting(trials).run(
        EvaluationSchedule("updates", 1), checkpoint=Checkpoint(tmp_path / "kept", "fit", 0.0)
    )
    for snapshot in cut:
        if snapshot.counters.updates == 7:  # of 4 an epoch
            break
    cut.close()
    kept = Checkpoint(tmp_path / "kept", "fit").load(0)
    assert kept is not None
    assert kept[1] == {"updates": 6, "epochs": 1}
    again = finished(program.fitting(trials), checkpoint=Checkpoint(tmp_path / "kept", "fit"))
    pairs = zip(tree_leaves((again.state, again.buffers)), tree_leaves((whole.state, whole.buffers)), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)
    assert np.isfinite(whole.state.params["c"].numpy()).all()

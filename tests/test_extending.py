"""The examples of docs/extending.md, as printed."""

import itertools
import re
import shlex
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch

from bdl.data import load_dataset
from bdl.methods import METHODS
from bdl.metrics import METRICS
from bdl.models.likelihoods import GaussianLikelihood
from bdl.models.networks import LinearModel
from bdl.models.problem import Batch, Problem
from bdl.records.run_folder import RunFolder

PAGE = Path(__file__).parents[1].joinpath("docs/extending.md").read_text("utf-8")
FILES = dict(re.findall(r"<!-- file: (\S+) -->\n```\w+\n(.*?)```", PAGE, re.DOTALL))
RUN, QUICK, ADDED, SCORE = re.findall(r"<!-- command -->\n```sh\n(.*?)\n```", PAGE)
SHORT = ("--no-compile", "--set", "entries.mean-field.training.epochs=2")


@pytest.fixture
def folder(tmp_path):
    for name, content in FILES.items():
        (tmp_path / name).write_text(content, "utf-8")
    return tmp_path


@pytest.fixture
def rows_of(folder, invoke, blank_figures, monkeypatch):
    """Run a printed command in the folder, without tracking; give the rows that it published."""
    monkeypatch.chdir(folder)

    def call(command, *more):
        program, *arguments = shlex.split(command)
        assert program == "bdl-bench"
        code, _, error = invoke(*arguments, "--tracking", "none", "--results", "here", *more)
        assert code == 0, error
        newest = max(Path("here").rglob("run.json"), key=lambda path: path.stat().st_mtime_ns)
        return RunFolder(newest.parent).tabulate()

    return call


def test_method_runs_and_a_score_is_added_without_training(rows_of):
    rows = rows_of(RUN, *SHORT)
    assert list(rows.entry) == ["mean-field"] * 3
    assert list(rows.status) == ["ok"] * 3
    assert np.isfinite(rows.nmll).all()
    assert set(rows.updates) == {2 * 39}  # 397 training rows make 39 minibatches of 10
    scored = rows_of(SCORE, *SHORT)
    assert set(scored.columns) - set(rows.columns) == {"misses_100"}
    assert scored.misses_100.between(0, 1).all()
    kept = [name for name in rows.columns if name in scored.columns]
    pd.testing.assert_frame_equal(
        scored[kept], rows[kept]
    )  # seconds and runtime among them: nothing was trained


def test_method_takes_the_place_of_another_in_the_check_profile(rows_of):
    tiny = "entries.vifa-nn.training={epochs: 1, batch_size: 50}"
    rows = rows_of(QUICK, "--no-compile", "--splits", "1", "--set", tiny)
    assert list(rows[rows.stage == "final"].status) == ["ok"]
    assert np.isfinite(rows[rows.stage == "final"].nmll).all()
    assert len(rows[rows.stage == "search"]) == 4 * 3


def test_method_joins_a_shipped_benchmark(rows_of):
    tiny = "entries.mine.training.epochs=1"
    rows = rows_of(ADDED, "--no-compile", "--splits", "1", "--set", tiny)
    assert list(rows.entry) == ["mine"]
    assert list(rows.status) == ["ok"]


def test_method_averages_to_the_closed_form_gradient(folder):
    """In a conjugate model the ELBO's gradient has a closed form, and noise in {-1, 1}^D has the moments that it needs.

    With H the precision and t the mean of the exact posterior, d/dm = H (m - t) and d/dr = exp(2r)
    o diag(H) - 1.
    """
    method = METHODS.get(f"{folder / 'mean_field.py'}:MeanField")()
    problem = Problem(LinearModel(), GaussianLikelihood(), d_in=2)
    generator = torch.Generator().manual_seed(0)
    x, y, m, r = (
        torch.randn(*shape, generator=generator).double() for shape in ((6, 2), (6,), (3,), (3,))
    )
    alpha, beta, unit = 0.7, 1.3, 2.0
    hyper = {
        name: torch.tensor(value, dtype=torch.float64)
        for name, value in {
            "prior_precision": alpha,
            "noise_precision": beta,
            "learning_rate": 0.1,
        }.items()
    }
    batches = Batch(x[None], y[None], torch.tensor(6.0).double(), torch.tensor(unit).double())
    state = method.init(problem, {"theta": torch.zeros(3).double()})._replace(
        params={"m": m, "r": r}
    )

    corners = torch.tensor(list(itertools.product([-1.0, 1.0], repeat=3))).double()
    firsts = [method.step(state, batches, hyper, {"z": z}, problem).optim.first for z in corners]
    # Adam starts from zero, so its first moment after one step is (1 - beta1) times the gradient.
    gradient = {
        name: torch.stack([first[name] for first in firsts]).mean(0) / 0.1 for name in ("m", "r")
    }

    X = torch.cat([x, torch.ones(6, 1).double()], 1)
    H = alpha * torch.eye(3).double() + beta * unit**2 * X.T @ X
    t = torch.linalg.solve(H, beta * unit**2 * X.T @ y)
    torch.testing.assert_close(gradient["m"], H @ (m - t), rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(gradient["r"], (2 * r).exp() * H.diag() - 1, rtol=1e-10, atol=1e-10)


def test_method_starts_and_reports_as_it_says(folder):
    method = METHODS.get(f"{folder / 'mean_field.py'}:MeanField")(initial_std=0.2)
    noise = torch.tensor([1.0, -2.0, 3.0])
    posterior = method.posterior(
        method.init(Problem(LinearModel(), GaussianLikelihood(), d_in=2), {"theta": noise})
    )
    torch.testing.assert_close(posterior.mean(), 0.2 * noise)
    torch.testing.assert_close(posterior.variance(), torch.full((3,), 0.04))


def test_score_counts_large_errors(folder):
    score = METRICS.build(f"{folder / 'misses.py'}:Misses", {"limit": 1.5})
    predictions = SimpleNamespace(mean=torch.tensor([0.0, 2.0, -2.0, 1.0]))
    evaluation = SimpleNamespace(
        predictions=predictions, tested=SimpleNamespace(y=torch.tensor([1.0, 0.0, 0.0, -0.5]))
    )
    assert score(evaluation) == 0.5


def test_dataset_loads_and_splits(folder):
    dataset = load_dataset(f"{folder / 'wave.py'}:wave")
    assert dataset.x.shape == (200, 1)
    assert np.abs(dataset.y - np.sin(dataset.x[:, 0])).std() < 0.1
    train, test, _ = dataset.split(7)
    assert (len(train), len(test)) == (180, 20)

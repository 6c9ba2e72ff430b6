"""The examples of the README, as printed."""

import itertools
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import bdl
from bdl.data import load
from bdl.methods import METHODS
from bdl.models.likelihoods import Gaussian
from bdl.models.networks import Linear
from bdl.models.problem import Batch, Problem

README = Path(__file__).parents[1].joinpath("README.md").read_text("utf-8")
FILES = dict(re.findall(r"<!-- file: (\S+) -->\n```\w+\n(.*?)```", README, re.DOTALL))
COMMANDS = re.findall(r"<!-- command -->\n```sh\n(.*?)\n```", README)


@pytest.fixture
def folder(tmp_path):
    for name, content in FILES.items():
        (tmp_path / name).write_text(content, "utf-8")
    return tmp_path


def rows_of(command, folder, *more):
    """Run a printed command in a process of its own, without tracking; give the rows that it published."""
    program, *arguments = shlex.split(command)
    assert program == "bdl-bench"
    done = subprocess.run(
        [sys.executable, "-m", "bdl", *arguments, "--tracking", "none", "--results", "here", *more],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(Path(bdl.__file__).parents[1])},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (published,) = (folder / "here").rglob("trials.parquet")
    return pd.read_parquet(published)


def test_there_are_three_files_and_two_commands():
    assert sorted(FILES) == ["mean-field.yaml", "mean_field.py", "wave.py"]
    assert len(COMMANDS) == 2


def test_method_is_at_most_sixty_lines():
    assert len(FILES["mean_field.py"].splitlines()) <= 60


def test_method_runs_from_its_benchmark_file(folder):
    rows = rows_of(COMMANDS[0], folder, "--no-compile", "--set", "entries.mean-field.training.epochs=2")
    assert list(rows.entry) == ["mean-field"] * 3
    assert list(rows.status) == ["ok"] * 3
    assert np.isfinite(rows.nmll).all()
    assert set(rows.updates) == {2 * 39}  # 397 training rows make 39 minibatches of 10


def test_method_takes_the_place_of_another_in_the_quick_profile(folder):
    tiny = "entries.vifa-nn.training={epochs: 1, batch_size: 50}"
    rows = rows_of(COMMANDS[1], folder, "--no-compile", "--splits", "1", "--set", tiny)
    assert list(rows[rows.stage == "final"].status) == ["ok"]
    assert np.isfinite(rows[rows.stage == "final"].nmll).all()
    assert len(rows[rows.stage == "search"]) == 4 * 3


def test_method_averages_to_the_closed_form_gradient(folder):
    """In a conjugate model the ELBO's gradient has a closed form, and noise in {-1, 1}^D has the moments that it needs.

    With H the precision and t the mean of the exact posterior, d/dm = H (m - t) and d/dr = exp(2r) o diag(H) - 1.
    """
    method = METHODS.get(f"{folder / 'mean_field.py'}:MeanField")()
    problem = Problem(Linear(), Gaussian(), d_in=2)
    generator = torch.Generator().manual_seed(0)
    x, y, m, r = (torch.randn(*shape, generator=generator).double() for shape in ((6, 2), (6,), (3,), (3,)))
    alpha, beta, unit = 0.7, 1.3, 2.0
    hyper = {
        name: torch.tensor(value, dtype=torch.float64)
        for name, value in {"prior_precision": alpha, "noise_precision": beta, "learning_rate": 0.1}.items()
    }
    batches = Batch(x[None], y[None], torch.tensor(6.0).double(), torch.tensor(unit).double())
    state = method.init(problem, {"m": torch.zeros(3).double()})._replace(params={"m": m, "r": r})

    corners = torch.tensor(list(itertools.product([-1.0, 1.0], repeat=3))).double()
    firsts = [method.step(state, batches, hyper, {"z": z}, problem).optim.first for z in corners]
    # Adam starts from zero, so its first moment after one step is (1 - beta1) times the gradient.
    gradient = {name: torch.stack([first[name] for first in firsts]).mean(0) / 0.1 for name in ("m", "r")}

    X = torch.cat([x, torch.ones(6, 1).double()], 1)
    H = alpha * torch.eye(3).double() + beta * unit**2 * X.T @ X
    t = torch.linalg.solve(H, beta * unit**2 * X.T @ y)
    torch.testing.assert_close(gradient["m"], H @ (m - t), rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(gradient["r"], (2 * r).exp() * H.diag() - 1, rtol=1e-10, atol=1e-10)


def test_method_starts_and_reports_as_it_says(folder):
    method = METHODS.get(f"{folder / 'mean_field.py'}:MeanField")(initial_std=0.2)
    noise = torch.tensor([1.0, -2.0, 3.0])
    posterior = method.posterior(method.init(Problem(Linear(), Gaussian(), d_in=2), {"m": noise}))
    torch.testing.assert_close(posterior.mean(), 0.2 * noise)
    torch.testing.assert_close(posterior.variance(), torch.full((3,), 0.04))


def test_dataset_loads_and_splits(folder):
    dataset = load(f"{folder / 'wave.py'}:wave")
    assert dataset.x.shape == (200, 1)
    assert np.abs(dataset.y - np.sin(dataset.x[:, 0])).std() < 0.1
    train, test = dataset.split(7)
    assert (len(train), len(test)) == (180, 20)


def test_links_lead_to_files():
    root = Path(__file__).parents[1]
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", README) if "://" not in link]
    assert len(links) > 5
    assert [link for link in links if not (root / link).exists()] == []


def test_results_are_the_published_ones():
    """The first table of the main job, without footnotes and what was not run."""
    root = Path(__file__).parents[1]
    published = (root / "results/uci-regression/table.md").read_text("utf-8").split("\n\n")[1].splitlines()
    printed = re.search(r"<!-- results -->(.*)<!-- /results -->", README, re.DOTALL)[1]
    rows = [re.sub("[¹²³⁴-⁹⁰]+", "", row) for row in published if "| not run |" not in row]
    assert len(rows) > 20
    assert [line for line in printed.splitlines() if line.startswith("|")] == rows

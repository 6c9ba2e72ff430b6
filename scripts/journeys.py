"""What three new users do: somebody who reproduces a table, the author of a method, and one with data of their own.

`first_steps.py` walks these ways. Each is a function of a `Shell`, whose commands must end as they
are expected to.
"""

import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from time import monotonic


class WrongTurnError(Exception):
    """A command that ended otherwise than expected, and what it printed."""


@dataclass(frozen=True)
class Shell:
    """Runs commands in a folder, and tells how long each takes.

    Parameters
    ----------
    folder
        Working directory.
    env
        Variables of the environment.
    """

    folder: Path
    env: Mapping[str, str]

    def __call__(self, command: str, code: int = 0, say: str = "") -> str:
        """Run a command that ends with an exit code and prints a text.

        Gives all that it printed.
        """
        started = monotonic()
        done = subprocess.run(
            command,
            shell=True,
            cwd=self.folder,
            env=dict(self.env),
            capture_output=True,
            text=True,
        )
        printed = done.stdout + done.stderr
        print(f"{monotonic() - started:7.1f} s  {command.splitlines()[0]}", flush=True)
        if done.returncode != code or say not in printed:
            raise WrongTurnError(
                f"{command}\nended with {done.returncode} instead of {code}, or without '{say}':\n{printed}"
            )
        return printed

    def change(self, name: str, before: str, after: str) -> None:
        """Edit a file: replace a text that it has."""
        path = self.folder / name
        text = path.read_text("utf-8")
        if before not in text:
            raise WrongTurnError(f"{name} has no '{before}'")
        path.write_text(text.replace(before, after), "utf-8")


PART = "uci-regression --profile check --method vifa-lr --splits 1"


def reader(shell: Shell) -> None:
    """Find a benchmark, reproduce a part of its table, and look at it."""
    shell("bdl-bench list benchmarks", say="uci-regression")
    shell("bdl-bench describe uci-regression", say="vifa-lr")
    shell(f"bdl-bench run {PART} --no-compile --tracking none", say="NMLL")
    shell(
        f"bdl-bench run {PART} --no-compile --tracking none",
        say="Everything is in the store already.",
    )
    shell(f"bdl-bench table {PART} --format csv", say="vifa-lr,nmll,mean")
    shell(f"bdl-bench report {PART}", say="report.html")


RUN = "bdl-bench run benchmark.yaml --profile quick --method vifa --no-compile --tracking none"
SLIP, RIGHT = "torch.func.grd(", "torch.func.grad("
LATE = """
    def due(self, counters):
        if counters.updates > 150:  # 39 updates an epoch in the final fits, 19 in those of the search
            raise ValueError("planted")
        return super().due(counters)
"""
SUM, SUM_LATE = "return self.scale *", "return (1 / 0 if evaluation.samples > 2 else self.scale) *"
SEARCHED = (
    "python -c \"import pandas; rows = pandas.concat(map(pandas.read_parquet, __import__('pathlib').Path('results')"
    ".rglob('rows.parquet'))); print(rows[rows.stage == 'search'].seconds.tolist())\""
)


def author(shell: Shell) -> None:
    """Write a method and a score with bugs: the search is made once, and the run completes when all is mended."""
    shell("bdl-bench init benchmark && bdl-bench init method && bdl-bench init score")
    shell.change("benchmark.yaml", "{name: vifa, latent_dim: 1}", "{name: method.py:MyMethod}")
    shell.change("benchmark.yaml", "[nmll, rmse, runtime]", "[nmll, {name: score.py:MyScore}]")
    shell.change("method.py", RIGHT, SLIP)
    shell(RUN, code=2, say="has no attribute 'grd'")
    shell.change("method.py", SLIP, RIGHT)
    shell.change("score.py", "evaluation.predictions", "evaluation.predicitons")
    shell(RUN, code=2, say="score.py, line")
    shell.change("score.py", "evaluation.predicitons", "evaluation.predictions")

    path = shell.folder / "method.py"
    path.write_text(path.read_text("utf-8") + LATE, "utf-8")
    shell.change("score.py", SUM, SUM_LATE)
    shell(RUN, code=1, say="--retry-failed")
    searched = shell(SEARCHED, say="[")
    shell.change("method.py", LATE, "")
    shell(f"{RUN} --retry-failed", code=1, say="ZeroDivisionError")
    shell.change("score.py", SUM_LATE, SUM)
    shell(RUN)
    if shell(SEARCHED) != searched:
        raise WrongTurnError("the search was repeated")
    shell(
        "bdl-bench table benchmark.yaml --profile quick --method vifa --format csv", say="myscore"
    )


NOTEBOOK = """
import numpy as np, bdl
from sklearn.datasets import load_diabetes
x, y = load_diabetes(return_X_y=True)
model = bdl.Regressor(random_state=0).fit(x[:300], y[:300])
low, high = model.predict_interval(x[300:], level=0.9).T
covered = np.mean((low <= y[300:]) & (y[300:] <= high))
assert 0.8 < covered < 0.97, covered
model.fitted_.save('fit.bdl')
assert np.array_equal(bdl.load('fit.bdl').predict(x[:5]), model.predict(x[:5]))
labels = np.where(y > 150, 'high', 'low')
classifier = bdl.Classifier(random_state=0).fit(x[:300], labels[:300])
assert classifier.score(x[300:], labels[300:]) > 0.7
print('covered', covered)
"""


def practitioner(shell: Shell) -> None:
    """Fit arrays, check an interval, keep the fit, and classify.

    Then run a benchmark on a file of rows.
    """
    (shell.folder / "notebook.py").write_text(NOTEBOOK, "utf-8")
    shell("python notebook.py", say="covered")
    lines = [f"{size},{size % 7},{3 * size + size % 5}" for size in range(40, 160)]
    (shell.folder / "houses.csv").write_text("\n".join(["size,packages,price", *lines]) + "\n")
    shell("bdl-bench init benchmark houses.yaml")
    shell.change(
        "houses.yaml",
        "datasets: [diabetes]",
        "datasets: [{name: csv, path: houses.csv, target: price}]",
    )
    shell(
        "bdl-bench run houses.yaml --profile quick --method exact --no-compile --tracking none",
        say="houses",
    )


JOURNEYS: dict[str, Callable[[Shell], object]] = {
    "reader": reader,
    "author": author,
    "practitioner": practitioner,
}

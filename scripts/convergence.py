"""How far the entries of a benchmark have converged at their number of updates.

    python scripts/convergence.py uci-contenders --dataset yacht --json results/convergence.json

Every entry with a training is fitted to the first split of each data set with a quarter, half, once and twice its
updates, at the centre of its search space (the geometric mean of bounds on a log scale), and scored on the rows that
it was fitted to (`training_nmll`). It counts as converged if twice the updates gain less than the margin of NMLL, 0.05
nats. Samplers are scored by all that they keep, so that a longer chain averages more. Entries that find their own
settings have none of this, and are left out.

The JSON file has ``scores``, a list with `dataset`, `entry`, `factor` and `training_nmll` (null for a fit that
failed), and ``converged``, by data set and entry.
"""

import argparse
import json
import math
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import bdl
from bdl.plan.planning import list_tasks
from bdl.spec import Entry, load_request

FACTORS = (0.25, 0.5, 1.0, 2.0)
MARGIN = 0.05
"""Gain of NMLL, nats, below which a fit has converged."""
LENGTHS = (
    "steps",
    "descent_epochs",
    "warmup_epochs",
    "cycle_epochs",
    "descent",
    "warmup",
    "draws",
    "trees",
)
"""Settings of methods that grow with the number of updates."""


class Score(NamedTuple):
    """The score of one fit on the rows that it was fitted to."""

    dataset: str
    entry: str
    factor: float
    """Its updates, in those of the benchmark."""
    training_nmll: float | None
    """None for a fit that failed, or that cannot predict other rows than the test rows."""
    seconds: float


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("benchmark")
    parser.add_argument("--profile", default="paper")
    parser.add_argument("--dataset", action="append", required=True)
    parser.add_argument("--method", action="append")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    scores: list[Score] = []
    for dataset in options.dataset:
        for entry in trained_entries(options.benchmark, options.profile, options.method):
            for factor in FACTORS:
                score = fit(options.benchmark, options.profile, dataset, entry, factor)
                scores.append(score)
            print(describe(scores[-len(FACTORS) :]), flush=True)
            if options.json:
                options.json.write_text(json.dumps(report(scores), indent=1) + "\n", "utf-8")
    return 0


def trained_entries(name: str, profile: str, methods: Sequence[str] | None) -> list[str]:
    """List the entries that have a search, and so a number of updates that was chosen for them."""
    entries = load_request(name, profile).benchmark.entries
    return [
        entry
        for entry, settings in entries.items()
        if settings.search is not None and (not methods or entry in methods)
    ]


def fit(name: str, profile: str, dataset: str, entry: str, factor: float) -> Score:
    """Fit an entry to the first split with `factor` times its updates, and score its rows."""
    tasks = list_tasks(load_request(name, profile).benchmark)
    (settings,) = (task.settings for task in tasks if task.key[:2] == (dataset, entry))
    changes: dict[str, Any] = {"search": "null", **central_hyper(settings)}
    # lengths may be those of the data set, which come after the entry's
    for path, length in scaled_lengths(settings, factor).items():
        changes[f"by_dataset.{dataset}.{path}"] = length
    overrides = [f"entries.{entry}.{path}={value}" for path, value in changes.items()]
    with tempfile.TemporaryDirectory() as folder:
        run = bdl.benchmark(name, profile, ["metrics=[training_nmll, runtime]", *overrides]).run(
            dataset, entry, 1, results=folder, progress=False
        )
        (row,) = run.rows.to_dict("records")
    score = row.get("training_nmll", math.nan)
    return Score(dataset, entry, factor, score if math.isfinite(score) else None, row["seconds"])


def central_hyper(settings: Entry) -> dict[str, float]:
    """Return the centre of the search space, by path."""
    hyper: dict[str, float] = {}
    assert settings.search is not None, "entries without a search are left out"
    for name, bounds in settings.search.space.items():
        is_log = bounds.scale == "log"
        centre = math.sqrt(bounds.low * bounds.high) if is_log else (bounds.low + bounds.high) / 2
        hyper[f"hyper.{name}"] = centre
    return hyper


def scaled_lengths(settings: Entry, factor: float) -> dict[str, int]:
    """Return what grows with the number of updates, times `factor`, by path."""
    lengths: dict[str, int] = {}
    if settings.training is not None:
        lengths["training.epochs"] = settings.training.epochs
    for name, value in settings.method.settings.items():
        if name in LENGTHS:
            lengths[f"method.{name}"] = value
    return {path: max(1, int(factor * length)) for path, length in lengths.items()}


def has_converged(scores: Sequence[Score]) -> bool:
    """Return whether twice the updates gain less than the margin."""
    by_factor = {score.factor: score.training_nmll for score in scores}
    once, twice = by_factor[1.0], by_factor[2.0]
    return once is not None and twice is not None and once - twice < MARGIN


def describe(scores: Sequence[Score]) -> str:
    """Write the scores of an entry in a line."""
    values = (
        "failed" if score.training_nmll is None else f"{score.training_nmll:7.3f}"
        for score in scores
    )
    verdict = "converged" if has_converged(scores) else "not converged"
    seconds = scores[FACTORS.index(1.0)].seconds
    return f"{scores[0].dataset:9} {scores[0].entry:20} {' '.join(values)}  {seconds:6.1f} s  {verdict}"


def report(scores: Sequence[Score]) -> dict[str, Any]:
    """Arrange the scores as the JSON file has them."""
    by_entry: dict[tuple[str, str], list[Score]] = {}
    for score in scores:
        by_entry.setdefault((score.dataset, score.entry), []).append(score)
    converged = [
        {"dataset": dataset, "entry": entry, "converged": has_converged(group)}
        for (dataset, entry), group in by_entry.items()
    ]
    return {"scores": [score._asdict() for score in scores], "converged": converged}


if __name__ == "__main__":
    raise SystemExit(main())

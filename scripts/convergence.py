"""How far the entries of a benchmark have converged at their number of updates.

    python scripts/convergence.py uci-contenders --dataset yacht --json results/convergence.json
    python scripts/convergence.py --figure docs/images/convergence.png --json results/convergence.json

Every entry with a search is fitted to the first splits of each data set with a quarter, half, once and twice its
updates, at the medians over splits of what its searches chose in the published rows, or without any at the centre of
its search space (the geometric mean of bounds on a log scale). It is scored on the rows that it was fitted to
(`training_nmll`); entries that can predict the test rows alone are scored on those. It counts as
converged if twice the updates gain less than the margin of NMLL, 0.05 nats, or less than two standard errors of the
mean over splits. Samplers are scored by all that they keep, so that a longer chain averages more. Entries that find
their own settings have none of this, and are left out.

The JSON file has a list of scores with `dataset`, `entry`, `factor`, `rows` (training or test), `mean`, its
`standard_error`, `failed` and `seconds`; what it has already is not made again.
"""

import argparse
import json
import math
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

import bdl
from bdl.errors import InputError
from bdl.plan.planning import list_tasks
from bdl.records.row import HYPER_PREFIX
from bdl.spec import Entry, load_request
from bdl.stored_results.loading import load_results

RESULTS = Path("results")
FACTORS = (0.25, 0.5, 1.0, 2.0)
SPLITS = 5
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
    """Mean score of the fits to the first splits, with one number of updates."""

    dataset: str
    entry: str
    factor: float
    """Updates, in those of the benchmark."""
    rows: str
    """Which rows were scored: `training`, or `test` where the fit predicts no others."""
    mean: float | None
    """None if every fit failed."""
    standard_error: float | None
    failed: int
    seconds: float


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("benchmark", nargs="?")
    parser.add_argument("--profile", default="paper")
    parser.add_argument("--dataset", action="append", default=[])
    parser.add_argument("--method", action="append")
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--figure", type=Path)
    options = parser.parse_args(arguments)
    scores = read_scores(options.json)
    rows = load_published_rows(options.benchmark, options.profile) if options.dataset else None
    for dataset in options.dataset:
        for entry in trained_entries(options.benchmark, options.profile, options.method):
            if any((score.dataset, score.entry) == (dataset, entry) for score in scores):
                continue
            hyper = chosen_hyper(rows, dataset, entry)
            for factor in FACTORS:
                scores.append(
                    fit(options.benchmark, options.profile, dataset, entry, factor, hyper)
                )
            print(describe(scores[-len(FACTORS) :]), flush=True)
            write_scores(options.json, scores)
    if options.figure:
        draw(scores, options.figure)
    return 0


def read_scores(path: Path) -> list[Score]:
    """Read the scores of a JSON file; none if there is no file."""
    if not path.exists():
        return []
    return [Score(**fields) for fields in json.loads(path.read_text("utf-8"))]


def write_scores(path: Path, scores: Iterable[Score]) -> None:
    path.write_text(json.dumps([score._asdict() for score in scores], indent=1) + "\n", "utf-8")


def trained_entries(name: str, profile: str, methods: Sequence[str] | None) -> list[str]:
    """List the entries that have a search, and so a number of updates that was chosen for them."""
    entries = load_request(name, profile).benchmark.entries
    return [
        entry
        for entry, settings in entries.items()
        if settings.search is not None and (not methods or entry in methods)
    ]


def load_published_rows(name: str, profile: str) -> pd.DataFrame | None:
    """Load the published final rows; None if there are none."""
    try:
        rows: pd.DataFrame = load_results(load_request(name, profile), RESULTS).rows
    except InputError:
        return None
    return rows


def chosen_hyper(rows: pd.DataFrame | None, dataset: str, entry: str) -> dict[str, float]:
    """Return the medians of the hyper-parameters that searches chose; empty without any."""
    if rows is None:
        return {}
    fits = rows[(rows["dataset"] == dataset) & (rows["entry"] == entry)]
    hyper: dict[str, float] = {}
    for column in fits.columns:
        if column.startswith(HYPER_PREFIX) and fits[column].notna().any():
            hyper[column.removeprefix(HYPER_PREFIX)] = float(fits[column].median())
    return hyper


def fit(
    name: str, profile: str, dataset: str, entry: str, factor: float, hyper: dict[str, float]
) -> Score:
    """Fit an entry to the first splits with `factor` times its updates, and score it.

    Without `hyper` it is at the centre of its search space.
    """
    tasks = list_tasks(load_request(name, profile).benchmark)
    (settings,) = (task.settings for task in tasks if task.key[:2] == (dataset, entry))
    changes: dict[str, Any] = {"search": "null"}
    for setting, value in (hyper or central_hyper(settings)).items():
        changes[f"hyper.{setting}"] = value
    # lengths may be those of the data set, which come after the entry's
    for path, length in scaled_lengths(settings, factor).items():
        changes[f"by_dataset.{dataset}.{path}"] = length
    overrides = [f"entries.{entry}.{path}={value}" for path, value in changes.items()]
    with tempfile.TemporaryDirectory() as folder:
        run = bdl.benchmark(
            name, profile, ["metrics=[training_nmll, nmll, runtime]", *overrides]
        ).run(dataset, entry, SPLITS, results=folder, progress=False)
        fits = run.rows
    # a guest that keeps predictions of the test rows alone has no training score on any split
    scored_rows = (
        "training" if "training_nmll" in fits and fits["training_nmll"].notna().any() else "test"
    )
    values = (
        fits["training_nmll" if scored_rows == "training" else "nmll"].dropna().to_numpy(float)
    )
    return Score(
        dataset,
        entry,
        factor,
        scored_rows,
        float(values.mean()) if len(values) else None,
        float(values.std(ddof=1) / math.sqrt(len(values))) if len(values) > 1 else None,
        len(fits) - len(values),
        float(fits["seconds"].sum()),
    )


def central_hyper(settings: Entry) -> dict[str, float]:
    """Return the centre of the search space."""
    hyper: dict[str, float] = {}
    assert settings.search is not None, "entries without a search are left out"
    for name, bounds in settings.search.space.items():
        is_log = bounds.scale == "log"
        centre = math.sqrt(bounds.low * bounds.high) if is_log else (bounds.low + bounds.high) / 2
        hyper[name] = centre
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
    """Return whether twice the updates gain less than the margin, or no more than noise."""
    by_factor = {score.factor: score for score in scores}
    once, twice = by_factor[1.0], by_factor[2.0]
    if once.mean is None or twice.mean is None:
        return False
    noise = 2 * math.hypot(once.standard_error or 0.0, twice.standard_error or 0.0)
    return once.mean - twice.mean < max(MARGIN, noise)


def describe(scores: Sequence[Score]) -> str:
    """Write the scores of an entry in a line."""
    values = (" failed" if score.mean is None else f"{score.mean:7.3f}" for score in scores)
    verdict = "converged" if has_converged(scores) else "not converged"
    seconds = scores[FACTORS.index(1.0)].seconds
    return f"{scores[0].dataset:9} {scores[0].entry:20} {' '.join(values)}  {seconds:6.1f} s  {verdict}"


def draw(scores: Sequence[Score], path: Path) -> None:
    """Draw a panel for each entry, with a line for each data set."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    entries = list(dict.fromkeys(score.entry for score in scores))
    datasets = list(dict.fromkeys(score.dataset for score in scores))
    columns = 4
    figure, axes = plt.subplots(
        -(-len(entries) // columns),
        columns,
        figsize=(11, 2.1 * -(-len(entries) // columns)),
        sharex=True,
        squeeze=False,
        layout="constrained",
    )
    for panel, entry in zip(axes.flat, entries, strict=False):
        for index, dataset in enumerate(datasets):
            factors: list[float] = []
            means: list[float] = []
            errors: list[float] = []
            for score in scores:
                if (score.dataset, score.entry) == (dataset, entry) and score.mean is not None:
                    factors.append(score.factor)
                    means.append(score.mean)
                    errors.append(score.standard_error or 0.0)
            if not means:
                continue
            panel.errorbar(
                factors,
                [mean - means[-1] for mean in means],
                errors,
                color=f"C{index}",
                marker="o",
                markersize=3,
                linewidth=1.2,
                label=dataset,
            )
        rows = next((score.rows for score in scores if score.entry == entry), "training")
        panel.axhspan(-MARGIN, MARGIN, color="#d9ead3", zorder=0)
        panel.axvline(1, color="#9aa3ad", linewidth=0.8, zorder=0)
        panel.set_title(entry if rows == "training" else f"{entry} (test rows)", fontsize=9)
        panel.set_xscale("log", base=2)
        panel.set_xticks(FACTORS, ["¼", "½", "1", "2"])
        panel.set_yscale("symlog", linthresh=0.1)
        panel.tick_params(labelsize=7, labelbottom=True)
    for panel in axes.flat[len(entries) :]:
        panel.set_visible(False)
    figure.supxlabel("updates, in those of the benchmark", fontsize=9)
    figure.supylabel("NMLL less that of twice the updates, nats", fontsize=9)
    handles, labels = axes.flat[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(datasets), fontsize=8)
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    raise SystemExit(main())

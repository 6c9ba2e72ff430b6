"""Draws whether a better score is a better posterior, over methods whose distance to the truth is known.

Distances, NMLL, CRPS and the joint score of pairs of rows are those of `network-posterior` on UCI
sets, where the noise and the prior are the truth's. Scores of `uci-contenders`, where a search
chooses both, are of the methods and data sets that the two have in common. Each mark is a method,
by its average ranks over data sets. Above a panel is the rank correlation over methods, averaged
over data sets, with its 95 % interval: percentiles of a bootstrap that draws data sets, methods
(the same on all data sets) and splits.

    python scripts/score_and_truth.py --output docs/images/score-and-truth.png
"""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from numpy.typing import NDArray

from bdl.metrics import get_metric_info
from bdl.reports import drawing
from bdl.reports.figures import draw_figure, reduce_colours
from bdl.reports.method_styles import entry_styles
from bdl.reports.overall_standing import IntervalEstimate, SplitScores, rank_methods
from bdl.spec import load_request
from bdl.stored_results.loading import load_results

RESULTS = Path(__file__).parents[1] / "results"
DISTANCE = "function_w2"
SCORES = ("nmll", "crps", "dyadic_nll")
CONTENDERS = {
    "mean-field": "bbb",
    "vifa-1": "vifa",
    "last-layer-laplace": "last-layer-laplace",
    "linearised-laplace": "linearised-laplace",
    "sghmc": "sghmc",
    "ensemble": "deep-ensemble",
}
"""Methods of `network-posterior`, by the names that they have in `uci-contenders`."""
DATASETS = ("yacht", "boston", "energy", "concrete")
"""Data sets of both with a table of targets."""
DRAWS = 1000

Array = NDArray[np.float64]


class Comparison(NamedTuple):
    """A score against the distance, over methods."""

    heading: str
    entries: tuple[str, ...]
    distance_ranks: Array
    """Average ranks over data sets, of each entry."""
    score_ranks: Array
    correlation: IntervalEstimate


def by_split(rows: pd.DataFrame, entries: Sequence[str], metric: str) -> list[Array]:
    """Return a metric of each data set, (splits, entries); a failed fit counts as the worst."""
    finished = rows.assign(**{metric: rows[metric].where(rows["status"] == "ok")})
    tables = []
    for dataset in DATASETS:
        table = finished[finished["dataset"] == dataset].pivot(
            index="split", columns="entry", values=metric
        )
        tables.append(table[list(entries)].to_numpy(dtype=float))
    scores = SplitScores(DATASETS, tuple(entries), tuple(tables))
    return list(scores.with_failures_as_worst(entries).scores)


def compare(
    heading: str, entries: Sequence[str], distances: list[Array], scores: list[Array]
) -> Comparison:
    """Correlate ranks of distance and score; less is better for both."""
    distance_means = np.stack([table.mean(0) for table in distances])
    score_means = np.stack([table.mean(0) for table in scores])
    generator = np.random.default_rng(0)
    samples = []
    for _ in range(DRAWS):
        methods = generator.integers(len(entries), size=len(entries))
        if len(set(methods)) < 3:
            continue
        pair = []
        datasets = generator.integers(len(DATASETS), size=len(DATASETS))
        for tables in (distances, scores):
            means = []
            for i in datasets:
                splits = generator.integers(len(tables[i]), size=len(tables[i]))
                means.append(tables[i][splits][:, methods].mean(0))
            pair.append(np.stack(means))
        samples.append(mean_correlation(*pair))
    low, high = np.nanquantile(samples, [0.025, 0.975])
    value = mean_correlation(distance_means, score_means)
    return Comparison(
        heading,
        tuple(entries),
        rank_methods(distance_means).mean(0),
        rank_methods(score_means).mean(0),
        IntervalEstimate(value, float(low), float(high)),
    )


def mean_correlation(distances: Array, scores: Array) -> float:
    """Average Spearman's correlation over data sets: both are (data sets, entries)."""
    correlations = []
    for pair in zip(rank_methods(distances), rank_methods(scores), strict=True):
        correlations.append(np.corrcoef(*pair)[0, 1])
    return float(np.mean(correlations))


def gather_comparisons(profile: str) -> list[Comparison]:
    """Compare the scores of both benchmarks with the distances."""
    rows = load_results(load_request("network-posterior"), RESULTS).rows
    contenders = load_results(load_request("uci-contenders", profile), RESULTS).rows
    rows = rows[rows["dataset"].isin(DATASETS)]
    entries = list(rows["entry"].unique())
    distances = by_split(rows, entries, DISTANCE)
    comparisons = []
    for metric in SCORES:
        heading = get_metric_info(metric).label
        comparisons.append(compare(heading, entries, distances, by_split(rows, entries, metric)))
    shared = list(CONTENDERS)
    shared_distances = by_split(rows, shared, DISTANCE)
    for metric in SCORES[:2]:
        scores = by_split(contenders, [CONTENDERS[name] for name in shared], metric)
        heading = f"{get_metric_info(metric).label}, uci-contenders"
        comparisons.append(compare(heading, shared, shared_distances, scores))
    return comparisons


def draw(comparisons: Sequence[Comparison]) -> Figure:
    """Draw average ranks by score against those by distance, a panel a score."""
    figure, panels = drawing.lay_out_panels(len(comparisons), (3.0, 3.0), columns=3)
    styles: Mapping[str, Mapping[str, Any]] = entry_styles(comparisons[0].entries)
    for panel, comparison in zip(panels, comparisons, strict=True):
        value, low, high = comparison.correlation
        drawing.style_panel(panel, f"{comparison.heading}\n{value:.2f} ({low:.2f} to {high:.2f})")
        for i, entry in enumerate(comparison.entries):
            look: dict[str, Any] = {"linestyle": "none", "markersize": 6, "label": entry}
            panel.plot(
                [comparison.distance_ranks[i]],
                [comparison.score_ranks[i]],
                **{**styles[entry], **look},
            )
        count = len(comparison.entries)
        panel.set(xlim=(0.5, count + 0.5), ylim=(0.5, count + 0.5))
        panel.set_xlabel("average rank by distance to the truth")
        panel.set_ylabel("average rank by the score")
    drawing.write_title(
        figure,
        "Is a better score a better posterior?",
        f"rank correlation with the distance over {len(DATASETS)} UCI sets, 95 % interval",
    )
    drawing.draw_legend(figure, columns=6)
    return figure


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the correlations, and draw them if there is a file to draw to."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--profile", default="paper", help="of uci-contenders")
    parser.add_argument("--output", type=Path, help="a PNG file")
    options = parser.parse_args(arguments)
    comparisons = gather_comparisons(options.profile)
    for each in comparisons:
        value, low, high = each.correlation
        methods = len(each.entries)
        print(f"{each.heading}: {value:.2f} ({low:.2f} to {high:.2f}) over {methods} methods")
    if options.output:
        figure = draw_figure(lambda: draw(comparisons))
        figure.savefig(options.output, dpi=200, metadata=drawing.METADATA["png"])
        reduce_colours(options.output)


if __name__ == "__main__":
    main()

"""Scores of an overall standing: laid out by data set, method and split, and who is not ranked."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bdl.metrics import get_metric_info
from bdl.records.row import CERTIFICATE_DETAIL
from bdl.references.certificate import CERTIFIED
from bdl.reports.certificates import mark_certified_scores
from bdl.reports.cost_figures import SECONDS_PER_MINUTE
from bdl.reports.overall_standing import SplitScores

if TYPE_CHECKING:
    import pandas as pd

    from bdl.spec import Benchmark


def ranked_metrics(benchmark: "Benchmark") -> list[str]:
    """List the scores that rank methods; they are labels, which know the names of their metrics."""
    return [name for name in benchmark.metrics if get_metric_info(name).ranks_methods]


def gather_scores(
    benchmark: "Benchmark", rows: "pd.DataFrame", metric: str
) -> tuple[SplitScores, dict[str, set[str]]]:
    """Gather a score by split, and the data sets of which each entry has all splits.

    The splits of a data set are those of which any entry has a row. Scores of which more is better
    change their sign.
    """
    sign = -1.0 if get_metric_info(metric).direction == "higher" else 1.0
    datasets, entries = list(map(str, benchmark.datasets)), list(benchmark.entries)
    splits = {str(name): np.unique(values) for name, values in rows.groupby("dataset")["split"]}
    scores = {name: np.full((len(splits[name]), len(entries)), np.nan) for name in datasets}
    complete: dict[str, set[str]] = {entry: set() for entry in entries}
    columns = ["dataset", "entry", "split", "status", metric]
    for (dataset, entry), trials in rows[columns].groupby(["dataset", "entry"]):
        # by position, not by number: data sets may have rows of some splits only
        positions = np.searchsorted(splits[str(dataset)], trials["split"])
        values = trials[metric].to_numpy(dtype=float)
        finished = np.isfinite(values) & (trials["status"] == "ok").to_numpy()
        column = entries.index(str(entry))
        scores[str(dataset)][positions, column] = np.where(finished, sign * values, np.nan)
        if len(trials) == len(splits[str(dataset)]):
            complete[str(entry)].add(str(dataset))
    return SplitScores(tuple(datasets), tuple(entries), tuple(scores.values())), complete


def list_uncertified(scores: SplitScores, rows: "pd.DataFrame", metric: str) -> dict[str, str]:
    """Return the entries of which some fits have neither draws nor score certified, and how many."""
    certificates = rows.reindex(columns=[CERTIFICATE_DETAIL])[CERTIFICATE_DETAIL]
    by_chains = certificates.notna()
    certified = (certificates == CERTIFIED) | mark_certified_scores(rows, metric)
    texts: dict[str, str] = {}
    for entry in scores.entries:
        chains = by_chains & (rows["entry"] == entry)
        n_uncertified = int((chains & ~certified).sum())
        if n_uncertified:
            texts[entry] = f"{n_uncertified} of {int(chains.sum())} fits uncertified"
    return texts


class RankedScores(NamedTuple):
    """Scores by one metric, with what decides which entries are ranked by it."""

    metric: str
    scores: SplitScores
    complete: Mapping[str, set[str]]
    """Entry to the data sets of which it has all splits."""
    uncertified: Mapping[str, str]
    """Entry to the number of its fits without a certificate, in words; they have no rank."""

    @property
    def unranked_reasons(self) -> dict[str, str]:
        """Entry to the reason why it has no rank: it lacks splits or certificates."""
        reasons: dict[str, str] = {}
        n_datasets = len(self.scores.datasets)
        for entry in self.scores.entries:
            texts = []
            if len(self.complete[entry]) < n_datasets:
                texts.append(
                    f"all splits of {len(self.complete[entry])} of {n_datasets} data sets"
                )
            if entry in self.uncertified:
                texts.append(self.uncertified[entry])
            if texts:
                reasons[entry] = "; ".join(texts)
        return reasons


def gather_ranked_scores(benchmark: "Benchmark", rows: "pd.DataFrame") -> Iterator[RankedScores]:
    """Gather the scores by each metric that has a better and a worse."""
    for metric in ranked_metrics(benchmark):
        scores, complete = gather_scores(benchmark, rows, metric)
        yield RankedScores(metric, scores, complete, list_uncertified(scores, rows, metric))


def mean_seconds(benchmark: "Benchmark", rows: "pd.DataFrame") -> dict[str, float]:
    """Return the geometric mean over data sets of the mean duration of each entry.

    It is of the fits that did not fail. An entry without such a fit on some data set has none.
    """
    times = [name for name in benchmark.metrics if get_metric_info(name).kind == "time"]
    if not times:
        return {}
    finished = rows[(rows["status"] == "ok") & (rows[times[0]] > 0)]
    means = finished.groupby(["entry", "dataset"], sort=False)[times[0]].mean()
    # a geometric mean, or the largest data sets alone would decide
    logs = np.log(SECONDS_PER_MINUTE * means).groupby("entry", sort=False)
    # over other data sets a mean would not compare
    geometric = np.exp(logs.mean()[logs.size() == len(benchmark.datasets)])
    return {str(entry): float(value) for entry, value in geometric.items()}

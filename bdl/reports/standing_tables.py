"""Overall standing of the methods of a benchmark by each score, as tables and as lines."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import compress
from math import isnan, log
from textwrap import wrap
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from rich.text import Text

from bdl.metrics import RELATIVE_MARGIN, get_metric_info
from bdl.reports.intervals import MIN_SPLITS
from bdl.reports.layout import (
    Section,
    align_columns,
    format_count_range,
    format_number,
    metric_heading,
    metric_name,
)
from bdl.reports.overall_standing import (
    DECISION,
    MIN_DATASETS,
    POWER,
    IntervalEstimate,
    PairEvidence,
    RankBootstrap,
    SplitScores,
    bootstrap_ranks,
    compare_hierarchically,
    compare_pairs,
    critical_difference,
    critical_groups,
    pareto_front,
    win_rates,
)
from bdl.reports.standing_scores import RankedScores, gather_ranked_scores, mean_seconds
from bdl.types import Array

if TYPE_CHECKING:
    import pandas as pd

    from bdl.spec import Benchmark

MIN_ENTRIES = 3
"""Fewest data sets and methods of an overall standing."""
MAX_METRICS = 3
"""Scores whose ranks a terminal of 80 columns has room for."""


class Unranked(NamedTuple):
    """A method without a rank."""

    entry: str
    reason: str
    n_datasets: int
    """Data sets of which it has all splits."""
    rank: IntervalEstimate | None
    """Its average rank on these, if it were added to the ranked methods; None without any."""


class AheadCounts(NamedTuple):
    """Numbers of methods that one is ahead of, by three opinions."""

    nemenyi: int
    bootstrap: int
    """By the interval of the difference of ranks."""
    hierarchical: int
    """By the hierarchical model, with a probability of 95 %."""


class Standing(NamedTuple):
    """Overall standing of methods by one score; the entries are in the order of their ranks."""

    metric: str
    datasets: tuple[str, ...]
    n_splits: tuple[int, ...]
    ranks: Mapping[str, IntervalEstimate]
    """Entry to its average rank, the best first."""
    normalised: Mapping[str, IntervalEstimate]
    """Entry to its mean normalised score."""
    ahead: Mapping[str, AheadCounts]
    critical_difference: float
    groups: Sequence[tuple[str, ...]]
    """Entries that Nemenyi's test does not tell apart."""
    win_rates: Array
    """(entries, entries), in the order of ranks."""
    pairs: Sequence[PairEvidence]
    unranked: Sequence[Unranked]
    seconds: Mapping[str, float]
    """Entry to the geometric mean over data sets; empty without durations."""
    front: frozenset[str]
    """Ranked entries that no other beats in both rank and seconds."""


def compute_standings(
    benchmark: "Benchmark",
    rows: "pd.DataFrame",
    overlap: Mapping[str, float],
    other_settings: Mapping[str, str],
) -> list[Standing]:
    """Compute the standing by each score of predictions that has a better and a worse.

    There is none for a benchmark with a sweep, or with fewer than three methods or data sets that
    can be ranked.

    Parameters
    ----------
    benchmark, rows
        The benchmark, narrowed to the data sets and entries of the rows, which are final ones.
    overlap
        Data set to the test rows per training row, where splits share training rows.
    other_settings
        Entry to the reason why its rows are not of the protocol.
    """
    if benchmark.axes:
        return []
    if len(benchmark.datasets) < MIN_DATASETS or len(benchmark.entries) < MIN_ENTRIES:
        return []
    standings = []
    for ranked_scores in gather_ranked_scores(benchmark, rows):
        standing = _compute_standing(benchmark, rows, ranked_scores, overlap, other_settings)
        if standing is not None:
            standings.append(standing)
    return standings


def _compute_standing(
    benchmark: "Benchmark",
    rows: "pd.DataFrame",
    ranked_scores: RankedScores,
    overlap: Mapping[str, float],
    other_settings: Mapping[str, str],
) -> Standing | None:
    metric, scores, complete = ranked_scores[:3]
    reasons = {**ranked_scores.unranked_reasons, **other_settings}
    ranked = [entry for entry in scores.entries if entry not in reasons]
    if len(ranked) < MIN_ENTRIES:
        return None
    # selected first: the worst score is that of a ranked method
    filled = scores.select(ranked).with_failures_as_worst(ranked)
    bootstrap = bootstrap_ranks(filled)
    best_first = [ranked[i] for i in np.argsort(bootstrap.ranks, kind="stable")]
    index = {entry: ranked.index(entry) for entry in best_first}
    difference = critical_difference(len(ranked), len(scores.datasets))
    seconds = mean_seconds(benchmark, rows)
    front: frozenset[str] = frozenset()
    timed = [entry for entry in best_first if entry in seconds]
    if timed:
        costs = np.array([seconds[entry] for entry in timed])
        on_front = pareto_front(costs, bootstrap.ranks[[index[entry] for entry in timed]])
        front = frozenset(compress(timed, on_front))
    overlaps = [overlap.get(dataset, 0.0) for dataset in scores.datasets]
    sorted_scores = scores.select(best_first)
    groups: list[tuple[str, ...]] = []
    for group in critical_groups(bootstrap.ranks, difference):
        groups.append(tuple(ranked[i] for i in group))
    unranked: list[Unranked] = []
    for entry, reason in reasons.items():
        rank = place_entry(scores, complete[entry], ranked, entry)
        unranked.append(Unranked(entry, reason, len(complete[entry]), rank))
    return Standing(
        metric,
        scores.datasets,
        scores.n_splits,
        {entry: bootstrap.rank_interval(index[entry]) for entry in best_first},
        {entry: bootstrap.normalised_interval(index[entry]) for entry in best_first},
        _count_ahead(bootstrap, index, sorted_scores, overlaps, metric, difference),
        difference,
        groups,
        win_rates(filled.select(best_first)),
        compare_pairs(sorted_scores, overlaps),
        unranked,
        seconds,
        front,
    )


def _count_ahead(
    bootstrap: RankBootstrap,
    index: Mapping[str, int],
    scores: SplitScores,
    overlaps: Sequence[float],
    metric: str,
    difference: float,
) -> dict[str, AheadCounts]:
    """Count the methods that each method is ahead of; `scores` are in the order of `index`."""
    counts: dict[str, AheadCounts] = {}
    for entry, i in index.items():
        nemenyi = by_bootstrap = hierarchical = 0
        for other, j in index.items():
            if bootstrap.ranks[i] >= bootstrap.ranks[j]:
                continue
            nemenyi += bool(bootstrap.ranks[j] - bootstrap.ranks[i] > difference)
            by_bootstrap += bootstrap.rank_difference(i, j).high < 0
            hierarchical += _is_probably_better(scores, entry, other, overlaps, metric)
        counts[entry] = AheadCounts(nemenyi, by_bootstrap, hierarchical)
    return counts


def _is_probably_better(
    scores: SplitScores, entry: str, other: str, overlaps: Sequence[float], metric: str
) -> bool:
    """Return the decision of the hierarchical model, of logarithms where the margin is a share.

    An entry that failed where the other did not is not ahead. Data sets with scores of both signs,
    or with a zero, have no logarithms, and are left out.
    """
    margin = get_metric_info(metric).margin
    differences: list[Array] = []
    shares: list[float] = []
    for values, overlap in zip(scores.select([entry, other]).scores, overlaps, strict=True):
        finished = np.isfinite(values)
        if (finished[:, 1] & ~finished[:, 0]).any():
            return False
        pairs = values[finished.all(1)]
        has_one_sign = (pairs > 0).all() or (pairs < 0).all()
        if len(pairs) < MIN_SPLITS or (margin is None and not has_one_sign):
            continue
        if margin is None:
            # a relative margin of a score is an absolute one of its logarithm
            pairs = np.sign(pairs) * np.log(np.abs(pairs))
        differences.append(pairs[:, 0] - pairs[:, 1])
        shares.append(overlap)
    if len(differences) < MIN_DATASETS:
        return False
    width = log(1 + RELATIVE_MARGIN) if margin is None else margin
    return compare_hierarchically(differences, shares, width).better > DECISION


def place_entry(
    scores: SplitScores, datasets: set[str], ranked: Sequence[str], entry: str
) -> IntervalEstimate | None:
    """Rank an entry among other ones on some data sets; None without any."""
    chosen = [i for i, dataset in enumerate(scores.datasets) if dataset in datasets]
    if not chosen:
        return None
    part = scores.select([*ranked, entry])._replace(
        datasets=tuple(scores.datasets[i] for i in chosen)
    )
    part = part._replace(scores=tuple(part.scores[i] for i in chosen))
    return bootstrap_ranks(part.with_failures_as_worst(ranked)).rank_interval(len(ranked))


def standing_title(standing: Standing) -> str:
    """Write the score, and the data sets and splits that ranks are over."""
    splits = format_count_range(standing.n_splits)
    datasets = len(standing.datasets)
    return (
        f"{metric_heading(standing.metric)}: standing over {datasets} data sets of {splits} splits"
    )


def standing_sections(name: str, standings: Sequence[Standing]) -> list[Section]:
    """Lay out the standings of the benchmark `name`: ranks, smallest differences, and the unranked."""
    sections = []
    for standing in standings:
        sections.append(_rank_section(name, standing))
        if standing.pairs:
            sections.append(_difference_section(standing))
        if standing.unranked:
            sections.append(_unranked_section(standing))
    return sections


def _rank_section(name: str, standing: Standing) -> Section:
    columns = ["Method", "Rank", "95 % interval", "Normalised", "95 % interval"]
    columns += ["Ahead of: Nemenyi", "bootstrap", "Bayes", "Seconds", "Pareto front"]
    rows = []
    for entry, rank in standing.ranks.items():
        normalised, ahead = standing.normalised[entry], standing.ahead[entry]
        seconds = standing.seconds.get(entry)
        rows.append(
            (
                entry,
                *_estimate_texts(rank, 1),
                *_estimate_texts(normalised, 2),
                *map(str, ahead),
                None if seconds is None else format_number(seconds),
                "yes" if entry in standing.front else "",
            )
        )
    title = f"{name}: {standing_title(standing)}"
    title += f"; critical difference {standing.critical_difference:.1f}"
    return Section.of(title, columns, rows)


def _estimate_texts(estimate: IntervalEstimate, digits: int) -> tuple[str, str]:
    """Write a number and its interval, empty without one."""
    text = f"{estimate.value:.{digits}f}"
    if isnan(estimate.low):
        return text, ""
    return text, f"{estimate.low:.{digits}f} to {estimate.high:.{digits}f}"


def _difference_section(standing: Standing) -> Section:
    columns = ["Dataset", "Splits", "Smallest difference shown", "Observed", "Pairs shown"]
    rows = []
    for dataset, n_splits in zip(standing.datasets, standing.n_splits, strict=True):
        pairs = [pair for pair in standing.pairs if pair.dataset == dataset]
        if pairs:
            smallest = float(np.median([pair.smallest for pair in pairs]))
            observed = float(np.median([abs(pair.difference) for pair in pairs]))
            shown = sum(pair.shown for pair in pairs)
            texts = format_number(smallest), format_number(observed)
            rows.append((dataset, f"{n_splits}", *texts, f"{shown} of {len(pairs)}"))
    title = (
        f"{metric_heading(standing.metric)}: the difference that is shown with {POWER:.0%} power, "
    )
    return Section.of(title + "medians over pairs of methods", columns, rows)


def pair_section(standing: Standing) -> Section:
    """Lay out every pair of ranked methods on every data set."""
    columns = ["Dataset", "Method", "Compared with", "Difference", "95 % interval"]
    columns += ["Smallest difference shown", "Shown", "n"]
    # scores were gathered so that less is better; readers want the metric's own sign
    sign = -1.0 if get_metric_info(standing.metric).direction == "higher" else 1.0
    rows = []
    for pair in standing.pairs:
        difference = sign * pair.difference
        low, high = difference - pair.half_width, difference + pair.half_width
        rows.append(
            (
                pair.dataset,
                pair.entry,
                pair.other,
                format_number(difference),
                f"{format_number(low)} to {format_number(high)}",
                format_number(pair.smallest),
                "yes" if pair.shown else "",
                f"{pair.n}",
            )
        )
    return Section.of(f"{metric_heading(standing.metric)}: pairs of methods", columns, rows)


def _unranked_section(standing: Standing) -> Section:
    columns = ["Method", "Rank it would have", "95 % interval", "Data sets", "Reason"]
    rows = []
    for unranked in standing.unranked:
        rank = unranked.rank
        texts = _estimate_texts(rank, 1) if rank else ("", "")
        rows.append((unranked.entry, *texts, f"{unranked.n_datasets}", unranked.reason))
    return Section.of(f"{metric_heading(standing.metric)}: not ranked", columns, rows)


def standing_lines(standings: Sequence[Standing], width: int) -> Iterator[Text]:
    """Write the ranks by the first scores as one table, and what they rest on below it."""
    if not standings:
        return
    shown, first = standings[:MAX_METRICS], standings[0]
    title = standing_title(first).partition(": ")[2].capitalize()
    yield Text(f"{title}: average ranks", style="bold")
    heads = ["Method", *(metric_name(standing.metric) for standing in shown), "Seconds"]
    table = [heads]
    for entry in first.ranks:
        table.append([entry, *(_find_rank_text(each, entry) for each in shown)])
        seconds = first.seconds.get(entry)
        mark = "*" if entry in first.front else " "
        table[-1].append(_seconds_text(seconds) + mark)
    reasons = {unranked.entry: unranked.reason for unranked in first.unranked}
    for entry in reasons:
        table.append([entry, *(_find_rank_text(each, entry) for each in shown)])
        seconds = first.seconds.get(entry)
        table[-1].append(_seconds_text(seconds) + " ")
    for number, line in enumerate(align_columns(table)):
        is_unranked = table[number][0] in reasons
        if is_unranked and table[number - 1][0] not in reasons:
            yield Text("not ranked, with the rank that they would have:", style="dim")
        yield Text(line, style="dim" if number == 0 or is_unranked else "")
    for line in _describe_standing(first, reasons):
        yield from (Text(text, style="dim") for text in wrap(line, width))
    yield Text()


def _seconds_text(seconds: float | None) -> str:
    if seconds is None:
        return ""
    return f"{seconds:.0f}" if seconds >= 10 else f"{seconds:.2g}"


def _find_rank_text(standing: Standing, entry: str) -> str:
    """Write the rank of an entry, or the one that it would have; empty without either."""
    ranks = {unranked.entry: unranked.rank for unranked in standing.unranked} | {**standing.ranks}
    rank = ranks.get(entry)
    return "" if rank is None else rank_text(rank)


def rank_text(rank: IntervalEstimate) -> str:
    """Write an average rank in short, with its interval if it has one."""
    interval = "" if isnan(rank.low) else f" ({rank.low:.2g}-{rank.high:.2g})"
    return f"{rank.value:.1f}{interval}"


def _describe_standing(standing: Standing, reasons: Mapping[str, str]) -> Iterator[str]:
    """Yield what the ranks by a score rest on."""
    for entry, reason in reasons.items():
        yield f"{entry}: {reason}."
    name = metric_name(standing.metric)
    front = " *: no other method is both faster and better." if standing.front else ""
    yield (
        f"In parentheses 95 % intervals. By {name}, ranks less than "
        f"{standing.critical_difference:.1f} apart are not told apart (Nemenyi).{front}"
    )
    texts = []
    for dataset in standing.datasets:
        smallest = [pair.smallest for pair in standing.pairs if pair.dataset == dataset]
        if smallest:
            texts.append(f"{dataset} {format_number(float(np.median(smallest)))}")
    if not texts:
        return
    shown = sum(pair.shown for pair in standing.pairs)
    yield (
        f"{name} difference of two methods that is shown with {POWER:.0%} power, median: "
        f"{', '.join(texts)}; shown of {shown} of {len(standing.pairs)} pairs."
    )

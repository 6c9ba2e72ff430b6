"""Where an entry that a run adds would stand among the methods of the benchmark."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from textwrap import wrap
from typing import TYPE_CHECKING, NamedTuple

from rich.text import Text

from bdl.reports.layout import align_columns, metric_name
from bdl.reports.overall_standing import IntervalEstimate
from bdl.reports.paired import PairedDifference, interval_texts, pair_scores, scores_by_split
from bdl.reports.standing_scores import RankedScores, gather_ranked_scores
from bdl.reports.standing_tables import place_entry, rank_text
from bdl.reports.statistics import group_by, group_by_split

if TYPE_CHECKING:
    import pandas as pd

    from bdl.spec import Benchmark


class EntryPlace(NamedTuple):
    """Rank that an entry would have by one score, on the data sets of which it has all splits."""

    entry: str
    metric: str
    datasets: tuple[str, ...]
    n_ranked: int
    """Methods that it is ranked with, itself included."""
    rank: IntervalEstimate
    differences: Sequence[PairedDifference]
    """Of the entry minus each other method, data set by data set."""
    unranked: frozenset[str]
    """Other methods that have no rank."""


def place_entries(
    benchmark: "Benchmark",
    rows: "pd.DataFrame",
    overlap: Mapping[str, float],
    added_entries: Sequence[str],
) -> list[EntryPlace]:
    """Place each added entry among the other methods, by each score that has a better and a worse.

    Rows and overlap are as for `compute_standings`. There is no place without a data set of which
    the entry and another method have all splits, or for a benchmark with a sweep.
    """
    if benchmark.axes or not added_entries:
        return []
    places = []
    for entry, ranked_scores in product(added_entries, gather_ranked_scores(benchmark, rows)):
        place = _place(rows, ranked_scores, overlap, entry, added_entries)
        if place is not None:
            places.append(place)
    return places


def _place(
    rows: "pd.DataFrame",
    ranked_scores: RankedScores,
    overlap: Mapping[str, float],
    entry: str,
    added_entries: Sequence[str],
) -> EntryPlace | None:
    metric, scores, complete, uncertified = ranked_scores
    datasets = complete.get(entry, set())
    ranked = []
    for other in scores.entries:
        # an entry that only lacks splits of other data sets is ranked on those of the new one
        is_complete = complete[other] >= datasets
        if other not in added_entries and is_complete and other not in uncertified:
            ranked.append(other)
    rank = place_entry(scores, datasets, ranked, entry)
    if rank is None or not ranked:
        return None
    groups = group_by_split(rows, ())
    differences = []
    for dataset in sorted(datasets, key=scores.datasets.index):
        own = scores_by_split(groups[dataset, entry], metric)
        for other in scores.entries:
            if other not in added_entries and (dataset, other) in groups:
                others = scores_by_split(groups[dataset, other], metric)
                unpaired = PairedDifference(dataset, other, metric, 0)
                differences.append(pair_scores(unpaired, own, others, overlap.get(dataset, 0.0)))
    return EntryPlace(
        entry,
        metric,
        tuple(sorted(datasets, key=scores.datasets.index)),
        len(ranked) + 1,
        rank,
        differences,
        frozenset(other for other in scores.entries if other not in ranked),
    )


def place_lines(places: Sequence[EntryPlace], width: int) -> Iterator[Text]:
    """Write the places of each entry, and its differences from the other methods by the first score.

    On one data set these are intervals, and on several the numbers of data sets with each verdict.
    """
    for entry, entry_places in group_by(places, lambda place: place.entry).items():
        first = entry_places[0]
        ranks = []
        for place in entry_places:
            rank = rank_text(place.rank)
            ranks.append(f"{rank} of {place.n_ranked} by {metric_name(place.metric)}")
        where = ", ".join(first.datasets)
        text = f"{entry} would have rank {', '.join(ranks)}, on {where}."
        yield from (Text(line, style="bold") for line in wrap(text, width))
        yield from _difference_lines(first)
        yield Text()


def _difference_lines(place: EntryPlace) -> Iterator[Text]:
    name = metric_name(place.metric)
    table: list[tuple[str, ...]]
    if len(place.datasets) == 1:
        table = [(f"{name}, {place.entry} minus", "Difference", "95 % interval", "It is")]
        for each in sorted(place.differences, key=lambda each: each.mean or 0.0):
            if each.mean is not None:
                table.append((_mark(each.entry, place), *interval_texts(each), each.verdict))
    else:
        table = [(f"{name}, {place.entry} is on data sets", "better", "undecided", "worse")]
        for other, differences in group_by(place.differences, lambda each: each.entry).items():
            counts = Counter(each.verdict for each in differences)
            numbers = (f"{counts[word]}" for word in ("better", "undecided", "worse"))
            table.append((f"than {_mark(other, place)}", *numbers))
    for number, line in enumerate(align_columns(table)):
        yield Text(line, style="" if number else "dim")


def _mark(entry: str, place: EntryPlace) -> str:
    return f"{entry} (not ranked)" if entry in place.unranked else entry

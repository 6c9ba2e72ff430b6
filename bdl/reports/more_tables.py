"""What stands below tables: references, ensembles as good as a method, numbers elsewhere, searches on a bound."""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from bdl.metrics import info
from bdl.metrics.likelihoods import FIRST
from bdl.references.certificate import Judged, told
from bdl.reports import Cell
from bdl.reports.layout import Section, heading, measure, ours, quantity
from bdl.reports.papers import load_paper
from bdl.reports.statistics import by_cell, by_split, short
from bdl.spec.sections import Note
from bdl.store import HYPER

if TYPE_CHECKING:
    import pandas as pd

    from bdl.spec import Benchmark, Search


SPLITS = {"same-index": "ours", "same-protocol": "20 of nine to one"}
"""How the splits of a source relate to the published ones, as its settings say it."""
SPREAD = {"se": "standard error", "sd": "deviation over splits"}
"""What stands behind a printed plus and minus."""


def reference_sections(
    benchmark: str, published: Iterable[tuple[str, int, Judged]]
) -> list[Section]:
    """Lay out a line for each sampled reference, of which data set, split and certificate are published."""
    lines = []
    for dataset, split, certificate in published:
        worst = {rule.statistic: certificate.worst_of(rule) for rule in certificate.rules}
        lines.append(
            (
                *(
                    dataset,
                    f"{split}",
                    f"{certificate.origin.sampler}, {certificate.chains} x {certificate.draws}",
                ),
                *(f"{worst['r_hat']:.4f}", f"{min(worst['bulk_ess'], worst['tail_ess']):.0f}"),
                told(failure.rule.number for failure in certificate.failures()),
                f"{certificate.origin.seconds:.0f}",
            )
        )
    columns = [
        "Dataset",
        "Split",
        "Chains x draws",
        "R-hat",
        "Smallest ESS",
        "Certificate",
        "Seconds",
    ]
    return [Section.of(f"{benchmark}: sampled references", columns, lines)] if lines else []


def equivalent(curve: Sequence[float], score: float) -> str:
    """Return the number of members at which a curve reaches a score, as text (Ashukha et al. 2020, section 4).

    The curve has the scores of one member, of two and so on, where less is better; it is linear in
    between. The number has one decimal; it is ``"< 1"`` for a score worse than one member's, ``">
    5"`` for one better than all of five.
    """
    if score > curve[0]:
        return "< 1"
    for count, (before, after) in enumerate(pairwise(curve), start=1):
        if after <= score:
            return (
                f"{count + (before - score) / (before - after) if before > after else count:.1f}"
            )
    return "1.0" if score == curve[0] else f"> {len(curve)}"


def ensemble_sections(benchmark: "Benchmark", rows: "pd.DataFrame") -> list[Section]:
    """Lay out the deep-ensemble equivalents of all methods by `calibrated_nll`, a table for each deep ensemble.

    Means are over the splits of which method and ensemble both have the score. A data set without
    the ensemble, or without scores of its first members, is left out.
    """
    metrics = [
        name for name in benchmark.metrics if getattr(name, "name", name) == "calibrated_nll"
    ]
    ensembles = [
        name for name, entry in benchmark.entries.items() if entry.method.name == "deep-ensemble"
    ]
    if not (metrics and ensembles):
        return []
    groups = by_split(rows, benchmark.axes)
    columns = ["Dataset", *benchmark.axes, "Method", "Mean", "Members", "n"]
    found = []
    for metric in metrics:
        for ensemble in ensembles:
            lines = list(_lines(groups, ensemble, metric))
            title = (
                f"{benchmark.name}: members of {ensemble} that are as good, by {measure(metric)}"
            )
            found += [Section.of(title, columns, lines)] if lines else []
    return found


def _lines(
    groups: "Mapping[tuple[Hashable, ...], pd.DataFrame]", ensemble: str, metric: str
) -> Iterator[tuple[str, ...]]:
    for (dataset, entry, *point), own in groups.items():
        reference = groups.get((dataset, ensemble, *point))
        if entry == ensemble or reference is None or metric not in own:
            continue
        first = [name for name in map(str, reference) if name.startswith(f"{metric}_{FIRST}_")]
        first.sort(key=lambda name: int(name.rpartition("_")[2]))
        scores = reference[[*first, metric]].assign(_own=own[metric]).dropna()
        if first and len(scores):
            *curve, score = scores.mean()
            texts = quantity(score), equivalent(curve, score), f"{len(scores)}"
            yield str(dataset), *(short(str(value)) for value in point), str(entry), *texts


def elsewhere_sections(benchmark: "Benchmark", cells: Sequence[Cell]) -> list[Section]:
    """Lay out our means and, below those of a data set, what the papers under `elsewhere` print.

    A table a metric.
    """
    found = []
    for metric in benchmark.metrics:
        printed = [
            row
            for paper in benchmark.elsewhere
            for row in load_paper(paper)
            if row["metric"] == metric
        ]
        own = [
            cell
            for cell in cells
            if (cell.metric, cell.statistic) == (metric, "mean") and cell.n_trials
        ]
        lines: list[tuple[str, ...]] = []
        for dataset in dict.fromkeys(cell.dataset for cell in own):
            theirs = [row for row in printed if row["dataset"] == dataset]
            here = SPREAD["se"], SPLITS["same-index"], "here"
            lines += [
                (dataset, cell.method, ours(cell), *here)
                for cell in own
                if theirs and cell.dataset == dataset
            ]
            lines += [
                (dataset, row["method"], *as_printed(row), f"{row['paper']} {row['table']}")
                for row in theirs
            ]
        if lines and info(metric).direction != "ratio":
            title = f"{benchmark.name}: {heading(metric)}, ours and printed elsewhere, without verdicts"
            found.append(
                Section.of(title, ["Dataset", "Method", "Mean", "±", "Splits", "Source"], lines)
            )
    return found


def as_printed(row: dict[str, str]) -> tuple[str, str, str]:
    """Return a number of `load_paper` with its plus and minus, what stands behind that, and the splits it is of."""
    said = dict(part.split("=") for part in row["setting"].split(";"))
    spread, _, guess = said["pm"].partition("-")
    value = " ± ".join(filter(None, (row["value"], row["stderr"])))
    return value, f"{SPREAD[spread]}{', probably' if guess else ''}", SPLITS[said["splits"]]


NEAR = 1e-6
"""Relative distance from a bound that counts as none: proposals are mapped to the unit cube and
back.
"""


def bound_notes(benchmark: "Benchmark", rows: "pd.DataFrame") -> list[Note]:
    """Write a note for each entry on each data set whose searches ended on a bound, as final rows tell."""
    hyper = [name for name in rows.columns if str(name).startswith(HYPER)]
    groups = by_cell(rows[["dataset", "entry", *benchmark.axes, *hyper]], benchmark.axes)
    found: dict[tuple[str, str], list[str]] = {}
    for dataset, entry, point in benchmark.cells:
        search = benchmark.at(point).entries[entry].on(dataset).search
        own = groups.get((dataset, entry, *point.texts.values()))
        if search is not None and own is not None:
            found.setdefault((dataset, entry), []).extend(_bounds(search, own))
    return [
        Note(
            dataset=dataset,
            entry=entry,
            text=f"The search ended on a bound of its space: {', '.join(texts)}.",
        )
        for (dataset, entry), texts in found.items()
        if texts
    ]


def _bounds(search: "Search", rows: "pd.DataFrame") -> Iterator[str]:
    ends = {name: (space.low, space.high) for name, space in search.space.items()}
    ends |= {
        name: (min(values), max(values)) for name, values in search.grid.items() if len(values) > 1
    }
    for name, both in ends.items():
        if HYPER + name not in rows:  # no fit has got that far
            continue
        chosen = rows[HYPER + name].to_numpy(dtype=float)
        for end in both:
            count = int(np.isclose(chosen, end, rtol=NEAR, atol=0).sum())
            if count:
                yield f"{name} {end:g} ({count} of {len(rows)})"

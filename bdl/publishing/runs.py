"""Runs held against each other, and the entries of one run held against its baseline."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from bdl.archive import SHOWN, ResultsFolder
from bdl.archive.frames import axes_of
from bdl.archive.loading import LoadedResults, brief
from bdl.errors import InputError, unknown
from bdl.metrics import info
from bdl.publishing.outcome import compared, narrowed
from bdl.publishing.provenance import overlaps
from bdl.reports.layout import Section
from bdl.reports.paired import (
    Change,
    change_sections,
    changes,
    moved,
    moved_section,
    paired_differences,
    paired_sections,
    tally,
)
from bdl.reports.render import markdown, markdown_table, rich_table
from bdl.reports.standings import Ranks, rank_section, ranks
from bdl.reports.statistics import short
from bdl.spec import Benchmark, differences, list_benchmarks, load_benchmark
from bdl.spec.fields import keep

INDEPENDENT = "The data are not at hand: intervals take splits as independent, and are too short where they are not."
RENDERINGS = ("text", "markdown", "json")
DIRECTED = ("lower", "higher")
"""Directions of scores with a better and a worse."""


class Told(NamedTuple):
    """What a comparison says: lines, tables, and all of it as JSON values."""

    lines: Sequence[str]
    sections: Sequence[Section]
    content: Mapping[str, Any]

    def render(self, format: str) -> RenderableType:
        """Render it as text for a console, Markdown or JSON; `InputError` for another format."""
        if format == "json":
            return json.dumps(self.content, indent=2, ensure_ascii=False, default=float) + "\n"
        if format == "markdown":
            return "\n".join(
                [
                    *(f"{markdown(line)}\n" for line in self.lines),
                    *map(markdown_table, self.sections),
                ]
            )
        if format != "text":
            raise unknown("format", format, RENDERINGS)
        return Group(
            *map(Text, self.lines),
            Text(),
            *(Padding(rich_table(each), (0, 0, 1, 0)) for each in self.sections),
        )


class Run(NamedTuple):
    """Final rows of a folder, and the benchmark they were made with, if that is known."""

    place: Path
    rows: pd.DataFrame
    benchmark: Benchmark | None

    @property
    def metrics(self) -> list[str]:
        """Metrics that the rows have."""
        if self.benchmark:
            return [name for name in self.benchmark.metrics if name in self.rows.columns]
        return [name for name in self.rows.columns if _known(name)]


def read_run(given: str, results: Path) -> Run:
    """Read a run from its folder, given by its path or by that below `results`.

    `InputError` if none, or if damaged.
    """
    for place in (Path(given), results / given):
        with ResultsFolder(place) as here:
            if here.has_rows:
                if not (here.published or here.spec):
                    raise InputError(
                        f"{place} does not say what it was made with; finish the run first"
                    )
                return Run(place, here.finals, here.spec.benchmark if here.spec else None)
    raise InputError(
        f"no results in {given} or {results / given}: give a folder of a run or of published rows"
    )


def compare_runs(
    first: Run, second: Run, datasets: Sequence[str] = (), methods: Sequence[str] = ()
) -> Told:
    """List the scores, hyper-parameters and fields in which two runs, or a part of both, differ.

    `InputError` if they have no score or no axis in common, or neither has such a data set or
    method.
    """
    for column, kind, wanted in (("dataset", "dataset", datasets), ("entry", "method", methods)):
        names = keep(kind, wanted, dict.fromkeys((*first.rows[column], *second.rows[column])))
        first, second = (
            run._replace(rows=run.rows[run.rows[column].isin(names)]) for run in (first, second)
        )
    metrics = [name for name in first.metrics if name in second.metrics]
    axes = axes_of(first.rows)
    if not metrics or axes != axes_of(second.rows):
        what = "the same sweep" if metrics else "a score in common"
        raise InputError(
            f"{first.place} and {second.place} do not have {what}: there is nothing to pair"
        )
    known = second.benchmark or first.benchmark
    if known is None and second.place.name in dict(
        list_benchmarks()
    ):  # that which the folder is called by
        known = narrowed(load_benchmark(second.place.name), second.rows)
    shared, lines = _shared(known)
    found = changes(first.rows, second.rows, metrics, axes, shared)
    hypers = moved(first.rows, second.rows, axes)
    fields = (
        differences(first.benchmark, second.benchmark)
        if first.benchmark and second.benchmark
        else None
    )
    both = [change for change in found if not change.only]
    other = [change for change in both if not change.same]
    lines = [
        f"first: {first.place}; second: {second.place}; differences are second minus first",
        f"scores of both: {len(both)}, {len(both) - len(other)} the same to six digits and {len(other)} not",
        *_lone(found),
        *lines,
        *_spec_lines(fields),
    ]
    sections = [
        *change_sections(other, "mean difference"),
        *([moved_section(hypers)] if hypers else []),
    ]
    content = {
        "first": str(first.place),
        "second": str(second.place),
        "scores": [_by_method(change.record) for change in found],
        "hyper": [_by_method(each._asdict()) for each in hypers],
        "spec": None
        if fields is None
        else {path: list(values) for path, values in fields.items()},
    }
    return Told(lines, sections, content)


def compare_entries(found: LoadedResults, baseline: str | None) -> tuple[Told, list[Ranks]]:
    """Hold the entries of a run against one of them, split by split, and rank them over data sets.

    `InputError` if no entry is the baseline, or it has no rows.
    """
    benchmark = narrowed(found.benchmark, found.rows)
    against = baseline or benchmark.baseline
    if against is None:
        raise InputError(
            f"{benchmark.name} names no baseline: give --baseline METHOD, or a second folder of results"
        )
    if against not in benchmark.entries:
        raise unknown("method", against, benchmark.entries)
    benchmark = benchmark.model_copy(update={"baseline": against})
    shared, lines = _shared(benchmark)
    pairs = paired_differences(benchmark, found.rows, shared)
    lines = [found.remark, *lines] if found.remark else lines
    cells, ranked = compared(found), list[Ranks]()
    scored = [
        name
        for name in dict.fromkeys(cell.metric for cell in cells)
        if info(name).direction in DIRECTED
    ]
    try:
        ranked = [each for name in scored if (each := ranks(cells, name))]
    except InputError as error:  # without the library, which says what to install
        lines.append(str(error))
    sections = [
        tally(benchmark, pairs),
        *paired_sections(benchmark, pairs),
        *map(rank_section, ranked),
    ]
    content = {
        "benchmark": benchmark.name,
        "baseline": against,
        "paired": [
            _by_method(each._asdict() | {"point": {**each.point}, "verdict": each.verdict})
            for each in pairs
        ],
        "ranks": [
            {"metric": each.metric, "places": each.places, "p": each.p, "means": each.means}
            for each in ranked
        ],
    }
    return Told(lines, sections if pairs else sections[1:], content), ranked


def _shared(benchmark: Benchmark | None) -> tuple[Mapping[str, float], list[str]]:
    """Return the overlap of splits, and a line if it cannot be had."""
    with suppress(InputError):
        if benchmark is not None:
            return overlaps(benchmark), []
    return {}, [INDEPENDENT]


def _by_method(record: Mapping[str, Any]) -> dict[str, Any]:
    return {"method" if name == "entry" else name: value for name, value in record.items()}


def _lone(found: Sequence[Change]) -> Iterator[str]:
    for which in ("first", "second"):
        cells = dict.fromkeys(
            " ".join((f"{place.dataset}/{place.entry}", *map(short, place.point.values())))
            for place, _, only in found
            if only == which
        )
        if cells:
            yield f"only in the {which}: {', '.join(cells)}"


def _spec_lines(fields: Mapping[str, tuple[Any, Any]] | None) -> Iterator[str]:
    if fields is None:
        yield "one of them does not say what it was made with: specs are not compared"
        return
    shown = dict.fromkeys(field for path in fields if (field := path.partition(".")[0]) in SHOWN)
    for path, (before, after) in fields.items():
        if path.partition(".")[0] not in shown:
            yield f"{path}: {brief(before)} -> {brief(after)}"
    if shown:
        yield f"different without an effect on numbers: {', '.join(shown)}"


def _known(column: str) -> bool:
    if column.endswith(("_mcse", "_floor")):
        return False
    try:
        return bool(info(column))
    except InputError:
        return False

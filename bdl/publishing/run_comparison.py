"""Comparisons of two runs, and of the entries of one run with its baseline."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from bdl.errors import InputError, unknown_name_error
from bdl.metrics import get_metric_info
from bdl.publishing.overlaps import load_overlaps
from bdl.publishing.run_tables import compute_run_standings, narrow_benchmark
from bdl.records.tables import list_axes
from bdl.reports.layout import Section
from bdl.reports.paired import (
    ScoreChange,
    change_sections,
    changed_hyperparameters,
    compare_scores,
    hyperparameter_section,
    paired_differences,
    paired_sections,
    tally_section,
)
from bdl.reports.render import markdown, markdown_table, rich_table
from bdl.reports.standing_tables import Standing, standing_lines, standing_sections
from bdl.reports.statistics import format_setting
from bdl.spec import Benchmark, find_differences, list_benchmarks, load_benchmark
from bdl.spec.fields import select_names
from bdl.stored_results.departures import abbreviate_value
from bdl.stored_results.loading import LoadedResults
from bdl.stored_results.results_folder import FIELDS_WITHOUT_EFFECT, ResultsFolder

INDEPENDENCE_NOTE = (
    "The data are not at hand: intervals take splits as independent, and are too short where they "
    "are not."
)
FORMATS = ("text", "markdown", "json")
_WIDTH = 80
"""Columns of text on a screen."""


class ComparisonText(NamedTuple):
    """Text of a comparison: lines, tables, standings, and all of it as JSON values."""

    lines: Sequence[str]
    sections: Sequence[Section]
    content: Mapping[str, Any]
    standings: Sequence[Standing] = ()
    """Of the methods of one run."""

    def render(self, format: str) -> RenderableType:
        """Render it as text for a console, Markdown or JSON; `InputError` for another format."""
        if format == "json":
            content = _without_nan(self.content)
            return json.dumps(content, indent=2, ensure_ascii=False, default=float) + "\n"
        if format == "markdown":
            standings = standing_sections(self.content.get("benchmark", ""), self.standings)
            return "\n".join(
                [
                    *(f"{markdown(line)}\n" for line in self.lines),
                    *map(markdown_table, [*self.sections, *standings]),
                ]
            )
        if format != "text":
            raise unknown_name_error("format", format, FORMATS)
        return Group(
            *map(Text, self.lines),
            Text(),
            *(Padding(rich_table(section), (0, 0, 1, 0)) for section in self.sections),
            # as below the tables of a run: all columns of the sections take more than a screen
            *standing_lines(self.standings, _WIDTH),
        )


def _without_nan(value: Any) -> Any:
    """Replace NaN, which JSON does not have, by None in nested values."""
    if isinstance(value, Mapping):
        return {name: _without_nan(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(item) for item in value]
    return None if isinstance(value, float) and math.isnan(value) else value


class ComparedRun(NamedTuple):
    """Final rows of a folder, and the benchmark that they were made with, if it is recorded."""

    folder: Path
    rows: pd.DataFrame
    benchmark: Benchmark | None

    @property
    def metrics(self) -> list[str]:
        """Metrics that the rows have."""
        if self.benchmark:
            return [name for name in self.benchmark.metrics if name in self.rows.columns]
        return [name for name in self.rows.columns if _is_known_column(name)]


def load_run(name: str, results: Path) -> ComparedRun:
    """Load a run from its folder, a path or one below `results`.

    `InputError` if there is none, or if it is damaged.
    """
    for folder in (Path(name), results / name):
        results_folder = ResultsFolder(folder)
        if results_folder.has_rows:
            if not (results_folder.reads_published_rows or results_folder.original_request):
                raise InputError(
                    f"{folder} does not say what it was made with; finish the run first"
                )
            return ComparedRun(
                folder,
                results_folder.final_rows,
                results_folder.original_request.benchmark
                if results_folder.original_request
                else None,
            )
    raise InputError(
        f"no results in {name} or {results / name}: give a folder of a run or of published rows"
    )


def compare_runs(
    first: ComparedRun,
    second: ComparedRun,
    datasets: Sequence[str] = (),
    methods: Sequence[str] = (),
) -> ComparisonText:
    """List the scores, hyper-parameters and fields in which two runs, or a part of both, differ.

    `InputError` if they have no score or no axis in common, or neither has such a data set or
    method.
    """
    for column, kind, selected in (("dataset", "dataset", datasets), ("entry", "method", methods)):
        names = select_names(
            kind, selected, dict.fromkeys((*first.rows[column], *second.rows[column]))
        )
        first = first._replace(rows=first.rows[first.rows[column].isin(names)])
        second = second._replace(rows=second.rows[second.rows[column].isin(names)])
    metrics = [name for name in first.metrics if name in second.metrics]
    axes = list_axes(first.rows)
    if not metrics or axes != list_axes(second.rows):
        reason = "the same sweep" if metrics else "a score in common"
        raise InputError(
            f"{first.folder} and {second.folder} do not have {reason}: there is nothing to pair"
        )
    benchmark = second.benchmark or first.benchmark
    # rows without a spec are those of the benchmark that their folder is named after
    if benchmark is None and second.folder.name in dict(list_benchmarks()):
        benchmark = narrow_benchmark(load_benchmark(second.folder.name), second.rows)
    # the second first, as the benchmark is that of the second run
    overlaps, lines = _load_overlaps_or_note((second.folder, first.folder), benchmark)
    changes = compare_scores(first.rows, second.rows, metrics, axes, overlaps)
    hypers = changed_hyperparameters(first.rows, second.rows, axes)
    fields = (
        find_differences(first.benchmark, second.benchmark)
        if first.benchmark and second.benchmark
        else None
    )
    paired_changes = [change for change in changes if not change.only]
    different_scores = [change for change in paired_changes if not change.same]
    n_same = len(paired_changes) - len(different_scores)
    lines = [
        f"first: {first.folder}; second: {second.folder}; differences are second minus first",
        f"scores of both: {len(paired_changes)}, {n_same} the same to six digits "
        f"and {len(different_scores)} not",
        *_describe_unpaired_scores(changes),
        *lines,
        *_describe_spec_changes(fields),
    ]
    sections = [
        *change_sections(different_scores, "mean difference"),
        *([hyperparameter_section(hypers)] if hypers else []),
    ]
    content = {
        "first": str(first.folder),
        "second": str(second.folder),
        "scores": [_with_method_key(change.record) for change in changes],
        "hyper": [_with_method_key(row._asdict()) for row in hypers],
        "spec": None
        if fields is None
        else {path: list(values) for path, values in fields.items()},
    }
    return ComparisonText(lines, sections, content)


def compare_entries(loaded: LoadedResults, baseline: str | None) -> ComparisonText:
    """Compare the entries of a run with one of them, split by split, and rank them over data sets.

    `InputError` if no entry is the baseline, or it has no rows.
    """
    benchmark = narrow_benchmark(loaded.benchmark, loaded.rows)
    reference = baseline or benchmark.baseline
    if reference is None:
        raise InputError(
            f"{benchmark.name} names no baseline: "
            "give --baseline METHOD, or a second folder of results"
        )
    if reference not in benchmark.entries:
        raise unknown_name_error("method", reference, benchmark.entries)
    benchmark = benchmark.model_copy(update={"baseline": reference})
    overlaps, lines = _load_overlaps_or_note((loaded.folder,), benchmark)
    pairs = paired_differences(benchmark, loaded.rows, overlaps)
    if not any(pair.n for pair in pairs):
        raise InputError(
            f"nothing to compare in {loaded.folder}: no data set has rows of {reference} and of "
            "another method"
        )
    lines = [loaded.remark, *lines] if loaded.remark else lines
    standings = compute_run_standings(loaded)
    sections = [tally_section(benchmark, pairs), *paired_sections(benchmark, pairs)]
    content = {
        "benchmark": benchmark.name,
        "baseline": reference,
        "paired": [
            _with_method_key(
                difference._asdict()
                | {"point": {**difference.point}, "verdict": difference.verdict}
            )
            for difference in pairs
        ],
        "standings": [_record_standing(standing) for standing in standings],
    }
    return ComparisonText(lines, sections, content, standings)


def _record_standing(standing: Standing) -> dict[str, Any]:
    """Write a standing as JSON values: ranks with their intervals."""
    ranks = [{"method": entry, **rank._asdict()} for entry, rank in standing.ranks.items()]
    return {
        "metric": standing.metric,
        "datasets": standing.datasets,
        "critical_difference": standing.critical_difference,
        "ranks": ranks,
        "unranked": {unranked.entry: unranked.reason for unranked in standing.unranked},
    }


def _load_overlaps_or_note(
    folders: Sequence[Path], benchmark: Benchmark | None
) -> tuple[Mapping[str, float], list[str]]:
    """Load the overlap of splits of the first folder that has recorded it, or whose data are there.

    The second value is a note for the case that neither is available.
    """
    if benchmark is not None:
        for folder in folders:
            with suppress(InputError):
                return load_overlaps(folder, benchmark), []
    return {}, [INDEPENDENCE_NOTE]


def _with_method_key(record: Mapping[str, Any]) -> dict[str, Any]:
    return {"method" if name == "entry" else name: value for name, value in record.items()}


def _describe_unpaired_scores(changes: Sequence[ScoreChange]) -> Iterator[str]:
    for which in ("first", "second"):
        cells = dict.fromkeys(
            " ".join(
                (f"{label.dataset}/{label.entry}", *map(format_setting, label.point.values()))
            )
            for label, _, only in changes
            if only == which
        )
        if cells:
            yield f"only in the {which}: {', '.join(cells)}"


def _describe_spec_changes(fields: Mapping[str, tuple[Any, Any]] | None) -> Iterator[str]:
    if fields is None:
        yield "one of them does not say what it was made with: specs are not compared"
        return
    sections = dict.fromkeys(
        field for path in fields if (field := path.partition(".")[0]) in FIELDS_WITHOUT_EFFECT
    )
    for path, (first_value, second_value) in fields.items():
        if path.partition(".")[0] not in sections:
            yield f"{path}: {abbreviate_value(first_value)} -> {abbreviate_value(second_value)}"
    if sections:
        yield f"different without an effect on numbers: {', '.join(sections)}"


def _is_known_column(column: str) -> bool:
    if column.endswith(("_mcse", "_floor")):
        return False
    try:
        return bool(get_metric_info(column))
    except InputError:
        return False

"""The tables of a run: comparisons with the print, claims and standings of its results."""

from collections.abc import Sequence

import pandas as pd
from rich.console import RenderableType

from bdl.errors import InputError, unknown_name_error
from bdl.publishing.overlaps import find_overlaps
from bdl.reports.claims import ClaimVerdict, claim_sections, judge_claims
from bdl.reports.comparison import TableEntry, compare_with_papers, refusal_notes
from bdl.reports.elsewhere import elsewhere_sections
from bdl.reports.ensembles import ensemble_sections
from bdl.reports.entry_places import EntryPlace, place_entries
from bdl.reports.layout import Section
from bdl.reports.overview import Overview
from bdl.reports.reference_tables import read_certificates, reference_sections
from bdl.reports.render import FORMATS_WITH_SECTIONS, render
from bdl.reports.search_bounds import bound_notes
from bdl.reports.standing_tables import Standing, compute_standings, standing_sections
from bdl.spec import Benchmark
from bdl.stored_results.loading import LoadedResults


def compare_with_print(loaded: LoadedResults) -> list[TableEntry]:
    """Compare final rows with the printed values; data sets and entries without rows are left out.

    Entries whose searches ended on a bound have a note that says so.
    """
    present = narrow_benchmark(loaded.benchmark, loaded.rows)
    noted = present.model_copy(
        update={"notes": (*present.notes, *bound_notes(present, loaded.rows))}
    )
    return compare_with_papers(
        noted, loaded.rows, protocol=loaded.protocol, replicates=loaded.replicates
    )


def narrow_benchmark(benchmark: Benchmark, rows: pd.DataFrame) -> Benchmark:
    """Narrow a benchmark to the data sets, the entries and the metrics that rows have.

    A metric counts as well where the rows say why it could not be computed; without any, all
    metrics stay.
    """
    present = {name: set(rows[name].unique()) for name in ("dataset", "entry")}
    selected = benchmark.select(
        [name for name in benchmark.datasets if name in present["dataset"]],
        [name for name in benchmark.entries if name in present["entry"]],
    )
    metrics = []
    for name in benchmark.metrics:
        if name in rows and (rows[name].notna().any() or refusal_notes(rows, name)):
            metrics.append(name)
    return selected.model_copy(update={"metrics": tuple(metrics) or benchmark.metrics})


def render_tables(
    loaded: LoadedResults,
    format: str,
    metrics: Sequence[str] = (),
    table_entries: Sequence[TableEntry] | None = None,
    *,
    with_notes: bool = True,
) -> RenderableType:
    """Render our numbers and the printed ones, below a remark on differences from the protocol.

    `table_entries` are those of `compare_with_print`. Without a choice of metrics all are
    rendered, and below them sampled references, claims, members of an ensemble that are as good,
    and numbers of other papers. `InputError` if there is no such metric, or as `render` says.
    """
    table_entries = _select_metrics(loaded, metrics, table_entries)
    sections = list[Section]()
    if format in FORMATS_WITH_SECTIONS and not metrics:
        sections += reference_sections(loaded.benchmark.name, read_certificates(loaded.folder))
        sections += claim_sections(loaded.benchmark, judge_run_claims(loaded))
        sections += ensemble_sections(loaded.benchmark, loaded.rows)
        sections += elsewhere_sections(loaded.benchmark, table_entries)
        sections += standing_sections(loaded.benchmark.name, compute_table_standings(loaded))
    return render(table_entries, format, loaded.banner, sections, with_notes=with_notes)


def summarise_tables(
    loaded: LoadedResults,
    metrics: Sequence[str] = (),
    table_entries: Sequence[TableEntry] | None = None,
    *,
    with_notes: bool = False,
) -> Overview:
    """Return the compact tables of a run for a terminal; arguments as in `render_tables`."""
    table_entries = _select_metrics(loaded, metrics, table_entries)
    banner = loaded.banner if with_notes else loaded.short_banner
    if metrics:
        return Overview(table_entries, banner, with_notes=with_notes, with_durations=True)
    claims = [
        f"Claim {verdict.verdict}: {verdict.claim.text}" for verdict in judge_run_claims(loaded)
    ]
    further_tables = {
        "sampled references": read_certificates(loaded.folder),
        "the claims by data set": claims,
        "members of ensembles that are as good": ensemble_sections(loaded.benchmark, loaded.rows),
        "what other papers print": elsewhere_sections(loaded.benchmark, table_entries),
    }
    names = [name for name, content in further_tables.items() if content]
    return Overview(
        table_entries,
        banner,
        claims,
        names,
        with_notes,
        standings=compute_table_standings(loaded),
        places=place_added_entries(loaded),
    )


def _select_metrics(
    loaded: LoadedResults, metrics: Sequence[str], table_entries: Sequence[TableEntry] | None
) -> Sequence[TableEntry]:
    """Select the entries of some metrics, all without a choice."""
    table_entries = compare_with_print(loaded) if table_entries is None else table_entries
    metric_names = dict.fromkeys(str(entry.metric) for entry in table_entries)
    for name in metrics:
        if name not in metric_names:
            raise unknown_name_error(f"metric of {loaded.benchmark.name}", name, metric_names)
    return [entry for entry in table_entries if not metrics or entry.metric in metrics]


def judge_run_claims(loaded: LoadedResults) -> list[ClaimVerdict]:
    """Judge the claims of a benchmark by the data sets and entries that have rows.

    There are no verdicts if the rows are not of the protocol, or if data are needed and missing.
    """
    present = narrow_benchmark(loaded.benchmark, loaded.rows)
    if not (present.claims and loaded.protocol):
        return []
    try:
        overlaps = find_overlaps(loaded, present)
        return judge_claims(present, loaded.rows, loaded.points, overlaps)
    except InputError:  # rows of an earlier version, without data
        return []


def compute_table_standings(loaded: LoadedResults) -> list[Standing]:
    """Compute the overall standing that tables of a run show.

    There is none for a benchmark with printed values or without a baseline, and as
    `compute_run_standings` says.
    """
    if loaded.benchmark.papers or not loaded.benchmark.baseline:
        return []
    return compute_run_standings(loaded)


def compute_run_standings(loaded: LoadedResults) -> list[Standing]:
    """Compute the overall standing of the methods of a run by each score.

    There is none for benchmarks that `compute_standings` names, or if data are needed and missing.
    """
    present = narrow_benchmark(loaded.benchmark, loaded.rows)
    try:
        overlaps = find_overlaps(loaded, present)
    except InputError:
        return []
    reasons = dict.fromkeys(_list_overridden_entries(loaded), "settings of its own")
    reasons |= dict.fromkeys(loaded.added_entries, "an entry of its own")
    present_reasons = {name: text for name, text in reasons.items() if name in present.entries}
    return compute_standings(present, loaded.rows, overlaps, present_reasons)


def _list_overridden_entries(loaded: LoadedResults) -> list[str]:
    paths = [path.split(".") for path in loaded.recorded_request.changes]
    return [path[1] for path in paths if len(path) > 2 and path[0] == "entries"]


def place_added_entries(loaded: LoadedResults) -> list[EntryPlace]:
    """Place the entries that a run adds to its benchmark among the other ones.

    Empty if data are needed and missing.
    """
    if not loaded.added_entries:
        return []
    present = narrow_benchmark(loaded.benchmark, loaded.rows)
    try:
        overlaps = find_overlaps(loaded, present)
    except InputError:
        return []
    added = [name for name in loaded.added_entries if name in present.entries]
    return place_entries(present, loaded.rows, overlaps, added)

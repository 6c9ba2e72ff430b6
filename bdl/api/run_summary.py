"""The end of a run: its report, its tables, and the lines that say what matched."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from bdl.errors import InputError
from bdl.files import DEFAULT_RESULTS, write_atomically
from bdl.publishing.published_files import PublishedRun
from bdl.publishing.report_page import REPORT, build_page, write_page
from bdl.publishing.run_tables import compare_with_print, summarise_tables
from bdl.reports.comparison import TableEntry
from bdl.reports.layout import lines_below_tables
from bdl.reports.overview import Overview, count_verdicts, find_sign
from bdl.reports.verdicts import CONSISTENT, EQUIVALENT, SAME_DIGITS
from bdl.spec import Request, load_request
from bdl.stored_results.loading import load_results

AGREEMENTS = (SAME_DIGITS, EQUIVALENT, CONSISTENT)
"""Verdicts on numbers that match."""


def write_report(published: PublishedRun, request: Request, results: Path) -> Path:
    """Write the report of a run, if its tables or figures are new or there is none; return its path."""
    folder = published.loaded.folder
    path = folder / REPORT
    if published.figure_data is not None:
        page = build_page(published.loaded, published.figure_data, [folder])
        with write_atomically(path) as new_path:
            new_path.write_text(page, encoding="utf-8")
    elif not path.exists():  # a run was stopped before it wrote one
        # the results are complete without it; `bdl-bench report` says what is wrong
        with suppress(InputError):
            write_page(request, results)
    return path


def summarise_run(request: Request, published: PublishedRun, results: Path) -> Overview:
    """Return the tables of a run; a part of the protocol has the other methods' published rows.

    These are on its data sets, by all splits.
    """
    loaded, entries = published.loaded, published.table_entries
    if not (loaded.protocol and request.benchmark.profile != "paper"):
        return summarise_tables(loaded, table_entries=entries)
    datasets = list(map(str, request.selected_benchmark.datasets))
    others = _load_published_entries(request, datasets, results)
    here = {entry.method for entry in entries}
    added = [entry for entry in others if entry.method not in here]
    both = [*entries, *added]
    overview = summarise_tables(loaded, table_entries=both)
    return replace(overview, published={entry.method for entry in added})


def _load_published_entries(
    request: Request, datasets: Sequence[str], results: Path
) -> list[TableEntry]:
    """Load the comparison of the whole protocol on some data sets; empty if it is not there."""
    protocol = load_request(request.source, datasets=datasets)
    for root in (results, DEFAULT_RESULTS):
        with suppress(InputError):
            return compare_with_print(load_results(protocol, root))
    return []


def describe_end(
    request: Request, entries: Sequence[TableEntry], report: Path, results: Path
) -> list[str]:
    """Write what matched, where the report is, and what to run next."""
    verdicts = count_verdicts(entries)
    lines = []
    if verdicts:
        agreed = sum(verdicts[verdict] for verdict in AGREEMENTS)
        others = [
            f"{count} {verdict}"
            for verdict, count in verdicts.items()
            if verdict not in AGREEMENTS
        ]
        text = ", ".join(others) or "none is left open"
        numbers = "printed numbers"
        if any(entry.statistic == "median" and find_sign(entry.verdict) for entry in entries):
            numbers += ", medians included"
        lines.append(f"Matched: {agreed} of {verdicts.total()} {numbers}; {text}.")
    if report.exists():
        lines.append(f"Report: {report}")
    if request.benchmark.profile == "paper":
        options = ["--notes"] if lines_below_tables(entries) else []
        lines.append(f"Next: {request.format_command('table', results, *options)}")
    else:
        protocol = load_request(request.source)
        lines.append(f"Next: {protocol.format_command('run', results, '--dry-run')}")
    return lines

"""Report of a run: one HTML file with its tables, figures, failures and provenance."""

import io
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd
import yaml

from bdl.errors import InputError
from bdl.files import write_atomically
from bdl.metrics import get_metric_info
from bdl.publishing.run_figures import load_figure_data
from bdl.publishing.run_tables import judge_run_claims
from bdl.records.row import HYPER_PREFIX
from bdl.reports.claims import claim_sections
from bdl.reports.comparison import TableEntry
from bdl.reports.elsewhere import elsewhere_sections
from bdl.reports.ensembles import ensemble_sections
from bdl.reports.figures import FIGURE_KINDS, FigureData, data_uri, draw_figures, heading_of
from bdl.reports.layout import (
    UNPRINTED,
    Section,
    lines_below_tables,
    metric_sections,
    order_printed_first,
    verdict_text,
)
from bdl.reports.overview import SIGNS, count_verdicts, find_sign
from bdl.reports.paired import paired_sections, tally_section
from bdl.reports.render import STYLES
from bdl.reports.standing_tables import pair_section, standing_sections
from bdl.spec import Benchmark, Request
from bdl.spec.request import format_ranges
from bdl.stored_results.folders import locate_folder
from bdl.stored_results.loading import LoadedResults, load_results
from bdl.stored_results.results_folder import FailedFits, ResultsFolder

HIDDEN_FIELDS = (
    "spec",
    "fit_hashes",
    "score_hashes",
    "published",
    "files",
    "overlap",
    # of versions before 0.2
    "posteriors",
    "checksums",
)
"""Fields of the provenance that the report leaves out."""

MAX_COLOURS = 96
"""Colours of a figure within a page: as few as the eye does not tell from those of its file."""
MAX_WIDTH = 1600
"""Width of such a figure, in dots."""

REPORT = "report.html"
"""Name of the file in the folder of a run."""

MAX_FINDINGS = 3
"""Claims of the papers that open the report."""

_PAPERS_COMMENT = re.compile(r"<!-- papers: (.*?) -->\n*")


def write_page(request: Request, results: Path, target: Path | None = None) -> Path:
    """Write the report of a run as one self-contained HTML file, by default its ``report.html``.

    Its figures are drawn for it; those of posteriors without a store are those of the folder.
    `InputError` as `load_results` says; if no fit is finished; or if the file cannot be written.
    """
    loaded, folder = load_results(request, results), locate_folder(results, request)
    path = target or folder / REPORT
    with TemporaryDirectory() as temporary:
        figure_data = load_figure_data(loaded, request, results)  # refused if no fit is finished
        draw_figures(figure_data, Path(temporary) / "figures", pdf=False)
        page = build_page(loaded, figure_data, [Path(temporary), folder])
    try:
        if target is None:
            # it makes the folder, which that of a part of the whole may need
            with write_atomically(path) as new_path:
                new_path.write_text(page, encoding="utf-8")
        else:
            path.write_text(page, encoding="utf-8")
    except OSError as error:
        raise InputError(
            f"cannot write {path}: {error.strerror}; choose another --output"
        ) from None
    return path


def build_page(loaded: LoadedResults, figure_data: FigureData, folders: Sequence[Path]) -> str:
    """Write the report of a run as HTML, with the figures that are drawn in some folders.

    Of figures with one name that of the first folder is shown.
    """
    return _fill_template(_gather_page_values(loaded, figure_data, folders))


def _gather_page_values(
    loaded: LoadedResults, figure_data: FigureData, folders: Sequence[Path]
) -> dict[str, Any]:
    table_entries, benchmark = figure_data.cells, loaded.benchmark
    ordered_entries = order_printed_first(table_entries)
    pictures = _group_pictures(folders, benchmark.name)
    results_folder = ResultsFolder(loaded.folder, loaded.recorded_request)
    failed_fits = _build_failure_section(results_folder.list_failed_fits())
    provenance = results_folder.provenance
    compared = figure_data.benchmark, figure_data.differences
    verdicts = judge_run_claims(loaded)
    stems = [path.stem for path in chain.from_iterable(pictures.values())]
    headline_stem = select_headline(stems, benchmark)
    headline: tuple[str, int, str] | None = None
    embedded: dict[str, list[tuple[str, int, str]]] = {}
    for kind, paths in pictures.items():
        embedded[kind] = []
        for path in paths:
            picture = (path.stem, *_embed_picture(path))
            if path.stem == headline_stem:
                headline = picture
            else:
                embedded[kind].append(picture)
    pairs = any(difference.n for difference in figure_data.differences)
    counts: Counter[str] = Counter()
    for entry in table_entries:
        # durations are no reproduction of a printed number
        if get_metric_info(entry.metric).direction != "ratio":
            counts[entry.verdict] += 1
    findings: list[str] = []
    for verdict in verdicts[:MAX_FINDINGS]:
        findings.append(f"{verdict.claim.text} ({verdict.claim.source}): {verdict.verdict}.")
    provenance_texts: dict[str, str] = {}
    for name, value in provenance.items():
        if name not in HIDDEN_FIELDS and value not in (None, {}, []):
            provenance_texts[name] = _format_value(value)
    return {
        "benchmark": benchmark,
        "part": _describe_part(figure_data.benchmark, loaded.rows),
        "remark": loaded.banner,
        "command": f"bdl-bench run {loaded.recorded_request.command_arguments}",
        "counts": counts,
        "tables": metric_sections(ordered_entries),
        "notes": lines_below_tables(ordered_entries),
        "claims": claim_sections(benchmark, verdicts),
        "ensembles": ensemble_sections(benchmark, loaded.rows),
        "elsewhere": elsewhere_sections(benchmark, table_entries),
        "standings": [
            standing_sections(benchmark.name, [standing]) for standing in figure_data.standings
        ],
        "standing_pairs": [
            pair_section(standing) for standing in figure_data.standings if standing.pairs
        ],
        "paired": [tally_section(*compared), *paired_sections(*compared)] if pairs else [],
        "pictures": embedded,
        "headline": headline,
        "verdict_line": _describe_verdicts(table_entries),
        "findings": findings,
        "failures": failed_fits,
        "hypers": _build_hyperparameter_section(loaded.rows, benchmark.axes),
        "provenance": provenance_texts,
        "errata": select_errata(paper.paper for paper in benchmark.papers),
        "spec": yaml.safe_dump(
            benchmark.model_dump(mode="json"), sort_keys=False, allow_unicode=True, width=110
        ),
    }


def select_headline(stems: Sequence[str], benchmark: Benchmark) -> str | None:
    """Select the figure that opens the report and the page of a benchmark, by its file's stem.

    It is that of the overall standing or of the scores of the first metric that has one, else the
    first; None without any.
    """
    for kind in ("-standing", ""):
        for metric in benchmark.metrics:
            if f"{benchmark.name}-{metric}{kind}" in stems:
                return f"{benchmark.name}-{metric}{kind}"
    return stems[0] if stems else None


def _describe_verdicts(entries: Sequence[TableEntry]) -> str:
    """Count the verdicts on printed numbers in a sentence."""
    counts = count_verdicts(entries)
    if not counts:
        if any(find_sign(entry.verdict) for entry in entries):
            return "These comparisons repeat printed numbers that are counted elsewhere."
        return "No printed number is compared."
    texts = [f"{counts[verdict]} {verdict}" for verdict in SIGNS if counts[verdict]]
    return f"Of {counts.total()} printed numbers: {', '.join(texts)}."


def _fill_template(values: Mapping[str, Any]) -> str:
    """Fill in the template; values are escaped as text."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markdown_it import MarkdownIt
    from markupsafe import Markup

    markdown = MarkdownIt("commonmark", {"html": False}).enable("table")  # tags within it are text
    loader = PackageLoader("bdl.publishing", "templates")
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    environment.filters |= {
        "verdict": _to_css_class,
        "shown": verdict_text,
        "html": lambda text: Markup(markdown.render(text)),
    }
    templates = files("bdl.publishing") / "templates"
    embedded = {
        name: Markup((templates / f"page.{name}").read_text(encoding="utf-8"))
        for name in ("css", "js")
    }
    return environment.get_template("page.html").render(**embedded, **values)


def _to_css_class(verdict: str) -> str:
    if UNPRINTED in verdict:
        return "no-paper-value"
    return next((word for word in STYLES if word in verdict), "other").replace(" ", "-")


def _embed_picture(path: Path) -> tuple[int, str]:
    """Return the width of a picture at 96 dots an inch, and its data URI in fewer colours."""
    from PIL import Image

    with Image.open(path) as image:
        picture, width = image.convert("RGB"), round(96 * image.width / image.info["dpi"][0])
    if picture.width > MAX_WIDTH:
        picture = picture.resize(
            (MAX_WIDTH, round(picture.height * MAX_WIDTH / picture.width)),
            Image.Resampling.LANCZOS,
        )
    stream = io.BytesIO()
    picture.quantize(MAX_COLOURS).save(stream, "PNG", optimize=True)
    return width, data_uri(stream)


def _describe_part(benchmark: Benchmark, rows: pd.DataFrame) -> dict[str, str]:
    """Name the data sets and entries of a benchmark, and the splits that have rows, for people."""
    present_splits = set(rows["split"].unique())
    total = max(len(benchmark.splits_of(dataset)) for dataset in benchmark.datasets)
    return {
        "Data sets": ", ".join(benchmark.datasets),
        "Methods": ", ".join(benchmark.entries),
        "Splits": f"{total}"
        if len(present_splits) == total
        else f"{len(present_splits)} of {total} ({format_ranges(present_splits)})",
    }


def _group_pictures(folders: Sequence[Path], benchmark: str) -> dict[str, list[Path]]:
    """Group the figures of folders by their heading.

    Of those with one name, take that of the first folder.
    """
    groups: dict[str, list[Path]] = {}
    paths: dict[str, Path] = {}
    for folder in reversed(folders):  # the first folder last: its figures replace the others
        for path in (folder / "figures").glob(f"{benchmark}-*.png"):
            paths[path.name] = path
    for _, path in sorted(paths.items()):
        groups.setdefault(heading_of(path.stem.removeprefix(f"{benchmark}-")), []).append(path)
    return {kind.heading: groups[kind.heading] for kind in FIGURE_KINDS if kind.heading in groups}


def _build_failure_section(failures: Sequence[FailedFits]) -> Section | None:
    lines: list[tuple[str, ...]] = []
    for failure in failures:
        splits = format_ranges({*failure.splits})
        lines.append((failure.cell, failure.stage, splits, f"{failure.fits}", failure.reason))
    title = "Fits that failed, or of which a score could not be computed"
    return (
        Section.of(title, ["Cell", "Fit", "Splits", "Count", "Reason"], lines) if lines else None
    )


def _build_hyperparameter_section(rows: pd.DataFrame, axes: Sequence[str]) -> Section | None:
    lines: list[tuple[str, ...]] = []
    for key, cell_rows in rows.groupby(["dataset", "entry", *axes], sort=False):
        for column, values in cell_rows.filter(regex=f"^{HYPER_PREFIX}").items():
            if values.notna().any():  # all methods share the columns, and each has some of them
                name = str(column).removeprefix(HYPER_PREFIX)
                numbers = (f"{value:.3g}" for value in values.agg(["median", "min", "max"]))
                lines.append((*map(str, key), name, *numbers))
    columns = ["Dataset", "Method", *axes, "Hyper-parameter", "Median", "Least", "Greatest"]
    return Section.of("Hyper-parameters of the final fits", columns, lines) if lines else None


def _format_value(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_format_value(inner)}" for name, inner in value.items())
    return ", ".join(map(_format_value, value)) if isinstance(value, list) else str(value)


def select_errata(papers: Iterable[str]) -> str:
    """Select the sections of the errata about papers, such as ``vifa2023``, as Markdown.

    A comment in each section names its papers.
    """
    # an installed package has the page among its own files, and a checkout among its documentation
    installed = files("bdl") / "errata.md"
    page = installed if installed.is_file() else Path(__file__).parents[2] / "docs" / "errata.md"
    names = set(papers)
    _, *sections = re.split(r"(?m)^(?=## )", page.read_text(encoding="utf-8"))
    chosen = ""
    for section in sections:
        match = _PAPERS_COMMENT.search(section)
        if match and names & set(match[1].split()):
            chosen += _PAPERS_COMMENT.sub("", section)
    return chosen

"""One HTML file of everything that is known of a run: template, style, script, and figures within it."""

import io
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd
import yaml

from bdl.archive import Failure, ResultsFolder
from bdl.archive.frames import folder
from bdl.archive.loading import LoadedResults, load_results
from bdl.errors import InputError
from bdl.metrics import info
from bdl.publishing.outcome import claimed, shown_again
from bdl.reports.claims import claim_sections
from bdl.reports.figures import KINDS, Shown, data_uri, draw_figures, heading_of
from bdl.reports.layout import UNPRINTED, Section, below, sections, shown
from bdl.reports.more_tables import elsewhere_sections, ensemble_sections
from bdl.reports.paired import paired_sections, tally
from bdl.reports.render import STYLES
from bdl.spec import Benchmark, Variant
from bdl.spec.variant import listed
from bdl.store import HYPER

HIDDEN = (
    "spec",
    "fit_hashes",
    "score_hashes",
    "fingerprints",
    "published",
    "posteriors",
    "overlap",
)
"""Parts of the provenance that are not for people."""

SHADES = 96
"""Colours of a figure within a page, which are told apart by eye no more than those of the file
beside it.
"""
WIDEST = 1600
"""Of such a figure, in dots."""

_ABOUT = re.compile(r"<!-- papers: (.*?) -->\n*")


def write_page(asked: Variant, results: Path, target: Path | None = None) -> Path:
    """Write what is known of a run as one HTML file that needs nothing beside it, by default its ``report.html``.

    Its figures are drawn for it; those of posteriors without a store are those of the folder.
    `InputError` as `load_results` says; if no fit is finished; or if the file cannot be written.
    """
    found, place = load_results(asked, results), folder(results, asked)
    path = target or place / "report.html"
    with TemporaryDirectory() as drawn:
        seen = shown_again(found, asked, results)  # refused if no fit is finished
        draw_figures(seen, Path(drawn) / "figures", pdf=False)
        page = _page(_filled(found, seen, [Path(drawn), place]))
    try:
        if target is None:
            place.mkdir(
                parents=True, exist_ok=True
            )  # that of a part of the whole may not be there
        path.write_text(page, encoding="utf-8")
    except OSError as error:
        raise InputError(
            f"cannot write {path}: {error.strerror}; choose another --output"
        ) from None
    return path


def _filled(found: LoadedResults, seen: Shown, places: Sequence[Path]) -> dict[str, Any]:
    cells, benchmark = seen.cells, found.benchmark
    pictures = _pictures(places, benchmark.name)
    with ResultsFolder(found.place, found.made) as here:
        failed, origin = _failures(here.failures()), here.provenance
    compared = seen.benchmark, seen.differences
    pairs = any(difference.n for difference in seen.differences)
    return {
        "benchmark": benchmark,
        "part": _part(seen.benchmark, found.rows),
        "remark": found.banner,
        "command": f"bdl-bench run {found.made.asked}",
        "counts": Counter(
            cell.verdict for cell in cells if info(cell.metric).direction != "ratio"
        ),
        "tables": sections(cells),
        "notes": below(cells),
        "claims": claim_sections(benchmark, claimed(found)),
        "ensembles": ensemble_sections(benchmark, found.rows),
        "elsewhere": elsewhere_sections(benchmark, cells),
        "paired": [tally(*compared), *paired_sections(*compared)] if pairs else [],
        "pictures": {
            kind: [(path.stem, *_embedded(path)) for path in own] for kind, own in pictures.items()
        },
        "failures": failed,
        "hypers": _hypers(found.rows, benchmark.axes),
        "provenance": {
            name: _told(value)
            for name, value in origin.items()
            if name not in HIDDEN and value not in (None, {}, [])
        },
        "errata": errata(paper.paper for paper in benchmark.papers),
        "spec": yaml.safe_dump(
            benchmark.model_dump(mode="json"), sort_keys=False, allow_unicode=True, width=110
        ),
    }


def _page(values: Mapping[str, Any]) -> str:
    """Fill in the template; what is filled in is text, whatever it says."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markdown_it import MarkdownIt
    from markupsafe import Markup

    markdown = MarkdownIt("commonmark", {"html": False}).enable("table")  # tags within it are text
    loader = PackageLoader("bdl.publishing", "parts")
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    environment.filters |= {
        "verdict": _kind,
        "shown": shown,
        "html": lambda text: Markup(markdown.render(text)),
    }
    parts = files("bdl.publishing") / "parts"
    own = {
        name: Markup((parts / f"page.{name}").read_text(encoding="utf-8"))
        for name in ("css", "js")
    }
    return environment.get_template("page.html").render(**own, **values)


def _kind(verdict: str) -> str:
    if UNPRINTED in verdict:
        return "no-paper-value"
    return next((word for word in STYLES if word in verdict), "other").replace(" ", "-")


def _embedded(path: Path) -> tuple[int, str]:
    """Return the width of a picture, at 96 dots an inch, and the picture as a data URI, in fewer colours."""
    from PIL import Image

    with Image.open(path) as image:
        picture, width = image.convert("RGB"), round(96 * image.width / image.info["dpi"][0])
    if picture.width > WIDEST:
        picture = picture.resize(
            (WIDEST, round(picture.height * WIDEST / picture.width)), Image.Resampling.LANCZOS
        )
    stream = io.BytesIO()
    picture.quantize(SHADES).save(stream, "PNG", optimize=True)
    return width, data_uri(stream)


def _part(benchmark: Benchmark, rows: pd.DataFrame) -> dict[str, str]:
    """Name the data sets and entries of a benchmark, and the splits that have rows, for people."""
    have = set(rows["split"].unique())
    total = max(len(benchmark.splits_of(dataset)) for dataset in benchmark.datasets)
    return {
        "Data sets": ", ".join(benchmark.datasets),
        "Methods": ", ".join(benchmark.entries),
        "Splits": f"{total}" if len(have) == total else f"{len(have)} of {total} ({listed(have)})",
    }


def _pictures(places: Sequence[Path], benchmark: str) -> dict[str, list[Path]]:
    """Group the figures of folders by what they show.

    Of those with one name, take that of the first folder.
    """
    groups: dict[str, list[Path]] = {}
    found = {
        path.name: path
        for place in reversed(places)
        for path in (place / "figures").glob(f"{benchmark}-*.png")
    }
    for _, path in sorted(found.items()):
        groups.setdefault(heading_of(path.stem.removeprefix(benchmark)), []).append(path)
    return {kind.heading: groups[kind.heading] for kind in KINDS if kind.heading in groups}


def _failures(found: Sequence[Failure]) -> Section | None:
    lines = [
        (own.cell, own.stage, listed({*own.splits}), f"{own.fits}", own.reason) for own in found
    ]
    title = "Fits that failed, or of which a score could not be computed"
    return (
        Section.of(title, ["Cell", "Fit", "Splits", "Count", "Reason"], lines) if lines else None
    )


def _hypers(rows: pd.DataFrame, axes: Sequence[str]) -> Section | None:
    lines = [
        (
            *map(str, key),
            str(column).removeprefix(HYPER),
            *(f"{value:.3g}" for value in values.agg(["median", "min", "max"])),
        )
        for key, own in rows.groupby(["dataset", "entry", *axes], sort=False)
        for column, values in own.filter(regex=f"^{HYPER}").items()
        if values.notna().any()
    ]
    columns = ["Dataset", "Method", *axes, "Hyper-parameter", "Median", "Least", "Greatest"]
    return Section.of("Hyper-parameters of the final fits", columns, lines) if lines else None


def _told(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_told(part)}" for name, part in value.items())
    return ", ".join(map(_told, value)) if isinstance(value, list) else str(value)


def errata(papers: Iterable[str]) -> str:
    """Return the sections about papers, such as ``vifa2023``, as Markdown.

    A comment in each says which it is about.
    """
    # an installed package has the page among its own files, and a checkout among its documentation
    installed = files("bdl") / "errata.md"
    page = installed if installed.is_file() else Path(__file__).parents[2] / "docs" / "errata.md"
    wanted, (_, *sections) = (
        set(papers),
        re.split(r"(?m)^(?=## )", page.read_text(encoding="utf-8")),
    )
    about = ((section, _ABOUT.search(section)) for section in sections)
    chosen = (section for section, found in about if found and wanted & set(found[1].split()))
    return "".join(_ABOUT.sub("", section) for section in chosen)

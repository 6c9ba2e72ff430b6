"""The page as one file: template, style, script, and figures within it."""

import base64
import io
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bdl.archive.loading import LoadedResults, load_results
from bdl.errors import InputError
from bdl.publishing.errata import errata
from bdl.publishing.outcome import claimed, draw, shown_again
from bdl.publishing.page import content
from bdl.reports import Shown
from bdl.reports.claims import claim_sections
from bdl.reports.layout import UNPRINTED, below, sections, shown
from bdl.reports.more_tables import elsewhere_sections, ensemble_sections
from bdl.reports.render import STYLES
from bdl.spec import Variant
from bdl.store.folder import folder

SHADES = 96
"""Colours of a figure within a page, which are told apart by eye no more than those of the file beside it."""
WIDEST = 1600
"""Of such a figure, in dots."""


def write_page(asked: Variant, results: Path, target: Path | None = None) -> Path:
    """Write what is known of a run as one HTML file that needs nothing beside it.

    Parameters
    ----------
    asked
        Which run, as `load_results` takes it.
    results
        Folder of results.
    target
        The file; by default ``report.html`` in the folder of the run.

    Returns
    -------
    Path
        The file. Its figures are drawn for it; those of posteriors without a store are those of the folder.

    Raises
    ------
    InputError
        As `load_results` says; if no fit is finished; or if the file cannot be written.
    """
    found, place = load_results(asked, results), folder(results, asked)
    path = target or place / "report.html"
    with TemporaryDirectory() as drawn:
        seen = shown_again(found, asked, results)  # refused if no fit is finished
        draw(found, seen, Path(drawn))
        page = _page(_filled(found, seen, [Path(drawn), place]))
    try:
        if target is None:
            place.mkdir(parents=True, exist_ok=True)  # that of a part of the whole may not be there
        path.write_text(page, encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}; choose another --output") from None
    return path


def _filled(found: LoadedResults, seen: Shown, places: Sequence[Path]) -> dict[str, Any]:
    """Return what the template names: results, and the figures of folders."""
    cells, benchmark = seen.cells, found.benchmark
    pictures = content.pictures(places, benchmark.name)
    return {
        "benchmark": benchmark,
        "part": content.part(seen.benchmark, found.rows),
        "remark": found.banner,
        "command": f"bdl-bench run {found.made.asked}",
        "counts": content.verdicts(cells),
        "tables": sections(cells),
        "notes": below(cells),
        "claims": claim_sections(benchmark, claimed(found)),
        "ensembles": ensemble_sections(benchmark, found.rows),
        "elsewhere": elsewhere_sections(benchmark, cells),
        "paired": content.paired(seen.benchmark, seen.differences),
        "pictures": {kind: [(path.stem, *_embedded(path)) for path in own] for kind, own in pictures.items()},
        "failures": content.failures(content.problems(found)),
        "hypers": content.hypers(found.rows, benchmark.axes),
        "provenance": content.provenance(found.place),
        "errata": _html(errata(paper.paper for paper in benchmark.papers)),
        "spec": content.spec(found),
    }


def _page(values: Mapping[str, Any]) -> str:
    """Fill in the template; what is filled in is text, whatever it says."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    loader = PackageLoader("bdl.publishing.page", "parts")
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    environment.filters |= {"verdict": _kind, "shown": shown}
    parts = files("bdl.publishing.page") / "parts"
    own = {name: Markup((parts / f"page.{name}").read_text(encoding="utf-8")) for name in ("css", "js")}
    return environment.get_template("page.html").render(**own, **values)


def _kind(verdict: str) -> str:
    """Name the class of a verdict as tables show it."""
    if UNPRINTED in verdict:
        return "no-paper-value"
    return next((word for word in STYLES if word in verdict), "other").replace(" ", "-")


def _html(text: str) -> Any:
    """Write Markdown of ours as HTML; tags within it are text."""
    from markdown_it import MarkdownIt
    from markupsafe import Markup

    return Markup(MarkdownIt("commonmark", {"html": False}).enable("table").render(text))


def _embedded(path: Path) -> tuple[int, str]:
    """Return the width of a picture, at 96 dots an inch, and the picture as a data URI, in fewer colours."""
    from PIL import Image

    with Image.open(path) as image:
        picture, width = image.convert("RGB"), round(96 * image.width / image.info["dpi"][0])
    if picture.width > WIDEST:
        picture = picture.resize((WIDEST, round(picture.height * WIDEST / picture.width)), Image.Resampling.LANCZOS)
    stream = io.BytesIO()
    picture.quantize(SHADES).save(stream, "PNG", optimize=True)
    return width, f"data:image/png;base64,{base64.b64encode(stream.getvalue()).decode()}"

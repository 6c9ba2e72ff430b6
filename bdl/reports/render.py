"""Comparison tables for people and for machines."""

import csv
import io
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, fields

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from bdl.errors import unknown
from bdl.reports.compare import Cell
from bdl.reports.latex import to_latex
from bdl.reports.layout import FAILED_AS_WORST, SUPERSCRIPT, Section, chance, footnotes, sections

STYLES = {
    "match": "green",
    "no difference shown": "dim",
    "better": "bold cyan",
    "worse": "bold red",
    "failed": "bold red",
    "faster": "cyan",
    "slower": "yellow",
    "differs": "bold yellow",
    "print in error": "cyan",
}
GROUPED = ("Dataset", "Metric")
"""First columns whose texts have lines of their own in the terminal."""


def render(cells: Sequence[Cell], format: str) -> RenderableType:
    """Render a comparison.

    Parameters
    ----------
    cells
        As `bdl.reports.compare` returns them.
    format
        ``"rich"``, ``"markdown"``, ``"csv"``, ``"latex"`` (needs the package booktabs) or ``"json"``.

    Returns
    -------
    rich renderable
        Tables for a `rich` console, or for every other format a str that ends with a newline.

    Raises
    ------
    InputError
        If there is no such format.
    """
    if format not in FORMATS:
        raise unknown("format", format, FORMATS)
    return FORMATS[format](cells)


def to_rich(cells: Sequence[Cell]) -> Group:
    """Build one coloured table a metric, and below the notes and what chance does."""
    notes = [Text(f"{mark} {note}", style="dim") for mark, note in _numbered(cells)]
    notes += [Text(line, style="dim") for line in _last(cells)]
    blocks = [Padding(rich_table(section), (0, 0, 1, 0)) for section in sections(cells)]
    return Group(*blocks, *notes)


def to_markdown(cells: Sequence[Cell]) -> str:
    """Write one pipe table a metric, and below the notes and what chance does."""
    blocks = [markdown_table(section) for section in sections(cells)]
    blocks += [f"{mark} {markdown(note)}\n" for mark, note in _numbered(cells)]
    blocks += [f"{markdown(line)}\n" for line in _last(cells)]
    return "\n".join(blocks)


def to_csv(cells: Sequence[Cell]) -> str:
    """Write one line a cell under the names of its fields; an absent value is empty."""
    stream = io.StringIO()
    writer = csv.DictWriter(stream, [field.name for field in fields(Cell)], lineterminator="\n")
    writer.writeheader()
    for cell in cells:
        own = {
            "note": (cell.note or "").replace("\n", " "),
            "point": json.dumps(dict(cell.point)) if cell.point else "",
        }
        writer.writerow(asdict(cell) | own)
    return stream.getvalue()


def to_json(cells: Sequence[Cell]) -> str:
    """Write a list of objects, one a cell with the names of its fields; an absent value is null."""
    return json.dumps([asdict(cell) for cell in cells], indent=2, allow_nan=False, ensure_ascii=False) + "\n"


FORMATS: dict[str, Callable[[Sequence[Cell]], RenderableType]] = {
    "rich": to_rich,
    "markdown": to_markdown,
    "csv": to_csv,
    "latex": to_latex,
    "json": to_json,
}
"""Format to its renderer."""


def _numbered(cells: Sequence[Cell]) -> list[tuple[str, str]]:
    return [(str(number).translate(SUPERSCRIPT), note) for number, note in enumerate(footnotes(cells), start=1)]


def _last(cells: Sequence[Cell]) -> list[str]:
    line = chance(cells)
    return [line] if line else []


def rich_table(section: Section) -> Table:
    """Build a table that gives each dataset of several rows a line of its own, which saves a column."""
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    table.title, table.title_style, table.title_justify = Text(section.title), "bold", "left"
    start = int(section.columns[0].title in GROUPED)
    firsts = list(dict.fromkeys(row[0] for row in section.rows)) if start else [None]
    for column in section.columns[start:]:
        wraps = column.title in ("Verdict", FAILED_AS_WORST, "Told from") or "±" in column.title
        table.add_column(Text(column.title), justify=column.align, no_wrap=not wraps, overflow="fold")
    for first in firsts:
        if first is not None:
            table.add_row(Text(first, "bold"))
        for row in (row for row in section.rows if first in (None, row[0])):
            table.add_row(*_texts(section, row)[start:])
        table.add_section()
    return table


def _texts(section: Section, row: Sequence[str]) -> list[Text]:
    quiet = {} if section.judged else {"Paper ± SE": "dim", "Paper": "dim"}
    titles = [column.title for column in section.columns]
    styles = [
        _style(text) if title == "Verdict" else quiet.get(title, "") for title, text in zip(titles, row, strict=True)
    ]
    return [Text(text, style) for text, style in zip(row, styles, strict=True)]


def _style(verdict: str) -> str:
    return next((style for word, style in STYLES.items() if word in verdict), "dim")


def markdown_table(section: Section) -> str:
    """Write a title and a pipe table."""
    rule = ["---:" if column.align == "right" else ":---" for column in section.columns]
    titles = [markdown(column.title) for column in section.columns]
    lines = [titles, rule, *([markdown(text) for text in row] for row in section.rows)]
    table = "".join(f"| {' | '.join(line)} |\n" for line in lines)
    return f"**{markdown(section.title)}**\n\n{table}"


def markdown(text: str) -> str:
    """Escape for Markdown."""
    return re.sub(r"([\\|*_`<>\[\]])", r"\\\1", text)

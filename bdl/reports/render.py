"""Comparison tables for people and for machines."""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, fields

from rich.box import SIMPLE_HEAD
from rich.console import Group, JustifyMethod, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from bdl.errors import unknown
from bdl.reports.compare import Cell
from bdl.reports.latex import to_latex
from bdl.reports.layout import FAILED_AS_WORST, Section, below, sections

STYLES = {
    "match": "green",
    "no difference shown": "dim",
    "better": "bold cyan",
    "worse": "bold red",
    "failed": "bold red",
    "confirmed": "green",
    "contradicted": "bold red",
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
    blocks = [Padding(rich_table(section), (0, 0, 1, 0)) for section in sections(cells)]
    return Group(*blocks, *(Text(line, style="dim") for line in below(cells)))


def to_markdown(cells: Sequence[Cell]) -> str:
    """Write one pipe table a metric, and below the notes and what chance does."""
    return "\n".join([*map(markdown_table, sections(cells)), *(f"{markdown(line)}\n" for line in below(cells))])


def to_csv(cells: Sequence[Cell]) -> str:
    """Write one line a cell under the names of its fields; an absent value is empty."""
    import pandas as pd

    table = pd.DataFrame([asdict(cell) for cell in cells], columns=[field.name for field in fields(Cell)])
    table["note"] = [(cell.note or "").replace("\n", " ") for cell in cells]
    table["point"] = [json.dumps(dict(cell.point)) if cell.point else "" for cell in cells]
    return str(table.to_csv(index=False, lineterminator="\n"))


def to_json(cells: Sequence[Cell]) -> str:
    """Write a list of objects, one a cell with the names of its fields; an absent value is null.

    Numbers have ten digits: processors differ in the last of those that a float has, and a table is the same on all.
    """
    table = [{name: _ten_digits(value) for name, value in asdict(cell).items()} for cell in cells]
    return json.dumps(table, indent=2, allow_nan=False, ensure_ascii=False) + "\n"


def _ten_digits(value: object) -> object:
    return float(f"{value:.10g}") if isinstance(value, float) else value


def with_sections(shown: RenderableType, own: Sequence[Section], format: str) -> RenderableType:
    """Add tables below what `render` gives in a format of `SECTIONS`."""
    if not own:
        return shown
    if format == "rich":
        return Group(shown, *(Padding(rich_table(section), (1, 0, 0, 0)) for section in own))
    return "\n".join([str(shown), *map(markdown_table, own)])


SECTIONS = ("rich", "markdown")
"""Formats that have more tables than those of metrics."""

FORMATS: dict[str, Callable[[Sequence[Cell]], RenderableType]] = {
    "rich": to_rich,
    "markdown": to_markdown,
    "csv": to_csv,
    "latex": to_latex,
    "json": to_json,
}
"""Format to its renderer."""


def rich_table(section: Section) -> Table:
    """Build a table that gives each dataset of several rows a line of its own, which saves a column."""
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    table.title, table.title_style, table.title_justify = Text(section.title), "bold", "left"
    start = int(section.table.columns[0] in GROUPED)
    for title, side in section.columns[start:]:
        wraps = title in ("Verdict", FAILED_AS_WORST, "Told from") or "±" in title
        justify: JustifyMethod = "left" if side == "left" else "right"
        table.add_column(Text(title), justify=justify, no_wrap=not wraps, overflow="fold")
    rows = section.rows
    firsts = list(dict.fromkeys(row[0] for row in rows)) if start else [None]
    for first in firsts:
        if first is not None:
            table.add_row(Text(first, "bold"))
        for row in (row for row in rows if first in (None, row[0])):
            table.add_row(*_texts(section, row)[start:])
        table.add_section()
    return table


def _texts(section: Section, row: Sequence[str]) -> list[Text]:
    quiet = {} if section.judged else {"Paper ± SE": "dim", "Paper": "dim"}
    styles = [
        _style(text) if title == "Verdict" else quiet.get(title, "")
        for title, text in zip(section.table.columns, row, strict=True)
    ]
    return [Text(text, style) for text, style in zip(row, styles, strict=True)]


def _style(verdict: str) -> str:
    return next((style for word, style in STYLES.items() if word in verdict), "dim")


def markdown_table(section: Section) -> str:
    """Write a title and a pipe table."""
    rule = ["---:" if side == "right" else ":---" for _, side in section.columns]
    lines = [*map(markdown, section.table.columns)], rule, *(map(markdown, row) for row in section.rows)
    table = "".join(f"| {' | '.join(line)} |\n" for line in lines)
    return f"**{markdown(section.title)}**\n\n{table}"


def markdown(text: str) -> str:
    """Escape for Markdown."""
    return re.sub(r"([\\|*_`<>\[\]])", r"\\\1", text)

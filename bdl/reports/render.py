"""Comparison tables for people and for machines."""

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, fields, replace

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, JustifyMethod, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from bdl.errors import unknown_name_error
from bdl.reports import intervals, verdicts
from bdl.reports.comparison import TableEntry
from bdl.reports.latex import to_latex
from bdl.reports.layout import FAILED_AS_WORST, Section, lines_below_tables, metric_sections
from bdl.reports.statistics import group_by

STYLES = {
    verdicts.SAME_DIGITS: "bold green",
    verdicts.EQUIVALENT: "green",
    verdicts.CONSISTENT: "green",
    verdicts.UNSETTLED: "dim",
    verdicts.GIVEN: "dim",
    intervals.BETTER: "bold cyan",
    intervals.WORSE: "bold red",
    verdicts.FAILED: "bold red",
    "confirmed": "green",
    "contradicted": "bold red",
    "faster": "cyan",
    "slower": "yellow",
    intervals.DIFFERS: "bold yellow",
    verdicts.IN_ERROR: "cyan",
}
"""Style of texts on a console by a word of the verdict in them; the first that is there counts."""

_WIDEST = 1000
"""Columns of a console that is wider than any table."""
FORMATS = ("rich", "markdown", "csv", "latex", "json")
FORMATS_WITH_SECTIONS = ("rich", "markdown")
"""Formats that have more tables than those of metrics."""


def render(
    cells: Sequence[TableEntry],
    format: str,
    remark: str = "",
    extra_sections: Sequence[Section] = (),
    *,
    with_notes: bool = True,
) -> RenderableType:
    """Render a comparison as tables for a `rich` console, or as text that ends with a newline.

    A remark stands at the head, and in formats that have none among the notes of every cell;
    formats of `FORMATS_WITH_SECTIONS` have more tables at the end. Tables for a console may be
    without notes; `measure_tables` returns the width that they need. LaTeX needs the packages
    booktabs and adjustbox. `InputError` if there is no such format.
    """
    if format not in FORMATS:
        raise unknown_name_error("format", format, FORMATS)
    if format == "rich":
        head = [Text(remark, style="bold yellow"), Text()] if remark else []
        tables = [Padding(rich_table(section), (0, 0, 1, 0)) for section in metric_sections(cells)]
        lines = lines_below_tables(cells) if with_notes else []
        notes = [Text(line, style="dim") for line in lines]
        return Group(
            *head,
            *tables,
            *notes,
            *(Padding(rich_table(section), (1, 0, 0, 0)) for section in extra_sections),
        )
    if format == "markdown":
        lines = [f"**{markdown(remark)}**\n"] if remark else []
        lines += [
            *map(markdown_table, metric_sections(cells)),
            *(f"{markdown(line)}\n" for line in lines_below_tables(cells)),
        ]
        return "\n".join([*lines, *map(markdown_table, extra_sections)])
    if remark:
        cells = [
            replace(cell, note="\n".join(filter(None, (remark, cell.note)))) for cell in cells
        ]
    return {"csv": to_csv, "latex": to_latex, "json": to_json}[format](cells)


def measure_tables(rendered: RenderableType) -> int:
    """Return the width of a console in which no cell of the tables of `render` is broken."""
    console = Console(width=_WIDEST)
    members = rendered.renderables if isinstance(rendered, Group) else []
    tables = [member for member in members if isinstance(member, Padding)]
    return max((console.measure(table).maximum for table in tables), default=0)


def to_csv(cells: Sequence[TableEntry]) -> str:
    """Write one line a cell under the names of its fields; an absent value is empty."""
    import pandas as pd

    table = pd.DataFrame(
        [asdict(cell) for cell in cells], columns=[field.name for field in fields(TableEntry)]
    )
    table["note"] = [(cell.note or "").replace("\n", " ") for cell in cells]
    table["point"] = [json.dumps(dict(cell.point)) if cell.point else "" for cell in cells]
    return str(table.to_csv(index=False, lineterminator="\n"))


def to_json(cells: Sequence[TableEntry]) -> str:
    """Write a list of objects, one a cell with the names of its fields; an absent value is null.

    Numbers have ten digits: processors differ in the last of those that a float has, and a table
    is the same on all.
    """

    def shorter(value: object) -> object:
        return float(f"{value:.10g}") if isinstance(value, float) else value

    table = [{name: shorter(value) for name, value in asdict(cell).items()} for cell in cells]
    return json.dumps(table, indent=2, allow_nan=False, ensure_ascii=False) + "\n"


def rich_table(section: Section) -> Table:
    """Build a table for a console.

    Rows are grouped by data set or metric, which has a line of its own rather than a column.
    """
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    table.title, table.title_style, table.title_justify = Text(section.title), "bold", "left"
    grouped_rows = section.table.columns[0] in ("Dataset", "Metric")
    start = 1 if grouped_rows else 0
    for title, side in section.columns[start:]:
        wraps = title in ("Verdict", FAILED_AS_WORST, "Differs from") or "±" in title
        justify: JustifyMethod = "left" if side == "left" else "right"
        table.add_column(Text(title), justify=justify, no_wrap=not wraps, overflow="fold")
    groups = group_by(section.rows, lambda row: row[0] if grouped_rows else "")
    for name, rows in groups.items():
        if grouped_rows:
            table.add_row(Text(name, "bold"))
        for row in rows:
            table.add_row(*_texts(section, row)[start:])
        table.add_section()
    return table


def find_style(verdict: str) -> str:
    """Return the style of a verdict on a console."""
    return next((style for word, style in STYLES.items() if word in verdict), "dim")


def _texts(section: Section, row: Sequence[str]) -> list[Text]:
    quiet = {} if section.has_verdicts else {"Paper ± SE": "dim", "Paper": "dim"}
    texts = []
    for title, text in zip(section.table.columns, row, strict=True):
        verdict = find_style(text)
        texts.append(Text(text, verdict if title == "Verdict" else quiet.get(title, "")))
    return texts


def markdown_table(section: Section) -> str:
    """Write a title and a pipe table."""
    rule = ["---:" if side == "right" else ":---" for _, side in section.columns]
    lines = (
        [*map(markdown, section.table.columns)],
        rule,
        *(map(markdown, row) for row in section.rows),
    )
    table = "".join(f"| {' | '.join(line)} |\n" for line in lines)
    return f"**{markdown(section.title)}**\n\n{table}"


def markdown(text: str) -> str:
    """Escape for Markdown."""
    return re.sub(r"([\\|*_`<>\[\]])", r"\\\1", text)

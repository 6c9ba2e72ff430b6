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
from bdl.reports.layout import FAILED_AS_WORST, SUPERSCRIPT, Section, chance, footnotes, sections

STYLES = {
    "match": "green",
    "better": "bold cyan",
    "worse": "bold red",
    "failed": "bold red",
    "faster": "cyan",
    "slower": "yellow",
    "differs": "bold yellow",
    "print in error": "cyan",
}
LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "↓": r"$\downarrow$",
    "↑": r"$\uparrow$",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    **{mark: rf"\textsuperscript{{{digit}}}" for digit, mark in enumerate("⁰¹²³⁴⁵⁶⁷⁸⁹")},
    **{char: f"\\{char}" for char in "&%$#_{}"},
}


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
    blocks = [Padding(_rich_table(section), (0, 0, 1, 0)) for section in sections(cells)]
    return Group(*blocks, *notes)


def to_markdown(cells: Sequence[Cell]) -> str:
    """Write one pipe table a metric, and below the notes and what chance does."""
    blocks = [_markdown_table(section) for section in sections(cells)]
    blocks += [f"{mark} {_markdown(note)}\n" for mark, note in _numbered(cells)]
    blocks += [f"{_markdown(line)}\n" for line in _last(cells)]
    return "\n".join(blocks)


def to_latex(cells: Sequence[Cell]) -> str:
    """Write one booktabs tabular a metric, and below the notes and what chance does."""
    blocks = [_latex_table(section) for section in sections(cells)]
    blocks += [rf"\par{{\footnotesize {_latex(mark)}~{_latex(note)}\par}}" + "\n" for mark, note in _numbered(cells)]
    blocks += [rf"\par{{\footnotesize {_latex(line)}\par}}" + "\n" for line in _last(cells)]
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


def _rich_table(section: Section) -> Table:
    """Build a table that gives each dataset a line of its own, which saves a column on narrow terminals."""
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    table.title, table.title_justify = Text(section.title, "bold"), "left"
    judged = [column.title == "Verdict" for column in section.columns]
    for column in section.columns[1:]:
        wraps = column.title in ("Verdict", FAILED_AS_WORST) or "±" in column.title
        table.add_column(Text(column.title), justify=column.align, no_wrap=not wraps, overflow="fold")
    for dataset in dict.fromkeys(row[0] for row in section.rows):
        table.add_row(Text(dataset, "bold"))
        for row in (row for row in section.rows if row[0] == dataset):
            texts = [Text(text, _style(text) if judge else "") for text, judge in zip(row, judged, strict=True)]
            table.add_row(*texts[1:])
        table.add_section()
    return table


def _style(verdict: str) -> str:
    return next((style for word, style in STYLES.items() if word in verdict), "dim")


def _markdown_table(section: Section) -> str:
    rule = ["---:" if column.align == "right" else ":---" for column in section.columns]
    titles = [_markdown(column.title) for column in section.columns]
    lines = [titles, rule, *([_markdown(text) for text in row] for row in section.rows)]
    table = "".join(f"| {' | '.join(line)} |\n" for line in lines)
    return f"**{_markdown(section.title)}**\n\n{table}"


def _markdown(text: str) -> str:
    return re.sub(r"([\\|*_`<>\[\]])", r"\\\1", text)


def _latex_table(section: Section) -> str:
    width = len(section.columns)
    lines = [
        rf"\begin{{tabular}}{{{''.join(column.align[0] for column in section.columns)}}}",
        r"\toprule",
        rf"\multicolumn{{{width}}}{{l}}{{{_latex(section.title)}}} \\",
        r"\midrule",
        " & ".join(_latex(column.title) for column in section.columns) + r" \\",
        r"\midrule",
        *(" & ".join(_latex(text) for text in row) + r" \\" for row in section.rows),
        r"\bottomrule",
        r"\end{tabular}",
    ]
    return "\n".join(lines) + "\n"


def _latex(text: str) -> str:
    """Escape for LaTeX; a leading hyphen before a digit is a minus sign."""
    escaped = "".join(LATEX.get(char, char) for char in text)
    return re.sub(r"^-(?=\d)", "$-$", escaped)

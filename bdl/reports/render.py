"""Comparison tables for people, for machines, and for articles, as wide as their text."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields, replace

from rich.box import SIMPLE_HEAD
from rich.console import Group, JustifyMethod, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from bdl.errors import unknown
from bdl.metrics import info
from bdl.reports import Cell
from bdl.reports.layout import (
    FAILED_AS_WORST,
    Section,
    below,
    by_metric,
    footnotes,
    heading,
    marked,
    matches,
    notes_of,
    ours,
    printed,
    sections,
    shared_notes,
)
from bdl.reports.statistics import named
from bdl.reports.verdicts import FEWEST, reach

ESCAPES = {
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
TEXT_WIDTH, LETTER, GAP = 345.0, 4.6, 8.0
"""In points: of the text of an article; of a letter of footnote size, on the safe side; between
columns.
"""
SIGNS = {"match": "=", "better": "+", "worse": "$-$", "differs": r"$\neq$", "print in error": "!"}
"""What stands for a verdict beside a printed number."""

Sized = tuple[str, int]  # LaTeX, and how many letters wide it is


def to_latex(cells: Sequence[Cell]) -> str:
    """Write a floating table a metric, which needs the package booktabs, and below the notes and what chance does.

    Means are in a column a data set (and point of a sweep) and a row a method, with the printed
    ones below; those that are best are bold. Columns that do not fit beside each other follow
    below.
    """
    means = [[cell for cell in group if cell.statistic == "mean"] for group in by_metric(cells)]
    flat = [cell for group in means for cell in group]
    numbers = {note: number for number, note in enumerate(footnotes(flat), 1)}
    blocks = [_table(group, numbers) for group in means]
    return "\n".join(
        [*blocks, *(rf"\par{{\footnotesize {escape(line)}\par}}" + "\n" for line in below(flat))]
    )


def escape(text: str) -> str:
    """Escape for LaTeX; a hyphen before a digit that begins a word is a minus sign."""
    escaped = "".join(ESCAPES.get(char, char) for char in text)
    return re.sub(r"(^|(?<= ))-(?=\d)", "$-$", escaped)


def best(cells: Sequence[Cell]) -> list[Cell]:
    """Choose the best of one column, and those whose 95 % interval overlaps its own.

    Left out are numbers that say nothing by themselves, as their interval reaches zero, and those
    of entries of which fits failed; of metrics without a better and a worse, all.
    """
    direction = info(cells[0].metric).direction
    spans = [
        (cell, *_interval(cell)) for cell in cells if cell.ours is not None and not cell.n_failed
    ]
    spans = [(cell, low, high) for cell, low, high in spans if low == high or not low <= 0 <= high]
    if not spans or direction == "none":
        return []
    _, low, high = min(
        spans, key=lambda span: (span[1] + span[2]) * (-1 if direction == "higher" else 1)
    )
    return [cell for cell, bottom, top in spans if bottom <= high and low <= top]


def _interval(cell: Cell) -> tuple[float, float]:
    """Return the ends of the 95 % interval; of fewer than three splits, the number itself."""
    assert cell.ours is not None
    half = (
        reach(cell.ours_se, cell.n_trials - 1)
        if cell.ours_se is not None and cell.n_trials >= FEWEST
        else 0.0
    )
    return cell.ours - half, cell.ours + half


def _table(cells: Sequence[Cell], numbers: Mapping[str, int]) -> str:
    common = shared_notes(cells)
    columns: dict[str, dict[str, Cell]] = {}
    for cell in cells:
        columns.setdefault(" ".join(filter(None, (cell.dataset, named(cell.point)))), {})[
            cell.method
        ] = cell
    bold = [cell for own in columns.values() for cell in best(list(own.values()))]
    lines: list[list[Sized]] = [
        [("Method", 6), *((escape(title), len(title)) for title in columns)]
    ]
    for method in dict.fromkeys(cell.method for cell in cells):
        lines += _lines(
            method, [own.get(method) for own in columns.values()], bold, common, numbers
        )
    caption = marked(
        f"{cells[0].benchmark}: {heading(cells[0].metric)}{matches(cells)}", common, numbers
    )
    label = re.sub(r"[^\w-]|_", "-", f"{cells[0].benchmark}-{cells[0].metric}")
    return (
        "\\begin{table}\n\\centering\n"
        rf"\caption{{{escape(caption)}{_caption(cells)}}}" + "\n"
        rf"\label{{tab:{label}}}" + "\n"
        rf"\footnotesize\setlength{{\tabcolsep}}{{{GAP / 2:g}pt}}"
        + "\n"
        + "\n".join(_body(lines))
        + "\n"
        "\\end{table}\n"
    )


def _caption(cells: Sequence[Cell]) -> str:
    text = r". Mean $\pm$ standard error; the best is bold, with all whose 95\,\% intervals overlap its own."
    if info(cells[0].metric).direction == "none":
        text = r". Mean $\pm$ standard error."
    used = [
        f"{sign} {verdict}"
        for verdict, sign in SIGNS.items()
        if any(cell.verdict == verdict for cell in cells)
    ]
    if any(cell.paper is not None for cell in cells):
        text += " Below, as printed" + (f" ({', '.join(used)})." if used else ".")
    return text


def _lines(
    method: str,
    row: Sequence[Cell | None],
    bold: Sequence[Cell],
    common: set[str],
    numbers: Mapping[str, int],
) -> list[list[Sized]]:
    own = shared_notes(cell for cell in row if cell)
    name = marked(method, own - common, numbers)
    first: list[Sized] = [(escape(name), len(name))]
    second: list[Sized] = [(r"\quad printed", 9)]
    for cell in row:
        plain = (
            marked(ours(cell) or cell.verdict, {*notes_of(cell)} - own, numbers) if cell else ""
        )
        first.append(
            (rf"\textbf{{{escape(plain)}}}" if cell in bold else escape(plain), len(plain))
        )
        sign = SIGNS.get(cell.verdict, "") if cell and cell.paper is not None else ""
        print_ = printed(cell) if cell else ""
        second.append(
            (
                escape(print_) + (rf"\textsuperscript{{{sign}}}" if sign else ""),
                len(print_) + bool(cell),
            )
        )
    return [first, second] if any(cell and cell.paper is not None for cell in row) else [first]


def _body(lines: Sequence[Sequence[Sized]]) -> list[str]:
    """Break the columns into as few blocks as fit the text, one below the other."""
    count = len(lines[0]) - 1
    across = next((k for k in range(count, 1, -1) if _width(lines, k) <= TEXT_WIDTH), 1)
    body = [rf"\begin{{tabular}}{{l{'r' * across}}}", r"\toprule"]
    for start in range(1, count + 1, across):
        body += [r"\midrule"] * (start > 1)
        for number, line in enumerate(lines):
            texts = [text for text, _ in (line[0], *line[start : start + across])]
            if number == 0 or any(texts[1:]):
                body.append(" & ".join(texts + [""] * (across + 1 - len(texts))) + r" \\")
            body += [r"\midrule"] * (number == 0)
    return [*body, r"\bottomrule", r"\end{tabular}"]


def _width(lines: Sequence[Sequence[Sized]], across: int) -> float:
    letters = max(line[0][1] for line in lines)
    letters += sum(
        max(own for line in lines for _, own in line[1 + place :: across])
        for place in range(across)
    )
    return letters * LETTER + across * GAP


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


FORMATS = ("rich", "markdown", "csv", "latex", "json")
SECTIONS = ("rich", "markdown")
"""Formats that have more tables than those of metrics."""


def render(
    cells: Sequence[Cell], format: str, remark: str = "", more: Sequence[Section] = ()
) -> RenderableType:
    """Render a comparison: tables for a `rich` console, or for every other format a str that ends with a newline.

    A remark stands at the head, and in formats that have none among the notes of every cell;
    formats of `SECTIONS` have more tables at the end. LaTeX needs the package booktabs.
    `InputError` if there is no such format.
    """
    if format not in FORMATS:
        raise unknown("format", format, FORMATS)
    if format == "rich":
        head = [Text(remark, style="bold yellow"), Text()] if remark else []
        tables = [Padding(rich_table(section), (0, 0, 1, 0)) for section in sections(cells)]
        notes = [Text(line, style="dim") for line in below(cells)]
        return Group(
            *head,
            *tables,
            *notes,
            *(Padding(rich_table(section), (1, 0, 0, 0)) for section in more),
        )
    if format == "markdown":
        lines = [f"**{markdown(remark)}**\n"] if remark else []
        lines += [
            *map(markdown_table, sections(cells)),
            *(f"{markdown(line)}\n" for line in below(cells)),
        ]
        return "\n".join([*lines, *map(markdown_table, more)])
    if remark:
        cells = [
            replace(cell, note="\n".join(filter(None, (remark, cell.note)))) for cell in cells
        ]
    return {"csv": to_csv, "latex": to_latex, "json": to_json}[format](cells)


def to_csv(cells: Sequence[Cell]) -> str:
    """Write one line a cell under the names of its fields; an absent value is empty."""
    import pandas as pd

    table = pd.DataFrame(
        [asdict(cell) for cell in cells], columns=[field.name for field in fields(Cell)]
    )
    table["note"] = [(cell.note or "").replace("\n", " ") for cell in cells]
    table["point"] = [json.dumps(dict(cell.point)) if cell.point else "" for cell in cells]
    return str(table.to_csv(index=False, lineterminator="\n"))


def to_json(cells: Sequence[Cell]) -> str:
    """Write a list of objects, one a cell with the names of its fields; an absent value is null.

    Numbers have ten digits: processors differ in the last of those that a float has, and a table
    is the same on all.
    """

    def shorter(value: object) -> object:
        return float(f"{value:.10g}") if isinstance(value, float) else value

    table = [{name: shorter(value) for name, value in asdict(cell).items()} for cell in cells]
    return json.dumps(table, indent=2, allow_nan=False, ensure_ascii=False) + "\n"


def rich_table(section: Section) -> Table:
    """Build a table that gives each dataset of several rows a line of its own, which saves a column."""
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    table.title, table.title_style, table.title_justify = Text(section.title), "bold", "left"
    start = int(
        section.table.columns[0] in ("Dataset", "Metric")
    )  # texts that have lines of their own
    for title, side in section.columns[start:]:
        wraps = title in ("Verdict", FAILED_AS_WORST, "Told from") or "±" in title
        justify: JustifyMethod = "left" if side == "left" else "right"
        table.add_column(Text(title), justify=justify, no_wrap=not wraps, overflow="fold")
    for first in list(dict.fromkeys(row[0] for row in section.rows)) if start else [None]:
        if first is not None:
            table.add_row(Text(first, "bold"))
        for row in (row for row in section.rows if first in (None, row[0])):
            table.add_row(*_texts(section, row)[start:])
        table.add_section()
    return table


def _texts(section: Section, row: Sequence[str]) -> list[Text]:
    quiet = {} if section.judged else {"Paper ± SE": "dim", "Paper": "dim"}
    texts = []
    for title, text in zip(section.table.columns, row, strict=True):
        verdict = next((style for word, style in STYLES.items() if word in text), "dim")
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

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

from bdl.errors import unknown_name_error
from bdl.metrics import info
from bdl.reports import TableEntry
from bdl.reports.layout import (
    FAILED_AS_WORST,
    Section,
    estimate_text,
    footnotes,
    group_by_metric,
    lines_below_tables,
    margin_text,
    metric_heading,
    metric_sections,
    notes_of,
    printed_text,
    shared_notes,
    with_note_marks,
)
from bdl.reports.statistics import group_by, point_text
from bdl.reports.verdicts import MIN_SPLITS, interval_half_width

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
"""Widths in points: of the text of an article, of a letter of footnote size (rather too wide than
too narrow), and of the gap between columns.
"""
SIGNS = {"match": "=", "better": "+", "worse": "$-$", "differs": r"$\neq$", "print in error": "!"}
"""Superscript of a printed number for each verdict."""

SizedText = tuple[str, int]
"""LaTeX, and its width in letters."""


def to_latex(cells: Sequence[TableEntry]) -> str:
    """Write a floating table a metric, and the notes below; it needs the package booktabs.

    Means are in a column a data set (and point of a sweep) and a row a method, with the printed
    ones below; those that are best are bold. Columns that do not fit side by side follow below.
    """
    means = [cell for cell in cells if cell.statistic == "mean"]
    numbers = {note: number for number, note in enumerate(footnotes(means), 1)}
    blocks = [_table(metric_means, numbers) for metric_means in group_by_metric(means)]
    blocks += [
        rf"\par{{\footnotesize {escape(line)}\par}}" + "\n" for line in lines_below_tables(means)
    ]
    return "\n".join(blocks)


def escape(text: str) -> str:
    """Escape for LaTeX; a hyphen before a digit that begins a word is a minus sign."""
    escaped = "".join(ESCAPES.get(char, char) for char in text)
    return re.sub(r"(^|(?<= ))-(?=\d)", "$-$", escaped)


def select_best(cells: Sequence[TableEntry]) -> list[TableEntry]:
    """Choose the best of one column, and those whose 95 % interval overlaps its own.

    Left out are numbers whose interval holds zero, which say nothing by themselves, and those of
    entries of which fits failed; of metrics without a better and a worse, all.
    """
    direction = info(cells[0].metric).direction
    if direction == "none":
        return []
    intervals: list[tuple[TableEntry, float, float]] = []
    for cell in cells:
        if cell.ours is None or cell.n_failed:
            continue
        low, high = _interval(cell)
        if low == high or not low <= 0 <= high:
            intervals.append((cell, low, high))
    if not intervals:
        return []
    sign = -1 if direction == "higher" else 1
    _, best_low, best_high = min(
        intervals, key=lambda interval: (interval[1] + interval[2]) * sign
    )
    return [cell for cell, low, high in intervals if low <= best_high and best_low <= high]


def _interval(cell: TableEntry) -> tuple[float, float]:
    """Return the ends of the 95 % interval; of fewer than three splits, the number itself."""
    assert cell.ours is not None
    if cell.ours_se is None or cell.n_trials < MIN_SPLITS:
        return cell.ours, cell.ours
    half = interval_half_width(cell.ours_se, cell.n_trials - 1)
    return cell.ours - half, cell.ours + half


def _table(cells: Sequence[TableEntry], numbers: Mapping[str, int]) -> str:
    """Write the means of one metric as a floating table."""
    table_notes = shared_notes(cells)
    columns: dict[str, dict[str, TableEntry]] = {}
    for cell in cells:
        title = " ".join(filter(None, (cell.dataset, point_text(cell.point))))
        columns.setdefault(title, {})[cell.method] = cell
    bold: list[TableEntry] = []
    for column in columns.values():
        bold += select_best(list(column.values()))
    lines: list[list[SizedText]] = [
        [("Method", 6), *((escape(title), len(title)) for title in columns)]
    ]
    for method in dict.fromkeys(cell.method for cell in cells):
        row = [column.get(method) for column in columns.values()]
        lines += _lines(method, row, bold, table_notes, numbers)
    benchmark, metric = cells[0].benchmark, cells[0].metric
    title = f"{benchmark}: {metric_heading(metric)}{margin_text(cells)}"
    caption = with_note_marks(title, table_notes, numbers)
    label = re.sub(r"[^\w-]|_", "-", f"{benchmark}-{metric}")
    latex = [
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{escape(caption)}{_caption(cells)}}}",
        rf"\label{{tab:{label}}}",
        rf"\footnotesize\setlength{{\tabcolsep}}{{{GAP / 2:g}pt}}",
        *_body(lines),
        r"\end{table}",
    ]
    return "\n".join(latex) + "\n"


def _caption(cells: Sequence[TableEntry]) -> str:
    text = r". Mean $\pm$ standard error"
    if info(cells[0].metric).direction != "none":
        text += r"; the best is bold, with all whose 95\,\% intervals overlap its own"
    text += "."
    if any(cell.paper is not None for cell in cells):
        verdicts = {cell.verdict for cell in cells}
        signs = [f"{sign} {verdict}" for verdict, sign in SIGNS.items() if verdict in verdicts]
        text += " Below, as printed" + (f" ({', '.join(signs)})." if signs else ".")
    return text


def _lines(
    method: str,
    row: Sequence[TableEntry | None],
    bold: Sequence[TableEntry],
    table_notes: set[str],
    numbers: Mapping[str, int],
) -> list[list[SizedText]]:
    """Write the line of a method, and below it that of the printed numbers if there are any."""
    row_notes = shared_notes(cell for cell in row if cell)
    name = with_note_marks(method, row_notes - table_notes, numbers)
    our_line: list[SizedText] = [(escape(name), len(name))]
    printed_line: list[SizedText] = [(r"\quad printed", 9)]
    for cell in row:
        if cell is None:
            our_line.append(("", 0))
            printed_line.append(("", 0))
            continue
        cell_notes = {*notes_of(cell)} - row_notes
        text = with_note_marks(estimate_text(cell) or cell.verdict, cell_notes, numbers)
        latex = rf"\textbf{{{escape(text)}}}" if cell in bold else escape(text)
        our_line.append((latex, len(text)))
        printed_value = printed_text(cell)
        latex = escape(printed_value)
        if cell.paper is not None and cell.verdict in SIGNS:
            latex += rf"\textsuperscript{{{SIGNS[cell.verdict]}}}"
        printed_line.append((latex, len(printed_value) + 1))  # a letter for the sign
    if any(cell and cell.paper is not None for cell in row):
        return [our_line, printed_line]
    return [our_line]


def _body(lines: Sequence[Sequence[SizedText]]) -> list[str]:
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


def _width(lines: Sequence[Sequence[SizedText]], across: int) -> float:
    """Compute the width in points of a table whose columns are broken into blocks of `across`."""
    letters = max(line[0][1] for line in lines)
    for column in range(across):
        letters += max(width for line in lines for _, width in line[1 + column :: across])
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
FORMATS_WITH_SECTIONS = ("rich", "markdown")
"""Formats that have more tables than those of metrics."""


def render(
    cells: Sequence[TableEntry],
    format: str,
    remark: str = "",
    extra_sections: Sequence[Section] = (),
) -> RenderableType:
    """Render a comparison as tables for a `rich` console, or as text that ends with a newline.

    A remark stands at the head, and in formats that have none among the notes of every cell;
    formats of `FORMATS_WITH_SECTIONS` have more tables at the end. LaTeX needs the package
    booktabs. `InputError` if there is no such format.
    """
    if format not in FORMATS:
        raise unknown_name_error("format", format, FORMATS)
    if format == "rich":
        head = [Text(remark, style="bold yellow"), Text()] if remark else []
        tables = [Padding(rich_table(section), (0, 0, 1, 0)) for section in metric_sections(cells)]
        notes = [Text(line, style="dim") for line in lines_below_tables(cells)]
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
        wraps = title in ("Verdict", FAILED_AS_WORST, "Told from") or "±" in title
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


def _texts(section: Section, row: Sequence[str]) -> list[Text]:
    quiet = {} if section.has_verdicts else {"Paper ± SE": "dim", "Paper": "dim"}
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

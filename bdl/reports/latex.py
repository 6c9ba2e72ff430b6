"""Comparison tables for LaTeX: methods by data sets, as wide as the text of an article."""

import re
from collections.abc import Mapping, Sequence

from bdl.metrics import info
from bdl.reports.axes import named
from bdl.reports.compare import Cell
from bdl.reports.layout import (
    SUPERSCRIPT,
    by_metric,
    chance,
    heading,
    marked,
    matches,
    notes_of,
    ours,
    printed,
    shared_notes,
)
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
"""In points: of the text of an article; of a letter of footnote size, on the safe side; between columns."""
SIGNS = {"match": "=", "better": "+", "worse": "$-$", "differs": r"$\neq$", "print in error": "!"}
"""What stands for a verdict beside a printed number."""

Text = tuple[str, int]
"""LaTeX, and how many letters wide it is."""
EMPTY: Text = ("", 0)


def to_latex(cells: Sequence[Cell]) -> str:
    """Write a floating table a metric, which needs the package booktabs, and below the notes and what chance does.

    Means are in a column a data set (and point of a sweep) and a row a method, with the printed ones below; those that
    are best are bold. Columns that do not fit beside each other follow below.
    """
    means = [[cell for cell in group if cell.statistic == "mean"] for group in by_metric(cells)]
    notes = list(dict.fromkeys(note for group in means for cell in group for note in notes_of(cell)))
    numbers = {note: number for number, note in enumerate(notes, 1)}
    lines = [f"{str(number).translate(SUPERSCRIPT)} {note}" for note, number in numbers.items()]
    lines += [line for line in [chance([cell for group in means for cell in group])] if line]
    blocks = [_table(group, numbers) for group in means]
    return "\n".join([*blocks, *(rf"\par{{\footnotesize {escape(line)}\par}}" + "\n" for line in lines)])


def escape(text: str) -> str:
    """Escape for LaTeX; a hyphen before a digit that begins a word is a minus sign."""
    escaped = "".join(ESCAPES.get(char, char) for char in text)
    return re.sub(r"(^|(?<= ))-(?=\d)", "$-$", escaped)


def best(cells: Sequence[Cell]) -> list[Cell]:
    """Choose the best of one column, and those whose 95 % interval overlaps its own.

    Left out are numbers that say nothing by themselves, as their interval reaches zero, and those of entries of which
    fits failed; of metrics without a better and a worse, all.
    """
    direction = info(cells[0].metric).direction
    sound = [cell for cell in cells if cell.ours is not None and not cell.n_failed]
    spans = [(cell, *_interval(cell)) for cell in sound]
    spans = [(cell, low, high) for cell, low, high in spans if low == high or not low <= 0 <= high]
    if not spans or direction == "none":
        return []
    sign = -1 if direction == "higher" else 1
    _, low, high = min(spans, key=lambda span: sign * (span[1] + span[2]))
    return [cell for cell, bottom, top in spans if bottom <= high and low <= top]


def _interval(cell: Cell) -> tuple[float, float]:
    """Return the ends of the 95 % interval; of fewer than three splits, the number itself."""
    assert cell.ours is not None
    half = reach(cell.ours_se, cell.n_trials - 1) if cell.ours_se is not None and cell.n_trials >= FEWEST else 0.0
    return cell.ours - half, cell.ours + half


def _table(cells: Sequence[Cell], numbers: Mapping[str, int]) -> str:
    common = shared_notes(cells)
    columns = _columns(cells)
    methods = list(dict.fromkeys(cell.method for cell in cells))
    lines = [[("Method", 6), *((escape(title), len(title)) for title in columns)]]
    rows = {method: {title: own.get(method) for title, own in columns.items()} for method in methods}
    bold = [cell for own in columns.values() for cell in best(list(own.values()))]
    for method, row in rows.items():
        lines += _lines(method, list(row.values()), bold, common, numbers)
    caption = marked(f"{cells[0].benchmark}: {heading(cells[0].metric)}{matches(cells)}", common, numbers)
    label = re.sub(r"[^\w-]", "-", f"{cells[0].benchmark}-{cells[0].metric}").replace("_", "-")
    body = _body(lines)
    return (
        "\n".join(
            [
                r"\begin{table}",
                r"\centering",
                rf"\caption{{{escape(caption)}{_caption(cells)}}}",
                rf"\label{{tab:{label}}}",
                rf"\footnotesize\setlength{{\tabcolsep}}{{{GAP / 2:g}pt}}",
                *body,
                r"\end{table}",
            ]
        )
        + "\n"
    )


def _columns(cells: Sequence[Cell]) -> dict[str, dict[str, Cell]]:
    """Put the cells of a table into columns, by method."""
    columns: dict[str, dict[str, Cell]] = {}
    for cell in cells:
        title = " ".join(part for part in (cell.dataset, named(cell.point)) if part)
        columns.setdefault(title, {})[cell.method] = cell
    return columns


def _caption(cells: Sequence[Cell]) -> str:
    """Describe what the table shows beside its metric."""
    text = r". Mean $\pm$ standard error; the best is bold, with all whose 95\,\% intervals overlap its own."
    if info(cells[0].metric).direction == "none":
        text = r". Mean $\pm$ standard error."
    used = [f"{sign} {verdict}" for verdict, sign in SIGNS.items() if any(cell.verdict == verdict for cell in cells)]
    if any(cell.paper is not None for cell in cells):
        text += " Below, as printed" + (f" ({', '.join(used)})." if used else ".")
    return text


def _lines(
    method: str, row: Sequence[Cell | None], bold: Sequence[Cell], common: set[str], numbers: Mapping[str, int]
) -> list[list[Text]]:
    """Write the lines of a method: ours, and what is printed if anything is."""
    there = [cell for cell in row if cell]
    own = shared_notes(there)
    name = marked(method, own - common, numbers)
    first: list[Text] = [(escape(name), len(name))]
    second: list[Text] = [(r"\quad printed", 9)]
    for cell in row:
        if cell is None:
            first.append(EMPTY)
            second.append(EMPTY)
            continue
        plain = marked(ours(cell) or cell.verdict, {*notes_of(cell)} - own, numbers)
        text = rf"\textbf{{{escape(plain)}}}" if cell in bold else escape(plain)
        first.append((text, len(plain)))
        sign = SIGNS.get(cell.verdict, "")
        raised = rf"\textsuperscript{{{sign}}}" if sign and cell.paper is not None else ""
        second.append((escape(printed(cell)) + raised, len(printed(cell)) + 1))
    return [first, second] if any(cell.paper is not None for cell in there) else [first]


def _body(lines: Sequence[Sequence[Text]]) -> list[str]:
    """Break the columns into as few blocks as fit the text, one below the other."""
    count = len(lines[0]) - 1
    across = next((k for k in range(count, 1, -1) if _width(lines, k) <= TEXT_WIDTH), 1)
    body = [rf"\begin{{tabular}}{{l{'r' * across}}}", r"\toprule"]
    for start in range(1, count + 1, across):
        body += [r"\midrule"] * (start > 1)
        for number, line in enumerate(lines):
            texts = [line[0], *line[start : start + across]]
            texts += [EMPTY] * (across + 1 - len(texts))
            if number == 0 or any(text for text, _ in texts[1:]):
                body.append(" & ".join(text for text, _ in texts) + r" \\")
            body += [r"\midrule"] * (number == 0)
    return [*body, r"\bottomrule", r"\end{tabular}"]


def _width(lines: Sequence[Sequence[Text]], across: int) -> float:
    """Return the width of a table of so many columns beside that of the methods, in points."""
    letters = max(line[0][1] for line in lines)
    for place in range(across):
        letters += max(length for line in lines for _, length in line[1 + place :: across])
    return letters * LETTER + across * GAP

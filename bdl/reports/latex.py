"""Comparison tables for LaTeX: methods by data sets, as wide as the text of an article."""

import re
from collections.abc import Mapping, Sequence

from bdl.metrics import info
from bdl.reports.axes import named
from bdl.reports.compare import Cell
from bdl.reports.layout import (
    below,
    by_metric,
    footnotes,
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


def to_latex(cells: Sequence[Cell]) -> str:
    """Write a floating table a metric, which needs the package booktabs, and below the notes and what chance does.

    Means are in a column a data set (and point of a sweep) and a row a method, with the printed ones below; those that
    are best are bold. Columns that do not fit beside each other follow below.
    """
    means = [[cell for cell in group if cell.statistic == "mean"] for group in by_metric(cells)]
    flat = [cell for group in means for cell in group]
    numbers = {note: number for number, note in enumerate(footnotes(flat), 1)}
    blocks = [_table(group, numbers) for group in means]
    return "\n".join([*blocks, *(rf"\par{{\footnotesize {escape(line)}\par}}" + "\n" for line in below(flat))])


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
    columns: dict[str, dict[str, Cell]] = {}
    for cell in cells:
        columns.setdefault(" ".join(filter(None, (cell.dataset, named(cell.point)))), {})[cell.method] = cell
    bold = [cell for own in columns.values() for cell in best(list(own.values()))]
    lines: list[list[Text]] = [[("Method", 6), *((escape(title), len(title)) for title in columns)]]
    for method in dict.fromkeys(cell.method for cell in cells):
        lines += _lines(method, [own.get(method) for own in columns.values()], bold, common, numbers)
    caption = marked(f"{cells[0].benchmark}: {heading(cells[0].metric)}{matches(cells)}", common, numbers)
    label = re.sub(r"[^\w-]|_", "-", f"{cells[0].benchmark}-{cells[0].metric}")
    return (
        "\\begin{table}\n\\centering\n"
        rf"\caption{{{escape(caption)}{_caption(cells)}}}" + "\n"
        rf"\label{{tab:{label}}}" + "\n"
        rf"\footnotesize\setlength{{\tabcolsep}}{{{GAP / 2:g}pt}}" + "\n" + "\n".join(_body(lines)) + "\n"
        "\\end{table}\n"
    )


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
    own = shared_notes(cell for cell in row if cell)
    name = marked(method, own - common, numbers)
    first: list[Text] = [(escape(name), len(name))]
    second: list[Text] = [(r"\quad printed", 9)]
    for cell in row:
        plain = marked(ours(cell) or cell.verdict, {*notes_of(cell)} - own, numbers) if cell else ""
        first.append((rf"\textbf{{{escape(plain)}}}" if cell in bold else escape(plain), len(plain)))
        sign = SIGNS.get(cell.verdict, "") if cell and cell.paper is not None else ""
        print_ = printed(cell) if cell else ""
        second.append((escape(print_) + (rf"\textsuperscript{{{sign}}}" if sign else ""), len(print_) + bool(cell)))
    return [first, second] if any(cell and cell.paper is not None for cell in row) else [first]


def _body(lines: Sequence[Sequence[Text]]) -> list[str]:
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


def _width(lines: Sequence[Sequence[Text]], across: int) -> float:
    """Return the width of a table of so many columns beside that of the methods, in points."""
    letters = max(line[0][1] for line in lines)
    for place in range(across):
        letters += max(length for line in lines for _, length in line[1 + place :: across])
    return letters * LETTER + across * GAP

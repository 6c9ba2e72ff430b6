"""Comparison tables for articles: methods by data sets, the best numbers bold."""

import re
from collections.abc import Mapping, Sequence

from bdl.metrics import get_metric_info
from bdl.reports.comparison import TableEntry
from bdl.reports.intervals import MIN_SPLITS, interval_half_width
from bdl.reports.layout import (
    estimate_text,
    footnotes,
    group_by_metric,
    lines_below_tables,
    margin_text,
    metric_heading,
    notes_of,
    printed_text,
    shared_notes,
    with_note_marks,
)
from bdl.reports.statistics import point_text
from bdl.reports.verdicts import (
    CONSISTENT,
    DIFFERS_BY_CAUSE,
    EQUIVALENT,
    IN_ERROR,
    SAME_DIGITS,
)

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
SUPERSCRIPT_SIGNS = {
    SAME_DIGITS: r"$\equiv$",
    EQUIVALENT: "=",
    CONSISTENT: r"$\approx$",
    **dict.fromkeys(DIFFERS_BY_CAUSE.values(), r"$\neq$"),
    IN_ERROR: "!",
}
"""Superscript of a printed number for each verdict that speaks of it."""
COLUMNS_ACROSS = 4
"""Columns side by side; more of them follow in a further table."""


def to_latex(cells: Sequence[TableEntry]) -> str:
    """Write floating tables of each metric, and the notes below.

    Means are in a column a data set (and point of a sweep) and a row a method, with the printed
    ones below; those that `select_best` chooses are bold. At most `COLUMNS_ACROSS` columns stand
    side by side, shrunk where they are wider than the text. The packages booktabs and adjustbox
    are needed.
    """
    means = [cell for cell in cells if cell.statistic == "mean"]
    numbers = {note: number for number, note in enumerate(footnotes(means), 1)}
    blocks: list[str] = []
    for metric_means in group_by_metric(means):
        blocks += _tables(metric_means, numbers)
    blocks += [
        rf"\par{{\footnotesize {escape(line)}\par}}" + "\n" for line in lines_below_tables(means)
    ]
    return "\n".join(blocks)


def escape(text: str) -> str:
    """Escape for LaTeX; a hyphen before a digit that begins a word is a minus sign."""
    escaped = "".join(ESCAPES.get(char, char) for char in text)
    return re.sub(r"(^|(?<= ))-(?=\d)", "$-$", escaped)


def select_best(cells: Sequence[TableEntry]) -> list[TableEntry]:
    """Choose the best mean of one column, and the means inside its 95 % interval.

    Whether an interval contains zero is no matter: zero is a log-likelihood as any other. The
    interval of the best one alone counts, since that of a method whose splits differ by orders of
    magnitude would reach everything. Means of entries with failed fits are left out, and nothing
    is best under a metric without a better and a worse.
    """
    direction = get_metric_info(cells[0].metric).direction
    means = [(cell.ours, cell) for cell in cells if cell.ours is not None and not cell.n_failed]
    if direction == "none" or not means:
        return []
    sign = -1 if direction == "higher" else 1
    best_mean, best = min(means, key=lambda pair: sign * pair[0])
    half_width = 0.0
    if best.ours_se is not None and best.n_trials >= MIN_SPLITS:
        half_width = interval_half_width(best.ours_se, best.n_trials - 1)
    return [cell for mean, cell in means if abs(mean - best_mean) <= half_width]


def _tables(cells: Sequence[TableEntry], numbers: Mapping[str, int]) -> list[str]:
    """Write the means of one metric as floating tables of at most `COLUMNS_ACROSS` columns."""
    columns: dict[str, dict[str, TableEntry]] = {}
    for cell in cells:
        title = " ".join(filter(None, (cell.dataset, point_text(cell.point))))
        columns.setdefault(title, {})[cell.method] = cell
    titles = list(columns)
    tables: list[str] = []
    for start in range(0, len(titles), COLUMNS_ACROSS):
        shown_titles = titles[start : start + COLUMNS_ACROSS]
        shown = {title: columns[title] for title in shown_titles}
        number = start // COLUMNS_ACROSS + 1
        tables.append(_table(cells, shown, numbers, f"-{number}" if number > 1 else ""))
    return tables


def _table(
    cells: Sequence[TableEntry],
    columns: Mapping[str, Mapping[str, TableEntry]],
    numbers: Mapping[str, int],
    label_suffix: str,
) -> str:
    """Write some columns of one metric as a floating table.

    `cells` are all those of the metric: what they share stands in the caption of each table.
    """
    import pandas as pd

    table_notes = shared_notes(cells)
    best: list[TableEntry] = []
    for column in columns.values():
        best += select_best(list(column.values()))
    rows: list[list[str]] = []
    for method in dict.fromkeys(cell.method for cell in cells):
        method_cells = [column.get(method) for column in columns.values()]
        if any(method_cells):
            rows += _rows(method, method_cells, best, table_notes, numbers)
    frame = pd.DataFrame(rows, columns=["Method", *map(escape, columns)])
    tabular = frame.style.hide(axis="index").to_latex(
        column_format="l" + "r" * len(columns), hrules=True
    )
    benchmark, metric = cells[0].benchmark, cells[0].metric
    title = f"{benchmark}: {metric_heading(metric)}{margin_text(cells)}"
    caption = escape(with_note_marks(title, table_notes, numbers)) + _explanation(cells)
    label = re.sub(r"[^\w-]|_", "-", f"{benchmark}-{metric}") + label_suffix
    latex = [
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{caption}}}",
        rf"\label{{tab:{label}}}",
        r"\footnotesize",
        r"\begin{adjustbox}{max width=\textwidth}",
        tabular.rstrip("\n"),
        r"\end{adjustbox}",
        r"\end{table}",
    ]
    return "\n".join(latex) + "\n"


def _explanation(cells: Sequence[TableEntry]) -> str:
    """Explain in a caption how to read numbers, bold type and signs."""
    text = r". Mean $\pm$ standard error"
    if get_metric_info(cells[0].metric).direction != "none":
        text += r"; the best is bold, with all that lie inside its 95\,\% interval"
    text += "."
    if any(cell.paper is not None for cell in cells):
        verdicts = {cell.verdict for cell in cells}
        signs = [
            f"{sign} {verdict}"
            for verdict, sign in SUPERSCRIPT_SIGNS.items()
            if verdict in verdicts
        ]
        text += " Below, as printed" + (f" ({', '.join(signs)})." if signs else ".")
    return text


def _rows(
    method: str,
    cells: Sequence[TableEntry | None],
    best: Sequence[TableEntry],
    table_notes: set[str],
    numbers: Mapping[str, int],
) -> list[list[str]]:
    """Write the row of a method, and below it that of the printed numbers if there are any."""
    row_notes = shared_notes(cell for cell in cells if cell)
    our_row = [escape(with_note_marks(method, row_notes - table_notes, numbers))]
    printed_row = [r"\quad printed"]
    for cell in cells:
        if cell is None:
            our_row.append("")
            printed_row.append("")
            continue
        cell_notes = {*notes_of(cell)} - row_notes
        text = escape(with_note_marks(estimate_text(cell) or cell.verdict, cell_notes, numbers))
        our_row.append(rf"\textbf{{{text}}}" if cell in best else text)
        printed = escape(printed_text(cell))
        if cell.paper is not None and cell.verdict in SUPERSCRIPT_SIGNS:
            printed += rf"\textsuperscript{{{SUPERSCRIPT_SIGNS[cell.verdict]}}}"
        printed_row.append(printed)
    if any(cell and cell.paper is not None for cell in cells):
        return [our_row, printed_row]
    return [our_row]

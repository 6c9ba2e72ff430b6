"""Compact tables of a comparison for a terminal: no cell is broken from 80 columns on."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import NamedTuple

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from bdl.errors import with_plural
from bdl.metrics import get_metric_info
from bdl.reports import intervals, verdicts
from bdl.reports.comparison import TableEntry
from bdl.reports.entry_places import EntryPlace, place_lines
from bdl.reports.layout import (
    estimate_text,
    footnotes,
    group_by_metric,
    lines_below_tables,
    margin_text,
    metric_heading,
    notes_of,
    printed_text,
    with_note_marks,
)
from bdl.reports.render import find_style
from bdl.reports.standing_tables import Standing, standing_lines
from bdl.reports.statistics import AXIS_NAMES, format_setting, group_by

SIGNS = {
    verdicts.SAME_DIGITS: "=",
    verdicts.EQUIVALENT: "+",
    verdicts.CONSISTENT: "~",
    verdicts.UNSETTLED: "?",
    intervals.DIFFERS: "!",
    verdicts.IN_ERROR: "e",
    verdicts.GIVEN: "g",
}
"""Sign of each verdict on a printed number; ASCII, which every terminal has."""

_GAP = "  "
_STATISTIC_NAMES = {"mean": "", "median": ", median", "max": ", largest"}
_MAX_NAMES = 6
"""Methods that are named, rather than counted."""


class OverviewRow(NamedTuple):
    """The texts of one row."""

    group: tuple[str, ...]
    """Data set and setting of each axis."""
    method: str
    ours: str
    printed: str
    verdict: str


@dataclass(frozen=True)
class Overview:
    """A comparison as one table a metric, as wide as the console allows.

    Rows without a printed value come after those with one. Where there are several data sets they
    are named only, if the metric has printed values; durations, if printed, are one line.
    """

    cells: Sequence[TableEntry]
    remark: str = ""
    claims: Sequence[str] = ()
    """Lines about claims of the papers."""
    further_tables: Sequence[str] = ()
    """Names of the tables that `--wide` shows in addition."""
    with_notes: bool = False
    """Whether the notes are written out; else they are counted."""
    with_durations: bool = False
    """Whether durations are a table like every other metric."""
    standings: Sequence[Standing] = ()
    """Overall standing of the methods by each score."""
    places: Sequence[EntryPlace] = ()
    """Where the entries that a run adds would stand."""
    published: Collection[str] = ()
    """Methods whose rows are published ones, where the others' are of a run; they have a star."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = options.max_width
        if self.remark:
            yield Text(self.remark, style="bold yellow")
        for metric_cells in group_by_metric(self.cells):
            is_duration = get_metric_info(metric_cells[0].metric).direction == "ratio"
            if is_duration and not self.with_durations and _list_printed(metric_cells):
                yield Text(_describe_durations(metric_cells))
            else:
                yield from self._metric_lines(metric_cells, width)
        yield from standing_lines(self.standings, width)
        yield from place_lines(self.places, width)
        for claim in self.claims:  # --wide has them in full
            yield Text(claim, no_wrap=True, overflow="ellipsis")
        yield from self._closing_lines()

    def _metric_lines(self, cells: Sequence[TableEntry], width: int) -> Iterator[Text]:
        first = cells[0]
        margin = margin_text(cells).replace("the margin is", "margin")
        title = f"{first.benchmark}: {metric_heading(first.metric)}{margin}"
        numbers = {note: number for number, note in enumerate(footnotes(self.cells), start=1)}
        printed, unprinted = _list_printed(cells), _list_unprinted(cells)
        if not self._shows_unprinted(cells):
            unprinted = []
        rows = [self._row(cell, numbers) for cell in (*printed, *unprinted)]
        axes = [AXIS_NAMES.get(path, path.rpartition(".")[2]) for path in first.point]
        blocks = [rows[: len(printed)], rows[len(printed) :]]
        heads = ["Data set", *axes, "Method", "Ours", "Printed" if printed else "", ""]
        yield from (Text(line, style="bold") for line in wrap(title, width))
        yield from _table_lines(blocks, heads, width)
        yield Text()

    def _row(self, cell: TableEntry, numbers: dict[str, int]) -> OverviewRow:
        method = cell.method + _STATISTIC_NAMES[cell.statistic]
        if cell.method in self.published:
            method += " *"
        if self.with_notes:
            method = with_note_marks(method, {*notes_of(cell)}, numbers)
        ours = estimate_text(cell) or cell.verdict
        if cell.n_failed and cell.ours is not None:
            ours += f" ({cell.n_failed} failed)"
        group = (cell.dataset, *map(format_setting, cell.point.values()))
        return OverviewRow(group, method, ours, printed_text(cell), cell.verdict)

    def _shows_unprinted(self, cells: Sequence[TableEntry]) -> bool:
        has_printed = any(cell.paper is not None for cell in cells)
        return not has_printed or len({cell.dataset for cell in self.cells}) == 1

    def _closing_lines(self) -> Iterator[Text]:
        counts = count_verdicts(self.cells)
        compared = [cell for cell in self.cells if find_sign(cell.verdict)]
        if compared:
            shown = {cell.verdict.partition(",")[0] for cell in compared}
            legend = [
                f"{sign} {verdict} {counts[verdict]}"
                for verdict, sign in SIGNS.items()
                if verdict in shown
            ]
            page = "docs/verdicts.md"
            if counts.total() < len(compared):
                page += "; a printed number that is compared twice counts once"
            yield Text(f"Verdicts, medians included: {', '.join(legend)} ({page})")
        hidden: dict[str, None] = {}
        for metric_cells in group_by_metric(self.cells):
            if not self._shows_unprinted(metric_cells):
                printed_methods = {cell.method for cell in _list_printed(metric_cells)}
                for cell in metric_cells:
                    if cell.method not in printed_methods:
                        hidden[cell.method] = None
        if self.published:
            n_splits = max(cell.n_trials for cell in self.cells if cell.method in self.published)
            yield Text(f"* Not run here: published rows of {n_splits} splits.")
        wide = ["medians, z" if _list_printed(self.cells) else "medians"]
        if hidden:
            names = ", ".join(hidden) if len(hidden) <= _MAX_NAMES else f"{len(hidden)} methods"
            wide.append(f"rows without a printed value ({names})")
        wide += self.further_tables
        notes = lines_below_tables(self.cells)
        line = f"--wide adds {'; '.join(wide)}."
        if self.with_notes:
            yield from (Text(note, style="dim") for note in notes)
        elif notes:
            line += f" --notes adds {with_plural(len(notes), 'note')}."
        yield Text(line, style="dim")


def count_verdicts(cells: Iterable[TableEntry]) -> Counter[str]:
    """Count the verdicts on printed numbers that have a sign, without their causes.

    A printed number that is compared twice counts once.
    """
    return Counter(
        cell.verdict.partition(",")[0]
        for cell in cells
        if cell.counted and find_sign(cell.verdict)
    )


def find_sign(verdict: str) -> str:
    """Return the sign of a verdict; empty for those that are not on a printed number."""
    return SIGNS.get(verdict.partition(",")[0], "")


def _list_printed(cells: Sequence[TableEntry]) -> list[TableEntry]:
    """List the printed statistics of each row: mean and largest, the median only without them."""
    shown: list[TableEntry] = []
    for row in _group_by_row(cells):
        printed = [cell for cell in row if cell.paper is not None]
        others = [cell for cell in printed if cell.statistic != "median"]
        shown += others or printed
    return shown


def _list_unprinted(cells: Sequence[TableEntry]) -> list[TableEntry]:
    """List the means of the rows of which nothing is printed."""
    means: list[TableEntry] = []
    for row in _group_by_row(cells):
        if all(cell.paper is None for cell in row):
            means += [cell for cell in row if cell.statistic == "mean"]
    return means


def _group_by_row(cells: Sequence[TableEntry]) -> list[list[TableEntry]]:
    groups = group_by(cells, lambda cell: (cell.dataset, *cell.point.values(), cell.method))
    return list(groups.values())


def _describe_durations(cells: Sequence[TableEntry]) -> str:
    """Write in one line how our durations compare with the printed ones."""
    printed = [cell for cell in _list_printed(cells) if cell.ours]
    heading = metric_heading(cells[0].metric).partition(",")[0]
    if any(cell.verdict == verdicts.WITHHELD for cell in printed) or not printed:
        return f"{heading}: see --metric {cells[0].metric}"
    ratios = sorted(printed, key=lambda cell: (cell.paper or 0.0) / (cell.ours or 1.0))
    words = " to ".join(dict.fromkeys((ratios[0].verdict, ratios[-1].verdict)))
    return f"{heading}: ours {words}, {len(printed)} printed (--metric {cells[0].metric})"


def _table_lines(
    blocks: Sequence[Sequence[OverviewRow]], heads: Sequence[str], width: int
) -> Iterator[Text]:
    """Lay out blocks of rows below one head.

    Data set and settings are columns where that fits, and else a line above their rows.
    """
    rows = [row for block in blocks for row in block]
    texts = [(*row.group, row.method, row.ours, row.printed, _last_text(row)) for row in rows]
    widths = [max(map(len, column)) for column in zip(heads, *texts, strict=True)]
    n_leading = len(heads) - 4
    fits = sum(widths) + len(_GAP) * (len(widths) - 1) <= width
    start = 0 if fits else n_leading
    yield _line(heads[start:], widths[start:], n_leading - start, "dim")
    index = 0
    for number, block in enumerate(blocks):
        if block and number and blocks[0]:
            yield Text("not in a paper:", style="dim")
        previous: tuple[str, ...] = ()
        for row in block:
            if not fits and row.group != previous:
                yield Text(_group_heading(row.group, heads), style="bold")
            leading = [
                text if row.group[: i + 1] != previous[: i + 1] else ""
                for i, text in enumerate(row.group)
            ]
            previous = row.group
            cells = [*leading, *texts[index][n_leading:]][start:]
            yield _line(cells, widths[start:], n_leading - start, "", row.verdict)
            index += 1


def _group_heading(group: tuple[str, ...], heads: Sequence[str]) -> str:
    settings = [f"{name} {text}" for name, text in zip(heads[1:], group[1:], strict=False)]
    return ", ".join([group[0], *settings])


def _last_text(row: OverviewRow) -> str:
    """Return the sign of a verdict, or a verdict without one, such as that of a duration."""
    sign = find_sign(row.verdict)
    if sign or row.verdict in (verdicts.NO_PAPER, verdicts.WITHHELD, row.ours):
        return sign
    return row.verdict


def _line(
    cells: Sequence[str], widths: Sequence[int], n_leading: int, style: str, verdict: str = ""
) -> Text:
    """Write one row: names to the left, numbers to the right, the verdict in its colour."""
    *texts, last = cells
    padded = [
        text.ljust(width) if i <= n_leading else text.rjust(width)
        for i, (text, width) in enumerate(zip(texts, widths, strict=False))
    ]
    line = Text(_GAP.join(padded).rstrip() if not last else _GAP.join([*padded, ""]), style=style)
    if last:
        line.append(last, find_style(verdict) if verdict else style)
    return line

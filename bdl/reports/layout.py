"""Cells arranged as tables of text, the same for every output format."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from bdl.metrics import RELATIVE, info, settings
from bdl.reports import Cell
from bdl.reports.papers import Printed
from bdl.reports.statistics import grouped, short
from bdl.reports.verdicts import LEVEL, NO_PAPER, WITHHELD

if TYPE_CHECKING:
    import pandas as pd

    from bdl.spec import Benchmark

SUPERSCRIPT = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
BETTER = {
    "lower": ", ↓ lower is better",
    "higher": ", ↑ higher is better",
    "ratio": ", ↓ shorter is better",
    "none": "",
}
MIN_DIGITS = 3
FINEST = 1e-6
"""Standard errors below have no digit beside their value, and are written with a power of ten."""
FAILED_AS_WORST = "Median (failed as worst)"

UNPRINTED = "–"  # noqa: RUF001
"""Stands in tables for the verdict where the paper prints nothing."""

LEFT = frozenset(
    {
        *(
            "Dataset",
            "Method",
            "Cell",
            "Metric",
            "Hyper-parameter",
            "Verdict",
            "Told from",
            "n",
            "n (failed)",
        ),
        *("Fit", "Reason", "Chains x draws", "Certificate"),
    }
)
"""Columns whose texts keep to the left."""


class Section(NamedTuple):
    """A table of texts under a title, the same for every output format."""

    title: str
    table: "pd.DataFrame"
    """Strings; the columns are the headings, of which two may be alike."""

    @classmethod
    def of(
        cls, title: str, columns: Sequence[str], rows: Iterable[Sequence[str | None]]
    ) -> "Section":
        """Lay out rows; a column in which no row has anything but None is left out."""
        import pandas as pd

        table = pd.DataFrame(list(rows), columns=list(columns), dtype=object)
        return cls(title, table.loc[:, table.notna().any().to_numpy()].fillna(""))

    @property
    def columns(self) -> list[tuple[str, str]]:
        """Headings, each with the side that its column keeps to."""
        return [(title, "left" if title in LEFT else "right") for title in self.table.columns]

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """Texts, row by row."""
        return list(self.table.itertuples(index=False, name=None))

    @property
    def judged(self) -> bool:
        """Whether it has verdicts; printed values without any are grey."""
        return "Verdict" in self.table.columns


def metric_name(label: str) -> str:
    """Write a metric with what its label says of its settings."""
    return " ".join([info(label).label, *settings(label)])


def measure(label: str) -> str:
    """Write a metric as `metric_name` does, with its unit."""
    return f"{metric_name(label)} ({info(label).unit})"


def heading(label: str) -> str:
    """Write a metric as `measure` does, with its direction if it has one."""
    return measure(label) + BETTER[info(label).direction]


def on_training_rows(label: str, labels: Iterable[str]) -> str | None:
    """Return which of some metrics scores training rows as this one scores new rows.

    None without one.
    """
    names = f"{label}_training", f"training_{label.removeprefix('test_')}"
    return next((str(other) for other in labels if other in names), None)


def repeats(benchmark: "Benchmark") -> str:
    """Count what means are taken over: splits, or repeats on one split."""
    count, repeated = benchmark.splits, benchmark.preparation.repeats
    return f"{count} {'repeat' if repeated else 'split'}{'s' * (count > 1)}{' on one split' * repeated}"


def matches(cells: Sequence[Cell]) -> str:
    """Describe how near the printed numbers of one metric a match is.

    Empty where nothing is judged by its interval.
    """
    if not any(cell.z is not None for cell in cells):
        return ""
    margin = info(cells[0].metric).margin
    return f"; a match is within {f'{RELATIVE:.0%} of the print' if margin is None else f'{margin:g}'}"


def footnotes(cells: Sequence[Cell]) -> list[str]:
    """List the different notes in order of appearance in the tables; the first is number 1."""
    return list(
        dict.fromkeys(
            note for group in by_metric(cells) for cell in group for note in notes_of(cell)
        )
    )


def below(cells: Sequence[Cell]) -> list[str]:
    """List what is said below the tables: the notes with their numbers, and what chance does."""
    last = chance(cells)
    notes = [
        f"{str(number).translate(SUPERSCRIPT)} {note}"
        for number, note in enumerate(footnotes(cells), start=1)
    ]
    return [*notes, *([last] if last else [])]


def chance(cells: Sequence[Cell]) -> str | None:
    """Return how many verdicts come from a test, and how many false alarms are expected.

    None without any.
    """
    tests = [cell.p for cell in cells if cell.p is not None]
    if not tests:
        return None
    outside = sum(p < LEVEL for p in tests)
    return (
        f"Tests at the level of {LEVEL:.0%}: {len(tests)}. Differences beyond it: {outside}; by chance alone, if no "
        f"number differed, {LEVEL * len(tests):.1f}. The rules of verdicts: docs/verdicts.md."
    )


def sections(cells: Sequence[Cell]) -> list[Section]:
    """Arrange cells as one table a metric, with mean and median side by side.

    Notes are marked by superscript numbers, which count through `footnotes`: on the title where a
    note holds for the whole table, on the entry where it holds for its row, else on the verdict.
    """
    numbers = {note: number for number, note in enumerate(footnotes(cells), start=1)}
    found = []
    for own in by_metric(cells):
        axes = list(dict.fromkeys(path for cell in own for path in cell.point))
        medians = [cell for cell in own if cell.statistic == "median"]
        judged = {cell.statistic for cell in own if cell.paper is not None}
        judged |= (
            {"mean"}
            if any(cell.statistic == "mean" and cell.verdict != NO_PAPER for cell in own)
            else set()
        )
        if any(cell.verdict == WITHHELD for cell in own):
            judged.clear()
        median = (
            FAILED_AS_WORST
            if any(cell.n_failed and cell.ours is not None for cell in medians)
            else "Median"
        )
        n = "n (failed)" if any(cell.n_failed for cell in own) else "n"
        columns = [
            "Dataset",
            *axes,
            "Method",
            "Mean ± SE",
            "Paper ± SE",
            "z",
            "Verdict",
            median,
            "Paper",
            "Verdict",
        ]
        columns += ["Largest", "Paper", "Verdict", "MC error", "Floor", n]
        shared = shared_notes(own)
        rows: dict[tuple[str, ...], dict[str, Cell]] = {}
        for cell in own:
            rows.setdefault((cell.dataset, *cell.point.values(), cell.method), {})[
                cell.statistic
            ] = cell
        texts = [_row(row, numbers, shared, judged) for row in rows.values()]
        title = f"{own[0].benchmark}: {heading(own[0].metric)}{matches(own)}"
        found.append(Section.of(marked(title, shared, numbers), columns, texts))
    return found


def quantity(value: float, printed: float | None = None) -> str:
    """Write a number one digit finer than the printed one beside it, with at least three significant digits.

    It is in positional notation, or like ``"2.13e7"`` from 100 000 on and below 0.0001.
    """
    size = math.floor(math.log10(abs(value))) if value else 0
    if -4 <= size < 5:
        decimals = MIN_DIGITS - 1 - size
        if isinstance(printed, Printed):
            decimals = max(decimals, 1 - printed.exponent)
        return f"{value:.{max(0, decimals)}f}"
    digits = max(MIN_DIGITS, printed.digits + 1) if isinstance(printed, Printed) else MIN_DIGITS
    return _powers(f"{value:.{digits - 1}e}")


def _powers(text: str) -> str:
    """Write a power of ten as ``e7`` in place of ``e+07``."""
    mantissa, e, exponent = text.partition("e")
    return f"{mantissa}e{int(exponent)}" if e else text


def by_metric(cells: Sequence[Cell]) -> list[list[Cell]]:
    """Part cells by benchmark and metric, in the order of their appearance."""
    return list(grouped(cells, lambda cell: (cell.benchmark, cell.metric)).values())


def _row(
    row: dict[str, Cell], numbers: dict[str, int], above: set[str], judged: set[str]
) -> list[str | None]:
    """Write one row, None where there is nothing to say.

    The notes in `above` are marked on the table already; `judged` are the statistics that have
    verdicts.
    """
    mean, median, largest = row["mean"], row.get("median"), row.get("max")
    common = shared_notes(row.values()) if "mean" in judged else {*notes_of(mean)}

    def verdict(cell: Cell | None) -> str | None:
        if cell is None or cell.statistic not in judged:
            return None
        return marked(shown(cell.verdict), {*notes_of(cell)} - common, numbers)

    texts = [
        mean.dataset,
        *map(short, mean.point.values()),
        marked(mean.method, common - above, numbers),
        ours(mean),
    ]
    return [
        *texts,
        printed(mean) or None,
        None if mean.z is None else f"{mean.z:z.1f}",
        verdict(mean),
        None if median is None else _median(median),
        (median and printed(median)) or None,
        verdict(median),
        ours(largest) if largest else None,
        printed(largest) if largest else None,
        verdict(largest),
        *(
            None if mean.floor is None or value is None else f"{value:.2g}"
            for value in (mean.mc_se, mean.floor)
        ),
        f"{mean.n_trials} ({mean.n_failed})" if mean.n_failed else f"{mean.n_trials}",
    ]


def shown(verdict: str) -> str:
    """Write a verdict as tables show it."""
    return UNPRINTED if verdict == NO_PAPER else verdict


def shared_notes(cells: Iterable[Cell]) -> set[str]:
    """Return the notes that all cells have."""
    return set.intersection(*({*notes_of(cell)} for cell in cells))


def ours(cell: Cell) -> str:
    """Write our number with its standard error, both to the same digit; empty if there is none."""
    if cell.ours is None:
        return ""
    text = quantity(cell.ours, cell.paper)
    if cell.ours_se is None:
        return text
    if cell.ours_se <= 1e-12 * abs(cell.ours):  # replicates of a method without randomness
        return text
    if "e" in text or cell.ours_se >= 1e5 or cell.ours_se < FINEST:
        return f"{text} ± {_powers(f'{cell.ours_se:.1g}')}"
    decimals = max(len(text.partition(".")[2]), -math.floor(math.log10(cell.ours_se)))
    return f"{cell.ours:.{decimals}f} ± {cell.ours_se:.{decimals}f}"


def _median(cell: Cell) -> str:
    if cell.ours is None:
        return ""
    text = quantity(cell.ours, cell.paper)
    if not cell.n_failed:
        return text
    return f"{text} ({'failed' if cell.failed_as_worst is None else quantity(cell.failed_as_worst, cell.paper)})"


def printed(cell: Cell) -> str:
    """Write the paper's number as printed; empty if there is none."""
    return " ± ".join(
        number.text if isinstance(number, Printed) else f"{number:g}"
        for number in (cell.paper, cell.paper_se)
        if number is not None
    )


def marked(text: str, notes: set[str], numbers: Mapping[str, int]) -> str:
    """Write a text with the numbers of its notes."""
    return text + " ".join(
        str(number).translate(SUPERSCRIPT) for number in sorted(numbers[note] for note in notes)
    )


def notes_of(cell: Cell) -> list[str]:
    """List the notes of a cell."""
    return cell.note.split("\n") if cell.note else []

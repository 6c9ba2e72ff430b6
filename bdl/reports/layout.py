"""Tables of text, the same for every output format, and how they write numbers and metrics."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from bdl.metrics import RELATIVE_MARGIN, get_metric_info, split_settings
from bdl.reports.comparison import TableEntry
from bdl.reports.intervals import LEVEL
from bdl.reports.papers import Printed
from bdl.reports.statistics import format_setting, group_by
from bdl.reports.verdicts import NO_PAPER, WITHHELD

if TYPE_CHECKING:
    import pandas as pd

    from bdl.spec import Benchmark

SUPERSCRIPT = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
DIRECTION_TEXTS = {
    "lower": ", ↓ lower is better",
    "higher": ", ↑ higher is better",
    "ratio": ", ↓ shorter is better",
    "none": "",
}
MIN_DIGITS = 3
"""Fewest significant digits of a number."""
FINEST_ERROR = 1e-6
"""Smaller standard errors are written with a power of ten, not to the digits of the value."""
FAILED_AS_WORST = "Median (failed as worst)"
SEED_SD = "SD of seeds (n)"
"""Between seeds, of the mean over splits; in parentheses how many seeds."""

UNPRINTED = "–"  # noqa: RUF001
"""Stands in tables for the verdict where the paper prints nothing."""

LEFT_ALIGNED = frozenset(
    {
        "Dataset",
        "Method",
        "Compared with",
        "Cell",
        "Metric",
        "Hyper-parameter",
        "Verdict",
        "Differs from",
        "n",
        "n (failed)",
        "Fit",
        "Reason",
        "Chains x draws",
        "Certificate",
    }
)
"""Columns whose texts are aligned to the left."""


class Section(NamedTuple):
    """A table of texts under a title, the same for every output format."""

    title: str
    table: "pd.DataFrame"
    """Strings; the columns are the headings, of which two may be the same."""

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
        """Headings, each with the side to which its column is aligned."""
        return [
            (title, "left" if title in LEFT_ALIGNED else "right") for title in self.table.columns
        ]

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """Texts, row by row."""
        return list(self.table.itertuples(index=False, name=None))

    @property
    def has_verdicts(self) -> bool:
        """Whether the table has verdicts; printed values are grey in tables without."""
        return "Verdict" in self.table.columns


def metric_name(label: str) -> str:
    """Write a metric with the settings of its label."""
    return " ".join([get_metric_info(label).label, *split_settings(label)])


def metric_with_unit(label: str) -> str:
    """Write a metric as `metric_name` does, with its unit."""
    return f"{metric_name(label)} ({get_metric_info(label).unit})"


def metric_heading(label: str) -> str:
    """Write a metric as `metric_with_unit` does, with its direction if it has one."""
    return metric_with_unit(label) + DIRECTION_TEXTS[get_metric_info(label).direction]


def training_metric(label: str, labels: Iterable[str]) -> str | None:
    """Return the metric among `labels` that scores training rows as this one scores new rows.

    None without one.
    """
    names = f"{label}_training", f"training_{label.removeprefix('test_')}"
    return next((str(candidate) for candidate in labels if candidate in names), None)


def repeats_text(benchmark: "Benchmark") -> str:
    """Write the number of splits, or of repeats on one split, that means are taken over.

    A range where data sets have different numbers.
    """
    counts = [len(benchmark.splits_of(dataset)) for dataset in benchmark.datasets]
    plural = "s" if max(counts) > 1 else ""
    if benchmark.preparation.repeats:
        return f"{format_count_range(counts)} repeat{plural} on one split"
    return f"{format_count_range(counts)} split{plural}"


def format_count_range(counts: Sequence[int]) -> str:
    """Write the least and the largest of some counts, ``5 to 20``, or the one that all are."""
    least, most = min(counts), max(counts)
    return f"{most}" if least == most else f"{least} to {most}"


def margin_text(cells: Sequence[TableEntry]) -> str:
    """Write the margin inside which a number of one metric is equivalent.

    Empty where nothing is judged by its interval.
    """
    if not any(cell.z is not None for cell in cells):
        return ""
    margin = get_metric_info(cells[0].metric).margin
    if margin is None:
        return f"; the margin is {RELATIVE_MARGIN:.0%} of the print"
    return f"; the margin is {margin:g}"


def footnotes(cells: Sequence[TableEntry]) -> list[str]:
    """List the different notes in order of appearance in the tables; the first is number 1."""
    notes: dict[str, None] = {}
    for metric_cells in group_by_metric(cells):
        for cell in metric_cells:
            notes |= dict.fromkeys(notes_of(cell))
    return list(notes)


def lines_below_tables(cells: Sequence[TableEntry]) -> list[str]:
    """List the lines below the tables: the notes with their numbers, and `chance_note`."""
    lines = []
    for number, note in enumerate(footnotes(cells), start=1):
        lines.append(f"{str(number).translate(SUPERSCRIPT)} {note}")
    tests = chance_note(cells)
    if tests:
        lines.append(tests)
    return lines


def chance_note(cells: Sequence[TableEntry]) -> str | None:
    """Write how many verdicts come from a test, and how many false alarms are expected.

    None without any test.
    """
    tests = [cell.p for cell in cells if cell.p is not None]
    if not tests:
        return None
    outside = sum(p < LEVEL for p in tests)
    return (
        f"Tests at the level of {LEVEL:.0%}: {len(tests)}. Differences beyond it: {outside}; "
        f"by chance alone, if no number differed, {LEVEL * len(tests):.1f}. "
        "The rules of verdicts: docs/verdicts.md."
    )


def order_printed_first(cells: Sequence[TableEntry]) -> list[TableEntry]:
    """Order cells so that rows with a printed value come before the others.

    Among either the order stays, which is that of data sets and of methods.
    """
    printed = {_row_key(cell) for cell in cells if cell.paper is not None}
    return sorted(cells, key=lambda cell: _row_key(cell) not in printed)


def _row_key(cell: TableEntry) -> tuple[str, ...]:
    return cell.benchmark, cell.metric, cell.dataset, *cell.point.values(), cell.method


def metric_sections(cells: Sequence[TableEntry]) -> list[Section]:
    """Arrange cells as one table a metric, with mean and median side by side.

    Notes are marked by superscript numbers, which count through `footnotes`: on the title where a
    note holds for the whole table, on the entry where it holds for its row, else on the verdict.
    """
    numbers = {note: number for number, note in enumerate(footnotes(cells), start=1)}
    return [_metric_section(metric_cells, numbers) for metric_cells in group_by_metric(cells)]


def _metric_section(cells: Sequence[TableEntry], numbers: Mapping[str, int]) -> Section:
    """Arrange the cells of one metric as a table."""
    axes = list(dict.fromkeys(path for cell in cells for path in cell.point))
    medians = [cell for cell in cells if cell.statistic == "median"]
    some_failed = any(cell.n_failed and cell.ours is not None for cell in medians)
    columns = ["Dataset", *axes, "Method"]
    columns += ["Mean ± SE", SEED_SD, "Paper ± SE", "z", "Verdict"]
    columns += [FAILED_AS_WORST if some_failed else "Median", "Paper", "Verdict"]
    columns += ["Largest", "Paper", "Verdict", "MC error", "Floor"]
    columns += ["n (failed)" if any(cell.n_failed for cell in cells) else "n"]
    rows: dict[tuple[str, ...], dict[str, TableEntry]] = {}
    for cell in cells:
        row = rows.setdefault((cell.dataset, *cell.point.values(), cell.method), {})
        row[cell.statistic] = cell
    table_notes, judged_statistics = shared_notes(cells), _judged_statistics(cells)
    texts = [_row(row, numbers, table_notes, judged_statistics) for row in rows.values()]
    first = cells[0]
    title = f"{first.benchmark}: {metric_heading(first.metric)}{margin_text(cells)}"
    return Section.of(with_note_marks(title, table_notes, numbers), columns, texts)


def _judged_statistics(cells: Sequence[TableEntry]) -> set[str]:
    """Return the statistics whose verdicts are shown: of a run that is not the protocol, none."""
    if any(cell.verdict == WITHHELD for cell in cells):
        return set()
    judged = {cell.statistic for cell in cells if cell.paper is not None}
    if any(cell.statistic == "mean" and cell.verdict != NO_PAPER for cell in cells):
        judged.add("mean")
    return judged


def format_number(value: float, printed: float | None = None) -> str:
    """Write a number one digit finer than the printed one that it is compared with.

    It has at least three significant digits, and is in positional notation, or like ``"2.13e7"``
    from 100 000 on and below 0.0001.
    """
    if not math.isfinite(value):  # what is computed from diverged scores
        return f"{value}"
    size = math.floor(math.log10(abs(value))) if value else 0
    if -4 <= size < 5:
        decimals = MIN_DIGITS - 1 - size
        if isinstance(printed, Printed):
            decimals = max(decimals, 1 - printed.exponent)
        return f"{value:z.{max(0, decimals)}f}"
    digits = max(MIN_DIGITS, printed.digits + 1) if isinstance(printed, Printed) else MIN_DIGITS
    return _shorten_exponent(f"{value:.{digits - 1}e}")


def _shorten_exponent(text: str) -> str:
    """Write a power of ten as ``e7`` in place of ``e+07``."""
    mantissa, e, exponent = text.partition("e")
    return f"{mantissa}e{int(exponent)}" if e else text


def group_by_metric(cells: Sequence[TableEntry]) -> list[list[TableEntry]]:
    """Group cells by benchmark and metric, in the order of their appearance."""
    return list(group_by(cells, lambda cell: (cell.benchmark, cell.metric)).values())


def _row(
    row: dict[str, TableEntry],
    numbers: Mapping[str, int],
    table_notes: set[str],
    judged_statistics: set[str],
) -> list[str | None]:
    """Write the texts of one row, None for those that are empty.

    `table_notes` are marked on the table already; verdicts are written of `judged_statistics`.
    """
    mean, median, largest = row["mean"], row.get("median"), row.get("max")
    # Without a verdict on the mean, the only place for the notes of the mean is the entry.
    row_notes = shared_notes(row.values()) if "mean" in judged_statistics else {*notes_of(mean)}

    def verdict(cell: TableEntry | None) -> str | None:
        if cell is None or cell.statistic not in judged_statistics:
            return None
        return with_note_marks(verdict_text(cell.verdict), {*notes_of(cell)} - row_notes, numbers)

    texts: list[str | None] = [
        mean.dataset,
        *map(format_setting, mean.point.values()),
        with_note_marks(mean.method, row_notes - table_notes, numbers),
        estimate_text(mean),
        None if mean.seed_sd is None else f"{mean.seed_sd:.2g} ({mean.replicates})",
        printed_text(mean) or None,
        None if mean.z is None else f"{mean.z:z.1f}",
        verdict(mean),
        _median_text(median) if median else None,
        (printed_text(median) or None) if median else None,
        verdict(median),
        estimate_text(largest) if largest else None,
        printed_text(largest) if largest else None,
        verdict(largest),
    ]
    # A Monte-Carlo error is shown where the truth is sampled, which has a floor.
    for error in (mean.mc_se, mean.floor):
        texts.append(None if mean.floor is None or error is None else f"{error:.2g}")
    failed = f" ({mean.n_failed})" if mean.n_failed else ""
    return [*texts, f"{mean.n_trials}{failed}"]


def align_columns(table: Sequence[Sequence[str]]) -> list[str]:
    """Write a table for a terminal, a line a row; the first column is aligned to the left."""
    columns: list[list[str]] = []
    for texts in zip(*table, strict=True):
        width = max(map(len, texts))
        if columns:
            columns.append([text.rjust(width) for text in texts])
        else:
            columns.append([text.ljust(width) for text in texts])
    return ["  ".join(line).rstrip() for line in zip(*columns, strict=True)]


def verdict_text(verdict: str) -> str:
    """Write a verdict as tables show it."""
    return UNPRINTED if verdict == NO_PAPER else verdict


def shared_notes(cells: Iterable[TableEntry]) -> set[str]:
    """Return the notes that all cells have."""
    return set.intersection(*({*notes_of(cell)} for cell in cells))


def estimate_text(cell: TableEntry) -> str:
    """Write our number with its standard error, both to the same digit; empty if there is none.

    Of an error that is larger than the number two digits are shown, more only if print has more.
    """
    if cell.ours is None:
        return ""
    text = format_number(cell.ours, cell.paper)
    if cell.ours_se is None:
        return text
    # Replicates of a method without randomness differ by rounding alone.
    if cell.ours_se <= 1e-12 * abs(cell.ours):
        return text
    if "e" in text or cell.ours_se >= 1e5 or cell.ours_se < FINEST_ERROR:
        return f"{text} ± {_shorten_exponent(f'{cell.ours_se:.1g}')}"
    error_decimals = -math.floor(math.log10(cell.ours_se))
    decimals = max(len(text.partition(".")[2]), error_decimals)
    if cell.ours_se > abs(cell.ours):
        printed_decimals = 1 - cell.paper.exponent if isinstance(cell.paper, Printed) else 0
        # all digits of a number that is smaller than its error are noise
        decimals = min(decimals, max(0, error_decimals + 1, printed_decimals))
    return f"{cell.ours:z.{decimals}f} ± {cell.ours_se:.{decimals}f}"


def _median_text(cell: TableEntry) -> str:
    if cell.ours is None:
        return ""
    text = format_number(cell.ours, cell.paper)
    if not cell.n_failed:
        return text
    if cell.failed_as_worst is None:
        return f"{text} (failed)"
    return f"{text} ({format_number(cell.failed_as_worst, cell.paper)})"


def printed_text(cell: TableEntry) -> str:
    """Write the paper's number as printed; empty if there is none."""
    is_deviation = cell.paper_sd is not None
    error = cell.paper_sd if is_deviation else cell.paper_se
    texts: list[str] = []
    for number in (cell.paper, error):
        if number is not None:
            texts.append(number.text if isinstance(number, Printed) else f"{number:g}")
    return " ± ".join(texts) + (" SD" if is_deviation else "")


def with_note_marks(text: str, notes: set[str], numbers: Mapping[str, int]) -> str:
    """Write a text with the numbers of its notes."""
    note_numbers = sorted(numbers[note] for note in notes)
    return text + " ".join(map(str, note_numbers)).translate(SUPERSCRIPT)


def notes_of(cell: TableEntry) -> list[str]:
    """List the notes of a cell."""
    return cell.note.split("\n") if cell.note else []

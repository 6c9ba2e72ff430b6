"""The numbers printed in the papers, looked up by benchmark entry."""

import csv
import math
import re
from collections.abc import Iterable, Iterator
from decimal import Decimal
from functools import lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING, NamedTuple

from bdl.errors import InputError, unknown_name_error

if TYPE_CHECKING:
    from bdl.spec import Benchmark
    from bdl.spec.sections import PaperTables

PAPERS = ("brownlie2022", "vifa2023", "slang2018", "mata2018")
OTHER_PAPERS = ("gal2018", "lakshminarayanan2017")
"""Papers whose numbers on the UCI regressions are listed with ours; they share one file."""

SUITE = "bdl-bench"
"""Key of the suite itself in the bibliography."""

_ONE_RUN = ("single", "count")
"""Statistics, as the tables call them, that are the number of one run."""

Key = tuple[str, str, str, str]
"""Dataset, entry, metric, statistic."""


class Printed(float):
    """A number with the text that it was printed as, for example ``"2.90"`` or ``"2.13e7"``."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __neg__(self) -> "Printed":
        """Change the sign and keep the digits: ``"-2.90"`` for ``"2.90"``.

        Zero has no sign: ``"0.00"`` for ``"0.00"``.
        """
        if self.text[0] == "-" or not self:
            return Printed(self.text.removeprefix("-"))
        return Printed(f"-{self.text}")

    @property
    def exponent(self) -> int:
        """Power of ten of the last printed digit: -2 for ``"2.90"``, 5 for ``"2.13e7"``."""
        # a Decimal keeps the zeros at the end, which say how far the print was rounded
        exponent = Decimal(self.text).as_tuple().exponent
        assert isinstance(exponent, int), f"not a finite number: {self.text}"
        return exponent

    @property
    def digits(self) -> int:
        """Count of significant digits: 3 for ``"2.90"``."""
        return len(Decimal(self.text).as_tuple().digits)

    @property
    def rounding(self) -> float:
        """Half a unit of the last printed digit: 0.005 for ``"2.90"``."""
        return 0.5 * 10.0**self.exponent

    def shows(self, value: float) -> bool:
        """Return whether `value`, rounded to the printed digits, is this number."""
        return round(Decimal(value).scaleb(-self.exponent)) == Decimal(self.text).scaleb(
            -self.exponent
        )


class PaperValue(NamedTuple):
    """One printed number."""

    value: Printed
    """In the unit of its metric."""
    stderr: Printed | None
    """Its standard error, as printed or from `deviation`."""
    source: str
    """Paper and table, for example ``"vifa2023 Table 1"``."""
    split: int | None = None
    """The split that it is of, from 0, if it is of one alone."""
    n: int | None = None
    """Splits or runs that it is a statistic of; None where the paper does not say, which counts
    as one.
    """
    deviation: Printed | None = None
    """What a few tables print in place of the standard error: the standard deviation of repeats."""
    same_splits: str = ""
    """How it is known that the splits are ours as well; empty where it is not."""
    counted: bool = True
    """Whether this comparison, and no other one, counts as that of the printed number."""


def paper_values(papers: Iterable["PaperTables"]) -> dict[Key, PaperValue]:
    """Look up the printed numbers of a benchmark.

    Where several tables print one, the table listed first is taken.

    The number of a single run stands under ``"mean"``. `InputError` if a paper, table, method or
    metric is not there, or a table prints several numbers for one key.
    """
    values: dict[Key, PaperValue] = {}
    for listed in papers:
        rows = [row for row in load_paper(listed.paper) if row["task"] == listed.task]
        if not rows:
            raise unknown_name_error(
                f"task of {listed.paper}",
                listed.task,
                {row["task"] for row in load_paper(listed.paper)},
            )
        _require("data set", listed, listed.datasets.values(), _row_names(rows, "dataset"))
        if listed.datasets:  # under our names
            renamed_rows: list[dict[str, str]] = []
            for dataset, printed_name in listed.datasets.items():
                for row in rows:
                    if printed_name in _row_names([row], "dataset"):
                        renamed_rows.append(row | {"dataset": dataset})
            rows = renamed_rows
        _require("method", listed, listed.methods.values(), _row_names(rows, "method"))
        _require("table", listed, listed.tables, {row["table"] for row in rows})
        metrics = {row["metric"] for row in rows if row["table"] in listed.tables}
        _require(
            "metric", listed, (name.removeprefix("-") for name in listed.metrics.values()), metrics
        )
        for table in listed.tables:
            # in this order: of a number that several tables print, the first table's stays
            values = _read_table(listed, [row for row in rows if row["table"] == table]) | values
    return values


def _row_names(rows: Iterable[dict[str, str]], column: str) -> set[str]:
    """Return the names of rows: the values of a column, alone and with the setting of the row."""
    names: set[str] = set()
    for row in rows:
        names |= {row[column], f"{row[column]} {row['setting']}"}
    return names


def _read_table(listed: "PaperTables", rows: list[dict[str, str]]) -> dict[Key, PaperValue]:
    values: dict[Key, PaperValue] = {}
    for entry, name in listed.methods.items():
        for row, metric, value in _rows_of_entry(listed, name, rows):
            statistic = "mean" if row["statistic"] in _ONE_RUN else row["statistic"]
            key = (row["dataset"], entry, metric, statistic)
            source = f"{listed.paper} {row['table']}"
            if key in values:
                raise InputError(
                    f"{source} prints several numbers for {' '.join(key)}, which differ in their "
                    f"settings: remove '{entry}' from the methods of this paper"
                )
            is_counted = row["dataset"] not in listed.uncounted
            evidence = listed.same_splits.get(row["dataset"], "")
            values[key] = PaperValue(
                value,
                _stderr(row),
                source,
                listed.split,
                _count(row),
                _deviation(row),
                evidence,
                is_counted,
            )
    return values


def _rows_of_entry(
    listed: "PaperTables", name: str, rows: Iterable[dict[str, str]]
) -> Iterator[tuple[dict[str, str], str, Printed]]:
    """Yield the rows of a method, with our names of their metrics and the values in our unit.

    A metric that is listed with a minus sign is ours with the sign changed.
    """
    method, _, setting = name.partition(" ")
    for row in rows:
        if row["method"] != method or setting not in ("", row["setting"]):
            continue
        value = Printed(row["value"])
        if row["unit"] == "seconds":  # ours are in minutes
            value = Printed(f"{value / 60:.3g}")
        printed_names = listed.metrics or {row["metric"]: row["metric"]}
        for metric, printed_name in printed_names.items():
            if printed_name.removeprefix("-") == row["metric"]:
                yield row, metric, -value if printed_name.startswith("-") else value


def _stderr(row: dict[str, str]) -> Printed | None:
    """Read the standard error of a printed number, or compute it from a printed deviation.

    None where that is of repeats whose number is not printed.
    """
    deviation = _deviation(row)
    if deviation is None:
        return Printed(row["stderr"]) if row["stderr"] else None
    count = _count(row)
    return Printed(f"{deviation / math.sqrt(count):.2g}") if count else None


def _deviation(row: dict[str, str]) -> Printed | None:
    """Read the standard deviation of repeats that a few tables print in place of the error."""
    is_deviation = row["stderr"] and "standard deviation" in row["note"]
    return Printed(row["stderr"]) if is_deviation else None


def _count(row: dict[str, str]) -> int | None:
    """Read the number of splits or runs that a printed number is a statistic of.

    It is in the note of the row ("over 20 splits", "5 repeats"); None without one.
    """
    if row["statistic"] in _ONE_RUN:
        return 1
    match = re.search(r"\bover (\d+) |\b(?P<n>\d+) repeats\b", row["note"])
    return int(match[1] or match["n"]) if match else None


def _require(
    kind: str, listed: "PaperTables", names: Iterable[str], printed_names: set[str]
) -> None:
    """Raise `InputError` for a name that the paper does not print."""
    for name in names:
        if name not in printed_names:
            raise unknown_name_error(
                f"{kind} of {listed.paper} {listed.task}", name, printed_names
            )


@lru_cache
def load_paper(paper: str) -> tuple[dict[str, str], ...]:
    """Read the printed numbers of a paper, a mapping each with the columns of its file.

    `InputError` without it.
    """
    if paper not in (*PAPERS, *OTHER_PAPERS):
        raise unknown_name_error("paper", paper, (*PAPERS, *OTHER_PAPERS))
    name = "others_uci" if paper in OTHER_PAPERS else paper
    text = (files("bdl.reports") / "papers" / f"{name}.csv").read_text(encoding="utf-8")
    return tuple(row for row in csv.DictReader(text.splitlines()) if row["paper"] == paper)


def cite_sources(benchmark: "Benchmark") -> str:
    """Write BibTeX of the suite, and of the works whose numbers a benchmark is compared with."""
    works = dict.fromkeys((SUITE, *(listed.paper for listed in benchmark.papers)))
    works |= dict.fromkeys(benchmark.elsewhere)
    return "\n\n".join(_load_bibliography()[work] for work in works) + "\n"


@lru_cache
def _load_bibliography() -> dict[str, str]:
    """Read the BibTeX of the suite and of all works, by key."""
    text = (files("bdl.reports") / "papers" / "sources.bib").read_text(encoding="utf-8")
    entries = text.strip().split("\n\n")
    return {entry.partition("{")[2].partition(",")[0]: entry for entry in entries}

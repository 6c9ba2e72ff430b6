"""Results of a run as frames, and the posteriors that it has left."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from bdl.api.fitted import Fitted
from bdl.archive import ResultsFolder
from bdl.archive.loading import LoadedResults, load, load_results
from bdl.errors import unknown
from bdl.plan import Cell
from bdl.plan.planning import cells_of
from bdl.publishing.outcome import claimed, compared, gathered, stored_pictures
from bdl.reports.figures import Figures, drawings_of, drawn, tables_html
from bdl.reports.layout import sections
from bdl.spec import Point, Variant, load_variant
from bdl.spec.fields import checked

Names = str | Sequence[str]
"""One name, or several."""
Splits = int | str | Sequence[int] | None
"""How many splits, the first so many; which ones, ``"0,3,5-7"`` or ``[0, 3]``; None for all."""


@dataclass(frozen=True, eq=False)
class Results:
    """Results of a run.

    Parameters
    ----------
    place
        Their folder.
    found
        What is in it.
    """

    place: Path
    found: LoadedResults = field(repr=False)

    @property
    def rows(self) -> pd.DataFrame:
        """One row a final fit: data set, method, split, status, hyper-parameters (``hyper_...``), a column a metric.

        `method` and `entry` are the same, the name of an entry of the benchmark file; published files have `entry`.
        """
        return _by_method(self.found.rows)

    @property
    def points(self) -> pd.DataFrame:
        """One row a score that was recorded while a fit ran; data set and method as in `rows`."""
        return _by_method(self.found.points)

    @cached_property
    def table(self) -> pd.DataFrame:
        """One row a statistic of a cell, ours and the paper's, as ``bdl-bench table --format csv``."""
        cells = [asdict(cell) for cell in compared(self.found)]
        return pd.DataFrame([{**cell.pop("point"), **cell} for cell in cells])

    @cached_property
    def claims(self) -> pd.DataFrame:
        """One row a finding: `claim`, `source`, data set, point, means of both sides, difference, interval, verdict."""
        return pd.DataFrame(record for each in claimed(self.found) for record in each.records)

    def plot(self, name: str = "") -> Figures:
        """Draw the figures that ``bdl-bench figures`` writes.

        Parameters
        ----------
        name
            Name of one, such as ``"nmll"`` or ``"nmll-paired"``; all by default.

        Returns
        -------
        Figures
            A dict of matplotlib figures by name, which a notebook shows.

        Raises
        ------
        InputError
            If there is no such figure.
        """
        drawings = drawings_of(gathered(self.found, stored_pictures(self.found, self.found.made)))
        if name and name not in drawings:
            raise unknown("figure", name, drawings)
        return Figures({own: drawn(draw, self.remark) for own, draw in drawings.items() if name in ("", own)})

    def _repr_html_(self) -> str:
        """Show the means and medians of a cell in one row, and what the rows are not above them."""
        return tables_html(sections(compared(self.found)), self.found.banner)

    @property
    def remark(self) -> str:
        """How the rows differ from the protocol; empty if they do not."""
        return self.found.remark

    def posterior(self, dataset: str, method: str, split: int = 0, at: Mapping[str, Any] | None = None) -> Fitted:
        """Load the posterior of a final fit; nothing is trained.

        Parameters
        ----------
        dataset
            Its label, as in `rows`.
        method
            The method, as in `rows`.
        split
            Number of the split.
        at
            Path of each axis of the sweep to its value, where there is one.

        Raises
        ------
        InputError
            If there is no such fit, it failed or was imported from published rows, or spec, data or code have changed.
        """
        cell = self._cell(dataset, method, Point(at or {}))
        with ResultsFolder(self.place, self.found.made, latest=True) as here:
            posterior, buffers, row = here.posterior(cell, split)
        return Fitted(cell.with_splits((split,)), split, posterior, buffers, row.hyper)

    def _cell(self, dataset: str, method: str, point: Point) -> Cell:
        cells = {cell.key: cell for cell in cells_of(self.found.benchmark)}
        for kind, name, place in (("dataset", dataset, 0), ("method", method, 1), ("point", point.text, 2)):
            cells = {key: cell for key, cell in cells.items() if key[place] == name} or _none(kind, name, cells, place)
        return next(iter(cells.values()))


@checked
def results(
    name_or_path: str | Path,
    profile: str = "paper",
    set: Names = (),
    datasets: Names = (),
    methods: Names = (),
    splits: Splits = None,
    results: str | Path = "results",
) -> Results:
    """Read the results of an earlier run, as ``bdl-bench table`` does.

    Parameters
    ----------
    name_or_path
        A folder with results; else a benchmark by name or path, and what was run of it.
    profile
        Profile of the run.
    set
        Overrides of the run.
    datasets
        Data sets that were run; all by default.
    methods
        Methods that were run; all by default.
    splits
        Splits that were run; all by default.
    results
        Folder of results.

    Raises
    ------
    InputError
        If there are none, or a file is damaged.
    """
    place = Path(name_or_path)
    with ResultsFolder(place) as here:
        if here.has_rows:
            return Results(place, load(here))
    asked = asked_for(str(name_or_path), profile, set, datasets, methods, splits)
    found = load_results(asked, Path(results))
    return Results(found.place, found)


@checked
def posterior(
    found: Results | str | Path, dataset: str, method: str, split: int = 0, at: Mapping[str, Any] | None = None
) -> Fitted:
    """Load the posterior of a final fit of results, or of what `results` finds; otherwise as `Results.posterior`."""
    found = found if isinstance(found, Results) else results(found)
    return found.posterior(dataset, method, split, at)


def asked_for(name_or_path: str, profile: str, set: Names, datasets: Names, methods: Names, splits: Splits) -> Variant:
    """Put what a program asks for into the words of the command line; errors as in `bdl.spec.load_variant`."""
    overrides, tables, entries = ([one] if isinstance(one, str) else one for one in (set, datasets, methods))
    if isinstance(splits, int):
        splits = str(splits)
    elif splits is not None and not isinstance(splits, str):
        splits = ",".join(f"{number}-{number}" for number in splits)
    return load_variant(name_or_path, profile, overrides, tables, entries, splits)


def _by_method(rows: pd.DataFrame) -> pd.DataFrame:
    """Call entries methods, too, as commands and tables do."""
    named = rows.copy()
    named.insert(list(rows.columns).index("entry"), "method", rows["entry"])
    return named


def _none(kind: str, name: str, cells: Mapping[tuple[str, str, str], Cell], place: int) -> dict[Any, Cell]:
    raise unknown(kind, name, {key[place] for key in cells})

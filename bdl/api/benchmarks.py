"""A benchmark, running it, its results as frames, and the posteriors that it has left."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import Console
from typer import Exit

from bdl.api.fitted import Fitted
from bdl.archive import ResultsFolder
from bdl.archive.loading import LoadedResults, load, load_results
from bdl.errors import unknown
from bdl.plan.planning import cells_of
from bdl.publishing.outcome import claimed, compared, gathered, stored_pictures
from bdl.reports.figures import Figures, drawings_of, drawn, tables_html
from bdl.reports.layout import sections
from bdl.spec import Benchmark as Spec
from bdl.spec import Point, Variant, load_variant
from bdl.spec.fields import checked

Names = str | Sequence[str]
"""One name, or several."""
Splits = int | str | Sequence[int] | None
"""How many splits, the first so many; which ones, ``"0,3,5-7"`` or ``[0, 3]``; None for all."""


@dataclass(frozen=True, eq=False)
class Results:
    """Results of a run, and the folder that they are in."""

    place: Path
    found: LoadedResults = field(repr=False)

    @property
    def rows(self) -> pd.DataFrame:
        """One row a final fit: data set, method, split, status, hyper-parameters (``hyper_...``), a column a metric.

        `method` and `entry` are the same, the name of an entry of the benchmark file; published
        files have `entry`.
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
        return Figures(
            {own: drawn(draw, self.remark) for own, draw in drawings.items() if name in ("", own)}
        )

    def _repr_html_(self) -> str:
        """Show the means and medians of a cell in one row, and what the rows are not above them."""
        return tables_html(sections(compared(self.found)), self.found.banner)

    @property
    def remark(self) -> str:
        """How the rows differ from the protocol; empty if they do not."""
        return self.found.remark

    def posterior(
        self, dataset: str, method: str, split: int = 0, at: Mapping[str, Any] | None = None
    ) -> Fitted:
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
            If there is no such fit, it failed or was imported from published rows, or spec, data
            or code have changed.
        """
        cells = cells_of(self.found.benchmark)
        named = {"dataset": dataset, "method": method, "point": Point(at or {}).text}
        for place, (kind, name) in enumerate(named.items()):
            known = {cell.key[place] for cell in cells}
            if name not in known:
                raise unknown(kind, name, known)
            cells = [cell for cell in cells if cell.key[place] == name]
        (cell,) = cells
        with ResultsFolder(self.place, self.found.made, latest=True) as here:
            posterior, buffers, row = here.posterior(cell, split)
        return Fitted(cell.with_splits((split,)), split, posterior, buffers, row.hyper)


@dataclass(frozen=True)
class Benchmark:
    """A benchmark under a profile, with overrides, all as `benchmark` takes them."""

    name_or_path: str
    profile: str = "paper"
    set: tuple[str, ...] = ()

    @property
    def spec(self) -> Spec:
        """The file as it is checked: ``spec.datasets``, ``spec.entries``, ``spec.metrics`` and so on."""
        return load_variant(self.name_or_path, self.profile, self.set).benchmark

    @checked
    def run(
        self,
        datasets: Names = (),
        methods: Names = (),
        splits: Splits = None,
        *,
        device: str = "cpu",
        jobs: int = 1,
        compile: bool | None = None,
        fresh: bool = False,
        changed: bool = False,
        published: bool = False,
        retry_failed: bool = False,
        results: str | Path = "results",
        progress: bool | None = None,
    ) -> Results:
        """Run what is missing and publish it, as ``bdl-bench run`` does.

        Fits that failed say so in the rows.

        Parameters
        ----------
        datasets
            Data sets that are run; all by default.
        methods
            Methods that are run, each the name of an entry of the file; all by default.
        splits
            Splits that are run: 5, the first five, ``[0, 3]`` or ``"0,3,5-7"``; all by default.
        device
            ``"cpu"`` or ``"cuda"``.
        jobs
            Processes that work side by side. More than one import the calling script: keep its
            work below ``if __name__ == "__main__":``.
        compile
            Whether to compile; None for where it pays.
        fresh
            Whether to start anew; a copy of the store is kept.
        changed
            Whether to start anew what another spec, data or code made; a copy of the store is
            kept.
        published
            Whether to import published fits that today's spec, data and code made.
        retry_failed
            Whether to make fits again that failed; what their search found is kept.
        results
            Folder of results.
        progress
            Whether to print what the command line prints; by default a bar, in a notebook and on a
            terminal.

        Raises
        ------
        InputError
            What the command line would refuse, in the same words.
        """
        from bdl.api import running  # which programs that read results do without

        asked = asked_for(self.name_or_path, self.profile, self.set, datasets, methods, splits)
        run_settings = running.RunSettings(
            Path(results),
            device,
            compile,
            jobs,
            fresh,
            changed,
            published,
            retry_failed,
            bar=progress is None,
        )
        try:
            running.run(asked, run_settings, None, Console(quiet=not progress))
        except Exit as end:
            if end.exit_code != 1:  # some final fits failed
                raise KeyboardInterrupt from None
        return self.results(datasets, methods, splits, results=results)

    @checked
    def results(
        self,
        datasets: Names = (),
        methods: Names = (),
        splits: Splits = None,
        *,
        results: str | Path = "results",
    ) -> Results:
        """Read the results of an earlier run of the same part; errors as in `bdl.results`."""
        asked = asked_for(self.name_or_path, self.profile, self.set, datasets, methods, splits)
        found = load_results(asked, Path(results))
        return Results(found.place, found)


@checked
def benchmark(name_or_path: str | Path, profile: str = "paper", set: Names = ()) -> Benchmark:
    """Return a benchmark.

    Parameters
    ----------
    name_or_path
        Name of a benchmark that comes with the package, or path of a YAML file.
    profile
        A profile of the file.
    set
        Overrides, written ``path.to.field=value``.

    Raises
    ------
    InputError
        If the file cannot be read, or it, its profile or an override says something that is not
        allowed.
    """
    found = Benchmark(str(name_or_path), profile, (set,) if isinstance(set, str) else tuple(set))
    load_variant(found.name_or_path, found.profile, found.set)
    return found


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
    profile, set, datasets, methods, splits
        Profile and overrides of the run, and what was run; all by default.
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
    return benchmark(name_or_path, profile, set).results(
        datasets, methods, splits, results=results
    )


@checked
def posterior(
    found: Results | str | Path,
    dataset: str,
    method: str,
    split: int = 0,
    at: Mapping[str, Any] | None = None,
) -> Fitted:
    """Load the posterior of a final fit of results, or of what `results` finds.

    Otherwise as `Results.posterior`.
    """
    found = found if isinstance(found, Results) else results(found)
    return found.posterior(dataset, method, split, at)


def asked_for(
    name_or_path: str, profile: str, set: Names, datasets: Names, methods: Names, splits: Splits
) -> Variant:
    """Put what a program asks for into the words of the command line.

    Errors as in `bdl.spec.load_variant`.
    """
    overrides, tables, entries = (
        [one] if isinstance(one, str) else one for one in (set, datasets, methods)
    )
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

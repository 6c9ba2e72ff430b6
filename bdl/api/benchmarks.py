"""A benchmark: run it, read its results as frames, and load the posteriors of its fits."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
from annotated_types import Ge
from rich.console import Console

from bdl.api.fitted import Fitted
from bdl.errors import unknown_name_error
from bdl.plan.planning import list_tasks
from bdl.publishing.run_figures import gather_figure_data, gather_stored_pictures
from bdl.publishing.run_tables import compare_with_print, judge_run_claims
from bdl.reports.claims import RECORD_FIELDS
from bdl.reports.figures import Figures, draw_figure, drawings_of, tables_html
from bdl.reports.layout import metric_sections
from bdl.spec import Benchmark as Spec
from bdl.spec import Request, SweepPoint, load_request
from bdl.spec.fields import validate_arguments
from bdl.stored_results.loading import LoadedResults, load_open_results, load_results
from bdl.stored_results.results_folder import ResultsFolder

Names = str | Sequence[str]
"""One name, or several."""
Splits = int | str | Sequence[int] | None
"""The number of splits, from the first on; or which, ``"0,3,5-7"`` or ``[0, 3]``; None for all."""


@dataclass(frozen=True, eq=False)
class Results:
    """Results of a run, and the folder that they are in."""

    folder: Path
    loaded: LoadedResults = field(repr=False)

    @property
    def rows(self) -> pd.DataFrame:
        """One row a final fit, with a column for each metric and hyper-parameter (``hyper_...``).

        The other columns are data set, method, split, status and so on.
        `method` and `entry` are the same, the name of an entry of the benchmark file; published
        files have `entry`.
        """
        return _with_method_column(self.loaded.rows)

    @property
    def points(self) -> pd.DataFrame:
        """One row a score that was recorded while a fit ran; data set and method as in `rows`."""
        return _with_method_column(self.loaded.points)

    @cached_property
    def table(self) -> pd.DataFrame:
        """One row a statistic of a cell, ours and the paper's, as in ``bdl-bench table``."""
        entries = [asdict(entry) for entry in compare_with_print(self.loaded)]
        return pd.DataFrame([{**entry.pop("point"), **entry} for entry in entries])

    @cached_property
    def claims(self) -> pd.DataFrame:
        """One row a finding of a paper, with its verdict.

        The columns are `claim`, `source`, data set, point, means of both sides, margin of claims
        of equality, difference, interval and verdict. A claim of which no split has both sides is
        one row without numbers.
        """
        records = [record for claim in judge_run_claims(self.loaded) for record in claim.records]
        return pd.DataFrame(records, columns=None if records else [*RECORD_FIELDS])

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
        pictures = gather_stored_pictures(self.loaded, self.loaded.recorded_request)
        drawings = drawings_of(gather_figure_data(self.loaded, pictures))
        if name and name not in drawings:
            raise unknown_name_error("figure", name, drawings)
        if name:
            drawings = {name: drawings[name]}
        return Figures({title: draw_figure(draw, self.remark) for title, draw in drawings.items()})

    @property
    def place(self) -> Path:
        """The same as `folder`."""
        return self.folder  # alias until 0.3

    @property
    def found(self) -> LoadedResults:
        """The same as `loaded`."""
        return self.loaded  # alias until 0.3

    def _repr_html_(self) -> str:
        """Show tables of means and medians, below a remark where rows differ from the protocol."""
        return tables_html(metric_sections(compare_with_print(self.loaded)), self.loaded.banner)

    @property
    def remark(self) -> str:
        """How the rows differ from the protocol; empty if they do not."""
        return self.loaded.remark

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
            Number of the split, from 0.
        at
            Path of each axis of the sweep to its value, where there is one.

        Raises
        ------
        InputError
            If there is no such fit, it failed or was imported from published rows, or spec, data
            or code have changed.
        """
        tasks = list_tasks(self.loaded.benchmark)
        # in the order of Task.key, so that a message lists what the earlier names leave
        coordinates = {"dataset": dataset, "method": method, "point": SweepPoint(at or {}).text}
        for position, (kind, name) in enumerate(coordinates.items()):
            candidates = {task.key[position] for task in tasks}
            if name not in candidates:
                raise unknown_name_error(kind, name, candidates)
            tasks = [task for task in tasks if task.key[position] == name]
        (task,) = tasks
        results_folder = ResultsFolder(
            self.folder, self.loaded.recorded_request, prefer_store=True
        )
        posterior, buffers, row = results_folder.load_posterior(task, split)
        return Fitted(task.with_splits((split,)), split, posterior, buffers, row.hyper)


@dataclass(frozen=True)
class Benchmark:
    """A benchmark under a profile, with overrides, all as `benchmark` takes them."""

    name_or_path: str
    profile: str = "paper"
    set: tuple[str, ...] = ()

    @property
    def spec(self) -> Spec:
        """The checked content of the file: ``spec.datasets``, ``spec.entries`` and so on."""
        return load_request(self.name_or_path, self.profile, self.set).benchmark

    @validate_arguments
    def run(
        self,
        datasets: Names = (),
        methods: Names = (),
        splits: Splits = None,
        *,
        device: str = "cpu",
        jobs: Annotated[int, Ge(1)] = 1,
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
            Whether to start anew the fits that another spec, data or code made; a copy of the
            store is kept.
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
            If the command line would refuse it; the words are the same.
        """
        from bdl.api import running  # slow to import; programs that read results do without it

        request = build_request(
            self.name_or_path, self.profile, self.set, datasets, methods, splits
        )
        options = running.RunOptions(
            results=Path(results),
            device=device,
            compile=compile,
            jobs=jobs,
            fresh=fresh,
            changed=changed,
            imports_published=published,
            retry=retry_failed,
            bar=progress is None,
        )
        # names of columns may have brackets, which are no mark-up
        console = Console(quiet=not progress, markup=False, emoji=False)
        running.run_benchmark(request, options, None, console)
        return self.results(datasets, methods, splits, results=results)

    @validate_arguments
    def results(
        self,
        datasets: Names = (),
        methods: Names = (),
        splits: Splits = None,
        *,
        results: str | Path = "results",
    ) -> Results:
        """Read the results of an earlier run of the same part; errors as in `bdl.results`."""
        request = build_request(
            self.name_or_path, self.profile, self.set, datasets, methods, splits
        )
        loaded = load_results(request, Path(results))
        return Results(loaded.folder, loaded)


@validate_arguments
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
    overrides = (set,) if isinstance(set, str) else tuple(set)
    load_request(str(name_or_path), profile, overrides)  # refuse here rather than at the first run
    return Benchmark(str(name_or_path), profile, overrides)


@validate_arguments
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
    folder = Path(name_or_path)
    results_folder = ResultsFolder(folder)
    if results_folder.has_rows:
        return Results(folder, load_open_results(results_folder))
    return benchmark(name_or_path, profile, set).results(
        datasets, methods, splits, results=results
    )


@validate_arguments
def posterior(
    found: Results | str | Path,
    dataset: str,
    method: str,
    split: int = 0,
    at: Mapping[str, Any] | None = None,
) -> Fitted:
    """Load the posterior of a final fit; `found` are results, or what `results` takes.

    Otherwise as `Results.posterior`.
    """
    loaded = found if isinstance(found, Results) else results(found)
    return loaded.posterior(dataset, method, split, at)


def build_request(
    name_or_path: str, profile: str, set: Names, datasets: Names, methods: Names, splits: Splits
) -> Request:
    """Build the request that the same words make on the command line.

    Errors as in `bdl.spec.load_request`.
    """
    overrides, dataset_names, entries = (
        [names] if isinstance(names, str) else names for names in (set, datasets, methods)
    )
    if splits is None or isinstance(splits, str):
        chosen = splits
    elif isinstance(splits, int | np.integer):
        chosen = str(splits)
    else:
        # a lone "3" would mean the first three, so that each number is a range
        chosen = ",".join(f"{number}-{number}" for number in splits)
    return load_request(name_or_path, profile, overrides, dataset_names, entries, chosen)


def _with_method_column(rows: pd.DataFrame) -> pd.DataFrame:
    """Add the column ``method``, a copy of ``entry``: commands and tables call entries methods."""
    frame = rows.copy()
    frame.insert(list(rows.columns).index("entry"), "method", rows["entry"])
    return frame

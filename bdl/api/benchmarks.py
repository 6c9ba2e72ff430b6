"""A benchmark, and running it."""

from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from typer import Exit

from bdl.api import reading, running
from bdl.api.reading import Names, Results, Splits, asked_for
from bdl.spec import Benchmark as Spec
from bdl.spec import load_variant
from bdl.spec.fields import checked


@dataclass(frozen=True)
class Benchmark:
    """A benchmark under a profile, with overrides.

    Parameters
    ----------
    name_or_path
        As `benchmark` takes it.
    profile
        As `benchmark` takes it.
    set
        As `benchmark` takes it.
    """

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
        """Run what is missing and publish it, as ``bdl-bench run`` does; fits that failed say so in the rows.

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
            Processes that work side by side. More than one import the calling script: keep its work below
            ``if __name__ == "__main__":``.
        compile
            Whether to compile; None for where it pays.
        fresh
            Whether to start anew; a copy of the store is kept.
        changed
            Whether to start anew what another spec, data or code made; a copy of the store is kept.
        published
            Whether to import published fits that today's spec, data and code made.
        retry_failed
            Whether to make fits again that failed; what their search found is kept.
        results
            Folder of results.
        progress
            Whether to print what the command line prints; by default a bar, in a notebook and on a terminal.

        Raises
        ------
        InputError
            What the command line would refuse, in the same words.
        """
        asked = asked_for(self.name_or_path, self.profile, self.set, datasets, methods, splits)
        run_settings = running.RunSettings(
            Path(results), device, compile, jobs, fresh, changed, published, retry_failed, bar=progress is None
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
        return reading.results(self.name_or_path, self.profile, self.set, datasets, methods, splits, results)


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
        If the file cannot be read, or it, its profile or an override says something that is not allowed.
    """
    found = Benchmark(str(name_or_path), profile, (set,) if isinstance(set, str) else tuple(set))
    load_variant(found.name_or_path, found.profile, found.set)
    return found

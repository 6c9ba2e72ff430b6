"""What the leaderboard shows: runs that are published here, and runs that others have handed in as bundles."""

import json
from collections.abc import Iterator, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import yaml

from bdl.archive.loading import LoadedResults, load_results
from bdl.errors import InputError
from bdl.metrics import info
from bdl.publishing.bundle import Bundle, BundledCell, BundledRun
from bdl.publishing.foreign import readable
from bdl.publishing.outcome import compared
from bdl.publishing.provenance import overlaps, recorded_overlaps
from bdl.publishing.submitting import registered
from bdl.publishing.verifying import verify
from bdl.registry import shipped
from bdl.reports import Cell
from bdl.reports.paired import PairedDifference, paired, scores
from bdl.spec import load_variant

ROOT = Path(__file__).parents[1]


class Run(NamedTuple):
    """Rows of a benchmark, and where they are from."""

    folder: str
    """Name on the page: below ``results/``, or that of the bundle."""
    found: LoadedResults
    table: Sequence[Cell]
    """The statistics of the rows."""
    overlap: Mapping[str, float] | None
    """As `overlaps` gives it; None where it is neither recorded nor are the data here."""
    methods: Mapping[str, str]
    """Name of the method by entry."""
    origins: Mapping[str, str]
    """Who has made the fits, by ``dataset/entry``."""
    commits: Mapping[str, str | None]
    """Of the code that has made the fits, by ``dataset/entry``."""
    hashes: Mapping[str, str]
    """Identity of the fits, by ``dataset/entry``."""
    command: str
    """Which runs it again."""
    links: Mapping[str, str]
    """Further files of the site by their names."""
    files: Mapping[str, bytes]
    """Content of those that are made here."""
    commit: str | None = None
    """By which a bundle is pre-registered."""

    @property
    def stem(self) -> str:
        """Name of its files."""
        return self.folder.replace("/", "-")


def published_run(folder: str) -> Run:
    """Return what is published in a folder of results, ``name`` or ``name/profile``."""
    name, _, profile = folder.partition("/")
    found = load_results(load_variant(name, profile or "paper"), ROOT / "results")
    origin = json.loads((found.place / "provenance.json").read_text("utf-8"))
    methods = {entry: settings.method.name for entry, settings in found.benchmark.entries.items()}
    labels = list(dict.fromkeys(zip(found.rows["dataset"], found.rows["entry"], strict=True)))
    earlier = {
        label: each["git_commit"]
        for each in origin.get("taken_from", ())
        for label in each["cells"]
    }
    raw = f"results/{folder}/trials.parquet"
    return Run(
        folder,
        found,
        [Cell(**record) for record in json.loads((found.place / "table.json").read_text("utf-8"))],
        _overlap(found),
        methods,
        {
            f"{dataset}/{entry}": "guest" if ":" in methods[entry] else "ours"
            for dataset, entry in labels
        },
        {f"{dataset}/{entry}": origin["git_commit"] for dataset, entry in labels} | earlier,
        origin["fit_hashes"],
        f"bdl-bench run {found.made.asked}",
        {
            "YAML": f"benchmarks/index.html#{name}",
            "table": f"results/{folder}/table/index.html",
            "raw rows": raw,
        },
        {raw: (ROOT / raw).read_bytes()},
    )


def handed_in(folder: Path, published: Sequence[Run]) -> Iterator[Run]:
    """Yield what the bundles of a folder are of.

    Fits are ``reproduced`` if published rows are of the same fits, by their identity, on all of
    their splits, and no score of predictions differs beyond chance; the others are
    ``self-reported``.

    Parameters
    ----------
    folder
        Of the bundles.
    published
        What was run here.

    Raises
    ------
    InputError
        If a bundle does not verify.
    """
    for path in sorted(folder.glob("*.zip")):
        verify(path)
        with Bundle(path) as bundle:
            run = bundle.run()
        variant, _ = readable(run.made)
        name, stem = variant.benchmark.name, f"submissions-{path.stem}"
        found = LoadedResults(path, variant, _rows(run), pd.DataFrame(), "", False)
        own = folder / f"{name}.yaml"
        source = (
            variant.asked
            if name in shipped()
            else f"{own.relative_to(folder.parent)}"
            if own.exists()
            else name
        )
        spec = yaml.safe_dump(dict(run.made["spec"]), sort_keys=False, allow_unicode=True)
        links = {"YAML": f"leaderboard/rows/{stem}.yaml", "bundle": f"leaderboard/rows/{stem}.zip"}
        labels = {f"{cell.dataset}/{cell.entry}": cell for cell in run.cells}
        yield Run(
            f"submissions/{path.stem}",
            found,
            compared(found),
            _overlap(found),
            {
                entry: settings["method"]["name"]
                for entry, settings in run.made["spec"]["entries"].items()
            },
            {label: _origin(found, cell, published) for label, cell in labels.items()},
            dict.fromkeys(labels, run.environment["git_commit"]),
            {label: cell.fit_hash for label, cell in labels.items()},
            f"bdl-bench run {source}",
            links,
            dict(zip(links.values(), (spec.encode(), path.read_bytes()), strict=True)),
            registered(path).commit,
        )


def rows_by_split(run: Run) -> Iterator[tuple[str, str, bytes]]:
    """Yield the final rows, one a split, in two formats: what they are, their place in the site, content."""
    found, place = run.found, f"leaderboard/rows/{run.stem}"
    metrics = [name for name in map(str, found.benchmark.metrics) if name in found.rows]
    rows = found.rows[["dataset", "entry", "split", "status", "reason", *metrics]]
    yield "splits as CSV", f"{place}.csv", rows.to_csv(index=False).encode()
    with BytesIO() as file:
        rows.to_parquet(file, index=False)
        yield "as Parquet", f"{place}.parquet", file.getvalue()


def _overlap(found: LoadedResults) -> Mapping[str, float] | None:
    try:
        return (
            recorded_overlaps(found.place, found.benchmark)
            if found.place.is_dir()
            else overlaps(found.benchmark)
        )
    except InputError:
        return None


def _rows(run: BundledRun) -> pd.DataFrame:
    """Return the rows of a bundle as those of results."""
    rows: list[dict[str, Any]] = []
    for cell in run.cells:
        for row in cell.rows:
            hyper = {f"hyper_{name}": value for name, value in row.hyper.items()}
            own = {name: getattr(row, name) for name in ("split", "status", "reason", "seconds")}
            rows.append(
                {"dataset": cell.dataset, "entry": cell.entry, **own, **hyper, **row.scores}
            )
    return pd.DataFrame(rows)


def _origin(found: LoadedResults, cell: BundledCell, published: Sequence[Run]) -> str:
    label = f"{cell.dataset}/{cell.entry}"
    ours = [run for run in published if run.hashes.get(label) == cell.fit_hash]
    return "reproduced" if any(_agree(found.rows, run, cell) for run in ours) else "self-reported"


def _agree(rows: pd.DataFrame, run: Run, cell: BundledCell) -> bool:
    """Return whether rows of the same fits, one of them ours, have all splits and no difference beyond chance."""
    theirs, ours = (
        each[(each["dataset"] == cell.dataset) & (each["entry"] == cell.entry)].set_index("split")
        for each in (rows, run.found.rows)
    )
    if not set(theirs.index) <= set(ours.index) or run.overlap is None:
        return False
    place, shared = (cell.dataset, cell.entry), run.overlap.get(cell.dataset, 0.0)
    metrics = [
        name for name in map(str, run.found.benchmark.metrics) if info(name).kind == "predictive"
    ]
    return all(
        paired(
            PairedDifference(*place, name, 0), scores(theirs, name), scores(ours, name), shared
        ).verdict
        == "undecided"
        for name in metrics
        if name in theirs and name in ours
    )

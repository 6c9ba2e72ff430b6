"""What the leaderboard shows: runs that are published here."""

import json
from collections.abc import Iterator, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

from bdl.errors import InputError
from bdl.publishing.overlaps import load_overlaps
from bdl.reports.comparison import TableEntry
from bdl.spec import load_request
from bdl.stored_results.loading import LoadedResults, load_results

ROOT = Path(__file__).parents[1]


class Run(NamedTuple):
    """Rows of a benchmark, and where they are from."""

    folder: str
    """Name on the page, below ``results/``."""
    found: LoadedResults
    table: Sequence[TableEntry]
    """The statistics of the rows."""
    overlap: Mapping[str, float] | None
    """As `compute_overlaps` gives it; None where it is neither recorded nor are the data here."""
    methods: Mapping[str, str]
    """Name of the method by entry."""
    origins: Mapping[str, str]
    """Who has made the fits, by ``dataset/entry``."""
    commits: Mapping[str, str | None]
    """Of the code that has made the fits, by ``dataset/entry``."""
    command: str
    """Which runs it again."""
    links: Mapping[str, str]
    """Further files of the site by their names."""
    files: Mapping[str, bytes]
    """Content of those that are made here."""

    @property
    def stem(self) -> str:
        """Name of its files."""
        return self.folder.replace("/", "-")


def published_run(folder: str) -> Run:
    """Return what is published in a folder of results, ``name`` or ``name/profile``."""
    name, _, profile = folder.partition("/")
    found = load_results(load_request(name, profile or "paper"), ROOT / "results")
    origin = json.loads((found.folder / "run.json").read_text("utf-8"))
    methods = {entry: settings.method.name for entry, settings in found.benchmark.entries.items()}
    labels = list(dict.fromkeys(zip(found.rows["dataset"], found.rows["entry"], strict=True)))
    earlier = {
        label: each["git_commit"]
        for each in origin.get("taken_from", ())
        for label in each["cells"]
    }
    raw = f"results/{folder}/rows.parquet"
    return Run(
        folder,
        found,
        [
            TableEntry(**record)
            for record in json.loads((found.folder / "table.json").read_text("utf-8"))
        ],
        _overlap(found),
        methods,
        {
            f"{dataset}/{entry}": "guest" if ":" in methods[entry] else "ours"
            for dataset, entry in labels
        },
        {f"{dataset}/{entry}": origin["git_commit"] for dataset, entry in labels} | earlier,
        f"bdl-bench run {found.recorded_request.command_arguments}",
        {
            "YAML": f"benchmarks/index.html#{name}",
            "table": f"results/{folder}/table/index.html",
            "raw rows": raw,
        },
        {raw: (ROOT / raw).read_bytes()},
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
        return load_overlaps(found.folder, found.benchmark)
    except InputError:
        return None

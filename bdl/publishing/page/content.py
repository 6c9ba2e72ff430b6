"""What a page shows, gathered from rows, figures and provenance."""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pandas as pd
import yaml

from bdl.archive.folder import ResultsFolder
from bdl.archive.loading import LoadedResults
from bdl.metrics import info
from bdl.reports import Cell
from bdl.reports.figures import KINDS, heading_of
from bdl.reports.layout import Section
from bdl.reports.paired import PairedDifference, paired_sections, tally
from bdl.spec import Benchmark
from bdl.spec.splits import listed


def verdicts(cells: Sequence[Cell]) -> Counter[str]:
    """Count the verdicts, durations aside."""
    return Counter(cell.verdict for cell in cells if info(cell.metric).direction != "ratio")


def part(benchmark: Benchmark, rows: pd.DataFrame) -> dict[str, str]:
    """Name the data sets and entries of a benchmark, and the splits that have rows, for people."""
    have = set(rows["split"].unique())
    total = max(len(benchmark.splits_of(dataset)) for dataset in benchmark.datasets)
    return {
        "Data sets": ", ".join(benchmark.datasets),
        "Methods": ", ".join(benchmark.entries),
        "Splits": f"{total}" if len(have) == total else f"{len(have)} of {total} ({listed(have)})",
    }


def paired(benchmark: Benchmark, differences: Sequence[PairedDifference]) -> list[Section]:
    """Lay out the differences from the baseline and who wins how often; nothing without a pair."""
    if not any(difference.n for difference in differences):
        return []
    return [tally(benchmark, differences), *paired_sections(benchmark, differences)]


def pictures(places: Sequence[Path], benchmark: str) -> dict[str, list[Path]]:
    """Group the figures of folders by what they show; of those with one name, take that of the first folder."""
    groups: dict[str, list[Path]] = {}
    found = {path.name: path for place in reversed(places) for path in (place / "figures").glob(f"{benchmark}-*.png")}
    for _, path in sorted(found.items()):
        groups.setdefault(heading_of(path.stem.removeprefix(benchmark)), []).append(path)
    return {kind.heading: groups[kind.heading] for kind in KINDS if kind.heading in groups}


def problems(found: LoadedResults) -> pd.DataFrame:
    """Read what failed, folds of the search as well."""
    with ResultsFolder(found.place, found.made) as here:
        return here.problems


def failures(rows: pd.DataFrame) -> Section | None:
    """List what failed and why, final fits one by one and those of the search counted."""
    failed = rows[rows["status"] != "ok"].assign(reason=lambda table: table["reason"].fillna("no reason was kept"))
    final = failed["stage"] == "final"
    lines: list[tuple[str, ...]] = [
        (row["dataset"], row["entry"], f"final, split {row['split']}", "1", row["reason"])
        for row in failed[final].to_dict("records")
    ]
    searched = Counter(zip(*(failed[~final][name] for name in ("dataset", "entry", "reason")), strict=True))
    lines += [(where, entry, "search", f"{count}", why) for (where, entry, why), count in searched.items()]
    columns = ["Dataset", "Method", "Fit", "Count", "Reason"]
    return Section.of("Failed fits", columns, lines) if lines else None


def hypers(rows: pd.DataFrame, axes: Sequence[str]) -> Section | None:
    """Return what hyper-parameters the final fits had: median, least and greatest over the splits."""
    lines = [
        (*map(str, key), column.removeprefix("hyper_"), *_spread(values))
        for key, own in rows.groupby(["dataset", "entry", *axes], sort=False)
        for column, values in _known(own)
    ]
    columns = ["Dataset", "Method", *axes, "Hyper-parameter", "Median", "Least", "Greatest"]
    return Section.of("Hyper-parameters of the final fits", columns, lines) if lines else None


def _known(own: pd.DataFrame) -> Iterator[tuple[str, "pd.Series[float]"]]:
    for column in own.columns:
        if column.startswith("hyper_") and own[column].notna().any():
            yield column, own[column]


def _spread(values: "pd.Series[float]") -> tuple[str, str, str]:
    return f"{values.median():.3g}", f"{values.min():.3g}", f"{values.max():.3g}"


def provenance(place: Path) -> dict[str, str]:
    """Read where the rows came from, for people; empty where nothing says so."""
    with ResultsFolder(place) as here:
        content = here.provenance
    hidden = ("spec", "fit_hashes", "score_hashes", "fingerprints", "published", "posteriors", "overlap")
    return {name: _told(value) for name, value in content.items() if name not in hidden and value not in (None, {}, [])}


def _told(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_told(part)}" for name, part in value.items())
    return ", ".join(map(_told, value)) if isinstance(value, list) else str(value)


def spec(found: LoadedResults) -> str:
    """Write the benchmark that the rows were made with as YAML, with every default."""
    return yaml.safe_dump(found.benchmark.model_dump(mode="json"), sort_keys=False, allow_unicode=True, width=110)

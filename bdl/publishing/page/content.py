"""What a page shows, gathered from rows, figures and provenance."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pandas as pd
import yaml

from bdl.errors import InputError
from bdl.metrics import info
from bdl.publishing.found import Found, part
from bdl.publishing.frames import read_frames
from bdl.publishing.outcome import compared, narrowed
from bdl.publishing.overlap import overlaps
from bdl.reports import Cell
from bdl.reports.layout import Column, Section, chance, footnotes
from bdl.reports.paired import paired_differences
from bdl.reports.paired_tables import paired_sections, tally

KINDS = {
    "-paired": "Paired differences",
    "-curve": "Curves",
    "-cost": "What closeness costs",
    "-posterior": "Posteriors beside the truth",
    "-bands": "Bands",
}
"""What the names of figures have behind the benchmark's, and a heading."""
SCORES = "Scores"

_FIRST = (Column("Dataset", "left"), Column("Method", "left"))
_SPREAD = tuple(Column(name, "right") for name in ("Median", "Least", "Greatest"))


def notes(cells: Sequence[Cell]) -> list[str]:
    """List the notes in the order of their numbers, and what chance does."""
    last = chance(cells)
    return [*(f"{number} {note}" for number, note in enumerate(footnotes(cells), 1)), *([last] if last else [])]


def verdicts(cells: Sequence[Cell]) -> Counter[str]:
    """Count the verdicts, durations aside."""
    return Counter(cell.verdict for cell in cells if info(cell.metric).direction != "ratio")


def comparison(found: Found) -> list[Cell]:
    """Compare what has rows with the printed values."""
    return compared(found)


def paired(found: Found) -> list[Section]:
    """Lay out the differences from the baseline and who wins how often; nothing without a baseline or its data."""
    benchmark = narrowed(found.benchmark, found.rows)
    if benchmark.baseline is None:
        return []
    try:
        differences = paired_differences(benchmark, found.rows, overlaps(benchmark))
    except InputError:  # data that are not on this machine
        return []
    if not any(difference.n for difference in differences):
        return []
    return [tally(benchmark, differences), *paired_sections(benchmark, differences)]


def pictures(place: Path, benchmark: str) -> dict[str, list[Path]]:
    """Group the figures of a folder by what they show."""
    groups: dict[str, list[Path]] = {}
    for path in sorted((place / "figures").glob(f"{benchmark}-*.png")):
        rest = path.stem.removeprefix(benchmark)
        kind = next((heading for word, heading in KINDS.items() if word in rest), SCORES)
        groups.setdefault(kind, []).append(path)
    return {kind: groups[kind] for kind in (SCORES, *KINDS.values()) if kind in groups}


def every_row(found: Found, place: Path) -> pd.DataFrame:
    """Read the rows of the search as well, where they are published."""
    return part(read_frames(place)[0], found.made) if (place / "trials.parquet").exists() else found.rows


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
    columns = (*_FIRST, Column("Fit", "left"), Column("Count", "right"), Column("Reason", "left"))
    return Section("Failed fits", columns, tuple(lines)) if lines else None


def hypers(rows: pd.DataFrame, axes: Sequence[str]) -> Section | None:
    """Return what hyper-parameters the final fits had: median, least and greatest over the splits."""
    lines = [
        (*map(str, key), column.removeprefix("hyper_"), *_spread(values))
        for key, own in rows.groupby(["dataset", "entry", *axes], sort=False)
        for column, values in _known(own)
    ]
    columns = (*_FIRST, *(Column(path, "left") for path in axes), Column("Hyper-parameter", "left"), *_SPREAD)
    return Section("Hyper-parameters of the final fits", columns, tuple(lines)) if lines else None


def _known(own: pd.DataFrame) -> Iterator[tuple[str, "pd.Series[float]"]]:
    for column in own.columns:
        if column.startswith("hyper_") and own[column].notna().any():
            yield column, own[column]


def _spread(values: "pd.Series[float]") -> tuple[str, str, str]:
    return f"{values.median():.3g}", f"{values.min():.3g}", f"{values.max():.3g}"


def provenance(place: Path) -> dict[str, str]:
    """Read where the rows came from, for people; empty where nothing says so."""
    path = place / "provenance.json"
    if not path.exists():
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        raise InputError(f"{path} is damaged; remove it and run again") from None
    hidden = ("spec", "fit_hashes", "fingerprints")
    return {name: _told(value) for name, value in content.items() if name not in hidden and value not in (None, {}, [])}


def _told(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_told(part)}" for name, part in value.items())
    return ", ".join(map(_told, value)) if isinstance(value, list) else str(value)


def spec(found: Found) -> str:
    """Write the benchmark that the rows were made with as YAML, with every default."""
    return yaml.safe_dump(found.benchmark.model_dump(mode="json"), sort_keys=False, allow_unicode=True, width=110)

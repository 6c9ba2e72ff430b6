"""Return which published cells today's code makes again, and stamp them with today's identities.

The final fit of one split of each cell is made again under its published setting, and its scores are held against the
published ones; where a curve is published, up to the first tenth of the fit, and the scores there. A cell whose scores
come out the same, but for what rounding does on another processor (docs/bits.md), gets today's identity. Another one
has none in its provenance, and a note below its table, until it is made again. What is checked is not checked again,
unless `--again` asks for what came out otherwise: chaotic fits differ by some per cent with the instructions of the
processor, and may be the same under others (`ATEN_CPU_CAPABILITY=avx2 MKL_CBWR=AVX2`).

    python scripts/stamp_published.py check results/uci-regression --out results/versions.jsonl --minutes 5
    python scripts/stamp_published.py stamp results/uci-regression --out results/versions.jsonl
"""

import argparse
import json
import math
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from bdl.archive.frames import read_frames
from bdl.execution.groups import Chosen, FinalGroup
from bdl.execution.scoring import computed, evaluation, scores
from bdl.plan import Cell, fit_hash, joint_hash, score_hash
from bdl.plan.planning import cells_of
from bdl.plan.programs import compiles, evaluations, final_fitting
from bdl.publishing.provenance import write_provenance
from bdl.spec import Variant, load_variant

SAME = 0.02
"""Largest relative difference of a score that counts as rounding: what docs/bits.md shows for fits of VIFA. Where a fit
is chaotic, or a score near zero, the difference of a single split says little, and `CLOSE` decides."""

CLOSE = 1e-3
"""Absolute difference that counts as rounding for scores that are shares or distances near zero."""


def main() -> None:
    """Check or stamp folders of published rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["check", "stamp"])
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument(
        "--out", type=Path, required=True, help="JSON lines, one a cell; what they hold is not done again"
    )
    parser.add_argument(
        "--minutes", type=float, default=math.inf, help="leave out cells that took longer when published"
    )
    parser.add_argument("--again", action="store_true", help="check again what came out otherwise")
    given = parser.parse_args()
    for folder in given.folders:
        if given.action == "stamp":
            stamp(folder, given.out)
        else:
            check(folder, given.out, given.minutes, again=given.again)


def check(folder: Path, out: Path, minutes: float, *, again: bool) -> None:
    """Make one split of each cell again."""
    known = _checks(out)
    points = read_frames(folder)[1]
    for cell, rows in cells_of_published(folder):
        label = f"{folder}: {cell.label}"
        if label in known and (not again or _is_same(known[label])):
            continue
        first = rows.sort_values("split").iloc[0]
        cost = first.seconds * (1 if pd.isna(first.get("width")) else first["width"]) / 60
        if cost > minutes:
            continue
        start = time.monotonic()
        instructions = torch.backends.cpu.get_cpu_capability()
        found = {
            "cell": label,
            "instructions": instructions,
            **_again(cell, first, _curve(cell, points, int(first.split))),
        }
        found["minutes"] = round((time.monotonic() - start) / 60, 2)
        with out.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(found) + "\n")
        print(f"{label}: {found.get('off')} {found.get('error', '')}", flush=True)


def stamp(folder: Path, out: Path) -> None:
    """Write today's identities of the cells that came out the same, and mark the others."""
    known, path = _checks(out), folder / "provenance.json"
    content = json.loads(path.read_text("utf-8"))
    fits: dict[str, str | None] = {}
    scores: dict[str, str | None] = {}
    for cell, _ in cells_of_published(folder):
        same = _is_same(known.get(f"{folder}: {cell.label}", {"error": "not checked"}))
        fits[cell.label] = fit_hash(cell) if same else None
        scores[cell.label] = joint_hash(score_hash(cell, metric) for metric in computed(cell)) if same else None
    content.pop("fingerprints", None)  # what earlier versions called them
    write_provenance(content | {"fit_hashes": fits, "score_hashes": scores}, folder)
    legacy = list(fits.values()).count(None)
    print(f"{folder}: {len(fits) - legacy} of today, {legacy} of legacy code")


def _checks(out: Path) -> dict[str, dict[str, Any]]:
    """Read the last check of each cell, or one that came out the same."""
    known: dict[str, dict[str, Any]] = {}
    for found in map(json.loads, out.read_text("utf-8").splitlines() if out.exists() else ()):
        if not _is_same(known.get(found["cell"], {"error": "not checked"})):
            known[found["cell"]] = found
    return known


def cells_of_published(folder: Path) -> Iterator[tuple[Cell, pd.DataFrame]]:
    """Yield the cells of today's benchmark that have published fits which succeeded, with their rows."""
    rows, _, text = read_frames(folder)
    made = Variant.parse(text, str(folder)) if text else load_variant(folder.name)
    finals = rows[(rows.stage == "final") & (rows.status == "ok")]
    for cell in cells_of(load_variant(made.benchmark.name, made.benchmark.profile).benchmark):
        keys = {"dataset": str(cell.dataset), "entry": cell.entry, **cell.point.texts}
        own = finals[(finals.reindex(columns=list(keys)) == pd.Series(keys)).all(axis=1)]
        if len(own):
            yield cell.with_splits(tuple(map(int, own.split))), own


def _curve(cell: Cell, points: pd.DataFrame, split: int) -> dict[str, float]:
    """Return the published scores at the first recorded count past a tenth of a fit, with the count as ``at``."""
    keys = {"dataset": str(cell.dataset), "entry": cell.entry, "split": split, **cell.point.texts}
    own = points[(points.reindex(columns=list(keys)) == pd.Series(keys)).all(axis=1)] if len(points) else points
    if own.empty:
        return {}
    at = own["at"][own["at"] >= own["at"].max() / 10].min()
    return {"at": float(at)} | dict(own[own["at"] == at].set_index("metric").value)


def _again(cell: Cell, row: "pd.Series[Any]", curve: dict[str, float]) -> dict[str, Any]:
    """Make a published fit again, and compare its scores."""
    values = {str(name).removeprefix("hyper_"): row[name] for name in row.index if str(name).startswith("hyper_")}
    setting = {
        name: float(values[name]) for name in cell.settings.hyper_names if name not in cell.settings.from_reference
    }
    compiled = row.get("compiled")
    own = replace(cell, splits=(int(row.split),), compile=None if pd.isna(compiled) else bool(compiled))
    group = FinalGroup((Chosen(own, int(row.split), setting),))
    try:
        found = _early(group, int(curve["at"])) if curve else group.run(lambda work: None)[0].row.metrics
    except Exception as error:  # whatever today's code makes of it, the others are to be told, too
        return {"error": f"{type(error).__name__}: {error}"}
    published = curve or row
    pairs = {
        name: [float(published[name]), value]
        for name, value in found.items()
        if name in published and name != "runtime" and value is not None and not pd.isna(published[name])
    }
    return {"split": int(row.split), "at": curve.get("at"), "scores": pairs, "off": worst(pairs)}


def _early(group: FinalGroup, at: int) -> dict[str, float]:
    """Return the scores of a fit when its curve reached a count, and leave the rest."""
    cell, split, *_ = group.chosen[0]
    when = evaluations(cell)
    work = final_fitting(group.members, group.hyper, compiles(cell, "final"))
    for snapshot in work.run(when, lambda work: None, None):
        if when is not None and (
            when.due(snapshot.counters) == at or (snapshot.last and when.place(snapshot.counters) == at)
        ):
            buffers = {name: value[0] for name, value in snapshot.buffers.items()}
            evaluated = evaluation(cell, split, work.posterior(snapshot, 0), buffers, group.hyper[0])
            return scores(evaluated, computed(cell)).values
    raise ValueError(f"no scores at {at}")


def worst(pairs: dict[str, list[float]]) -> dict[str, float]:
    """Return the relative difference of each score that is not as published, up to rounding and sampling errors."""
    errors = {name: pair for name, pair in pairs.items() if name.endswith(("_mcse", "_floor"))}
    off = {}
    for name, (published, found) in pairs.items():
        sampling = 4 * sum(errors.get(f"{name}_mcse", (0.0, 0.0)))  # two references, each with its draws
        difference = abs(published - found)
        if name not in errors and difference > max(sampling, CLOSE * min(1.0, abs(published))):
            off[name] = difference / max(abs(published), abs(found))
    return off


def _is_same(found: dict[str, Any]) -> bool:
    """Return whether a check has found a cell to be made again by today's code."""
    if "how" in found:
        return True
    return "error" not in found and bool(found["scores"]) and max(worst(found["scores"]).values(), default=0) <= SAME


if __name__ == "__main__":
    main()

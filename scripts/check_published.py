"""Fits the published settings once more and holds the scores against the published rows.

For every cell of a published benchmark (or those chosen), the final fits are repeated with the published
hyper-parameters, as one batch of the published width and compiled if it was: rounding depends on both, and training
amplifies rounding. The search is not repeated. Durations are left out. The last column is the largest relative
difference over all splits and scores; a difference that exceeds the tolerance is listed by split.

Exit code 1 if a cell differs by more than ``--tolerance`` and is not among those whose reason ``REASONS`` gives.
"""

import argparse
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pandas as pd
from rich.console import Console
from rich.table import Table

from bdl.execution.groups import Chosen, FinalGroup
from bdl.plan.cell import Cell
from bdl.plan.planning import cells_of, together
from bdl.spec import load_benchmark

REASONS: dict[str, str] = {}
"""Entry to the reason why its rows differ."""


class Difference(NamedTuple):
    """A score of one split, published and repeated."""

    split: int
    metric: str
    published: float
    repeated: float

    @property
    def relative(self) -> float:
        """Difference relative to the published value."""
        return abs(self.repeated - self.published) / max(abs(self.published), 1e-300)


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    console, failed = Console(width=140), 0
    table = Table("benchmark", "cell", "fits", "compiled", "largest difference", "at", "")
    for name in options.benchmarks or sorted(path.parent.name for path in options.results.glob("*/trials.parquet")):
        for batch in together(_chosen(name, options)):
            for cell, found, compiled in repeat(batch, options):
                worst = max(found, key=lambda difference: difference.relative)
                fine = worst.relative <= options.tolerance
                reason = REASONS.get(cell.entry, "")
                failed += not fine and not reason
                verdict = "equal" if fine else reason or "DIFFERS"
                at = f"{worst.metric}, split {worst.split}"
                count = f"{len({difference.split for difference in found})}"
                table.add_row(name, cell.label, count, str(compiled), f"{worst.relative:.1e}", at, verdict)
                console.print(f"{name} {cell.label}: {worst.relative:.1e} ({at}) {verdict}", highlight=False)
    console.print(table)
    return 1 if failed else 0


def repeat(batch: Sequence[Cell], options: argparse.Namespace) -> Iterator[tuple[Cell, list[Difference], bool]]:
    """Fit the cells of a batch once more; yield each with its differences and whether it was compiled."""
    published = {cell: _published(cell, options.results) for cell in batch}
    chosen, compiled = [], False
    for cell in batch:
        rows = published[cell].iloc[: options.splits or None]
        for _, row in rows.iterrows():
            compiled = bool(row["compiled"])
            own = replace(cell, compile=compiled)
            chosen.append(Chosen(own, int(row["split"]), _hyper(cell, row)))
    if not chosen:
        return
    group = FinalGroup(tuple(sorted(chosen, key=lambda fit: fit.split)))
    outcomes = group.run(lambda work: None)
    for cell in batch:
        again = {outcome.row.split: outcome.row.metrics for outcome in outcomes if outcome.row.cell == cell.key}
        found = [
            Difference(split, str(metric), float(row[metric]), again[split].get(str(metric)) or math.nan)
            for split, row in published[cell].set_index("split").iterrows()
            for metric in cell.benchmark.metrics
            if metric in row and metric != "runtime" and split in again and math.isfinite(row[metric])
        ]
        if found:
            yield cell, found, compiled


def _published(cell: Cell, results: Path) -> pd.DataFrame:
    rows = pd.read_parquet(results / cell.benchmark.name / "trials.parquet")
    own = (rows.stage == "final") & (rows.dataset == str(cell.dataset)) & (rows.entry == cell.entry)
    return rows[own & (rows.status == "ok")].sort_values("split")


def _hyper(cell: Cell, row: "pd.Series[float]") -> dict[str, float]:
    names = [name for name in cell.settings.hyper_names if name not in cell.settings.from_reference]
    return {name: float(row[f"hyper_{name}"]) for name in names}


def _chosen(name: str, options: argparse.Namespace) -> list[Cell]:
    benchmark = load_benchmark(name)
    published = json.loads((options.results / name / "table.json").read_text("utf-8"))
    present = {(cell["dataset"], cell["method"]) for cell in published}
    return [
        cell
        for cell in cells_of(benchmark)
        if cell.key[:2] in present
        and (not options.dataset or cell.key[0] in options.dataset)
        and (not options.method or cell.entry in options.method)
    ]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("benchmarks", nargs="*", help="benchmarks (all that are published)")
    parser.add_argument("--results", type=Path, default=Path("results"), help="where the published rows are")
    parser.add_argument("--dataset", action="append", default=[], help="only this data set (repeatable)")
    parser.add_argument("--method", action="append", default=[], help="only this entry (repeatable)")
    parser.add_argument(
        "--splits", type=int, default=0, help="only the first so many splits; the width is then another"
    )
    parser.add_argument("--tolerance", type=float, default=1e-5, help="largest relative difference")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())

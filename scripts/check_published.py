"""Fits the published settings once more and holds the scores against the published rows.

For every cell of a published benchmark (or those chosen), the final fits are repeated with the
published hyper-parameters, as one batch of the published width and compiled if it was: rounding
depends on both, and training amplifies rounding. The search is not repeated. Durations are left
out. What is shown of a cell is its largest relative difference over all splits and scores.

Processors round differently, so that published rows of long fits are met to every digit only on
the kind of processor that made them (``provenance.json`` names it). ``--json`` keeps the scores
that were repeated here, and ``--beside`` holds them against those that another version of the
package has kept on the same machine.

Exit code 1 if a cell differs by more than ``--tolerance``.
"""

import argparse
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
from rich.console import Console

from bdl.execution.groups import FinalFit, group_final_fits
from bdl.plan import Task
from bdl.plan.planning import group_tasks, list_tasks
from bdl.spec import load_benchmark


class Difference(NamedTuple):
    """A score of one split, published and repeated."""

    split: str
    metric: str
    expected: float
    repeated: float

    @property
    def relative(self) -> float:
        """Difference relative to the expected value.

        Infinite for a score that was not repeated.
        """
        size = abs(self.repeated - self.expected) / max(abs(self.expected), 1e-300)
        return math.inf if math.isnan(size) else size


Scores = dict[str, dict[str, float]]
"""Split and metric to the score, of one cell."""


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    console, failed, kept = Console(width=140), 0, dict[str, Scores]()
    beside = json.loads(options.beside.read_text("utf-8")) if options.beside else None
    for name in options.benchmarks or sorted(
        path.parent.name for path in options.results.glob("*/trials.parquet")
    ):
        for batch in group_tasks(_chosen(name, options)):
            for cell, repeated in repeat(batch, options):
                label = f"{name} {cell.label}"
                kept[label] = repeated
                expected = (
                    _scores(cell, _published(cell, options.results))
                    if beside is None
                    else beside.get(label, {})
                )
                found = list(_differences(expected, repeated))
                worst = max(found, key=lambda difference: difference.relative, default=None)
                failed += worst is None or worst.relative > options.tolerance
                console.print(
                    f"{label}: {_told(worst, options.tolerance)}, {len(repeated)} fits",
                    highlight=False,
                )
                if options.json:
                    options.json.write_text(json.dumps(kept))
    return 1 if failed else 0


def repeat(batch: Sequence[Task], options: argparse.Namespace) -> Iterator[tuple[Task, Scores]]:
    """Fit the cells of a batch once more; yield each with its scores."""
    chosen = []
    for cell in batch:
        for _, row in _published(cell, options.results).iloc[: options.splits or None].iterrows():
            own = replace(cell, compile=bool(row["compiled"]))
            chosen.append(FinalFit(own, int(row["split"]), _hyper(cell, row)))
    if not chosen:
        return
    outcomes = [
        outcome for group in group_final_fits(chosen) for outcome in group.run(lambda work: None)
    ]
    for cell in batch:
        rows = [outcome.row for outcome in outcomes if outcome.row.cell == cell.key]
        yield cell, {str(row.split): _finite(cell, row.metrics) for row in rows}


def _scores(cell: Task, rows: pd.DataFrame) -> Scores:
    return {str(row["split"]): _finite(cell, row.to_dict()) for _, row in rows.iterrows()}


def _finite(cell: Task, found: Mapping[Any, Any]) -> dict[str, float]:
    """Pick the scores of the benchmark that are numbers, but for durations."""
    names = [str(metric) for metric in cell.benchmark.metrics if metric != "runtime"]
    values = {name: float(value) for name in names if (value := found.get(name)) is not None}
    return {name: value for name, value in values.items() if math.isfinite(value)}


def _differences(expected: Scores, repeated: Scores) -> Iterator[Difference]:
    for split, own in repeated.items():
        for metric, value in expected.get(split, {}).items():
            yield Difference(split, metric, value, own.get(metric, math.nan))


def _told(worst: Difference | None, tolerance: float) -> str:
    if worst is None:
        return "nothing to compare with"
    verdict = "equal" if worst.relative <= tolerance else "DIFFERS"
    return f"{worst.relative:.1e} ({worst.metric}, split {worst.split}) {verdict}"


def _published(cell: Task, results: Path) -> pd.DataFrame:
    rows = pd.read_parquet(results / cell.benchmark.name / "trials.parquet")
    own = (
        (rows.stage == "final") & (rows.dataset == str(cell.dataset)) & (rows.entry == cell.entry)
    )
    return rows[own & (rows.status == "ok")].sort_values("split")


def _hyper(cell: Task, row: "pd.Series[float]") -> dict[str, float]:
    names = [
        name for name in cell.settings.hyper_names if name not in cell.settings.from_reference
    ]
    return {name: float(row[f"hyper_{name}"]) for name in names}


def _chosen(name: str, options: argparse.Namespace) -> list[Task]:
    benchmark = load_benchmark(name)
    published = json.loads((options.results / name / "table.json").read_text("utf-8"))
    present = {(cell["dataset"], cell["method"]) for cell in published}
    return [
        cell
        for cell in list_tasks(benchmark)
        if cell.key[:2] in present
        and (not options.dataset or cell.key[0] in options.dataset)
        and (not options.method or cell.entry in options.method)
    ]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("benchmarks", nargs="*", help="benchmarks (all that are published)")
    parser.add_argument(
        "--results", type=Path, default=Path("results"), help="where the published rows are"
    )
    parser.add_argument(
        "--dataset", action="append", default=[], help="only this data set (repeatable)"
    )
    parser.add_argument(
        "--method", action="append", default=[], help="only this entry (repeatable)"
    )
    parser.add_argument(
        "--splits",
        type=int,
        default=0,
        help="only the first so many splits; the width is then another",
    )
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="keep the scores that were repeated"
    )
    parser.add_argument(
        "--beside",
        type=Path,
        metavar="FILE",
        help="hold against scores that were kept, not the published",
    )
    parser.add_argument(
        "--tolerance", type=float, default=1e-5, help="largest relative difference"
    )
    return parser


if __name__ == "__main__":
    raise SystemExit(main())

"""What online factor analysis costs: online-sga, online-em and online-px-em on streams, large ones, beside batch fits.

Three parts, all or some of them (``--parts``), all with K = 10; batch fits work in float64, the
rest in float32:

- ``streams``: seconds for all streams of the benchmark online-fa with D = 100 and with D = 1000, 100,000 observations
  each of 10 streams of 3 spectra. Measured are ``--observations`` of them, and scaled to the
  whole. The estimators learn from all 30 streams as one batch, as a run does, and from 10, whose
  seconds are scaled to three such batches. Each should take at most 60 s (D = 100) and 240 s (D =
  1000). Drawing the observations is timed apart.
- ``large``: one stream with D = 11,000,000. Seconds per update, which should be at most 1, and peak memory in arrays of
  D K numbers, of which an estimator should need a few whatever D is. For online-px-em also an
  observation of a block of 10. Each is measured before and after `bdl.runtime.keep_freed_memory`
  (``kept``).
- ``batch``: the estimators, scikit-learn's FactorAnalysis (randomised SVD, on the whole sample, as published) and the
  batch fits from moments ``batch-svd`` and ``batch-exact`` on the same 100,000 observations of one
  stream, D = 100, and 1000 with ``--all``: seconds, peak memory, and the relative distance to the
  covariance that they are drawn from.

Rules of fairness. All use the settings of the benchmark and the same cores (``--threads``).
Drawing is left out of every time. Measure on a quiet machine: the operations are many and small,
and threads that wait for a busy core cost several times as much. In ``streams`` contenders take
turns, 1000 observations each, as many as a run hands over; costs are medians over turns, ratios
(to drawing) medians of the ratios within a turn, so that a slow spell of the machine strikes all.
The set-up of drawing (models, and the latent variables of whole streams) is reported apart, but
belongs to its seconds. Some of the updates are within the warm-up of the estimators, where they
run the same operations. An estimate that is not finite ends the script. In ``large`` observations
are standard normal, and checked to be finite; times are medians of ``--updates`` updates, after
two others. In ``large`` and ``batch`` each contender has a process of its own; its memory is that
of the whole process, with the libraries, and beside it stands that of a process that has only
learned from a tiny stream (``idle_gb``). In ``batch`` what is held of the sample counts: all of it
for scikit-learn, 1000 observations for the others; smaller needs than those of drawing do not
show.

The JSON file has the keys ``system``, ``settings`` and, for the parts measured, ``streams`` (a
list of `peers.fa_streams.StreamCost`), ``large`` (a list of `peers.fa_large.LargePoint`) and
``batch`` (a list of `peers.fa_batch.BatchPoint`).
"""

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from peers import command, fa_batch, fa_large, fa_streams, machine
from peers.command import number, verdict
from rich.console import Console
from rich.table import Table

PARTS = ("streams", "large", "batch")
DIMS, QUICK_DIMS = (100, 1000), (20,)
LARGE = fa_large.Sizes()
QUICK_LARGE = fa_large.Sizes(dim=20_000, points=(("online-px-em", 10),))
BATCH = fa_batch.Sizes()
QUICK_BATCH = fa_batch.Sizes(dims=(20,), rows=2000, methods=(fa_batch.WHOLE, "online-px-em"))


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    if options.quick:
        options.observations, options.updates = fa_streams.HANDED, 2
    machine.confine(options.threads)
    settings = {
        name: getattr(options, name) for name in ("observations", "updates", "all", "quick")
    }
    report: dict[str, Any] = {"system": machine.system(options.threads), "settings": settings}
    console = Console()
    if "streams" in options.parts:
        costs = list(
            fa_streams.measure(QUICK_DIMS if options.quick else DIMS, options.observations)
        )
        _streams(costs, options.observations, console)
        report["streams"] = [asdict(cost) for cost in costs]
    if "large" in options.parts:
        large = QUICK_LARGE if options.quick else LARGE
        points = list(fa_large.measure(large, updates=options.updates, threads=options.threads))
        _large(points, console)
        report["large"] = [asdict(point) for point in points]
    if "batch" in options.parts:
        sizes = (
            QUICK_BATCH if options.quick else fa_batch.Sizes(dims=DIMS) if options.all else BATCH
        )
        fits = list(fa_batch.measure(sizes, options.threads))
        _batch(fits, console)
        report["batch"] = [asdict(fit) for fit in fits]
    if options.json:
        options.json.write_text(json.dumps(report, indent=2) + "\n")
    return 0


def _streams(costs: Sequence[fa_streams.StreamCost], observations: int, console: Console) -> None:
    """Print what observations of streams cost."""
    table = Table(
        title=f"100,000 observations of 30 streams, scaled from {observations:,} of each"
    )
    for heading in (
        "D",
        "method",
        "together",
        "µs per observation",
        "fastest",
        "set-up",
        "seconds",
        "limit",
        "",
    ):
        table.add_column(heading, justify="right")
    for cost in costs:
        cells = (
            f"{cost.us:.2f}",
            f"{cost.us_min:.2f}",
            number(cost.setup_s, 1),
            f"{cost.seconds:.1f}",
        )
        table.add_row(
            f"{cost.dim}",
            cost.method,
            f"{cost.together}",
            *cells,
            *_limit(cost.limit_s, cost.holds),
        )
    console.print(table)


def _large(points: Sequence[fa_large.LargePoint], console: Console) -> None:
    """Print what updates of one large stream cost, before and after the allocator keeps what is freed."""
    largest = points[0]
    table = Table(title=f"One stream, D = {largest.dim:,}, K = {largest.latent_dim}")
    headings = (
        "memory",
        "s per observation",
        "limit",
        "",
        "idle (GB)",
        "start (GB)",
        "peak (GB)",
        "peak / (4 D K)",
    )
    for heading in ("method", "block", *headings):
        table.add_column(heading, justify="right")
    for p in points:
        freed = "returned", p.seconds, p.holds, p.peak_gb, p.arrays
        kept = "kept", p.kept_seconds, p.kept_holds, p.kept_peak_gb, p.kept_arrays
        for memory, seconds, holds, peak, arrays in (freed, kept):
            cells = (
                f"{seconds:.3f}",
                *_limit(p.limit_s, holds),
                f"{p.idle_gb:.2f}",
                f"{p.start_gb:.2f}",
            )
            table.add_row(p.method, f"{p.block}", memory, *cells, f"{peak:.2f}", f"{arrays:.1f}")
    console.print(table)


def _batch(fits: Sequence[fa_batch.BatchPoint], console: Console) -> None:
    """Print estimators beside batch fits."""
    table = Table(title=f"Estimates from {fits[0].rows:,} observations of one stream")
    for heading in (
        "D",
        "method",
        "seconds",
        "idle (GB)",
        "peak (GB)",
        "needs (MB)",
        "distance of covariances",
    ):
        table.add_column(heading, justify="right")
    for fit in fits:
        memory = (
            f"{fit.idle_gb:.2f}",
            f"{fit.peak_gb:.2f}",
            number(1e3 * (fit.peak_gb - fit.idle_gb), 0),
        )
        table.add_row(
            f"{fit.dim}", fit.method, f"{fit.seconds:.2f}", *memory, f"{fit.rel_cov_dist:.4f}"
        )
    console.print(table)


def _limit(limit: float | None, holds: bool | None) -> tuple[str, str]:
    return number(limit, 0, " s"), "" if holds is None else verdict(holds)


def _parser() -> argparse.ArgumentParser:
    parser = command.plain(__doc__ or "")
    parser.add_argument(
        "--parts", nargs="+", choices=PARTS, default=PARTS, help="what is measured (all)"
    )
    parser.add_argument(
        "--observations",
        type=command.count,
        default=10_000,
        help="of a stream, in whole thousands (10,000)",
    )
    parser.add_argument(
        "--updates", type=command.count, default=5, help="that are timed of a large stream (5)"
    )
    parser.add_argument("--all", action="store_true", help="batch fits also with D = 1000")
    parser.add_argument(
        "--quick", action="store_true", help="everything tiny, in less than twenty seconds"
    )
    return parser


if __name__ == "__main__":
    raise SystemExit(main())

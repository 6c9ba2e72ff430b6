"""Simulates how often the test of a printed number errs, and how small a difference it finds.

A score of split s under one seed is a_s + e, with normal a_s and e. Their variances are rho and
1 - rho, so that rho is the correlation of two runs on the same splits. The printed number is the
mean (or median) over 20 splits of one run, ours that of R runs. With blow-ups, one fit in twenty
has an e that is five times as large. Shown are

- the level: how often two runs of one method differ beyond chance, 5 % wanted;
- the power: how often a true difference is found that is the standard error over splits, or half
  of it;
- the coverage of the 95 % interval of the difference.

Both tests are applied to the same runs: the one given the splits, and Welch's, which takes the
splits for other ones.
"""

import argparse
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bdl.reports.papers import PaperValue, Printed
from bdl.reports.replicates import (
    average_over_seeds,
    measure_seed_noise,
    statistics_by_seed,
)
from bdl.reports.statistics import STATISTICS
from bdl.reports.verdicts import LEVEL, Estimate, difference_from_print

N_SPLITS = 20
CORRELATIONS = (0.2, 0.5, 0.8, 0.95)
SEEDS = (2, 3, 5)
BLOW_UP_SHARE, BLOW_UP_FACTOR = 0.05, 5.0


class Tally(NamedTuple):
    """Shares of the simulated comparisons, of one test."""

    level: float
    power_half: float
    """Of half a standard error over splits."""
    power_full: float
    coverage: float


def simulate(
    statistic: str, correlation: float, seeds: int, blow_ups: bool, repeats: int
) -> tuple[Tally, Tally]:
    """Simulate comparisons; return the tallies of the test given the splits, and of Welch's."""
    generator = np.random.default_rng([seeds, int(100 * correlation), blow_ups])
    shifts = (0.0, 0.5, 1.0)
    outside: dict[bool, list[list[bool]]] = {True: [], False: []}
    for _ in range(repeats):
        splits = generator.normal(size=N_SPLITS) * np.sqrt(correlation)
        runs = splits + _draw_seed_noise(generator, seeds + 1, blow_ups) * np.sqrt(1 - correlation)
        printed_run, ours = runs[0], runs[1:]
        for is_given_splits, row in outside.items():
            row.append(
                [
                    _is_beyond_chance(statistic, ours, printed_run, shift, is_given_splits)
                    for shift in shifts
                ]
            )
    given_splits, welch = (np.mean(outside[key], axis=0) for key in (True, False))
    # The interval covers no difference where the test does not find one.
    return tuple(Tally(*shares, 1 - shares[0]) for shares in (given_splits, welch))  # type: ignore[return-value]


def _draw_seed_noise(
    generator: np.random.Generator, runs: int, blow_ups: bool
) -> NDArray[np.float64]:
    noise = generator.normal(size=(runs, N_SPLITS))
    if blow_ups:
        noise[generator.random(noise.shape) < BLOW_UP_SHARE] *= BLOW_UP_FACTOR
    return noise


def _is_beyond_chance(
    statistic: str,
    ours: NDArray[np.float64],
    printed_run: NDArray[np.float64],
    shift: float,
    is_given_splits: bool,
) -> bool:
    """Test our runs, moved by `shift` standard errors over splits, against the printed one."""
    locate, standard_error = STATISTICS[statistic]
    moved = ours + shift / np.sqrt(N_SPLITS)
    averages = average_over_seeds(moved)
    estimate = Estimate(
        float(statistics_by_seed(statistic, moved).mean()),
        standard_error(averages),
        N_SPLITS,
        seed_noise=measure_seed_noise(statistic, moved),
    )
    paper = PaperValue(
        Printed(f"{locate(printed_run):.6f}"),
        Printed(f"{standard_error(printed_run):.6f}"),
        "simulated",
        n=N_SPLITS,
        same_splits="simulated" if is_given_splits else "",
    )
    difference = difference_from_print(estimate, paper)
    return difference is not None and difference.p < LEVEL


def iterate_rows(statistics: Sequence[str], repeats: int) -> Iterator[str]:
    """Yield the lines of a table in Markdown."""
    columns = ["statistic", "correlation", "seeds", "blow-ups", "level", "finds 0.5 SE"]
    columns += ["finds 1 SE", "Welch: level", "0.5 SE", "1 SE"]
    yield f"| {' | '.join(columns)} |"
    yield "|---" * len(columns) + "|"
    for statistic in statistics:
        for blow_ups in (False, True):
            for correlation in CORRELATIONS:
                for seeds in SEEDS:
                    given_splits, welch = simulate(
                        statistic, correlation, seeds, blow_ups, repeats
                    )
                    shares = [*given_splits[:3], *welch[:3]]
                    texts = [f"{100 * share:.1f} %" for share in shares]
                    name = "yes" if blow_ups else "no"
                    yield f"| {statistic} | {correlation} | {seeds} | {name} | {' | '.join(texts)} |"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=2000, help="comparisons of each row")
    parser.add_argument(
        "--statistic", action="append", choices=["mean", "median"], help="only this (repeatable)"
    )
    options = parser.parse_args(arguments)
    for line in iterate_rows(options.statistic or ["mean", "median"], options.repeats):
        print(line, flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

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

`power` shows the share of two equal means whose interval is inside the margin, and `median` how
well the standard error of a median is known, both of normal values.
"""

import argparse
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from bdl.reports.intervals import EQUIVALENT, LEVEL, interval_half_width, judge_interval
from bdl.reports.papers import PaperValue, Printed
from bdl.reports.replicates import (
    average_over_seeds,
    measure_seed_noise,
    statistics_by_seed,
)
from bdl.reports.statistics import STATISTICS, mean_se, median_se
from bdl.reports.verdicts import Estimate, difference_from_print

N_SPLITS = 20
CORRELATIONS = (0.2, 0.5, 0.8, 0.95)
SEEDS = (2, 3, 5)
BLOW_UP_SHARE, BLOW_UP_FACTOR = 0.05, 5.0
POWER_SPLITS = (3, 5, 20)
ERROR_SHARES = (0.1, 0.15, 0.2, 0.25, 0.3, 0.4)
"""Standard errors of both means, as shares of the margin."""


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
    outcomes: dict[bool, list[list[bool]]] = {True: [], False: []}
    for _ in range(repeats):
        splits = generator.normal(size=N_SPLITS) * np.sqrt(correlation)
        runs = splits + _draw_seed_noise(generator, seeds + 1, blow_ups) * np.sqrt(1 - correlation)
        estimate, printed_run = _estimate(statistic, runs[1:]), runs[0]
        for is_given_splits, rows in outcomes.items():
            paper = _print(statistic, printed_run, is_given_splits)
            rows.append([_is_beyond_chance(estimate, paper, shift) for shift in (0.0, 0.5, 1.0)])
    return _tally(outcomes[True]), _tally(outcomes[False])


def _tally(outcomes: Sequence[Sequence[bool]]) -> Tally:
    """Average what each comparison found of no difference, of half an error and of a whole one."""
    level, power_half, power_full = np.mean(outcomes, axis=0).tolist()
    # The interval covers no difference where the test does not find one.
    return Tally(level, power_half, power_full, 1 - level)


def _draw_seed_noise(
    generator: np.random.Generator, runs: int, blow_ups: bool
) -> NDArray[np.float64]:
    noise = generator.normal(size=(runs, N_SPLITS))
    if blow_ups:
        noise[generator.random(noise.shape) < BLOW_UP_SHARE] *= BLOW_UP_FACTOR
    return noise


def _estimate(statistic: str, runs: NDArray[np.float64]) -> Estimate:
    """Estimate a statistic from runs (R, n) as tables do."""
    return Estimate(
        float(statistics_by_seed(statistic, runs).mean()),
        STATISTICS[statistic][1](average_over_seeds(runs)),
        N_SPLITS,
        seed_noise=measure_seed_noise(statistic, runs),
    )


def _print(statistic: str, run: NDArray[np.float64], is_given_splits: bool) -> PaperValue:
    """Print the statistic of one run, whose splits are ours, or are taken for other ones."""
    locate, standard_error = STATISTICS[statistic]
    return PaperValue(
        Printed(f"{locate(run):.6f}"),
        Printed(f"{standard_error(run):.6f}"),
        "simulated",
        n=N_SPLITS,
        same_splits="simulated" if is_given_splits else "",
    )


def _is_beyond_chance(estimate: Estimate, paper: PaperValue, shift: float) -> bool:
    """Test our number, moved by `shift` standard errors over splits, against the printed one.

    Errors do not change where all scores move by one number.
    """
    assert estimate.value is not None, "every simulated fit has a score"
    moved = estimate._replace(value=estimate.value + shift / np.sqrt(N_SPLITS))
    difference = difference_from_print(moved, paper)
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


def simulate_power(splits: int, error_share: float, repeats: int) -> float:
    """Simulate the share of two equal means that are equivalent at a margin of 1."""
    generator = np.random.default_rng([splits, int(100 * error_share)])
    deviation = error_share * np.sqrt(splits)
    equivalent = 0
    for ours, printed in generator.normal(scale=deviation, size=(repeats, 2, splits)):
        estimate = Estimate(float(ours.mean()), mean_se(ours), splits)
        paper = PaperValue(
            Printed(f"{printed.mean():.9f}"),
            Printed(f"{mean_se(printed):.9f}"),
            "simulated",
            n=splits,
        )
        difference = difference_from_print(estimate, paper)
        assert difference is not None, "both means have a standard error"
        equivalent += judge_interval(difference.interval, margin=1.0) == EQUIVALENT
    return equivalent / repeats


class MedianErrors(NamedTuple):
    """How well the standard error of the median of 20 normal values is known."""

    mean_excess: float
    """Mean of the standard errors over `compute_median_deviation`, less 1."""
    rms_excess: float
    """Root of the mean square of the standard errors, over the same, less 1."""
    coverage: float
    """Share of samples whose interval contains the true median."""


def compute_median_deviation(n: int) -> float:
    """Compute the standard deviation of the median of n standard normal values, n even.

    It is integrated over the joint density of the two values in the middle.
    """
    below_middle = n // 2 - 1
    x = np.linspace(-6, 6, 1201)
    lower = below_middle * stats.norm.logcdf(x) + stats.norm.logpdf(x)
    upper = below_middle * stats.norm.logsf(x) + stats.norm.logpdf(x)
    joint = lower[:, None] + upper
    weights = np.triu(np.exp(joint - joint.max()))
    np.fill_diagonal(weights, weights.diagonal() / 2)
    medians = (x[:, None] + x) / 2
    return float(np.sqrt(np.average(medians**2, weights=weights)))


def simulate_median_errors(repeats: int) -> MedianErrors:
    """Simulate medians of 20 normal values, with their standard errors and intervals."""
    samples = np.random.default_rng(N_SPLITS).normal(size=(repeats, N_SPLITS))
    errors = np.array([median_se(sample) for sample in samples])
    medians = np.median(samples, axis=1)
    deviation = compute_median_deviation(N_SPLITS)
    half_widths = interval_half_width(1.0, N_SPLITS - 1) * errors
    return MedianErrors(
        errors.mean() / deviation - 1,
        np.sqrt(np.mean(errors**2)) / deviation - 1,
        float(np.mean(np.abs(medians) <= half_widths)),
    )


def iterate_power_rows(repeats: int) -> Iterator[str]:
    """Yield the lines of the table of `simulate_power`."""
    yield f"| Splits | {' | '.join(map(str, ERROR_SHARES))} |"
    yield "|---:" * (1 + len(ERROR_SHARES)) + "|"
    for splits in POWER_SPLITS:
        shares = [simulate_power(splits, share, repeats) for share in ERROR_SHARES]
        yield f"| {splits} | {' | '.join(f'{share:.2f}' for share in shares)} |"


def iterate_median_lines(repeats: int) -> Iterator[str]:
    """Yield the lines on `simulate_median_errors`."""
    errors = simulate_median_errors(repeats)
    yield f"standard error, mean: {100 * errors.mean_excess:+.1f} %"
    yield f"standard error, root mean square: {100 * errors.rms_excess:+.1f} %"
    yield f"intervals with the true median: {100 * errors.coverage:.1f} %"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "simulation", nargs="?", choices=["tests", "power", "median"], default="tests"
    )
    parser.add_argument("--repeats", type=int, default=2000, help="simulations of each number")
    parser.add_argument(
        "--statistic", action="append", choices=["mean", "median"], help="only this (repeatable)"
    )
    options = parser.parse_args(arguments)
    if options.simulation == "power":
        lines = iterate_power_rows(options.repeats)
    elif options.simulation == "median":
        lines = iterate_median_lines(options.repeats)
    else:
        lines = iterate_rows(options.statistic or ["mean", "median"], options.repeats)
    for line in lines:
        print(line, flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

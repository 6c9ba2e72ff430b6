"""Simulates how well the overall standing of methods is known, from scores made by a model.

The score of method m on split s of data set d is a_m + b_md + u_ds + c_md + e_mds, all normal but
a. The b are the differences of a method between data sets. The u are common to all methods, and so
without effect on ranks. The c stand for training rows that splits share: their variance is rho / (1
- rho) times that of e, the correlation that the factor of Nadeau and Bengio is exact for. With
blow-ups, one e in twenty is five times as large. Two methods are copies of one another: they have
the same a, b and c, and differ in e alone, as by another seed.

Shown are, for several numbers of data sets and splits,

- the coverage of the 95 % intervals of average ranks, of what they are on average over all such
  data sets;
- how often the copies are not told from each other, by the interval of the difference of their
  ranks and by Nemenyi's test;
- how often the hierarchical model calls one of the copies better;

and below, how often a test at 5 % finds a difference that is as large as the smallest difference
shown, which should be 80 %.
"""

import argparse

import numpy as np
from numpy.typing import NDArray

from bdl.reports.overall_standing import (
    DECISION,
    SplitScores,
    bootstrap_ranks,
    compare_hierarchically,
    compare_pairs,
    critical_difference,
    dataset_means,
    rank_methods,
    smallest_difference,
)

N_METHODS = 12
COPIES = (5, 6)
"""Methods that are copies of one another, in the middle of the ranks."""
SPREAD = 2.0
"""Range of the a."""
OVERLAP = 1 / 9
"""Test rows per training row of splits of nine to one."""
DRAWS = 1000
"""Of the bootstrap."""
BLOW_UP_SHARE, BLOW_UP_FACTOR = 0.05, 5.0
CONDITIONS = (
    (3, 20, 0.5, False),
    (5, 5, 0.5, False),
    (5, 20, 0.0, False),
    (5, 20, 0.5, False),
    (5, 20, 1.0, False),
    (5, 20, 0.5, True),
    (10, 20, 0.5, False),
)
"""Data sets, splits, standard deviation of the b, and blow-ups."""


def draw_noise(
    generator: np.random.Generator, shape: tuple[int, ...], blow_ups: bool
) -> NDArray[np.float64]:
    """Draw the noise of fits, of which some blow up if asked for."""
    noise = generator.normal(size=shape)
    if blow_ups:
        noise = np.where(generator.random(shape) < BLOW_UP_SHARE, BLOW_UP_FACTOR * noise, noise)
    return noise


def draw_scores(
    generator: np.random.Generator, datasets: int, splits: int, deviation: float, blow_ups: bool
) -> SplitScores:
    """Draw the scores of all methods on some data sets."""
    means = np.linspace(0, SPREAD, N_METHODS)
    means[COPIES[1]] = means[COPIES[0]]
    tables = []
    for _ in range(datasets):
        by_dataset = deviation * generator.normal(size=N_METHODS)
        by_dataset += np.sqrt(OVERLAP) * generator.normal(size=N_METHODS)
        by_dataset[COPIES[1]] = by_dataset[COPIES[0]]
        common = generator.normal(size=(splits, 1))
        noise = draw_noise(generator, (splits, N_METHODS), blow_ups)
        tables.append(means + by_dataset + common + noise)
    names = tuple(f"set{number}" for number in range(datasets))
    return SplitScores(names, tuple(map(str, range(N_METHODS))), tuple(tables))


def simulate_ranks(
    datasets: int, splits: int, deviation: float, blow_ups: bool, repeats: int
) -> dict[str, float]:
    """Simulate standings; return the shares that the table shows, by heading."""
    generator = np.random.default_rng([datasets, splits, int(10 * deviation), blow_ups])
    # One data set of each draw: an average rank over data sets has the same mean.
    one_dataset = [
        rank_methods(dataset_means(draw_scores(generator, 1, splits, deviation, blow_ups)))[0]
        for _ in range(4_000)
    ]
    truth = np.mean(one_dataset, axis=0)
    first, second = COPIES
    difference = critical_difference(N_METHODS, datasets)
    covered, alike, alike_nemenyi, called_better = [], [], [], []
    for _ in range(repeats):
        scores = draw_scores(generator, datasets, splits, deviation, blow_ups)
        bootstrap = bootstrap_ranks(scores, DRAWS)
        intervals = [bootstrap.rank_interval(i) for i in range(N_METHODS)]
        covered.append(
            [each.low <= rank <= each.high for each, rank in zip(intervals, truth, strict=True)]
        )
        gap = bootstrap.rank_difference(first, second)
        alike.append(gap.low <= 0 <= gap.high)
        alike_nemenyi.append(abs(gap.value) <= difference)
        pairs = [values[:, first] - values[:, second] for values in scores.scores]
        posterior = compare_hierarchically(pairs, [OVERLAP] * datasets, 0.0)
        called_better.append(max(posterior.better, posterior.worse) > DECISION)
    return {
        "Intervals of ranks hold": float(np.mean(covered)),
        "worst method": float(np.mean(covered, axis=0).min()),
        "Copies not told apart": float(np.mean(alike)),
        "by Nemenyi": float(np.mean(alike_nemenyi)),
        "Bayes calls one better": float(np.mean(called_better)),
    }


def simulate_detection(splits: int, overlap: float, blow_ups: bool, repeats: int) -> float:
    """Return how often a difference of the smallest size shown is found.

    The size is that of the true standard deviation of the noise, or of what it is on average over
    splits where there are blow-ups.
    """
    generator = np.random.default_rng([splits, int(1000 * overlap), blow_ups])
    many = draw_noise(generator, (200_000,), blow_ups)
    # Of unit deviation exactly, so that the size is that of so many splits of the true deviation.
    unit = np.resize([1.0, -1.0], splits)
    unit = (unit - unit.mean()) / unit.std(ddof=1)
    size = smallest_difference(many.std() * unit, overlap)
    found = []
    for _ in range(repeats):
        noise = draw_noise(generator, (splits,), blow_ups)
        noise = noise + np.sqrt(overlap) * many.std() * generator.normal()
        scores = SplitScores(("set",), ("a", "b"), (np.stack([size + noise, 0 * noise], 1),))
        (pair,) = compare_pairs(scores, [overlap])
        found.append(pair.shown and pair.difference > 0)
    return float(np.mean(found))


def main() -> None:
    """Print both tables as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=1000)
    repeats = parser.parse_args().repeats
    headings: list[str] = []
    for condition in CONDITIONS:
        datasets, splits, deviation, blow_ups = condition
        shares = simulate_ranks(*condition, repeats=repeats)
        if not headings:
            headings = ["Data sets", "Splits", "SD of b", "Blow-ups", *shares]
            print("|", " | ".join(headings), "|")
            print("|" + "---:|" * len(headings))
        texts = [f"{datasets}", f"{splits}", f"{deviation:g}", "yes" if blow_ups else "no"]
        texts += [f"{100 * share:.1f} %" for share in shares.values()]
        print("|", " | ".join(texts), "|", flush=True)
    print("\n| Splits | Overlap | Blow-ups | Smallest difference found |\n|---:|---:|---:|---:|")
    for splits in (5, 10, 20):
        for overlap in (0.0, OVERLAP):
            for blow_ups in (False, True):
                share = simulate_detection(splits, overlap, blow_ups, 4 * repeats)
                spread = "yes" if blow_ups else "no"
                print(f"| {splits} | {overlap:.2f} | {spread} | {100 * share:.1f} % |", flush=True)


if __name__ == "__main__":
    main()

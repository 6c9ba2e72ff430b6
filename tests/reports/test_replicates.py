"""Replicates: the noise of seeds given the splits, and the test of a printed number by it."""

import json

import numpy as np
import pandas as pd
import pytest

from bdl.reports.comparison import compare_with_papers
from bdl.reports.replicates import (
    SeedRows,
    average_over_seeds,
    measure_seed_noise,
    statistics_by_seed,
)

from .conftest import VIFA, changed, make_benchmark, make_tables, make_trials

RNG = np.random.default_rng(0)
SAME_SPLITS = changed(VIFA, same_splits={"energy": "index files"})


def test_noise_of_a_mean_is_the_pooled_variance_of_seeds_within_splits():
    scores = RNG.normal(size=(3, 20)) + 10 * RNG.normal(size=20)
    noise = measure_seed_noise("mean", scores)
    within = scores.var(axis=0, ddof=1)
    assert noise.variance == pytest.approx(within.mean() / 20)
    assert noise.df == pytest.approx(2 * within.sum() ** 2 / (within**2).sum())
    assert noise.replicates == 3


def test_noise_of_a_mean_has_no_bias():
    """The mean over splits of one run has, from seed to seed, the variance that is measured."""
    splits = RNG.normal(size=20)
    measured = [
        measure_seed_noise("mean", splits + 0.5 * RNG.normal(size=(2, 20))).variance
        for _ in range(4000)
    ]
    error = np.std(measured) / len(measured) ** 0.5
    assert np.mean(measured) == pytest.approx(0.25 / 20, abs=4 * error)


def test_noise_of_a_median_is_that_of_draws_of_one_seed_for_each_split():
    """Over many draws, those of all 2^6 choices of a seed for each of six splits."""
    scores = RNG.normal(size=(2, 6))
    choices = np.array(np.meshgrid(*[[0, 1]] * 6)).reshape(6, -1).T
    medians = np.median(scores[choices, np.arange(6)], axis=1)
    noise = measure_seed_noise("median", scores)
    assert noise.variance == pytest.approx(2 * medians.var(), rel=0.1)  # of 4000 draws


@pytest.mark.parametrize("shift", [0.0, 5.0, -1e6])
@pytest.mark.parametrize("scale", [1.0, 1e3])
def test_noise_follows_the_unit_of_a_score(shift, scale):
    scores = np.random.default_rng(1).normal(size=(3, 10))
    for statistic in ("mean", "median"):
        noise = measure_seed_noise(statistic, scores)
        moved = measure_seed_noise(statistic, shift + scale * scores)
        assert moved.variance == pytest.approx(scale**2 * noise.variance, rel=1e-6)
        assert moved.df == pytest.approx(noise.df, rel=1e-6)


def test_noise_of_one_seed_or_of_a_gap_is_not_known():
    scores = RNG.normal(size=(3, 10))
    gap = scores.copy()
    gap[1, 2] = np.nan
    assert measure_seed_noise("mean", scores[:1]) is None
    assert measure_seed_noise("mean", gap) is None
    assert measure_seed_noise("mean", scores[:, :0]) is None
    assert measure_seed_noise("mean", scores * [[0.0], [1e200], [-1e200]]) is None
    assert measure_seed_noise("max", scores) is None


@pytest.mark.parametrize("statistic", ["mean", "median"])
def test_noise_of_a_deterministic_method_is_zero(statistic):
    scores = RNG.normal(size=(1, 10))
    assert measure_seed_noise(statistic, scores[[0, 0, 0]]) == (0.0, np.inf, 3)


@pytest.mark.parametrize("statistic", ["mean", "median"])
def test_noise_of_one_split_is_the_variance_between_its_seeds(statistic):
    scores = 5 + RNG.normal(size=(10, 1))
    noise = measure_seed_noise(statistic, scores)
    assert noise.df == pytest.approx(9)
    # A median's is that of draws of a seed.
    tolerance = {"mean": 1e-12, "median": 0.1}[statistic]
    assert noise.variance == pytest.approx(scores.var(ddof=1), rel=tolerance)


def test_scores_are_laid_out_by_split_and_seed():
    trials = make_trials("energy", "vifa-lr", [1.0, 2.0, 3.0])
    other = make_trials("energy", "vifa-lr", [1.5, np.nan, 2.5], ["ok", "failed", "ok"])
    short = make_trials("energy", "vifa-lr", [9.0, 9.0])
    replicates = pd.concat([short.assign(seed=2), other.iloc[::-1].assign(seed=1)])
    scores = SeedRows(trials, replicates).scores("nmll")
    np.testing.assert_array_equal(scores, [[1, 2, 3], [1.5, np.nan, 2.5]])
    np.testing.assert_array_equal(average_over_seeds(scores), [1.25, 2, 2.75])
    np.testing.assert_array_equal(statistics_by_seed("median", scores), [2, 2])


def compare(papers, n=20, fail=False, spread=0.1):
    """Compare two runs on the printed splits, which differ little from each other.

    The printed standard error is 0.02.
    """
    rng = np.random.default_rng(3)
    splits = rng.normal(scale=spread, size=n)
    first, second = (
        2.60 + splits - splits.mean() + 0.01 * (noise - noise.mean())
        for noise in rng.normal(size=(2, n))
    )
    status = ["ok"] * n
    if fail:
        second[0], status = np.nan, ["failed", *status[1:]]
    rows = make_trials("energy", "vifa-lr", first)
    replicates = make_trials("energy", "vifa-lr", second, status).assign(seed=1)
    benchmark = make_benchmark(papers=[papers], datasets=["energy"])
    entries = compare_with_papers(benchmark, rows, replicates=replicates)
    return next(entry for entry in entries if (entry.metric, entry.statistic) == ("nmll", "mean"))


def test_a_difference_on_the_papers_own_splits_is_held_against_the_noise_of_seeds():
    """Printed is 2.57: 0.03 more is a standard error over splits, and ten of seeds."""
    entry = compare(SAME_SPLITS)
    assert entry.ours == pytest.approx(2.60)
    assert entry.replicates == 2
    assert entry.seed_sd == pytest.approx(0, abs=1e-12), "both means are equal here"
    assert entry.ours_se == pytest.approx(0.1 / 20**0.5, rel=0.3), "over splits, as before"
    assert entry.z > 5
    assert "Tested given the splits, which are the paper's own (index files)" in entry.note
    assert "of which ours are 2" in entry.note


@pytest.mark.parametrize(
    ("scores", "verdict"),
    [
        ([0.3759, 0.3757, 0.3758], "equivalent"),
        ([0.380, 0.376, 0.366], "consistent"),
        ([0.47, 0.48, 0.475], "differs, cause unknown"),
        ([0.49, 0.43, 0.31], "unsettled"),
        # A deterministic method has no noise: the margin decides.
        ([0.37] * 3, "equivalent"),
        ([0.47] * 3, "differs, cause unknown"),
    ],
)
def test_the_number_of_one_run_on_given_rows_is_held_against_the_noise_of_seeds(scores, verdict):
    """Table 6 of the SLANG paper prints 0.3766 of one run on a1a."""
    tables = make_tables(
        "slang2018",
        "logistic_posterior",
        ["Table 7"],
        {"slang-1": "slang L=1"},
        {"neg_elbo_printed": "neg_elbo"},
    )
    tables = changed(tables, same_splits={"a1a": "rows are given"})
    benchmark = make_benchmark(
        papers=[tables],
        datasets=["a1a"],
        entries={"slang-1": {}},
        metrics=["neg_elbo_printed"],
        splits=1,
    )
    runs = [make_trials("a1a", "slang-1", [score], neg_elbo_printed=[score]) for score in scores]
    others = [run.assign(seed=number) for number, run in enumerate(runs[1:], 1)]
    entries = compare_with_papers(benchmark, runs[0], replicates=pd.concat(others))
    entry = next(entry for entry in entries if entry.paper is not None)
    assert (entry.paper, entry.verdict) == (0.3766, verdict)
    assert entry.ours == pytest.approx(np.mean(scores))
    json.dumps(entry.z, allow_nan=False)


@pytest.mark.parametrize(
    ("papers", "changes"),
    [
        (VIFA, {}),
        (SAME_SPLITS, {"n": 19}),
        (SAME_SPLITS, {"fail": True}),
        (SAME_SPLITS, {"spread": 0.3}),
    ],
    ids=["other splits", "fewer splits", "a fit that failed", "another spread"],
)
def test_other_splits_are_independent_ones(papers, changes):
    entry = compare(papers, **changes)
    assert abs(entry.z) < 1
    assert "given the splits" not in (entry.note or "")

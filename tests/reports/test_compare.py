"""Trials beside printed numbers: statistics, which numbers are held against which, and what is said of them."""

import sys

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from bdl.errors import InputError
from bdl.metrics import MetricInfo
from bdl.records.row import join_refusals
from bdl.reports.comparison import (
    ONE_SPLIT,
    SAMPLED_FUNCTIONS,
    SAMPLED_TRUTH,
    certificate_notes,
    compare_with_papers,
    median_failed_as_worst,
    refusal_notes,
)
from bdl.reports.layout import metric_sections
from bdl.reports.statistics import median_se
from bdl.reports.verdicts import FEW_SPLITS, NO_SPREAD, SURVIVORS

from .conftest import (
    VIFA,
    changed,
    columns,
    make_benchmark,
    make_note,
    make_tables,
    make_trials,
    of,
)

LOWER = MetricInfo("Loss", "nats", "lower", "predictive")
HIGHER = MetricInfo("Accuracy", "1", "higher", "predictive")
BIAS = MetricInfo("Mean of the bias", "1", "none", "posterior")
FIGURE_7D = make_tables(
    "slang2018", "logistic_posterior", ["Figure 7d"], {"exact": "full_exact", "slang-1": "slang L=1"},
    metrics={"nmll": "bias_mean"}, split=1,
)  # fmt: skip


def on_energy(nmll, *status, metric="nmll", statistic="mean", **metrics):
    """The cell of vifa-nn on energy, of which 2.53 ± 0.02 is printed, and the median 2.54."""
    cells = compare_with_papers(
        make_benchmark(), make_trials("energy", "vifa-nn", nmll, *status, **metrics)
    )
    (cell,) = of(cells, metric, statistic, dataset="energy", method="vifa-nn")
    return cell


def test_mean_and_median_are_those_of_numpy_and_scipy_and_held_against_what_is_printed():
    """The printed mean is rounded by 0.005 at most.

    A median is printed without a standard error, for which is ours.
    """
    values = np.random.default_rng(0).normal(2.6, 0.1, 20)
    mean, median = on_energy(values), on_energy(values, statistic="median")
    assert (mean.ours, mean.ours_se) == pytest.approx(
        (values.mean(), stats.sem(values)), rel=1e-14
    )
    assert (median.ours, median.ours_se) == pytest.approx(
        (np.median(values), median_se(values)), rel=1e-14
    )
    assert (mean.paper, mean.paper_se, mean.paper_source, mean.margin) == (
        2.53,
        0.02,
        "vifa2023 Table 1",
        0.05,
    )
    assert (median.paper, median.paper_se, median.paper_source) == (
        2.54,
        None,
        "vifa2023 Table 11",
    )
    se = np.hypot(stats.sem(values), 0.02)
    assert mean.z == pytest.approx((values.mean() - 2.53 - 0.005) / se)
    ends = [
        values.mean() - 2.53 + side * (stats.t.ppf(0.975, mean.df) * se + 0.005)
        for side in (-1, 1)
    ]
    assert (mean.low, mean.high) == pytest.approx(ends)
    assert median.z == pytest.approx(
        (np.median(values) - 2.54 - 0.005) / (median.ours_se * np.sqrt(2))
    )
    assert median.df == pytest.approx(19)


def test_failed_trials_are_left_out_and_counted():
    cell = on_energy([2.5, 2.6, 99.0, np.nan, np.inf], ["ok", "ok", "failed", "failed", "ok"])
    assert (cell.ours, cell.n_trials, cell.n_failed) == (pytest.approx(2.55), 5, 3)
    for metric in ("nmll", "runtime"):
        cell = on_energy([np.nan] * 3, ["failed"] * 3, runtime=[np.nan] * 3, metric=metric)
        assert (cell.ours, cell.ours_se, cell.z, cell.verdict) == (None, None, None, "failed")
        assert (cell.n_trials, cell.n_failed) == (3, 3)


def test_one_trial_has_the_spread_of_the_paper_and_says_so():
    mean, median = on_energy([2.7]), on_energy([2.7], statistic="median")
    assert (mean.ours_se, mean.df, mean.verdict, mean.note) == (
        None,
        pytest.approx(19),
        "unsettled",
        FEW_SPLITS,
    )
    assert (median.z, median.p, median.verdict, median.note) == (
        None,
        None,
        "unsettled",
        NO_SPREAD,
    )
    assert on_energy([2.7], metric="runtime").note is None


def test_failures_are_counted_as_worst_beside_the_mean():
    """Median of 2.5, 2.6, 2.7 and a failure is halfway between the last two.

    Half or more failed leave none.
    """
    trials = [2.5, 2.6, 2.7, np.nan], ["ok", "ok", "ok", "failed"]
    for statistic in ("mean", "median"):
        cell = on_energy(*trials, statistic=statistic)
        assert (cell.failed_as_worst, cell.verdict) == (pytest.approx(2.65), "unsettled")
        assert SURVIVORS in cell.note
    assert on_energy(*trials, metric="runtime").failed_as_worst is None
    values = np.array([0.9, 0.8])
    assert median_failed_as_worst(values, 1, HIGHER) == pytest.approx(0.8)
    assert median_failed_as_worst(values, 1, LOWER) == pytest.approx(0.9)
    assert (
        median_failed_as_worst(values, 2, LOWER)
        is median_failed_as_worst(values, 0, LOWER)
        is None
    )
    assert median_failed_as_worst(values, 1, BIAS) is None


def test_values_beyond_the_range_of_floats_leave_no_nan():
    cells = compare_with_papers(
        make_benchmark(), make_trials("energy", "vifa-nn", [1e308, -1e308, 1.0])
    )
    numbers = [
        number
        for cell in cells
        for number in (cell.ours, cell.ours_se, cell.z)
        if number is not None
    ]
    assert np.isfinite(numbers).all()


def test_what_no_paper_prints_and_durations():
    cells = compare_with_papers(
        make_benchmark(datasets=["wine"]), make_trials("wine", "vifa-nn", [2.5, 2.6])
    )
    (cell,) = of(cells, method="vifa-nn")
    assert (cell.paper, cell.paper_source, cell.z, cell.verdict) == (
        None,
        None,
        None,
        "no paper value",
    )
    cell = on_energy([2.5, 2.6], runtime=[0.4, 0.6], metric="runtime")
    assert (cell.ours, cell.paper, cell.z, cell.verdict) == (0.5, 22.59, None, "45x faster")


def test_cells_come_in_the_order_of_the_benchmark_where_entries_run():
    """Without a row nothing is run; durations have no median."""
    pairs = [("energy", "vifa-lr"), ("yacht", "vifa-lr"), ("yacht", "vifa-nn")]
    cells = compare_with_papers(make_benchmark(pairs=pairs), pd.DataFrame())
    scores = [
        (metric, statistic) for metric in ("nmll", "rmse") for statistic in ("mean", "median")
    ]
    found = [
        (c.benchmark, c.dataset, c.method, c.metric, c.statistic, c.verdict, c.n_trials)
        for c in cells
    ]
    expected = [*scores, ("runtime", "mean")]
    assert found == [
        ("uci-nn", *pair, *score, "not run", 0) for pair in pairs for score in expected
    ]


def test_notes_reach_the_cells_they_name():
    one = make_note("one", dataset="yacht", entry="vifa-lr", metric="nmll", statistic="median")
    cells = compare_with_papers(
        make_benchmark(notes=[make_note("all\n  of it"), one]), pd.DataFrame()
    )
    (cell,) = of(cells, statistic="median", dataset="yacht", method="vifa-lr")
    assert cell.note == "all of it\none"
    assert [cell.note for cell in cells].count("all of it") == len(cells) - 1


def test_unknown_metric():
    with pytest.raises(InputError, match="unknown metric 'rmsee': did you mean rmse"):
        compare_with_papers(make_benchmark(metrics=["rmsee"]), pd.DataFrame())


def test_z_takes_the_error_of_a_sampled_truth_twice_and_leaves_out_one_that_each_trial_has_by_itself():
    """Once for our truth and once for the paper's.

    Over trials, which share the truth, it does not shrink.

    Without a floor the truth is not sampled: the Monte-Carlo error of a score is in the spread of
    the trials.
    """
    tables = make_tables("vifa2023", "vifa_posterior_logistic_uci", ["Table 10"], {"vifa": "vifa"})
    benchmark = make_benchmark(
        datasets=["a1a"], entries={"vifa": None}, metrics=["rel_cov_dist"], papers=[tables]
    )
    values = {
        "rel_cov_dist": [0.40, 0.41, 0.42],
        "rel_cov_dist_mcse": [0.01] * 3,
        "rel_cov_dist_floor": [0.05] * 3,
    }
    cell, _ = compare_with_papers(benchmark, make_trials("a1a", "vifa", [1.0] * 3, **values))
    assert (cell.mc_se, cell.floor, cell.note) == (
        pytest.approx(0.01),
        pytest.approx(0.05),
        SAMPLED_TRUTH,
    )
    assert cell.z == pytest.approx(
        (0.41 - 0.3882 - 0.00005) / np.sqrt(0.01**2 / 3 + 0.01**2 + 2 * 0.01**2)
    )
    plain, noisy = on_energy([2.5, 2.6, 2.7]), on_energy([2.5, 2.6, 2.7], nmll_mcse=[0.5] * 3)
    assert (noisy.mc_se, noisy.floor, noisy.z) == (0.5, None, plain.z)


@pytest.mark.parametrize("errors", [[0.01, 0.02], [0.01, None]])
def test_the_floor_of_functions_is_of_as_many_draws_and_an_error_that_a_split_lacks_is_of_none(
    errors,
):
    """The second reference has chains that do not agree."""
    benchmark = make_benchmark(
        datasets=["a1a"], entries={"vifa": None}, metrics=["function_w2"], papers=[]
    )
    values = {
        "function_w2": [0.4, 0.5],
        "function_w2_mcse": errors,
        "function_w2_floor": [0.22, 0.24],
    }
    cell, _ = compare_with_papers(benchmark, make_trials("a1a", "vifa", [1.0] * 2, **values))
    assert cell.mc_se == (None if None in errors else pytest.approx(0.015))
    assert (cell.floor, cell.note) == (pytest.approx(0.23), SAMPLED_FUNCTIONS)


@pytest.fixture
def of_one_split(monkeypatch):
    """Three splits of three entries, one of them not in the paper, and a metric that is neither better nor worse."""
    monkeypatch.setattr(
        sys.modules[compare_with_papers.__module__], "get_metric_info", lambda name: BIAS
    )
    values = {
        "exact": [0.0, 24.0812, 50.0],
        "slang-1": [10.02, 11.0, 10.02],
        "ours": [1.0, 2.0, 3.0],
    }
    entries = dict.fromkeys(values)
    benchmark = make_benchmark(
        datasets=["australian"], entries=entries, metrics=["nmll"], papers=[FIGURE_7D]
    )
    return benchmark, pd.concat(
        [make_trials("australian", name, cells) for name, cells in values.items()]
    )


def test_a_number_of_one_split_is_held_against_ours_of_that_split(of_one_split):
    """Figure 7d of the SLANG paper prints 24.08 and 10.02.

    The means over our splits are far from the one.
    """
    benchmark, rows = of_one_split
    cells = compare_with_papers(benchmark, rows)
    found = [
        (c.method, c.statistic, c.ours, c.ours_se, c.n_trials, c.paper, c.verdict) for c in cells
    ]
    assert found == [
        ("exact", "mean", 24.0812, None, 1, 24.08, "same digits"),
        ("slang-1", "mean", 11.0, None, 1, 10.02, "unsettled"),
        ("ours", "mean", 2.0, None, 1, None, "no paper value"),
    ]
    alone = ONE_SPLIT.format(1)
    assert [cell.note for cell in cells] == [alone, f"{alone}\n{NO_SPREAD}", alone]
    assert {cell.verdict for cell in compare_with_papers(benchmark, rows[rows["split"] != 1])} == {
        "not run"
    }
    failed = rows.assign(status=rows["split"].map({0: "ok", 1: "failed", 2: "ok"}))
    assert {(cell.verdict, cell.n_failed) for cell in compare_with_papers(benchmark, failed)} == {
        ("failed", 1)
    }


def test_statistics_and_numbers_of_one_split_stand_in_one_table(of_one_split):
    """Entries without a printed number are means over splits again, as not all printed numbers are of one."""
    benchmark, rows = of_one_split
    over_splits = changed(FIGURE_7D, methods={"slang-1": "slang L=1"}, split=None)
    benchmark.papers = [changed(FIGURE_7D, methods={"exact": "full_exact"}), over_splits]
    cells = of(compare_with_papers(benchmark, rows))
    assert [(cell.ours, cell.n_trials) for cell in cells] == [
        (24.0812, 1),
        (pytest.approx(31.04 / 3), 3),
        (2.0, 3),
    ]
    assert cells[1].verdict == "consistent", "one run, within our spread over splits"


def test_a_printed_maximum_stands_beside_the_largest_value():
    """It has no standard error, so that other digits decide nothing.

    Failed fits count among the failed alone.
    """
    benchmark = make_benchmark(
        papers=[
            VIFA,
            changed(VIFA, tables=["Section 4.2.1 (prose)"], methods={"vifa-nn": "slang"}),
        ]
    )
    cells = compare_with_papers(
        benchmark,
        make_trials("energy", "vifa-nn", [2.0, 9e8, 5.0, 9e9], ["ok", "ok", "ok", "failed"]),
    )
    nmll, rmse = (cell for cell in cells if cell.statistic == "max")
    assert [(cell.dataset, cell.method) for cell in (nmll, rmse)] == [("energy", "vifa-nn")] * 2
    assert (nmll.ours, nmll.ours_se, nmll.paper, nmll.verdict) == (9e8, None, 4.04e8, "unsettled")
    assert (nmll.n_trials, nmll.n_failed) == (4, 1)
    section, *_ = metric_sections(cells)
    row = section.rows[1]
    place = columns(section).index("Largest")
    assert [text.rstrip("¹²³⁴⁵⁶⁷⁸⁹ ") for text in row[place : place + 3]] == [
        "9.000e8",
        "4.04e8",
        "unsettled",
    ]


def test_certified_fits_are_counted_and_broken_rules_named():
    assert certificate_notes(pd.DataFrame({"certificate": [None, None]})) == []
    assert certificate_notes(pd.DataFrame({"certificate": ["certified", None]})) == [
        "The draws are certified on 1 of 1 splits."
    ]
    (line,) = certificate_notes(
        pd.DataFrame({"certificate": ["breaks rules 7", "breaks rules 1, 7", "certified"]})
    )
    assert line == (
        "The draws are certified on 1 of 3 splits; elsewhere chains disagree, trajectories diverge "
        "(docs/references.md)."
    )


def test_a_reason_that_has_the_separator_in_it_is_told_whole():
    """Broken rules of a certificate are joined by it."""
    rows = make_trials("energy", "vifa", [1.0, np.nan])
    reason = "DrawsRefused: rule 1: 1.2 at 3; rule 4: 7 at chain 0; see docs"
    rows.loc[1, "reason"] = join_refusals({"rmse": "no value", "nmll": reason})
    assert refusal_notes(rows, "nmll") == [f"not computed: nmll: {reason}"]
    assert refusal_notes(rows, "rmse") == ["not computed: rmse: no value"]


def test_a_split_that_failed_under_several_seeds_counts_once():
    """Of four splits one failed under both seeds, and one under the first alone."""
    failed = ["ok", "ok", "failed", "failed"]
    rows = make_trials("energy", "vifa-lr", [1.0, 2.0, np.nan, np.nan], failed)
    other = make_trials("energy", "vifa-lr", [1.2, 2.2, np.nan, 9.0], [*failed[:3], "ok"])
    benchmark = make_benchmark(entries={"vifa-lr": None})
    entries = compare_with_papers(benchmark, rows, replicates=other.assign(seed=1))
    (mean,), (median,) = (
        of(entries, statistic=name, dataset="energy", method="vifa-lr")
        for name in ("mean", "median")
    )
    assert (mean.n_trials, mean.n_failed, mean.replicates) == (4, 2, 2)
    # of 1.1, 2.1, 9 and the split that has no score, which is the worst
    assert median.failed_as_worst == pytest.approx((2.1 + 9.0) / 2)

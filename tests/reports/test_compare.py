import sys
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from bdl.errors import InputError
from bdl.metrics import MetricInfo
from bdl.reports import ONE_SPLIT, SAMPLED_TRUTH, certified, compare, failed_as_worst
from bdl.reports.layout import sections
from bdl.reports.statistics import median_se
from bdl.reports.verdicts import FEW, NO_SPREAD, NOT_SHOWN, SURVIVORS

LOWER = MetricInfo("Loss", "nats", "lower", "predictive")
HIGHER = MetricInfo("Accuracy", "1", "higher", "predictive")


def twenty(centre, se):
    """Twenty values with the given mean and standard error, sd / sqrt(20): ten on each side."""
    away = se * np.sqrt(19)
    return [centre - away, centre + away] * 10


def find(cells, *place):
    (cell,) = [c for c in cells if (c.dataset, c.method, c.metric, c.statistic) == place]
    return cell


def test_z_of_the_mean_uses_both_standard_errors(make_benchmark, make_trials):
    cells = compare(make_benchmark(), make_trials("energy", "vifa-nn", twenty(2.58, 0.015)))
    cell = find(cells, "energy", "vifa-nn", "nmll", "mean")
    # Paper: 2.53 +- 0.02, rounded by 0.005 at most; sqrt(0.015^2 + 0.02^2) = 0.025.
    assert cell.z == pytest.approx((0.05 - 0.005) / 0.025)
    assert cell.low + cell.high == pytest.approx(2 * 0.05)
    assert cell.high - cell.low == pytest.approx(2 * (stats.t.ppf(0.975, cell.df) * 0.025 + 0.005))
    assert cell.margin == 0.05
    assert (cell.paper, cell.paper_se, cell.paper_source) == (2.53, 0.02, "vifa2023 Table 1")


def test_z_of_a_single_run_takes_our_spread_over_trials(make_benchmark):
    """The printed run is one more draw: the difference to the mean of n has variance sd^2 (1 + 1 / n)."""
    tables = SimpleNamespace(
        paper="brownlie2022",
        tables=["Table B.3"],
        task="vifa_posterior_linear_uci",
        methods={"vifa": "vifa"},
        metrics={},
        datasets={},
        split=None,
    )
    benchmark = make_benchmark(datasets=["boston"], entries={"vifa": None}, metrics=["scaled_w2"], papers=[tables])
    ours = np.array([0.043, 0.045, 0.047, 0.049])
    rows = pd.DataFrame({"dataset": "boston", "entry": "vifa", "status": "ok", "scaled_w2": ours})
    cell = find(compare(benchmark, rows), "boston", "vifa", "scaled_w2", "mean")
    assert cell.z == pytest.approx((ours.mean() - 0.0468 + 0.00005) / (ours.std(ddof=1) * np.sqrt(1 + 1 / 4)))
    assert (cell.df, cell.verdict, cell.margin) == (pytest.approx(3), NOT_SHOWN, pytest.approx(0.00468))


def test_z_of_the_median_takes_the_papers_standard_error_equal_to_ours(make_benchmark, make_trials):
    values = twenty(2.64, 0.05)
    cell = find(
        compare(make_benchmark(), make_trials("energy", "vifa-nn", values)),
        "energy",
        "vifa-nn",
        "nmll",
        "median",
    )
    assert cell.ours_se == pytest.approx(median_se(np.array(values)))
    assert cell.z == pytest.approx((0.10 - 0.005) / (cell.ours_se * np.sqrt(2)))
    assert (cell.df, cell.paper_se) == (pytest.approx(19), None)


@pytest.mark.parametrize(("centre", "expected"), [(2.70, "worse"), (2.54, NOT_SHOWN), (2.40, "better")])
def test_verdict_follows_z(make_benchmark, make_trials, centre, expected):
    cells = compare(make_benchmark(), make_trials("energy", "vifa-nn", twenty(centre, 0.01)))
    assert find(cells, "energy", "vifa-nn", "nmll", "mean").verdict == expected


def test_statistics_are_those_of_numpy_and_scipy(make_benchmark, make_trials):
    values = np.random.default_rng(0).normal(2.5, 0.1, 20)
    cells = compare(make_benchmark(), make_trials("yacht", "vifa-lr", values))
    mean = find(cells, "yacht", "vifa-lr", "nmll", "mean")
    median = find(cells, "yacht", "vifa-lr", "nmll", "median")
    assert (mean.ours, mean.ours_se) == pytest.approx((values.mean(), stats.sem(values)), rel=1e-14)
    assert (median.ours, median.ours_se) == pytest.approx((np.median(values), median_se(values)), rel=1e-14)


def test_failed_trials_are_left_out_and_counted(make_benchmark, make_trials):
    rows = make_trials(
        "energy", "vifa-nn", [2.5, 2.6, 99.0, np.nan, np.inf], status=["ok", "ok", "failed", "failed", "ok"]
    )
    cell = find(compare(make_benchmark(), rows), "energy", "vifa-nn", "nmll", "mean")
    assert (cell.ours, cell.n_trials, cell.n_failed) == (pytest.approx(2.55), 5, 3)


def test_all_failed_and_not_run(make_benchmark, make_trials):
    rows = make_trials("energy", "vifa-nn", [np.nan] * 3, status=["failed"] * 3, runtime=[np.nan] * 3)
    cells = compare(make_benchmark(), rows)
    for metric in ("nmll", "runtime"):
        cell = find(cells, "energy", "vifa-nn", metric, "mean")
        assert (cell.ours, cell.ours_se, cell.z, cell.verdict) == (None, None, None, "failed")
        assert (cell.n_trials, cell.n_failed) == (3, 3)
    absent = find(cells, "yacht", "vifa-nn", "nmll", "mean")
    assert (absent.ours, absent.n_trials, absent.n_failed, absent.verdict) == (None, 0, 0, "not run")


def test_no_rows_at_all(make_benchmark):
    assert {cell.verdict for cell in compare(make_benchmark(), pd.DataFrame())} == {"not run"}


def test_one_trial_has_the_spread_of_the_paper_and_says_so(make_benchmark, make_trials):
    cells = compare(make_benchmark(), make_trials("energy", "vifa-nn", [2.7]))
    cell = find(cells, "energy", "vifa-nn", "nmll", "mean")
    assert cell.z == pytest.approx((0.17 - 0.005) / (0.02 * np.sqrt(20) * np.sqrt(1 + 1 / 20)))
    assert (cell.ours_se, cell.df, cell.verdict, cell.note) == (None, pytest.approx(19), NOT_SHOWN, FEW)
    median = find(cells, "energy", "vifa-nn", "nmll", "median")
    assert (median.z, median.p, median.verdict, median.note) == (None, None, "undecided", NO_SPREAD)
    assert find(cells, "energy", "vifa-nn", "runtime", "mean").note is None


def test_failures_are_counted_as_worst_beside_the_mean(make_benchmark, make_trials):
    """Median of 2.5, 2.6, 2.7 and a failure is halfway between the last two; half or more failed leave none."""
    rows = make_trials("energy", "vifa-nn", [2.5, 2.6, 2.7, np.nan], status=["ok", "ok", "ok", "failed"])
    cells = compare(make_benchmark(), rows)
    for statistic in ("mean", "median"):
        cell = find(cells, "energy", "vifa-nn", "nmll", statistic)
        assert (cell.failed_as_worst, cell.verdict) == (pytest.approx(2.65), NOT_SHOWN)
        assert SURVIVORS in cell.note
    assert find(cells, "energy", "vifa-nn", "runtime", "mean").failed_as_worst is None
    values = np.array([0.9, 0.8])
    assert failed_as_worst(values, 1, HIGHER) == pytest.approx(0.8)
    assert failed_as_worst(values, 1, LOWER) == pytest.approx(0.9)
    assert failed_as_worst(values, 2, LOWER) is failed_as_worst(values, 0, LOWER) is None
    assert failed_as_worst(values, 1, BIAS) is None


def test_verdicts_are_withheld_where_ours_is_not_the_protocol(make_benchmark, make_trials):
    """The printed number stays, and nothing is said of the difference, durations included."""
    rows = make_trials("energy", "vifa-nn", twenty(2.70, 0.01))
    cells = compare(make_benchmark(), rows, protocol=False)
    for metric, statistic in (("nmll", "mean"), ("nmll", "median"), ("runtime", "mean")):
        cell = find(cells, "energy", "vifa-nn", metric, statistic)
        assert (cell.verdict, cell.z, cell.df, cell.p, cell.low, cell.high) == ("withheld", *[None] * 5)
        assert cell.paper is not None
    assert find(cells, "yacht", "vifa-nn", "nmll", "mean").verdict == "not run"


def test_values_beyond_the_range_of_floats_leave_no_nan(make_benchmark, make_trials):
    cells = compare(make_benchmark(), make_trials("energy", "vifa-nn", [1e308, -1e308, 1.0]))
    for cell in cells:
        numbers = [number for number in (cell.ours, cell.ours_se, cell.z) if number is not None]
        assert np.isfinite(numbers).all()


def test_a_dataset_the_paper_lacks(make_benchmark, make_trials):
    cells = compare(make_benchmark(datasets=["wine"]), make_trials("wine", "vifa-nn", [2.5, 2.6]))
    cell = find(cells, "wine", "vifa-nn", "nmll", "mean")
    assert (cell.paper, cell.paper_source, cell.z, cell.verdict) == (None, None, None, "no paper value")


def test_cells_come_in_the_order_of_the_benchmark_and_runtime_has_no_median(make_benchmark):
    cells = compare(make_benchmark(), pd.DataFrame())
    statistics = [
        ("nmll", "mean"),
        ("nmll", "median"),
        ("rmse", "mean"),
        ("rmse", "median"),
        ("runtime", "mean"),
    ]
    expected = [
        (dataset, entry, *statistic)
        for dataset in ("energy", "yacht")
        for entry in ("vifa-lr", "vifa-nn")
        for statistic in statistics
    ]
    assert [(c.dataset, c.method, c.metric, c.statistic) for c in cells] == expected
    assert {c.benchmark for c in cells} == {"uci-nn"}


def test_runtime_is_a_ratio(make_benchmark, make_trials):
    rows = make_trials("energy", "vifa-nn", [2.5, 2.6], runtime=[0.4, 0.6])
    cell = find(compare(make_benchmark(), rows), "energy", "vifa-nn", "runtime", "mean")
    assert (cell.ours, cell.paper, cell.z, cell.verdict) == (0.5, 22.59, None, "45x faster")


def test_notes_reach_the_cells_they_name(make_benchmark, make_note):
    notes = [
        make_note("all\n  of it"),
        make_note("one", dataset="yacht", entry="vifa-lr", metric="nmll", statistic="median"),
    ]
    cells = compare(make_benchmark(notes=notes), pd.DataFrame())
    assert find(cells, "yacht", "vifa-lr", "nmll", "median").note == "all of it\none"
    assert [cell.note for cell in cells].count("all of it") == len(cells) - 1


def test_unknown_metric(make_benchmark):
    with pytest.raises(InputError, match="unknown metric 'rmsee': did you mean rmse"):
        compare(make_benchmark(metrics=["rmsee"]), pd.DataFrame())


def test_z_takes_the_error_of_a_sampled_truth_twice(make_benchmark, make_trials):
    """Once for our truth and once for the paper's; over trials, which share the truth, it does not shrink."""
    tables = SimpleNamespace(
        paper="vifa2023",
        tables=["Table 10"],
        task="vifa_posterior_logistic_uci",
        methods={"vifa": "vifa"},
        metrics={},
        datasets={},
        split=None,
    )
    benchmark = make_benchmark(datasets=["a1a"], entries={"vifa": None}, metrics=["rel_cov_dist"], papers=[tables])
    values = {"rel_cov_dist": [0.40, 0.41, 0.42], "rel_cov_dist_mcse": [0.01] * 3, "rel_cov_dist_floor": [0.05] * 3}
    cell = find(
        compare(benchmark, make_trials("a1a", "vifa", [1.0] * 3, **values)), "a1a", "vifa", "rel_cov_dist", "mean"
    )
    assert (cell.mc_se, cell.floor) == (pytest.approx(0.01), pytest.approx(0.05))
    assert cell.note == SAMPLED_TRUTH
    variance = 0.01**2 / 3 + 0.01**2 + 2 * 0.01**2
    assert cell.z == pytest.approx((0.41 - 0.3882 - 0.00005) / np.sqrt(variance))


def test_entries_have_no_cells_where_they_do_not_run(make_benchmark, make_trials):
    pairs = [("energy", "vifa-lr"), ("yacht", "vifa-lr"), ("yacht", "vifa-nn")]
    rows = pd.concat([make_trials(*pair, [2.5, 2.6]) for pair in pairs])
    cells = compare(make_benchmark(pairs=pairs), rows)
    assert list(dict.fromkeys((cell.dataset, cell.method) for cell in cells)) == pairs
    assert "not run" not in {cell.verdict for cell in cells}


def test_z_leaves_out_an_error_that_each_trial_has_by_itself(make_benchmark, make_trials):
    """Without a floor the truth is not sampled: the Monte-Carlo error of a score is in the spread of the trials."""
    rows = make_trials("energy", "vifa-nn", twenty(2.58, 0.015), nmll_mcse=[0.5] * 20)
    cell = find(compare(make_benchmark(), rows), "energy", "vifa-nn", "nmll", "mean")
    assert (cell.mc_se, cell.floor) == (0.5, None)
    assert cell.z == pytest.approx((0.05 - 0.005) / 0.025)


BIAS = MetricInfo("Mean of the bias", "1", "none", "posterior")
FIGURE_7D = SimpleNamespace(
    paper="slang2018",
    tables=["Figure 7d"],
    task="logistic_posterior",
    methods={"exact": "full_exact", "slang-1": "slang L=1"},
    metrics={"nmll": "bias_mean"},
    datasets={},
    split=1,
)


@pytest.fixture
def of_one_split(make_benchmark, make_trials, monkeypatch):
    """Three splits of three entries, one of them not in the paper, and a metric of which neither more nor less is
    better."""
    monkeypatch.setattr(sys.modules[compare.__module__], "info", lambda name: BIAS)
    entries = {"exact": None, "slang-1": None, "ours": None}
    benchmark = make_benchmark(datasets=["australian"], entries=entries, metrics=["nmll"], papers=[FIGURE_7D])
    values = {"exact": [0.0, 24.0812, 50.0], "slang-1": [10.02, 11.0, 10.02], "ours": [1.0, 2.0, 3.0]}
    return benchmark, pd.concat([make_trials("australian", name, found) for name, found in values.items()])


def test_a_number_of_one_split_is_held_against_ours_of_that_split(of_one_split):
    """Figure 7d of the SLANG paper prints 24.08 and 10.02; the means over our splits are far from the one."""
    cells = compare(*of_one_split)
    found = [(c.method, c.statistic, c.ours, c.ours_se, c.n_trials, c.paper, c.verdict) for c in cells]
    assert found == [
        ("exact", "mean", 24.0812, None, 1, 24.08, "match"),
        ("slang-1", "mean", 11.0, None, 1, 10.02, "undecided"),
        ("ours", "mean", 2.0, None, 1, None, "no paper value"),
    ]
    alone = ONE_SPLIT.format(1)
    assert [cell.note for cell in cells] == [*[f"{alone}\n{NO_SPREAD}"] * 2, alone]
    assert cells[0].paper_source == "slang2018 Figure 7d"


def test_a_split_that_was_not_run_or_failed_has_no_number(of_one_split):
    benchmark, rows = of_one_split
    assert {cell.verdict for cell in compare(benchmark, rows[rows["split"] != 1])} == {"not run"}
    failed = rows.assign(status=rows["split"].map({0: "ok", 1: "failed", 2: "ok"}))
    assert {(cell.verdict, cell.n_failed) for cell in compare(benchmark, failed)} == {("failed", 1)}


def test_statistics_and_numbers_of_one_split_stand_in_one_table(of_one_split):
    """Entries without a printed number are means over splits again, as not all printed numbers are of one."""
    benchmark, rows = of_one_split
    table_1 = SimpleNamespace(**vars(FIGURE_7D) | {"methods": {"slang-1": "slang L=1"}, "split": None})
    benchmark.papers = [SimpleNamespace(**vars(FIGURE_7D) | {"methods": {"exact": "full_exact"}}), table_1]
    cells = [cell for cell in compare(benchmark, rows) if cell.statistic == "mean"]
    assert [(cell.ours, cell.n_trials) for cell in cells] == [(24.0812, 1), (pytest.approx(31.04 / 3), 3), (2.0, 3)]
    assert cells[1].verdict == NOT_SHOWN, "one run, within our spread over splits"


def test_a_printed_maximum_stands_beside_the_largest_value(vifa, make_benchmark, make_trials):
    """It has no standard error, so that other digits decide nothing; failed fits count among the failed alone."""
    worst = SimpleNamespace(**vars(vifa) | {"tables": ["Section 4.2.1 (prose)"], "methods": {"vifa-nn": "slang"}})
    benchmark = make_benchmark(papers=[vifa, worst])
    rows = make_trials("energy", "vifa-nn", np.array([2.0, 9e8, 5.0, 9e9]), ["ok", "ok", "ok", "failed"])
    found = [cell for cell in compare(benchmark, rows) if cell.statistic == "max"]
    assert [(cell.dataset, cell.method, cell.metric) for cell in found] == [
        ("energy", "vifa-nn", "nmll"),
        ("energy", "vifa-nn", "rmse"),
    ]
    nmll = found[0]
    assert (nmll.ours, nmll.ours_se, nmll.paper, nmll.verdict) == (9e8, None, 4.04e8, "undecided")
    assert (nmll.n_trials, nmll.n_failed) == (4, 1)
    (section,) = [own for own in sections(compare(benchmark, rows)) if "NMLL" in own.title]
    row = next(row for row in section.rows if (row[0], row[1][:7]) == ("energy", "vifa-nn"))
    place = [title for title, _ in section.columns].index("Largest")
    assert [text.rstrip("¹²³⁴⁵⁶⁷⁸⁹ ") for text in row[place : place + 3]] == ["9.000e8", "4.04e8", "undecided"]


def test_certified_fits_are_counted_and_broken_rules_named():
    kept, broken = ["certified", None], ["breaks rules 7", "breaks rules 1, 7", "certified"]
    assert certified(pd.DataFrame({"certificate": [None, None]})) == []
    assert certified(pd.DataFrame({"certificate": kept})) == ["certified: 1 of 1 splits"]
    (line,) = certified(pd.DataFrame({"certificate": broken}))
    assert line == "certified: 1 of 3 splits; others break rules 1, 7 for chains of networks"

"""Paired differences against SciPy's paired t-test, and how they are drawn."""

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import same_color
from scipy.stats import ttest_rel

from bdl.metrics import MetricInfo
from bdl.reports import PairedDifference, paired, paired_differences, paired_figures
from bdl.reports.paired import LOOKS, _along, _figure

NAN = float("nan")


@pytest.fixture
def scores():
    """NMLL of two entries on 20 splits; the second is better by 0.1 on average."""
    rng = np.random.default_rng(0)
    base = rng.normal(2.6, 0.3, 20)
    return base, base - 0.1 + rng.normal(0, 0.05, 20)


@pytest.fixture
def make(make_benchmark):
    """Build a benchmark whose baseline is vifa-lr, by default on energy alone and with 20 splits."""
    return lambda **changes: make_benchmark(**{"baseline": "vifa-lr", "splits": 20, "datasets": ["energy"]} | changes)


def test_known_answer(make, make_trials, scores):
    """Mean and interval as in the paired t-test, whatever the order of the rows."""
    base, other = scores
    rows = pd.concat([make_trials("energy", "vifa-lr", base), make_trials("energy", "vifa-nn", other)])
    found = paired_differences(make(), rows.sample(frac=1, random_state=0), {})
    nmll, rmse = found
    interval = ttest_rel(other, base).confidence_interval(0.95)
    assert nmll[:4] == ("energy", "vifa-nn", "nmll", 20)
    np.testing.assert_allclose(nmll[4:7], [np.mean(other - base), interval.low, interval.high], rtol=1e-12)
    assert rmse == nmll._replace(metric="rmse")
    assert paired_differences(make(baseline=None), rows, {}) == []


def test_only_splits_that_both_finished_are_paired(make, make_trials, scores):
    """Failed: 3 of the baseline, 5 of the other; not finite: 7; missing: 0 of the baseline, 19 of the other."""
    base, other = (values.copy() for values in scores)
    other[7] = np.inf
    rows = [
        make_trials("energy", name, values, status=["failed" if i == failed else "ok" for i in range(20)])
        for name, values, failed in (("vifa-lr", base, 3), ("vifa-nn", other, 5))
    ]
    rows = pd.concat([rows[0][rows[0]["split"] != 0], rows[1][rows[1]["split"] != 19]])
    found, _ = paired_differences(make(), rows, {})
    kept = [i for i in range(20) if i not in (0, 3, 5, 7, 19)]
    interval = ttest_rel(other[kept], base[kept]).confidence_interval(0.95)
    assert found.n == len(kept)
    np.testing.assert_allclose((found.low, found.high), (interval.low, interval.high), rtol=1e-12)


def test_splits_that_overlap_have_the_variance_of_nadeau_and_bengio(make, make_trials):
    """By hand: differences -1, 0, 1, 2 have mean 0.5 and variance 5/3; 31 test rows to 277 for training.

    Standard error sqrt((1/4 + 31/277) 5/3) = 0.77665, t with 3 degrees of freedom 3.18245: 0.5 ± 2.47165.
    """
    rows = [make_trials("energy", "vifa-lr", [1.0] * 4), make_trials("energy", "vifa-nn", [0.0, 1.0, 2.0, 3.0])]
    found = paired_differences(make(), pd.concat(rows), {"energy": 31 / 277})[0]
    assert (found.mean, found.low, found.high) == pytest.approx((0.5, 0.5 - 2.47165, 0.5 + 2.47165), abs=1e-5)
    apart = paired_differences(make(), pd.concat(rows), {"yacht": 31 / 277})[0]
    assert apart.half == pytest.approx(3.18245 * (5 / 3 / 4) ** 0.5, abs=1e-5), "of another data set"


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({}, "better"),
        ({"failed": 1}, "undecided"),
        ({"baseline_failed": 1}, "better"),
        ({"low": 1.0, "high": 2.0}, "worse"),
        ({"low": 1.0, "high": 2.0, "failed": 1}, "worse"),
        ({"low": 1.0, "high": 2.0, "baseline_failed": 1}, "undecided"),
        ({"n": 2}, "undecided"),
    ],
)
def test_what_failed_where_the_other_did_not_gains_nothing(changes, verdict):
    found = PairedDifference("energy", "vifa-nn", "nmll", 18, -1.5, -2.0, -1.0)
    assert found._replace(**changes).verdict == verdict


def test_a_split_that_was_not_run_has_not_failed(make, make_trials):
    """Of the other: split 1 failed, split 2 not finite, split 3 not there."""
    other = make_trials("energy", "vifa-nn", [1.0, 1.0, np.inf], status=["ok", "failed", "ok"])
    found = paired_differences(make(), pd.concat([make_trials("energy", "vifa-lr", [1.0] * 4), other]), {})[0]
    assert (found.n, found.failed, found.baseline_failed) == (1, 2, 0)


def test_fewer_than_two_pairs_give_no_interval(make, make_trials):
    one = pd.concat([make_trials("energy", "vifa-lr", [1.0, NAN]), make_trials("energy", "vifa-nn", [1.5, 2.0])])
    single = PairedDifference("energy", "vifa-nn", "nmll", 1, 0.5, baseline_failed=1)
    assert paired_differences(make(), one, {})[0] == single
    assert (single.low, single.high, single.verdict, single.reach) == (None, None, "undecided", 0.5)
    none = paired_differences(make(), make_trials("energy", "vifa-nn", [1.5, 2.0]), {})[0]
    assert (none.n, none.mean, none.low, none.reach) == (0, None, None, 0.0)
    assert [found.n for found in paired_differences(make(), pd.DataFrame(), {})] == [0, 0]


def test_order_and_what_is_left_out(make, make_trials):
    """No durations, no baseline against itself, and no data set on which the baseline does not run."""
    entries = ["swag", "vifa-lr", "vifa-nn"]
    pairs = [("energy", entry) for entry in entries] + [("yacht", "vifa-nn")]
    benchmark = make(datasets=["energy", "yacht"], entries=dict.fromkeys(entries), pairs=pairs)
    found = paired_differences(benchmark, pd.concat([make_trials(*pair, [1.0, 2.0]) for pair in pairs]), {})
    expected = [(metric, "energy", entry) for metric in ("nmll", "rmse") for entry in ("swag", "vifa-nn")]
    assert [(each.metric, each.dataset, each.entry) for each in found] == expected


@pytest.mark.parametrize(
    ("direction", "low", "high", "verdict"),
    [
        ("lower", -2.0, -1.0, "better"),
        ("lower", 1.0, 2.0, "worse"),
        ("lower", -1.0, 2.0, "undecided"),
        ("lower", 0.0, 0.0, "undecided"),
        ("higher", -2.0, -1.0, "worse"),
        ("higher", 1.0, 2.0, "better"),
    ],
)
def test_verdicts(monkeypatch, direction, low, high, verdict):
    monkeypatch.setattr(paired, "info", lambda label: MetricInfo("Score", "points", direction, "predictive"))
    assert PairedDifference("d", "e", "score", 5, (low + high) / 2, low, high).verdict == verdict


@pytest.fixture
def blown(make, make_trials, scores):
    """Benchmark and rows: one entry blows up on one split of energy; yacht has 18 of 20 pairs."""
    base, better = scores
    values = {"vifa-lr": base, "better": better, "worse": 2 * base - better, "gone": np.where(np.arange(20), base, 1e6)}
    rows = [make_trials("energy", entry, found) for entry, found in values.items()]
    rows += [make_trials("yacht", entry, found[: 20 if entry == "better" else 18]) for entry, found in values.items()]
    benchmark = make(datasets=["energy", "yacht", "boston"], entries=dict.fromkeys(values))
    return benchmark, pd.concat([part if i != 7 else part[part["nmll"] < 1e6] for i, part in enumerate(rows)])


def drawn(benchmark, rows, metric="nmll"):
    found = [each for each in paired_differences(benchmark, rows, {}) if each.metric == metric]
    return found, _figure(benchmark, metric, found)


def test_what_is_drawn(blown):
    found, figure = drawn(*blown)
    energy, yacht = figure.axes
    assert [panel.get_title(loc="left") for panel in figure.axes] == ["energy", "yacht"], "boston has no pair"
    assert [label.get_text() for label in energy.get_yticklabels()] == ["better", "worse", "gone"]
    for panel, dataset in ((energy, "energy"), (yacht, "yacht")):
        here = [each for each in found if each.dataset == dataset]
        assert [container.lines[0].get_xdata()[0] for container in panel.containers] == [each.mean for each in here]
        for container, each in zip(panel.containers, here, strict=True):
            assert same_color(container.lines[0].get_color(), LOOKS[each.verdict]["color"])
            ends = container.lines[2][0].get_segments()[0][:, 0]
            np.testing.assert_allclose(ends, [each.low, each.high], rtol=1e-12)
    assert [each.verdict for each in found[:3]] == ["better", "worse", "undecided"]
    assert [text.get_text() for text in energy.texts] == []
    assert [text.get_text() for text in yacht.texts] == ["n = 18", "n = 18", "n = 17"]
    assert figure.get_suptitle().endswith("↓ lower is better\nmean difference from vifa-lr over 20 splits")
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [
        "left: better than vifa-lr",
        "undecided: 95 % interval holds 0, a fit failed, or n < 3",
        "right: worse than vifa-lr",
        "shaded: logarithmic",
    ]


def test_a_blow_up_leaves_the_others_readable(blown):
    found, figure = drawn(*blown)
    energy, yacht = figure.axes
    assert (energy.get_xscale(), yacht.get_xscale()) == ("symlog", "linear")
    figure.draw_without_rendering()

    def across(value):
        return energy.transAxes.inverted().transform(energy.transData.transform((value, 0)))[0]

    better, worse, gone = found[:3]
    assert gone.reach > 1e4
    assert across(worse.high) - across(better.low) > 0.2, "of the panel's width; 1e-6 on a linear axis"
    assert 0 < across(gone.low) < across(better.low) < across(worse.high) < across(gone.high) < 1


def test_higher_is_better_turns_the_sides_round(monkeypatch, blown):
    monkeypatch.setattr(paired, "info", lambda label: MetricInfo("Score", "points", "higher", "predictive"))
    _, figure = drawn(*blown)
    texts = [text.get_text() for text in figure.legends[0].get_texts()]
    assert (texts[0], texts[2]) == ("left: worse than vifa-lr", "right: better than vifa-lr")


def test_files(blown, tmp_path, monkeypatch):
    """Two formats for each predictive metric, the same bytes whatever the time and the user's settings."""
    paths = paired_figures(*blown, {}, tmp_path / "a")
    assert [path.name for path in paths] == [
        f"uci-nn-{metric}-paired.{suffix}" for metric in ("nmll", "rmse") for suffix in ("png", "pdf")
    ]
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1")
    with mpl.rc_context({"font.size": 30, "axes.grid": True, "lines.linewidth": 9}):
        again = paired_figures(*blown, {}, tmp_path / "b")
    assert [path.read_bytes() for path in again] == [path.read_bytes() for path in paths]


def test_nothing_to_pair_draws_nothing(make, make_trials, tmp_path):
    rows = make_trials("energy", "vifa-nn", [1.0, 2.0])
    assert paired_figures(make(), rows, {}, tmp_path) == []
    assert paired_figures(make(baseline=None), rows, {}, tmp_path) == []
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def swept(make_benchmark, make_trials, scores):
    """Two widths on energy and yacht: at the second the other entry is worse; on yacht the baseline failed there."""
    base, other = scores
    benchmark = make_benchmark({"model.hidden": ["[20]", "[50]"]}, baseline="vifa-lr", splits=20, metrics=["nmll"])
    rows = [
        make_trials(dataset, entry, values, ["failed" if gone else "ok"] * 20).assign(**{"model.hidden": text})
        for dataset in ("energy", "yacht")
        for text, ours in (("[20]", other), ("[50]", 2 * base - other))
        for entry, values in (("vifa-lr", base + len(dataset)), ("vifa-nn", ours + len(dataset)))
        for gone in [(dataset, text, entry) == ("yacht", "[50]", "vifa-lr")]
    ]
    return benchmark, pd.concat(rows).sample(frac=1, random_state=0)


def test_the_baseline_of_a_sweep_is_that_of_the_same_point(swept, scores):
    base, other = scores
    found = paired_differences(*swept, {})
    places = [(each.dataset, each.entry, dict(each.point), each.n) for each in found]
    assert places == [
        ("energy", "vifa-nn", {"model.hidden": "[20]"}, 20),
        ("energy", "vifa-nn", {"model.hidden": "[50]"}, 20),
        ("yacht", "vifa-nn", {"model.hidden": "[20]"}, 20),
        ("yacht", "vifa-nn", {"model.hidden": "[50]"}, 0),
    ]
    mean = np.mean(other - base)
    np.testing.assert_allclose([each.mean for each in found[:3]], [mean, -mean, mean], rtol=1e-10)
    assert [each.verdict for each in found] == ["better", "worse", "better", "undecided"]


def test_differences_of_a_sweep_run_along_its_axis(swept, tmp_path):
    benchmark, rows = swept
    energy_20, energy_50, *_ = paired_differences(benchmark, rows, {})
    figure = _along(benchmark, "nmll", paired_differences(benchmark, rows, {}))
    energy, yacht = figure.axes
    (line,) = energy.containers
    np.testing.assert_array_equal(line.lines[0].get_xydata(), [[20, energy_20.mean], [50, energy_50.mean]])
    ends = [segment[:, 1] for segment in line.lines[2][0].get_segments()]
    np.testing.assert_allclose(ends, [(each.low, each.high) for each in (energy_20, energy_50)], rtol=1e-12)
    assert np.isnan(yacht.containers[0].lines[0].get_ydata()[1])
    for panel in figure.axes:
        assert panel.get_yscale() == "linear"
        assert panel.get_ylim()[0] < 0 < panel.get_ylim()[1]
        assert panel.lines[0].get_ydata() == [0, 0]
    assert figure.get_suptitle().endswith("mean difference from vifa-lr over 20 splits, 95 % intervals")
    assert [path.name for path in paired_figures(benchmark, rows, {}, tmp_path)] == [
        "uci-nn-nmll-paired.png", "uci-nn-nmll-paired.pdf",
    ]  # fmt: skip

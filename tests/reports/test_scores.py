"""Scores and their differences from the baseline, a row an entry."""

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import same_color

from bdl.metrics import MetricInfo
from bdl.reports import compare, scores
from bdl.reports.drawing import OURS, PAPER
from bdl.reports.paired import paired_differences
from bdl.reports.scores import LOOKS, paired_drawings, scores_figure


def test_what_is_drawn(drawn):
    benchmark, cells = drawn
    means = [cell for cell in cells if (cell.metric, cell.statistic) == ("nmll", "mean")]
    figure = scores_figure(benchmark, "nmll", means)
    energy, yacht = figure.axes
    assert [panel.get_title(loc="left") for panel in figure.axes] == ["energy", "yacht"]
    assert [label.get_text() for label in energy.get_yticklabels()] == ["vifa-lr", "vifa-nn"]
    for panel, dataset in ((energy, "energy"), (yacht, "yacht")):
        for style, field in ((OURS, "ours"), (PAPER, "paper")):
            marks = [line for line in panel.lines if line.get_marker() == style["marker"]]
            values = [getattr(cell, field) for cell in means if cell.dataset == dataset]
            assert [line.get_xdata()[0] for line in marks] == [value for value in values if value is not None]
    assert [text.get_text() for text in yacht.texts] == ["failed"]
    assert figure.get_suptitle() == "UCI neural networks\nNMLL (nats per test point), ↓ lower is better"
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [
        "ours, mean ± SE", "paper, mean ± SE as printed",
    ]  # fmt: skip


def test_entries_have_no_place_where_they_do_not_run(make_benchmark, make_trials):
    pairs = [("energy", "vifa-lr"), ("yacht", "vifa-lr"), ("yacht", "vifa-nn")]
    benchmark = make_benchmark(pairs=pairs)
    cells = compare(benchmark, pd.concat([make_trials(*pair, [2.5, 2.6]) for pair in pairs]))
    means = [cell for cell in cells if (cell.metric, cell.statistic) == ("nmll", "mean")]
    energy, yacht = scores_figure(benchmark, "nmll", means).axes
    assert [label.get_text() for label in energy.get_yticklabels()] == ["vifa-lr"]
    assert [label.get_text() for label in yacht.get_yticklabels()] == ["vifa-lr", "vifa-nn"]
    assert (energy.get_ylim(), yacht.get_ylim()) == ((0.5, -0.5), (1.5, -0.5))


def test_wide_spans_get_a_logarithmic_axis(drawn):
    benchmark, cells = drawn
    runtime = [cell for cell in cells if cell.metric == "runtime"]
    assert scores_figure(benchmark, "runtime", runtime).axes[0].get_xscale() == "log"  # 0.5 against 22 minutes
    nmll = [cell for cell in cells if (cell.metric, cell.statistic) == ("nmll", "mean")]
    assert scores_figure(benchmark, "nmll", nmll).axes[0].get_xscale() == "linear"


def test_one_entry_does_not_stretch_the_axis(make_benchmark, make_trials):
    """The mean of ours is 4e17 where three others are below 3: an arrow, its number, and no mark."""
    rows = pd.concat([make_trials("energy", "vifa-lr", [2.4, 2.6]), make_trials("energy", "vifa-nn", [4e17, 4e17])])
    benchmark = make_benchmark(datasets=["energy"])
    cells = compare(benchmark, rows)
    figure = scores_figure(benchmark, "nmll", [c for c in cells if (c.metric, c.statistic) == ("nmll", "mean")])
    (panel,) = figure.axes
    assert panel.get_xscale() == "linear"
    assert np.max(panel.get_xlim()) < 3
    assert [text.get_text() for text in panel.texts] == ["4e17 →"]
    assert len(panel.containers) == 3


def test_marks_without_a_printed_number_are_on_the_line_of_their_name(make_benchmark, make_trials):
    benchmark = make_benchmark(papers=[], datasets=["energy"])
    cells = compare(benchmark, make_trials("energy", "vifa-lr", [2.4, 2.6]))
    figure = scores_figure(benchmark, "rmse", [c for c in cells if (c.metric, c.statistic) == ("rmse", "mean")])
    assert figure.axes[0].containers[0].lines[0].get_ydata() == [0]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["ours, mean ± SE"]


@pytest.fixture
def blown(paired_benchmark, make_trials, scores):
    """Benchmark and rows: one entry blows up on one split of energy; yacht has 18 of 20 pairs."""
    base, better = scores
    values = {"vifa-lr": base, "better": better, "worse": 2 * base - better, "gone": np.where(np.arange(20), base, 1e6)}
    rows = [make_trials("energy", entry, found) for entry, found in values.items()]
    rows += [make_trials("yacht", entry, found[: 20 if entry == "better" else 18]) for entry, found in values.items()]
    benchmark = paired_benchmark(datasets=["energy", "yacht", "boston"], entries=dict.fromkeys(values))
    return benchmark, pd.concat([part if i != 7 else part[part["nmll"] < 1e6] for i, part in enumerate(rows)])


def differences(benchmark, rows, metric="nmll"):
    found = [each for each in paired_differences(benchmark, rows, {}) if each.metric == metric]
    return found, paired_drawings(benchmark, found)[f"{metric}-paired"]()


def test_differences_are_drawn_by_their_verdicts(blown):
    found, figure = differences(*blown)
    energy, yacht = figure.axes
    assert [panel.get_title(loc="left") for panel in figure.axes] == ["energy", "yacht"], "boston has no pair"
    assert [label.get_text() for label in energy.get_yticklabels()] == ["better", "worse", "gone"]
    for panel, dataset in ((energy, "energy"), (yacht, "yacht")):
        here = [each for each in found if each.dataset == dataset]
        here = [each for each in here if each.mean < 1e4]
        assert [container.lines[0].get_xdata()[0] for container in panel.containers] == [each.mean for each in here]
        for container, each in zip(panel.containers, here, strict=True):
            assert same_color(container.lines[0].get_color(), LOOKS[each.verdict]["color"])
            ends = container.lines[2][0].get_segments()[0][:, 0]
            np.testing.assert_allclose(ends, [each.low, each.high], rtol=1e-12)
    assert [each.verdict for each in found[:3]] == ["better", "worse", "undecided"]
    assert [text.get_text() for text in yacht.texts] == ["n = 18", "n = 18", "n = 17"]
    assert figure.get_suptitle().endswith("↓ lower is better\nmean difference from vifa-lr over 20 splits")
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [
        "left: better than vifa-lr",
        "undecided: 95 % interval holds 0, a fit failed, or n < 3",
        "right: worse than vifa-lr",
    ]


def test_a_blow_up_leaves_the_others_readable(blown):
    found, figure = differences(*blown)
    energy, yacht = figure.axes
    assert (energy.get_xscale(), yacht.get_xscale()) == ("linear", "linear")
    better, worse, gone = found[:3]
    low, high = energy.get_xlim()
    assert low < better.low < 0 < worse.high < high
    assert high - low < 2 * (worse.high - better.low)
    assert gone.mean > 1e4
    assert [text.get_text() for text in energy.texts] == ["50000 →"]


def test_higher_is_better_turns_the_sides_round(monkeypatch, blown):
    monkeypatch.setattr(scores, "info", lambda label: MetricInfo("Score", "points", "higher", "predictive"))
    _, figure = differences(*blown)
    texts = [text.get_text() for text in figure.legends[0].get_texts()]
    assert (texts[0], texts[2]) == ("left: worse than vifa-lr", "right: better than vifa-lr")


def test_nothing_to_pair_draws_nothing(paired_benchmark, make_trials):
    rows = make_trials("energy", "vifa-nn", [1.0, 2.0])
    benchmark = paired_benchmark()
    assert paired_drawings(benchmark, paired_differences(benchmark, rows, {})) == {}


def test_differences_of_a_sweep_run_along_its_axis(swept):
    benchmark, rows = swept
    energy_20, energy_50, *_ = paired_differences(benchmark, rows, {})
    (figure,) = (draw() for draw in paired_drawings(benchmark, paired_differences(benchmark, rows, {})).values())
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

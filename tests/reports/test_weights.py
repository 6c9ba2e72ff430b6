"""Histograms and boxes of weights."""

import numpy as np

from bdl.reports.distributions import BARS, LayerWeights, weight_drawings, weights_figure


def test_bars_count_all_weights_and_boxes_have_the_quartiles(make_benchmark):
    values = np.r_[np.linspace(-1, 1, 101), 40.0]
    panel, *_ = weights_figure(make_benchmark(), [LayerWeights("sparse", "t", values)]).axes
    heights = [bar.get_height() for bar in panel.patches]
    assert len(heights) == BARS
    assert (sum(heights), heights[-1]) == (102, 1), "the last is the outlier"
    box = panel.child_axes[0].lines
    np.testing.assert_allclose(sorted({*box[0].get_xdata()}), np.percentile(values, [25, 75]))
    assert 40 in box[-1].get_xdata(), "beyond the whiskers"
    assert panel.get_ylim()[1] > 102, "room for the box"


def test_a_figure_for_each_data_set_and_a_panel_for_each_entry(make_benchmark):
    own = [LayerWeights(name, entry, np.arange(3.0)) for name, entry in (("a", "t"), ("b", "t"), ("a", "gaussian"))]
    drawings = weight_drawings(make_benchmark(), own)
    assert list(drawings) == ["weights-a", "weights-b"]
    assert [panel.get_title(loc="left") for panel in drawings["weights-a"]().axes] == ["t", "gaussian"]

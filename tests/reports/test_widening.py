"""Which axes become logarithmic, where, and what their ticks say."""

import pytest
from matplotlib.figure import Figure

from bdl.reports.widening import widen


def widened(*ends):
    """Mark 0 and the ends on a panel, a row each."""
    panel = Figure().subplots()
    panel.axvline(0)
    panel.plot(ends, range(len(ends)))
    widen(panel, [abs(end) for end in ends if end])
    return panel


@pytest.mark.parametrize(
    "ends",
    [
        (),
        (0.0,),
        (0.1,),
        (0.0, -0.1, 3.0),
        (1e-9, 0.1, 3.0),  # almost the baseline: 0 says so
        (1.0, 1.0, 29.0, 31.0),  # ordinary up to 50
    ],
)
def test_ordinary_values_have_a_linear_axis(ends):
    panel = widened(*ends)
    assert panel.get_xscale() == "linear"
    assert len(panel.patches) == 0


@pytest.mark.parametrize(
    ("ends", "edge", "linscale", "ticks"),
    [
        ((0.13, -0.02, 2e6), 0.2, 7, {0: "0", 0.2: "0.2", 1e6: "$10^{6}$"}),
        ((0.5, 0.5, -50.0), 0.5, 2, {-10: "\N{MINUS SIGN}10", -0.5: "\N{MINUS SIGN}0.5", 0: "0", 0.5: "0.5"}),
        ((-1e-5, 3e-5, 0.05), 5e-5, 3, {0: "0", 5e-5: r"$5{\times}10^{-5}$", 0.01: "0.01"}),
        ((1.0, 31.0), 1, 1.4914, {0: "0", 1: "1", 10: "10"}),
    ],
)
def test_blow_ups_have_logarithms(ends, edge, linscale, ticks):
    """The linear part ends at 1, 2 or 5 times a power of ten, and is as wide as the logarithms on one side."""
    panel = widened(*ends)
    transform = panel.xaxis.get_transform()
    assert (transform.linthresh, transform.linscale) == (pytest.approx(edge), pytest.approx(linscale, abs=1e-4))
    left, right = panel.get_xlim()
    assert left < min(ends)
    assert max(ends) < right
    labels = zip(panel.get_xticks(), (text.get_text() for text in panel.get_xticklabels()), strict=True)
    shown = {tick: text for tick, text in labels if left <= tick <= right}
    assert list(shown) == pytest.approx(list(ticks))
    assert list(shown.values()) == list(ticks.values())
    assert len(panel.patches) == 2

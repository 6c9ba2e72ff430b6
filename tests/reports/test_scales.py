import pytest
from matplotlib.figure import Figure

from bdl.reports.scales import label_logs, scale, span


@pytest.mark.parametrize(
    ("values", "factor", "chosen"),
    [
        ([1, 30], 30, "linear"),
        ([31, 1], 31, "log"),
        ([0, 1000], 1, "linear"),
        ([-1, 1000], 1, "linear"),
        ([], 1, "linear"),
    ],
)
def test_positive_values_that_span_much_are_logarithmic(values, factor, chosen):
    assert span(values) == factor
    assert scale(values) == chosen


@pytest.mark.parametrize(("last", "label"), [(90, "30"), (100, "10"), (1e6, "$\\mathdefault{10^{4}}$")])
def test_labels_are_numbers_where_they_are_few(last, label):
    panel = Figure().subplots()
    panel.set(yscale="log", ylim=(1, last))
    label_logs(panel.yaxis, last)
    assert label in [text.get_text() for text in panel.get_yticklabels()]
    assert not any(text.get_text() for text in panel.get_yticklabels(minor=True))

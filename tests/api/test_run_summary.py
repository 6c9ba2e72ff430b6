"""The last lines of a run: what matched, and what to run next."""

from types import SimpleNamespace

import pytest

from bdl.api.run_summary import describe_end
from bdl.spec import load_request


@pytest.mark.parametrize(
    ("judged", "line"),
    [
        (
            [("consistent", "mean"), ("unsettled, few splits", "median"), ("–", "mean")],  # noqa: RUF001
            "Matched: 1 of 2 printed numbers, medians included; 1 unsettled.",
        ),
        ([("same digits", "mean")], "Matched: 1 of 1 printed numbers; none is left open."),
    ],
)
def test_printed_numbers_that_are_matched_are_counted(judged, line, tmp_path):
    entries = [
        SimpleNamespace(verdict=verdict, statistic=of, counted=True) for verdict, of in judged
    ]
    request = load_request("uci-regression", "quick")
    first, last = describe_end(request, entries, tmp_path / "report.html", tmp_path)
    assert first == line
    assert last.startswith("Next: bdl-bench run uci-regression --dry-run")

"""All 46 values that the thesis on noisy optimisers prints stand beside ours, each in one table."""

import csv
from collections import Counter
from importlib.resources import files

from bdl.reports.papers import paper_values
from bdl.spec import list_benchmarks, load_benchmark

PRINTED = Counter(
    row["table"]
    for row in csv.DictReader((files("bdl.reports") / "papers" / "mata2018.csv").read_text("utf-8").splitlines())
)


def compared(name):
    """Count the printed values by table that a benchmark holds ours against."""
    benchmark = load_benchmark(name)
    names = {str(metric) for metric in benchmark.metrics}
    tables = [table for table in benchmark.papers if table.paper == "mata2018"]
    return Counter(
        value.source.removeprefix("mata2018 ")
        for (dataset, entry, metric, _), value in paper_values(tables).items()
        if dataset in benchmark.datasets and entry in benchmark.entries and metric in names
    )


def test_no_printed_value_is_left_out():
    assert PRINTED.total() == 46
    found = sum((compared(name) for name, _ in list_benchmarks()), Counter())
    assert PRINTED - found == {}, "printed values without a row of ours, by table"
    assert found - PRINTED == {}, "printed values in two benchmarks"

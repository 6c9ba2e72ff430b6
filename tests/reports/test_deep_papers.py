"""All 49 values that the sources print of deep networks stand beside ours."""

from bdl.reports.papers import paper_values
from bdl.spec import load_benchmark


def _printed(name: str) -> dict:
    benchmark = load_benchmark(name)
    names = {str(metric) for metric in benchmark.metrics}
    found = paper_values(benchmark.papers)
    return {
        key: value
        for key, value in found.items()
        if key[0] in benchmark.datasets and key[1] in benchmark.entries and key[2] in names
    }


def test_all_printed_values_of_blindness_detection_are_compared():
    found = _printed("blindness-detection")
    assert len(found) == 42
    assert found["aptos2019", "vifa", "accuracy", "mean"].value == 0.928
    assert found["aptos2019", "adam", "runtime", "mean"].value == 435.7
    assert found["aptos2019", "vifa", "accuracy_0.8_disagreement", "mean"].value == 0.975
    assert found["aptos2019", "vifa", "f1_0.7", "mean"].value == 0.975
    assert found["aptos2019", "vifa", "auroc_0.9", "mean"].source == "vifa2023 Table 13"


def test_all_printed_values_of_mnist_are_compared():
    found = _printed("mnist-slang")
    assert len(found) == 7
    assert found["mnist", "slang-32", "test_error_pct", "mean"].value == 1.73
    assert found["mnist", "bbb", "test_error_pct", "mean"].value == 1.82

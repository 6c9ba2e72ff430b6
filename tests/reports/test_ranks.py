"""Ranks, and what chance cannot tell apart; p and critical differences by hand."""

import math
import sys
from types import SimpleNamespace

import pandas as pd
import pytest

from bdl.errors import InputError
from bdl.reports import compare
from bdl.reports.figures import save
from bdl.reports.standings import rank_drawings, rank_section, ranks


@pytest.fixture
def make(make_benchmark, make_trials):
    """Cells of a benchmark with one score a data set and entry: the error, of which less is better."""

    def cells(errors, entries):
        datasets = [f"set{i}" for i in range(len(errors))]
        places = [
            (d, e, value)
            for d, row in zip(datasets, errors, strict=True)
            for e, value in zip(entries, row, strict=True)
        ]
        rows = pd.concat([make_trials(d, e, [value]) for d, e, value in places if value is not None])
        pairs = [(d, e) for d, e, value in places if value is not None]
        content = {"datasets": datasets, "entries": dict.fromkeys(entries), "pairs": pairs, "papers": []}
        return compare(make_benchmark(**content), rows)

    return cells


@pytest.mark.parametrize(("errors", "entries"), [([[1.0, 2.0]] * 5, "ab"), ([[1.0, 2.0, 3.0]], "abc")])
def test_too_few_are_not_ranked(make, errors, entries):
    assert ranks(make(errors, list(entries)), "nmll") is None


def test_without_the_library_the_error_says_what_to_install(make, monkeypatch):
    monkeypatch.setitem(sys.modules, "scikit_posthocs", None)
    with pytest.raises(InputError, match=r"pip install 'bdl-bench\[ranks\]'"):
        ranks(make([[1.0, 2.0, 3.0]] * 2, list("abc")), "nmll")


@pytest.mark.parametrize(
    ("places", "chi", "apart"),
    [(12, 24, [["b", "c"], ["a", "c"], ["a", "b"]]), (4, 8, [["c"], [], ["a"]])],
)
def test_known_answer(make, places, chi, apart):
    """Ranks 1, 2, 3 everywhere: chi^2 = 12 N / (k (k + 1)) (1 + 4 + 9 - k (k + 1)^2 / 4) = 2 N, with 2 degrees.

    The critical difference is 2.343 sqrt(k (k + 1) / (6 N)): 0.957 for 12 data sets, 1.657 for 4.
    """
    pytest.importorskip("scikit_posthocs")
    found = ranks(make([[1.0, 2.0, 3.0]] * places, list("abc")), "rmse")
    assert found.places == places
    assert found.p == pytest.approx(math.exp(-chi / 2))
    assert [found.apart(name) for name in "abc"] == apart
    assert rank_section(found).rows[0] == ("a", "1.00", ", ".join(apart[0]))


def test_ties_share_their_ranks(make):
    pytest.importorskip("scikit_posthocs")
    found = ranks(make([[1.0, 1.0, 2.0], [3.0, 2.0, 1.0]], list("abc")), "nmll")
    assert found.means == {"b": 1.75, "c": 2.0, "a": 2.25}


def test_gaps_are_left_out(make):
    """Of c, which is on one of three data sets; two entries are too few."""
    pytest.importorskip("scikit_posthocs")
    assert ranks(make([[1.0, 2.0, 3.0], [1.0, 2.0, None], [1.0, 2.0, None]], list("abc")), "nmll") is None


def test_points_of_a_sweep_are_no_data_sets(make_benchmark, make_trials, monkeypatch):
    """Twelve widths on one data set rank nothing; on two data sets, the averages over the widths are ranked.

    a is best at most widths, but b is on average: 1, 1 and 10 beside 3, 3 and 3. Over two data sets chi^2 is 2 N = 4.
    """
    alike = SimpleNamespace(posthoc_nemenyi_friedman=lambda ranked: pd.DataFrame(1.0, ranked.columns, ranked.columns))
    monkeypatch.setitem(sys.modules, "scikit_posthocs", alike)

    def cells(datasets, scores):
        sweep = {"entries.*.model.hidden": [f"[{width}]" for width in range(len(scores["a"]))]}
        (axis,) = sweep
        benchmark = make_benchmark(sweep, datasets=datasets, entries=dict.fromkeys("abc"), papers=[])
        rows = [
            make_trials(dataset, entry, [value]).assign(**{axis: text})
            for dataset in datasets
            for entry, values in scores.items()
            for text, value in zip(sweep[axis], values, strict=True)
        ]
        return compare(benchmark, pd.concat(rows))

    scores = {"a": [1.0, 1.0, 10.0], "b": [3.0, 3.0, 3.0], "c": [9.0, 9.0, 9.0]}
    assert ranks(cells(["set0"], {name: 4 * values for name, values in scores.items()}), "nmll") is None
    found = ranks(cells(["set0", "set1"], scores), "nmll")
    assert found.places == 2
    assert found.means == {"b": 1.0, "a": 2.0, "c": 3.0}
    assert found.p == pytest.approx(math.exp(-2))


def test_diagrams(make, tmp_path):
    pytest.importorskip("scikit_posthocs")
    found = ranks(make([[1.0, 2.0, 3.0]] * 4, list("abc")), "nmll")
    assert [path.name for path in save(rank_drawings([found]), tmp_path)] == ["nmll-ranks.png", "nmll-ranks.pdf"]

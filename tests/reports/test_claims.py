"""Claims of the papers, judged by rows, against SciPy's paired t-test."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import ttest_rel

from bdl.reports.claims import claim_sections, judged_claims
from bdl.spec.sections import Claim

CLAIM = {
    "text": "Less",
    "source": "a paper",
    "metric": "nmll",
    "less": {"entry": "vifa-nn"},
    "than": {"entry": "vifa-lr"},
}


def claim(**changes):
    return Claim.model_validate({**CLAIM, **changes})


@pytest.fixture
def judge(make_benchmark):
    """Judge claims by rows."""

    def judged(claims, rows, overlap={}, sweep={}, **changes):
        made = make_benchmark(sweep=sweep, claims=claims, **changes)
        points = list({str(point.texts): point for _, _, point in made.cells}.values())
        return judged_claims(SimpleNamespace(**vars(made), points=points), rows, overlap)

    return judged


def test_known_answer(judge, make_trials, scores):
    """The interval of less - times x than is that of the paired t-test; data sets without both sides are left out."""
    base, other = scores
    rows = pd.concat([make_trials("energy", "vifa-lr", base), make_trials("energy", "vifa-nn", other)])
    (found,) = judge([claim(times=0.5)], rows.sample(frac=1, random_state=0))
    (only,) = found.findings
    interval = ttest_rel(other, 0.5 * base).confidence_interval(0.95)
    assert (only.difference.dataset, only.difference.n) == ("energy", 20)
    np.testing.assert_allclose((only.difference.low, only.difference.high), (interval.low, interval.high), rtol=1e-12)
    np.testing.assert_allclose((only.less, only.than), (other.mean(), base.mean()), rtol=1e-12)


@pytest.mark.parametrize(("shift", "verdict"), [(-1.0, "confirmed"), (1.0, "contradicted"), (0.0, "not shown")])
def test_what_the_interval_says(judge, make_trials, shift, verdict):
    noise = np.random.default_rng(1).normal(size=20)
    rows = [
        make_trials("yacht", "vifa-lr", np.zeros(20)),
        make_trials("yacht", "vifa-nn", shift * 5 + noise - noise.mean()),
    ]
    (found,) = judge([claim()], pd.concat(rows))
    assert found.verdict == verdict
    (section,) = claim_sections(SimpleNamespace(name="b"), [found])
    assert f"b: Less (a paper): {verdict}. NMLL" in section.title
    assert section.columns[1:4] == [("vifa-nn", "right"), ("vifa-lr", "right"), ("Difference", "right")]


def test_shared_rows_widen_the_interval(judge, make_trials):
    """Differences -3, -2, -1, -2: mean -2, deviation 0.8165; t(3) = 3.18245, 1.299 apart and 2.905 with halves."""
    rows = pd.concat(
        [make_trials("yacht", "vifa-lr", [0.0] * 4), make_trials("yacht", "vifa-nn", [-3.0, -2.0, -1.0, -2.0])]
    )
    (apart,), (halves,) = judge([claim()], rows), judge([claim()], rows, {"yacht": 1.0})
    assert apart.verdict == "confirmed"
    assert halves.verdict == "not shown"
    assert halves.findings[0].difference.half == pytest.approx(3.18245 * (2 / 3 * 1.25) ** 0.5, abs=1e-4)


def test_a_side_that_failed_gains_nothing(judge, make_trials):
    failed = ["failed"] + ["ok"] * 4
    less = make_trials("yacht", "vifa-nn", [0.0, 1.0, 1.1, 0.9, 1.0], status=failed)
    than = make_trials("yacht", "vifa-lr", [5.0] * 5)
    (found,) = judge([claim()], pd.concat([less, than]))
    assert (found.verdict, found.findings[0].difference.n) == ("undecided", 4)
    (two,) = judge([claim()], pd.concat([less[1:3], than]))
    assert two.verdict == "undecided"
    assert judge([claim()], than) == []


def test_verdicts_of_several_data_sets_are_counted(judge, make_trials):
    rows = [
        make_trials(dataset, entry, np.arange(5) * 0.01 + level)
        for dataset, entry, level in (
            ("yacht", "vifa-lr", 1),
            ("yacht", "vifa-nn", 0),
            ("energy", "vifa-lr", 0),
            ("energy", "vifa-nn", 1),
        )
    ]
    rows[1]["nmll"] = rows[1]["nmll"][::-1].to_numpy()
    rows[3]["nmll"] = rows[3]["nmll"][::-1].to_numpy()
    (found,) = judge([claim()], pd.concat(rows))
    assert found.verdict == "confirmed 1, contradicted 1 of 2"
    (one,) = judge([claim(datasets=["yacht"])], pd.concat(rows))
    assert one.verdict == "confirmed"


def test_the_sides_of_one_entry_at_two_points(judge, make_trials):
    """Of two axes one is named; the other has its value on both sides, a finding each."""
    sweep = {"training.batch_size": ["10", "20"], "model.hidden": ["[2]", "[50]"]}
    rows = [
        make_trials(
            "yacht", "vifa-nn", np.arange(5) * (0.1 if batch == "10" else 0.2) + (5 if batch == "20" else 0)
        ).assign(**{"training.batch_size": batch, "model.hidden": hidden})
        for batch in ("10", "20")
        for hidden in ("[2]", "[50]")
    ]
    sides = {
        side: {"entry": "vifa-nn", "at": {"training.batch_size": size}} for side, size in (("less", 10), ("than", 20))
    }
    (found,) = judge([claim(**sides)], pd.concat(rows), sweep=sweep)
    assert [dict(each.difference.point) for each in found.findings] == [
        {"model.hidden": "[2]"},
        {"model.hidden": "[50]"},
    ]
    assert found.verdict == "confirmed"
    (section,) = claim_sections(SimpleNamespace(name="b"), [found])
    assert [title for title, _ in section.columns[:4]] == [
        "Dataset",
        "model.hidden",
        "vifa-nn, batch_size = 10",
        "vifa-nn, batch_size = 20",
    ]
    assert [each["model.hidden"] for each in found.records] == ["[2]", "[50]"]


def test_another_metric_of_the_same_entry(judge, make_trials):
    rows = make_trials("yacht", "vifa-nn", np.arange(5) * 0.1, rmse=np.arange(5) * 0.2 + 3)
    (found,) = judge([claim(than={"entry": "vifa-nn", "metric": "rmse"})], rows)
    assert found.verdict == "confirmed"
    assert (found.findings[0].less, found.findings[0].than) == pytest.approx((0.2, 3.4))

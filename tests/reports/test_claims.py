"""Claims of the papers, judged by rows, against SciPy's paired t-test."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import ttest_rel

from bdl.reports.claims import claim_sections, judge_claims
from bdl.spec.sections import Claim

from .conftest import columns, make_benchmark, make_trials

NN, LR = {"entry": "vifa-nn"}, {"entry": "vifa-lr"}


NO_POINTS = pd.DataFrame(columns=["dataset", "entry", "split", "axis", "at", "metric", "value"])


def judge(*rows, overlap={}, sweep={}, points=NO_POINTS, record=None, **changes):
    """Judge by rows the claim that vifa-nn has less NMLL than vifa-lr, changed."""
    content = {
        "text": "Less",
        "source": "a paper",
        "metric": "nmll",
        "less": NN,
        "than": LR,
    } | changes
    benchmark = make_benchmark(sweep, claims=[Claim.model_validate(content)], record=record)
    return judge_claims(benchmark, pd.concat(rows), points, overlap)


def on_yacht(less, than, *status):
    return make_trials("yacht", "vifa-nn", less, *status), make_trials("yacht", "vifa-lr", than)


def test_known_answer(scores):
    """The interval of less - times x than is that of the paired t-test.

    Data sets without both sides are left out.
    """
    base, other = scores
    (claim,) = judge(
        make_trials("energy", "vifa-nn", other), make_trials("energy", "vifa-lr", base), times=0.5
    )
    (only,) = claim.findings
    interval = ttest_rel(other, 0.5 * base).confidence_interval(0.95)
    assert (only.difference.dataset, only.difference.n) == ("energy", 20)
    np.testing.assert_allclose(
        (only.difference.low, only.difference.high), (interval.low, interval.high), rtol=1e-12
    )
    np.testing.assert_allclose((only.less, only.than), (other.mean(), base.mean()), rtol=1e-12)


@pytest.mark.parametrize(
    ("shift", "verdict"), [(-1.0, "confirmed"), (1.0, "contradicted"), (0.0, "not shown")]
)
def test_what_the_interval_says(shift, verdict):
    noise = np.random.default_rng(1).normal(size=20)
    (claim,) = judge(*on_yacht(shift * 5 + noise - noise.mean(), np.zeros(20)))
    assert claim.verdict == verdict
    (section,) = claim_sections(SimpleNamespace(name="b"), [claim])
    assert f"b: Less (a paper): {verdict}. NMLL" in section.title
    assert section.columns[1:4] == [
        ("vifa-nn", "right"),
        ("vifa-lr", "right"),
        ("Difference", "right"),
    ]


def test_shared_rows_widen_the_interval():
    """Differences -3, -2, -1, -2: mean -2, deviation 0.8165.

    t(3) = 3.18245, 1.299 apart and 2.905 with halves.
    """
    rows = on_yacht([-3.0, -2.0, -1.0, -2.0], [0.0] * 4)
    (independent,), (halves,) = judge(*rows), judge(*rows, overlap={"yacht": 1.0})
    assert (independent.verdict, halves.verdict) == ("confirmed", "not shown")
    assert halves.findings[0].difference.half_width == pytest.approx(
        3.18245 * (2 / 3 * 1.25) ** 0.5, abs=1e-4
    )


def test_a_side_that_failed_gains_nothing():
    less, than = on_yacht([0.0, 1.0, 1.1, 0.9, 1.0], [5.0] * 5, ["failed"] + ["ok"] * 4)
    (claim,), (two,) = judge(less, than), judge(less[1:3], than)
    assert (claim.verdict, claim.findings[0].difference.n) == ("undecided", 4)
    assert two.verdict == "undecided"
    (without_rows,) = judge(than)
    assert (without_rows.verdict, without_rows.findings) == ("not judged", ())


def test_a_claim_about_what_no_row_has_is_told():
    """Neither a value that was not run, nor a count that was not recorded, passes in silence."""
    rows = on_yacht([0.0] * 3, [1.0] * 3)
    sweep = {"training.batch_size": ["10"]}
    point_rows = [row.assign(**{"training.batch_size": "10"}) for row in rows]
    not_run = judge(*point_rows, sweep=sweep, at={"training.batch_size": 20})
    record = {"unit": "updates", "every": 10}
    not_recorded = judge(*rows, than=LR | {"after": 1_000_000}, record=record)
    for (claim,) in (not_run, not_recorded, judge(*rows, metric="crps")):
        (section,) = claim_sections(SimpleNamespace(name="b"), [claim])
        assert "b: Less (a paper): not judged. " in section.title
        assert section.rows == [("not judged", "no split has scores of both sides")]
        (finding,) = claim.records
        assert (finding["claim"], finding["n"], finding["verdict"]) == ("Less", 0, "not judged")


def test_verdicts_of_several_data_sets_are_counted():
    near = np.arange(5) * 0.01
    energy = make_trials("energy", "vifa-nn", 1 - near), make_trials("energy", "vifa-lr", near)
    rows = *on_yacht(-near, 1 + near), *energy
    (both,), (on_yacht_alone,) = judge(*rows), judge(*rows, datasets=["yacht"])
    assert (both.verdict, on_yacht_alone.verdict) == (
        "confirmed 1, contradicted 1 of 2",
        "confirmed",
    )


def test_the_sides_of_one_entry_at_two_points():
    """Of two axes one is named; the other has its value on both sides, a finding each."""
    sweep = {"training.batch_size": ["10", "20"], "model.hidden": ["[2]", "[50]"]}
    rows = [
        make_trials("yacht", "vifa-nn", values).assign(
            **{"training.batch_size": batch, "model.hidden": hidden}
        )
        for batch, values in (("10", np.arange(5) * 0.1), ("20", np.arange(5) * 0.2 + 5))
        for hidden in ("[2]", "[50]")
    ]
    less, than = (NN | {"at": {"training.batch_size": size}} for size in (10, 20))
    (claim,) = judge(*rows, sweep=sweep, less=less, than=than)
    assert [dict(finding.difference.point)["model.hidden"] for finding in claim.findings] == [
        "[2]",
        "[50]",
    ]
    assert [finding["model.hidden"] for finding in claim.records] == ["[2]", "[50]"]
    assert claim.verdict == "confirmed"
    (section,) = claim_sections(SimpleNamespace(name="b"), [claim])
    sides = ["vifa-nn, batch_size = 10", "vifa-nn, batch_size = 20"]
    assert columns(section)[:4] == ["Dataset", "model.hidden", *sides]


def test_another_metric_of_the_same_entry():
    rows = make_trials("yacht", "vifa-nn", np.arange(5) * 0.1, rmse=np.arange(5) * 0.2 + 3)
    (claim,) = judge(rows, than=NN | {"metric": "rmse"})
    assert claim.verdict == "confirmed"
    assert (claim.findings[0].less, claim.findings[0].than) == pytest.approx((0.2, 3.4))


@pytest.mark.parametrize(
    ("shift", "spread", "verdict"),
    [
        (0.02, 0.01, "confirmed"),
        (-0.02, 0.01, "confirmed"),
        (0.02, 0.2, "not shown"),
        (0.06, 0.05, "not shown"),
        (0.1, 0.01, "contradicted"),
        (-0.1, 0.01, "contradicted"),
    ],
)
def test_equality_is_an_interval_inside_the_margin(shift, spread, verdict):
    """The margin of NMLL is 0.05 nats; of 20 differences the interval is 0.48 deviations wide."""
    noise = np.random.default_rng(1).normal(size=20)
    noise = spread * (noise - noise.mean()) / noise.std(ddof=1)
    (claim,) = judge(*on_yacht(1 + shift + noise, np.ones(20)), equal=True)
    (finding,) = claim.findings
    assert (claim.verdict, finding.margin) == (verdict, 0.05)
    assert claim.records[0]["margin"] == 0.05
    (section,) = claim_sections(make_benchmark(), [claim])
    assert columns(section)[3:] == ["Difference", "Margin", "Verdict", "n"]
    assert section.rows[0][4:] == ("0.0500", verdict, "20")


def test_a_margin_is_a_share_of_the_multiple_of_the_other_side():
    rows = [
        make_trials("yacht", "vifa-nn", np.zeros(5), rmse=2 + 0.01 * np.arange(5)),
        make_trials("yacht", "vifa-lr", np.zeros(5), rmse=4 + 0.01 * np.arange(5)),
    ]
    (claim,) = judge(*rows, metric="rmse", times=0.5, equal=True)
    assert claim.findings[0].margin == pytest.approx(0.1 * 0.5 * 4.02)
    assert claim.verdict == "confirmed"


def test_nothing_is_equal_to_a_side_that_failed():
    less, than = on_yacht([1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 1.01, 1.0], ["failed"] + ["ok"] * 3)
    assert judge(less, than, equal=True)[0].verdict == "undecided"
    assert judge(than.assign(entry="vifa-nn"), than, equal=True)[0].verdict == "confirmed"


def record_points(entry, at, values):
    """Recorded NMLLs of an entry on yacht, a split each."""
    same = {"dataset": "yacht", "entry": entry, "axis": "updates", "at": at, "metric": "nmll"}
    return pd.DataFrame([same | {"split": i, "value": v} for i, v in enumerate(values)])


def test_a_side_after_so_many_updates_is_read_from_the_recorded_scores():
    """VIFA-NN is worse than VIFA-LR at the end, and better after 20 updates than that after 50."""
    near = np.arange(5) * 0.01
    points = pd.concat(
        [
            record_points("vifa-nn", 20, 1 + near),
            record_points("vifa-nn", 50, 9 + near),
            record_points("vifa-lr", 50, 2 - near),
        ]
    )
    rows = on_yacht(5 + near, 4 + near)
    early = {"less": NN | {"after": 20}, "than": LR | {"after": 50}}
    record = SimpleNamespace(unit="updates")
    (end,), (claim,) = judge(*rows), judge(*rows, points=points, record=record, **early)
    assert (end.verdict, claim.verdict) == ("contradicted", "confirmed")
    assert (claim.findings[0].less, claim.findings[0].than) == pytest.approx((1.02, 1.98))
    (section,) = claim_sections(make_benchmark(record=record), [claim])
    assert columns(section)[1:3] == ["vifa-nn, after 20 updates", "vifa-lr, after 50 updates"]
    failed = [row.assign(status="failed") for row in rows]
    (all_failed,) = judge(*failed, points=points, **early)
    (not_recorded,) = judge(*rows, points=points, less=NN | {"after": 30})
    assert {all_failed.verdict, not_recorded.verdict} == {"not judged"}


def test_sides_on_two_data_sets():
    rows = (
        make_trials("yacht", "vifa-nn", np.arange(5) * 0.1),
        make_trials("energy", "vifa-nn", np.arange(5) * 0.2 + 3),
    )
    sides = {"less": NN | {"dataset": "yacht"}, "than": NN | {"dataset": "energy"}}
    (claim,) = judge(*rows, **sides)
    assert claim.verdict == "confirmed"
    assert len(claim.findings) == 1
    (section,) = claim_sections(make_benchmark(record=None), [claim])
    assert columns(section)[:3] == ["Dataset", "vifa-nn, yacht", "vifa-nn, energy"]
    assert section.rows[0][0] == "yacht"

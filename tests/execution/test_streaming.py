"""Cells whose method learns from streams: what they compute, at which points, and what they refuse."""

import pytest
import torch

from bdl.errors import InputError
from bdl.execution.groups import FinalFit, FinalGroup
from bdl.methods.online_em import OnlineEm
from bdl.metrics.distances import relative_distance, wasserstein2
from bdl.plan.cost import estimate_batch_work
from bdl.plan.planning import group_tasks, plan_tasks
from bdl.plan.task import Task
from bdl.plan.task_checks import check_task
from bdl.plan.workload import count_stage_updates
from bdl.posteriors import FactorAnalysis
from bdl.records.posterior_files import PosteriorFiles
from bdl.records.run_folder import RunFolder
from bdl.spec import load_benchmark

from .listeners import run_here

QUICK = ("datasets=[{name: fa, dim: 100, top: 100}]", "preparation.rows={fa_100_100: 1100}")


def silent(work):
    """Listen to nothing."""


def group(members):
    return FinalGroup(tuple(FinalFit(cell, split, {}) for cell, split in members))


def learnt(*overrides, entry="online-em", splits=(0, 1)):
    """Outcomes of some streams of one cell."""
    benchmark = load_benchmark("online-fa", overrides=[*QUICK, *overrides]).select([], [entry])
    (cell,) = plan_tasks(benchmark, splits=splits)
    done: list[int] = []
    found = group([(cell, split) for split in splits]).run(done.append)
    assert (
        sum(done)
        == count_stage_updates(cell, "final") * len(splits) * estimate_batch_work(cell, "final")
        > 0
    )
    return found


def curve(outcome, metric):
    return {
        reading.at: reading.value for reading in outcome.curve_points if reading.metric == metric
    }


def test_is_the_estimator_fed_with_the_stream(tmp_path):
    """One stream after the other, in one piece, from the published seeds."""
    (cell,) = plan_tasks(
        load_benchmark("online-fa", overrides=QUICK).select([], ["online-em"]), splits=(0,)
    )
    for split, outcome in enumerate(learnt()):
        noise = torch.randn(100, 10, generator=torch.Generator().manual_seed(split + 1))
        estimator, truth = OnlineEm(10), cell.stream.model(split)
        state = estimator.init({"F": noise})
        for seen in range(100, 1101, 100):
            state = estimator.update_block(
                state, next(cell.stream.blocks(split, seen))[seen - 100 :]
            )
            if seen in (100, 500, 1100):
                q, p = (
                    (fa.mean().double(), type(fa)(*(leaf.double() for leaf in fa)).covariance())
                    for fa in (estimator.posterior(state), truth)
                )
                for name, distance in (
                    ("rel_cov_dist", relative_distance(q[1], p[1])),
                    ("scaled_w2", wasserstein2(q, p) / len(q[0])),
                ):
                    found = (
                        outcome.row.metrics[name] if seen == 1100 else curve(outcome, name)[seen]
                    )
                    assert found == pytest.approx(float(distance), rel=2e-4)
        kept, _ = PosteriorFiles(tmp_path).read(PosteriorFiles(tmp_path).write(outcome.posterior))
        assert isinstance(kept, FactorAnalysis)
        torch.testing.assert_close(kept.mean().double(), q[0], rtol=1e-4, atol=1e-6)


def test_when_a_stream_is_looked_at():
    """After powers of ten and their double and fivefold, or as the benchmark says.

    Looking changes nothing.
    """
    records = (
        (),
        ("record={unit: observations, every: 300}",),
        ("record={unit: observations, every: 900}",),
    )
    usual, often, seldom = (learnt(*record, splits=(3,))[0] for record in records)
    places = [list(curve(outcome, "rel_cov_dist")) for outcome in (usual, often, seldom)]
    assert places == [[100, 200, 500, 1000, 1100], [300, 600, 900, 1100], [900, 1100]]
    for name in ("rel_cov_dist", "scaled_w2"):
        assert len({outcome.row.metrics[name] for outcome in (usual, often, seldom)}) == 1
        assert usual.row.metrics[name] == curve(usual, name)[1100]
        assert curve(often, name)[900] == curve(seldom, name)[900]
    row = usual.row
    assert {reading.axis for reading in usual.curve_points} == {"observations"}
    assert (row.split, row.status, row.hyper, row.details["updates"]) == (3, "ok", {}, 1100)
    assert row.metrics["runtime"] == row.seconds / 60 > 0


SETTINGS = {
    "fa_100_10": "{name: fa, dim: 100, top: 10}",
    "fa_100_100": "{name: fa, dim: 100, top: 100}",
    "fa_100_1000": "{name: fa, dim: 100, top: 1000}",
    "fa_100_10_columns": "{name: fa, dim: 100, top: 10, scaling: columns}",
}


def cells_of(lengths, splits):
    datasets = ", ".join(SETTINGS[name] for name in lengths)
    overrides = [f"datasets=[{datasets}]", f"preparation.rows={lengths}".replace("'", "")]
    return plan_tasks(
        load_benchmark("online-fa", overrides=overrides).select([], ["online-px-em"]),
        splits=splits,
    )


def test_streams_that_differ_in_their_spectrum_alone_run_as_one():
    cells = cells_of(
        {"fa_100_10": 200, "fa_100_1000": 200, "fa_100_10_columns": 200, "fa_100_100": 300}, (0,)
    )
    assert [[cell.dataset for cell in batch] for batch in group_tasks(cells)] == [
        ["fa_100_10", "fa_100_1000"],
        ["fa_100_10_columns"],
        ["fa_100_100"],
    ]


def test_a_batch_of_data_sets_gives_the_rows_of_each_alone(tmp_path):
    """Also when one of them has its first stream already."""
    first, second = cells_of({"fa_100_10": 200, "fa_100_1000": 200}, (0, 1))
    alone = [
        outcome
        for cell in (first, second)
        for outcome in group([(cell, 0), (cell, 1)]).run(silent)
    ]
    with RunFolder(tmp_path / "store") as store:
        done = group([(first, 0)]).run(silent)
        store.claim(first.key, first.fit_hash)
        store.append(done)
        ear = run_here([first, second], store)
        assert ear.done == ear.total == 3 * 200 * estimate_batch_work(first, "final")
        assert [rows[0].cell[0] for rows in ear.stored_rows] == ["fa_100_10", "fa_100_1000"]
        among = [row for cell in (first, second) for row in store.load_rows("final", cell.key)]
        assert [len(store.load_curve_points(cell.key)) for cell in (first, second)] == [
            2 * 2 * 2
        ] * 2
    assert [(row.dataset, row.split) for row in among] == [
        (one.row.dataset, one.row.split) for one in alone
    ]
    assert [row.details["width"] for row in among] == [1, 3, 3, 3]
    for ours, theirs in zip(among, alone, strict=True):
        for name in ("rel_cov_dist", "scaled_w2"):
            assert ours.metrics[name] == pytest.approx(theirs.row.metrics[name], rel=1e-4)


def test_an_estimate_that_is_not_finite_is_a_failed_trial():
    (outcome,) = learnt(
        "entries.online-sga.method.learning_rate=1.0e30", entry="online-sga", splits=(0,)
    )
    row = outcome.row
    assert (row.status, row.reason, row.metrics) == ("failed", "non-finite posterior", {})
    assert outcome.posterior is None


BAD = {
    "entries.online-em.method.latent_dim=100": "latent_dim 100 does not suit 100 dimensions: give one of 1 to 99",
    "metrics=[nmll]": "metrics: a stream has a distribution, but no targets for 'nmll'; use distances",
    "preparation.rows={fa_100_100: 99}": "preparation.rows.fa_100_100: the first look at a stream is after 100",
    "record={unit: observations, log: true, first: 2000}": "the first look at a stream is after 2000",
    "datasets=[diabetes]": "dataset 'diabetes' is a table: methods that learn from a stream need a stream",
    "entries.online-em.training={epochs: 1, batch_size: 1}": "learns from a stream: remove training",
    "entries.online-em.method={name: vifa}": "entries.online-em: model is missing",
}


@pytest.mark.parametrize("override", BAD)
def test_bad_input(override):
    with pytest.raises(InputError, match=BAD[override]) as caught:
        plan_tasks(
            load_benchmark("online-fa", overrides=[*QUICK, override]).select([], ["online-em"]),
            splits=(0,),
        )
    assert "\n" not in str(caught.value)


def test_what_is_no_stream_of_theirs_is_refused():
    streams = load_benchmark("online-fa", overrides=QUICK)
    tables = load_benchmark(
        "uci-regression", overrides=["datasets=[{name: fa, dim: 100, top: 10}]", "papers=[]"]
    )
    for benchmark, split, message in (
        (tables, 0, "dataset 'fa_100_10' is a stream of parameter vectors: use a method that"),
        (
            streams.select([], ["online-em"]),
            10,
            "dataset 'fa_100_100' has no split 10; choose 0 to 9",
        ),
    ):
        with pytest.raises(InputError, match=message):
            plan_tasks(benchmark, splits=(split,))
    with pytest.raises(
        InputError, match="--device cuda: methods that learn from a stream run on the CPU"
    ):
        check_task(Task(streams, streams.dataset("fa_100_100"), "online-em", (0,), device="cuda"))

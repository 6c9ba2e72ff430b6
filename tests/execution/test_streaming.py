"""Cells whose method learns from streams: what they compute, at which points, and what they refuse."""

import pytest
import torch

from bdl.data import load_stream
from bdl.errors import InputError
from bdl.execution.executor import InProcessExecutor
from bdl.execution.groups import attempt
from bdl.execution.runner import claim, run
from bdl.execution.streaming import StreamGroup, batches
from bdl.methods.online_em import OnlineEm
from bdl.methods.online_px_em import OnlinePxEm
from bdl.metrics.distances import rel_cov_dist, scaled_w2
from bdl.plan.cell import Cell, plan
from bdl.plan.checks import check
from bdl.spec import load_benchmark
from bdl.store.store import Store

QUICK = ("datasets=[fa_100_100]", "preparation.rows={fa_100_100: 1100}")


class Quiet:
    """A listener that does not listen."""

    def begin(self, work): ...

    def advance(self, work): ...

    def stored(self, cell, rows): ...


def rows(*overrides, entry="online-em", splits=(0, 1)):
    benchmark = load_benchmark("online-fa", overrides=[*QUICK, *overrides]).select([], [entry])
    (cell,) = plan(benchmark, splits=splits)
    done: list[int] = []
    found = StreamGroup(tuple((cell, split) for split in splits)).run(done.append)
    assert sum(done) == cell.minibatches("final") * len(splits)
    return found


def test_is_the_estimator_fed_with_the_stream():
    """One stream after the other, in one piece, from the published seeds."""
    stream = load_stream("fa_100_100")
    for split, row in enumerate(rows()):
        noise = torch.randn(100, 10, generator=torch.Generator().manual_seed(split + 1))
        estimator, truth = OnlineEm(10), stream.model(split)
        state = estimator.init({"F": noise})
        for seen in range(100, 1101, 100):
            state = estimator.update_block(state, next(stream.blocks(split, seen))[seen - 100 :])
            if seen in (100, 500, 1100):
                q, p = (
                    (fa.mean().double(), type(fa)(*(leaf.double() for leaf in fa)).covariance())
                    for fa in (estimator.posterior(state), truth)
                )
                name = "rel_cov_dist" if seen == 1100 else f"rel_cov_dist_at_{seen}"
                assert row.metrics[name] == pytest.approx(float(rel_cov_dist(q[1], p[1])), rel=2e-4)
                name = "scaled_w2" if seen == 1100 else f"scaled_w2_at_{seen}"
                assert row.metrics[name] == pytest.approx(float(scaled_w2(*q, *p)), rel=2e-4)


def test_looks_at_every_checkpoint_and_at_the_end():
    (row,) = rows(splits=(3,))
    seen = {int(name.rpartition("_")[2]) for name in row.metrics if name.startswith("rel_cov_dist_at")}
    assert seen == {100, 200, 500, 1000, 1100}
    assert row.metrics["rel_cov_dist"] == row.metrics["rel_cov_dist_at_1100"]
    assert (row.split, row.status, row.hyper) == (3, "ok", {})
    assert row.metrics["runtime"] == row.seconds / 60 > 0


@pytest.mark.parametrize("entry", ["online-sga", "online-px-em", "batch-exact"])
def test_a_stream_does_not_depend_on_its_companions(entry):
    alone, together = rows(entry=entry, splits=(1,)), rows(entry=entry, splits=(0, 1, 2))
    for name, value in alone[0].metrics.items():
        if name != "runtime":
            assert together[1].metrics[name] == pytest.approx(value, rel=1e-4), name


def cells_of(lengths, splits):
    overrides = [f"datasets=[{', '.join(lengths)}]", f"preparation.rows={lengths}".replace("'", "")]
    return plan(load_benchmark("online-fa", overrides=overrides).select([], ["online-px-em"]), splits=splits)


def test_streams_that_differ_in_their_spectrum_alone_run_as_one():
    cells = cells_of({"fa_100_10": 200, "fa_100_1000": 200, "fa_100_10_columns": 200, "fa_100_100": 300}, (0,))
    assert [[cell.dataset for cell in batch] for batch in batches(cells)] == [
        ["fa_100_10", "fa_100_1000"],
        ["fa_100_10_columns"],
        ["fa_100_100"],
    ]


def test_a_batch_of_data_sets_gives_the_rows_of_each_alone(tmp_path):
    """Also when one of them has its first stream already."""
    first, second = cells_of({"fa_100_10": 200, "fa_100_1000": 200}, (0, 1))
    alone = [row for cell in (first, second) for row in StreamGroup(((cell, 0), (cell, 1))).run(lambda work: None)]
    with Store(tmp_path / "store.sqlite") as store:
        done = StreamGroup(((first, 0),)).run(lambda work: None)
        claim([first], store)
        store.append(done)
        run([first, second], store, InProcessExecutor(), Quiet())
        together = [row for cell in (first, second) for row in store.rows("final", cell.dataset, cell.entry)]
    assert [(row.dataset, row.split) for row in together] == [(row.dataset, row.split) for row in alone]
    assert [row.details["width"] for row in together] == [1, 3, 3, 3]
    for ours, theirs in zip(together, alone, strict=True):
        for name in ("rel_cov_dist_at_100", "rel_cov_dist", "scaled_w2"):
            assert ours.metrics[name] == pytest.approx(theirs.metrics[name], rel=1e-4)


def test_the_death_of_a_batch_is_a_failed_row_of_every_stream(monkeypatch):
    cells = cells_of({"fa_100_10": 200, "fa_100_1000": 200}, (0, 1))
    group = StreamGroup(tuple((cell, split) for split in (0, 1) for cell in cells))
    monkeypatch.setattr(OnlinePxEm, "update_block", lambda *arguments: 1 / 0)
    rows = attempt(group, lambda work: None)
    assert [(row.dataset, row.split, row.status) for row in rows] == [
        (cell.dataset, split, "failed") for cell, split in group.members
    ]
    assert rows[0].reason == "ZeroDivisionError: division by zero"


def test_an_estimate_that_is_not_finite_is_a_failed_trial():
    (row,) = rows("entries.online-sga.method.learning_rate=1.0e30", entry="online-sga", splits=(0,))
    assert (row.status, row.reason, row.metrics) == ("failed", "non-finite estimate", {})


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("entries.online-em.method.latent_dim=100", "latent_dim 100 does not suit 100 dimensions: give one of 1 to 99"),
        ("entries.online-em.method.latent_dim=0", "Input should be greater than or equal to 1"),
        ("metrics=[nmll]", "metrics: a stream has a distribution, but no targets; use distances"),
        ("preparation.rows={fa_100_100: 99}", "preparation.rows.fa_100_100: the first look at a stream is after 100"),
        ("datasets=[diabetes]", "dataset 'diabetes' is a table: methods that learn from a stream need a stream"),
        ("entries.online-em.training={epochs: 1, batch_size: 1}", "learns from a stream: remove training"),
        ("entries.online-em.method={name: vifa}", "entries.online-em: model is missing"),
    ],
)
def test_bad_input(override, message):
    with pytest.raises(InputError, match=message) as caught:
        plan(load_benchmark("online-fa", overrides=[*QUICK, override]).select([], ["online-em"]), splits=(0,))
    assert "\n" not in str(caught.value)


def test_a_table_method_refuses_a_stream():
    overrides = ["datasets=[fa_100_10]", "papers=[]"]
    with pytest.raises(InputError, match="dataset 'fa_100_10' is a stream of parameter vectors: use a method that"):
        plan(load_benchmark("uci-regression", overrides=overrides), splits=(0,))


def test_there_are_ten_streams():
    with pytest.raises(InputError, match="dataset 'fa_100_100' has no split 10; choose 0 to 9"):
        plan(load_benchmark("online-fa", overrides=QUICK).select([], ["online-em"]), splits=(10,))


def test_streams_are_for_the_cpu():
    benchmark = load_benchmark("online-fa", overrides=QUICK)
    with pytest.raises(InputError, match="--device cuda: methods that learn from a stream run on the CPU"):
        check(Cell(benchmark, "fa_100_100", "online-em", (0,), device="cuda"))

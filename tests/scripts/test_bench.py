"""The numbers of docs/speed.md: contenders compute the same thing, and costs are what the scripts say of them."""

from dataclasses import replace

import bench_planner
import bench_single
import pandas as pd
import pytest
import torch
from peers import agreement, fa_batch, fa_large, fa_streams, gradients, methods, timing, workload
from peers.comparison import Contender, Cost, compare
from peers.machine import alone

from bdl.data.streams import Stream
from bdl.methods.batch_fa import BatchFa
from bdl.methods.swag import Swag
from bdl.plan.cost import estimate_fit_seconds
from bdl.plan.planning import list_tasks
from bdl.plan.workload import count_fits_per_batch, count_stage_updates, is_stage_compiled
from bdl.spec import load_benchmark
from bdl.training.trials import Trials

STREAM = Stream(20, 10, length=2500)


@pytest.fixture(scope="module")
def work():
    """Trials whose epochs are one update."""
    return workload.make(8, hidden=5, rows=40)


@pytest.fixture(scope="module")
def update(work):
    return agreement.engine_update(work, compile=False)


def test_plain_loops_agree_with_the_engine(work, update):
    expected = agreement.loop_numbers(work, update)
    assert len(expected) == 9
    assert (
        agreement.difference(agreement.loop_numbers(work, update, together=True), expected)
        < agreement.TOLERANCE
    )
    assert agreement.difference(agreement.engine_numbers(update), expected) < agreement.TOLERANCE


def test_jax_agrees_with_the_plain_loop(work, update):
    pytest.importorskip("jax")
    found = agreement.jax_numbers(work, update)
    assert agreement.difference(found, agreement.loop_numbers(work, update)) < agreement.TOLERANCE


@pytest.mark.parametrize("given", [*workload.Setting._fields, "h", "z", "rows"])
def test_agreement_notices_a_thousandth_more_of_a_setting_and_other_noise_and_rows(
    work, update, given
):
    """Gradients are averaged over minibatches, so noise and rows are exchanged one without the other."""
    if given in workload.Setting._fields:
        setting = update.setting._replace(**{given: 1.001 * getattr(update.setting, given)})
        wrong, least = update._replace(setting=setting), 5e-5
    else:
        wrong, least = update._replace(**{given: getattr(update, given).flip(1)}), 1e-3
    assert (
        agreement.difference(agreement.engine_numbers(update), agreement.loop_numbers(work, wrong))
        > least
    )


def test_peers_make_as_many_updates_as_the_engine():
    """364 rows are 9 updates of 4 minibatches of 10; 4 rows are left over."""
    work = workload.make(2, hidden=5)
    first = [
        torch.utils._pytree.tree_map(lambda leaf: leaf[0], tree)
        for tree in (work.initial_state(), work.settings())
    ]
    x, y = work.data()
    model = agreement.LoopModel(work.method, *first, x[0], y[0], together=False)
    model.train(torch.from_numpy(work.trials.rows[0]), epochs=2)
    assert model.optimizer.state[model.params["c"]]["step"] == 18

    jax = pytest.importorskip("jax")
    from peers import jax_scan

    rows = torch.stack([torch.from_numpy(own) for own in work.trials.rows])
    arguments = map(jax_scan.from_torch, (work.settings(), x, y, rows))
    keys, states = (
        jax.random.split(jax.random.key(0), 2),
        jax_scan.state_from_torch(work.initial_state()),
    )
    assert jax.vmap(jax_scan.trainer(work.method, 2))(
        keys, states, *arguments
    ).updates.tolist() == [18, 18]


def test_costs_are_medians_and_ratios_medians_within_a_repeat():
    """Ratios are 3, 2 and 0.5; the ratio of the medians would be 4 / 2.

    In the second case they are 3, 1 and 0.5.
    """
    first, second = iter([1.0, 2.0, 10.0]), iter([3.0, 4.0, 5.0])
    costs = compare(
        {"a": Contender(lambda: next(first), 7.0), "b": Contender(lambda: next(second))}, 3
    )
    assert costs == {"a": Cost(2e6, 1e6, 1.0, 7.0), "b": Cost(4e6, 3e6, 2.0, None)}
    first, second = iter([1.0, 4.0, 10.0]), iter([3.0, 4.0, 5.0])
    other = compare({"a": Contender(lambda: next(first)), "b": Contender(lambda: next(second))}, 3)
    assert other["b"].ratio == 1.0


@pytest.mark.parametrize("name", methods.ENTRIES)
def test_gradients_of_an_update_are_as_many_as_its_noise(name):
    """Each gradient is taken at parameters, or under a mask, of its own."""
    method, count = methods.ENTRIES[name]
    shapes = {shape[0] for shape in method.step_noise(workload.make(1).problem).values()}
    assert (shapes or {1}) == {count}


def test_unit_of_cost_is_a_gradient(monkeypatch):
    """A minibatch takes SLANG four gradients, SWAG one, and is one of the four of an update of VIFA."""
    monkeypatch.setattr(methods, "engine_seconds", lambda work, epochs, compile: 1e-6)
    costs = methods.measure(2, 1, 1, compile=False)
    assert {name: (cost.us, cost.update_us) for name, cost in costs.items()} == {
        "VIFA": pytest.approx((1, 4)),
        "SLANG": pytest.approx((0.25, 1)),
        "SLANG-OnlineEig": pytest.approx((0.25, 1)),
        "BBB": pytest.approx((0.25, 1)),
        "MC dropout": pytest.approx((1, 4)),
        "SWAG": pytest.approx((1, 1)),
    }


def test_what_diverges_is_not_timed():
    work = workload.make(2, hidden=5).with_method(Swag(warmup_epochs=0))
    hyper = {**work.trials.hyper, "learning_rate": torch.tensor([1e-3, 1e9])}
    wild = replace(
        work, trials=Trials(work.trials.identities, work.trials.rows, work.trials.view, hyper)
    )
    with pytest.raises(ArithmeticError, match="1 of 2 models of Swag diverged"):
        timing.engine_epochs(wild, 2, compile=False)


def test_both_ways_give_the_products_of_gradients():
    """The oracle is autograd, one example at a time."""
    given = gradients.task(hidden=4, examples=6)
    theta = given.theta[0].clone().requires_grad_()
    values = given.problem.log_likelihoods(theta, given.batch, given.hyper)
    G = torch.stack([torch.autograd.grad(value, theta, retain_graph=True)[0] for value in values])
    expected = {
        "gram": G @ G.T,
        "times": G @ given.columns,
        "combine": G.T @ given.weights,
        "sum": G.sum(0),
        "squares": G.square().sum(0),
    }
    for found in (gradients.outer(given), gradients.matrix(given)):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("name", "dim"), [("13-50-1", 751), ("784-100-10", 79_510), ("784-400-400-10", 478_410)]
)
def test_single_networks_are_those_of_the_page(name, dim):
    network = bench_single.NETWORKS[name]
    for method in network.methods.values():
        work = network.workload(method)
        method.check(work.problem)
        assert (work.problem.dim, work.cost_units, work.batch_size) == (
            dim,
            bench_single.UPDATES,
            network.batch_size,
        )
    loop = bench_single.TorchLoop(network.sizes, *bench_single._data(network), network.batch_size)
    before = [part.clone() for part in loop.net.parameters()]
    loop.epoch()
    assert sum(part.numel() for part in before) == dim
    assert not any(map(torch.equal, before, loop.net.parameters()))


def test_the_cost_of_streams_is_scaled_to_all(monkeypatch):
    """2 us for each of 100,000 observations of 30 streams are 6 s.

    Drawing takes 5, 2 and 2 s for 1000 observations of 30 streams: 100 turns of 2 s, and 3 s at
    first.
    """
    assert fa_streams.scaled(
        Cost(2.0, 1.0, 3.0, None), 100, "online-em", 10, 30
    ).seconds == pytest.approx(6)
    times = iter([0, 5, 5, 7, 7, 9])
    monkeypatch.setattr(fa_streams, "ESTIMATORS", {})
    monkeypatch.setattr(fa_streams, "perf_counter", lambda: next(times))
    (drawing,) = fa_streams.measure((20,), 1)
    assert (drawing.us, drawing.setup_s, drawing.seconds) == pytest.approx((2e6 / 30_000, 3, 203))


def test_batch_fits_are_of_the_same_sample_and_measured_from_its_model():
    """The fit of scikit-learn to the whole sample is that from moments, which has its own way there."""
    sample = fa_batch.sampled(STREAM)
    estimate, _ = fa_batch.whole(STREAM)
    moments, _ = fa_batch.streamed(BatchFa(solver="sklearn"), STREAM)
    torch.testing.assert_close(
        estimate.loc.double(), sample.double().mean(0), rtol=1e-5, atol=1e-5
    )
    torch.testing.assert_close(
        estimate.covariance().double(), moments.covariance(), rtol=1e-3, atol=1e-3
    )
    point, truth = fa_batch.point("batch-exact", STREAM), STREAM.model(0).covariance().double()
    exact = fa_batch.streamed(BatchFa(solver="exact"), STREAM)[0].covariance()
    assert point.rel_cov_dist == pytest.approx(
        float((exact - truth).norm() / truth.norm()), rel=1e-9
    )


def test_an_update_of_a_large_stream_needs_few_arrays():
    """O(D K): the old F and statistics, the new ones, and little else.

    The start's QR decomposition needs no more.
    """
    assert 4 < alone(1, fa_large.point, "online-em", 1, 500_000, 1).arrays < 7


def test_the_planner_is_held_against_what_published_stages_took():
    """Two fits that took twice what is estimated, another entry, and one that failed before it began."""
    cell = next(
        one
        for one in list_tasks(load_benchmark("uci-regression", "quick"))
        if one.entry == "vifa-lr"
    )
    known = (
        count_stage_updates(cell, "final"),
        count_fits_per_batch(cell, "final"),
        is_stage_compiled(cell, "final"),
    )
    estimated = 3 * estimate_fit_seconds(cell, *known)
    row = {
        "dataset": str(cell.dataset),
        "entry": cell.entry,
        "stage": "final",
        "seconds": 2 * estimated,
    }
    row |= dict(zip(("updates", "width", "compiled"), known, strict=True))
    (found,) = bench_planner.stages(
        cell, 3.0, pd.DataFrame([row, row, row | {"entry": "another", "seconds": 1e6}])
    )
    assert (found.measured, found.estimated) == pytest.approx((4 * estimated, 2 * estimated))
    assert list(bench_planner.stages(cell, 3.0, pd.DataFrame([row | {"seconds": 0.0}]))) == []

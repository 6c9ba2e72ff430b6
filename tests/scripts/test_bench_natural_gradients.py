"""The comparison of natural gradients: contenders make the same update, and the script writes what it documents."""

from dataclasses import replace

import bench_natural_gradients
import numpy as np
import pytest
import torch
from peers import natural_agreement, natural_cost
from peers.comparison import compare
from peers.natural_agreement import ENGINE, TOLERANCE, difference, engine_numbers, engine_update, loop_numbers
from peers.natural_loop import NaturalLoop, NaturalState, Rows, SlangLoop, SlangState
from peers.natural_workload import Regressions, make

from bdl.data import Dataset
from bdl.methods.slang import Slang
from bdl.models.gradients import DenseGradients, example_gradients
from bdl.models.likelihoods import Bernoulli
from bdl.models.networks import Linear
from bdl.models.priors import GaussianPrior
from bdl.models.problem import Problem
from bdl.spec import load_benchmark
from bdl.training.schedule import Schedule
from bdl.training.trials import Pool, Trials

ENTRIES = bench_natural_gradients.ENTRIES
MODELS, N, M, DIM = 2, 40, 8, 4
UPDATES = 7
"""Before the one that is compared, in the middle of an epoch of five; a basis of five makes eigenvectors exact here."""


def regressions(dataset, entry, models=MODELS):
    """Models of an entry on made-up rows, with no higher rank than there are parameters."""
    settings, rng = load_benchmark("slang-logistic").entries[entry].on(dataset), np.random.default_rng(3)
    x = rng.normal(size=(60, DIM - 1))
    data = Dataset(
        "made-up", x, (x[:, 0] + rng.normal(size=60) > 0).astype(float), "classification", standardise="none"
    )
    pool = Pool.load(data, dtype="float64")
    rows = [rng.permutation(60)[:N] for _ in range(models)]
    trials = Trials.make(data, pool, [("test", model) for model in range(models)], rows, [settings.hyper] * models)
    problem = Problem(Linear(), Bernoulli(), DIM - 1, prior=GaussianPrior(bias_precision=0.5))
    schedule = replace(settings.training.build(), batch_size=M)
    method = settings.method.build()
    if isinstance(method, Slang):
        method = replace(method, rank=min(method.rank, DIM))
    return Regressions(method, problem, data, pool, trials, M, schedule=schedule)


@pytest.fixture
def made_up(monkeypatch):
    """The script on made-up rows, after few updates and in short turns."""
    monkeypatch.setattr(bench_natural_gradients, "make", regressions)
    monkeypatch.setattr(natural_agreement, "BEFORE", UPDATES)
    monkeypatch.setattr(natural_cost, "SECONDS", 1e-3)


@pytest.mark.parametrize("entry", ENTRIES)
def test_plain_loop_agrees_with_the_engine(entry):
    work = regressions("australian", entry)
    update = engine_update(work, UPDATES, compile=False)
    assert update.theta.shape == (MODELS, 12, DIM)
    assert update.rows.shape == (MODELS, M)
    expected = loop_numbers(work, update)
    assert difference(engine_numbers(update.after), expected) < TOLERANCE
    assert difference(engine_numbers(update.before), expected) > 1e-3


@pytest.mark.parametrize("entry", ENTRIES)
def test_jax_agrees_with_the_plain_loop(entry):
    pytest.importorskip("jax")
    work = regressions("australian", entry)
    update = engine_update(work, UPDATES, compile=False)
    found = natural_agreement.jax_numbers(work, update)
    assert difference(found, loop_numbers(work, update)) < TOLERANCE


@pytest.mark.parametrize("entry", ENTRIES)
def test_agreement_notices_another_rate_sample_and_minibatch(entry):
    """A thousandth more of the rate, the samples in the place of one another, other rows."""
    work = regressions("australian", entry)
    update = engine_update(work, UPDATES, compile=False)
    for wrong, least in (
        (update._replace(rate=1.001 * update.rate), 1e-6),
        (update._replace(theta=update.theta.flip(0)), 1e-3),
        (update._replace(rows=update.rows.flip(0)), 1e-3),
    ):
        assert difference(engine_numbers(update.after), loop_numbers(work, wrong)) > least


@pytest.mark.parametrize(
    ("entry", "wrong"),
    [
        ("mf-fisher", NaturalLoop("hessian", "diagonal")),
        ("full-fisher", NaturalLoop("hessian", "full")),
        ("full-hessian", NaturalLoop("fisher", "full")),
        ("slang-1", SlangLoop(2, 0.9)),
        ("slang-1", SlangLoop(1, 0.8)),
    ],
)
def test_a_wrong_loop_is_caught(entry, wrong, made_up, monkeypatch, capsys):
    monkeypatch.setattr(Regressions, "algorithm", wrong)
    arguments = ["--entries", entry, "--quick", "--threads", str(torch.get_num_threads())]
    assert bench_natural_gradients.main(arguments) == 1
    assert "disagree" in capsys.readouterr().out


def test_the_plain_loop_starts_where_the_engine_does():
    for entry in ENTRIES:
        work = regressions("australian", entry)
        state = torch.utils._pytree.tree_map(lambda leaf: leaf[0], work.initial_state())
        theirs, ours = natural_agreement.loop_state(state), work.algorithm.start(DIM)
        assert all(np.array_equal(left, right) for left, right in zip(theirs, ours, strict=True))


def test_samples_of_the_plain_loop_have_the_covariance():
    """Samples are linear in the noise: of the unit vectors they are the rows of a root A^T, and A A^T = P^-1."""
    rng = np.random.default_rng(0)
    mu, U, d = rng.normal(size=4), rng.normal(size=(4, 2)), rng.uniform(0.5, 2, 4)
    P = U @ U.T + np.diag(d)
    for algorithm, state, precision in (
        (SlangLoop(2, 0.9), SlangState(mu, U, d, mu, 1.0), P),
        (NaturalLoop("fisher", "full"), NaturalState(mu, P), P),
        (NaturalLoop("fisher", "diagonal"), NaturalState(mu, d), np.diag(d)),
    ):
        root = algorithm.sample(state, np.eye(algorithm.normals(4))) - mu
        np.testing.assert_allclose(root.T @ root, np.linalg.inv(precision), rtol=1e-10, atol=1e-12)


def test_the_plain_loop_draws_training_rows_at_the_rates_of_the_schedule(monkeypatch):
    """0.05 / (1 + t^0.51) in the update t from 1, twice through."""
    work = regressions("australian", "mf-fisher")
    model, seen = work.loop(1), []
    update = NaturalLoop.update

    def spy(self, state, theta, rows, rate):
        seen.append((rate, rows))
        return update(self, state, theta, rows, rate)

    monkeypatch.setattr(NaturalLoop, "update", spy)
    model.train(2)
    model.train(1)
    assert [rate for rate, _ in seen] == pytest.approx([0.05 / (1 + t**0.51) for t in (1, 2, 3)])
    own = work.trials.rows[1]
    x, y = (values[own] for values in (work.dataset.x, work.dataset.y))
    assert all((rows.n, rows.x.shape) == (N, (M, DIM)) for _, rows in seen)
    for row, label in zip(seen[-1][1].x, seen[-1][1].y, strict=True):
        ((place,),) = np.nonzero(np.abs(x - row[:-1]).sum(1) < 1e-12)
        assert (row[-1], label) == (1, y[place])
    np.testing.assert_array_equal(seen[0][1].prior, [1e-5] * (DIM - 1) + [0.5])


def test_jax_makes_as_many_updates_as_there_are_rates():
    jax = pytest.importorskip("jax")
    from peers import natural_jax

    work = regressions("australian", "slang-1")
    with natural_jax.enable_x64(True):
        rows = Rows(*map(jax.numpy.asarray, work.training(0)))
        final = natural_jax.trainer(work.algorithm, jax.numpy.full(9, 0.01), 12, M)(jax.random.key(0), rows)
        assert float(final.updates) == 9
        assert final.mu.dtype == np.float64
        assert float(abs(final.mu).max()) < 100


def test_ways_to_find_gradients_are_the_same_gradients():
    """The oracle is autograd, one example at a time, those of the first sample first."""
    work = regressions("australian", "slang-1")
    view, hyper = torch.utils._pytree.tree_map(lambda leaf: leaf[0], (work.trials.view, dict(work.trials.hyper)))
    batch = view.batch(work.pool.x[:M], work.pool.y[:M])
    theta = torch.randn(3, DIM, generator=torch.Generator().manual_seed(0), dtype=torch.float64).requires_grad_()
    values = torch.cat([work.problem.log_likelihoods(own, batch, hyper) for own in theta])
    expected = torch.stack([torch.autograd.grad(value, theta, retain_graph=True)[0].sum(0) for value in values])
    found = {way: gradients(work.problem, theta.detach(), batch, hyper) for way, gradients in natural_cost.WAYS.items()}
    assert {way: own.rows for way, own in found.items()} == {
        natural_cost.SHARED: M,
        natural_cost.OUTER: 3 * M,
        natural_cost.MATRIX: 3 * M,
    }
    torch.testing.assert_close(found[natural_cost.MATRIX].matrix, expected)
    for own in found.values():
        torch.testing.assert_close(own.outer(), expected.T @ expected)
        torch.testing.assert_close(own.total(), expected.sum(0))


def test_slang_is_timed_with_each_way(made_up, monkeypatch):
    """One is off by a hundredth, which shows in its difference from the plain loop alone."""

    def wrong(*given):
        return DenseGradients(1.01 * natural_cost.matrix(*given).matrix)

    monkeypatch.setitem(natural_cost.WAYS, natural_cost.MATRIX, wrong)
    costs = natural_cost.sharing(regressions("australian", "slang-1"), 1, compile=False)
    assert max(costs[natural_cost.SHARED].difference, costs[natural_cost.OUTER].difference) < TOLERANCE
    assert costs[natural_cost.MATRIX].difference > 1e-4
    assert costs[natural_cost.SHARED].ratio == 1
    assert natural_cost.slang.example_gradients is example_gradients


def test_cost_is_that_of_an_update_of_one_model(made_up, monkeypatch):
    """An engine that takes 1 s for the first epoch and 0.5 s for the others, of 5 updates of 2 models each."""
    monkeypatch.setattr(natural_cost, "engine_epochs", lambda work, epochs, compile: [1.0, 0.5])
    monkeypatch.setattr(
        "peers.timing.engine_epochs", lambda work, epochs, compile: np.array([1.0] + [0.5] * (epochs - 1))
    )
    found = compare(natural_cost.contenders(regressions("australian", "full-fisher"), compile=True), 2)
    assert found[ENGINE].us == pytest.approx(0.5e6 / (5 * MODELS))
    assert found[ENGINE].setup_s == pytest.approx(0.5)
    assert found[natural_cost.LOOP].setup_s is None
    assert found[natural_cost.LOOP].ratio == pytest.approx(found[natural_cost.LOOP].us / found[ENGINE].us)


@pytest.mark.data
def test_models_are_those_of_the_benchmark():
    work = make("australian", "slang-10", 21)
    assert (work.problem.dim, work.batch_size, work.samples, work.per_epoch) == (15, 32, 12, 10)
    assert work.algorithm == SlangLoop(10, 0.9)
    assert [len(set(rows)) for rows in work.trials.rows] == [345] * 21
    assert list(work.trials.rows[20]) == list(work.trials.rows[0]) != list(work.trials.rows[1])
    assert isinstance(work.schedule, Schedule)
    assert (work.schedule.sampling, work.schedule.dtype, work.pool.dtype) == (
        "with_replacement",
        "float64",
        torch.float64,
    )

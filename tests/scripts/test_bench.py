"""The performance comparison: the contenders compute the same thing, and the script writes what it documents."""

import math

import bench_training
import pytest
import torch
from peers import agreement, scaling, timing, workload

UPDATE_ROWS = 40


@pytest.fixture(scope="module")
def work():
    """Trials whose epochs are one update."""
    return workload.make(8, hidden=5, rows=UPDATE_ROWS)


@pytest.fixture(scope="module")
def update(work):
    return agreement.engine_update(work, compile=False)


def test_workload_has_the_stated_shape():
    work = workload.make(2)
    assert work.pool.x.shape == (506, 13)
    assert [len(set(rows)) for rows in work.trials.rows] == [364, 364]
    assert work.problem.dim == 751
    assert work.cost_units == 2 * 36


def test_each_trial_sees_its_training_rows_standardised(work):
    x, y = work.data()
    for trial, rows in enumerate(work.trials.rows):
        torch.testing.assert_close(x[trial, rows].mean(0), torch.zeros(13), atol=1e-5, rtol=0)
        torch.testing.assert_close(y[trial, rows].std(correction=0), torch.tensor(1.0))


def test_plain_loop_agrees_with_the_engine(work, update):
    expected = agreement.loop_numbers(work, update)
    assert agreement.difference(agreement.loop_numbers(work, update, together=True), expected) < agreement.TOLERANCE
    assert len(expected) == 9
    assert agreement.difference(agreement.engine_numbers(update), expected) < agreement.TOLERANCE


def test_jax_agrees_with_the_plain_loop(work, update):
    pytest.importorskip("jax")
    found = agreement.jax_numbers(work, update)
    assert agreement.difference(found, agreement.loop_numbers(work, update)) < agreement.TOLERANCE


@pytest.mark.parametrize("field", workload.Setting._fields)
def test_agreement_notices_a_wrong_setting(work, update, field):
    """A thousandth more of any hyper-parameter is far above the tolerance."""
    wrong = update._replace(setting=update.setting._replace(**{field: 1.001 * getattr(update.setting, field)}))
    assert agreement.difference(agreement.engine_numbers(update), agreement.loop_numbers(work, wrong)) > 5e-5


@pytest.mark.parametrize("given", ["h", "z", "rows"])
def test_agreement_notices_other_noise_and_rows(work, update, given):
    wrong = update._replace(**{given: getattr(update, given).flip(1)})
    # the gradients are averaged over minibatches, so noise and rows must be exchanged one without the other
    assert agreement.difference(agreement.engine_numbers(update), agreement.loop_numbers(work, wrong)) > 1e-3


def test_difference_is_relative_to_the_largest_entry_of_each_tensor():
    left = {"a": torch.tensor([4.0, 1.0]), "b": torch.tensor([1e-3])}
    right = {"a": torch.tensor([4.0, 2.0]), "b": torch.tensor([2e-3])}
    assert agreement.difference(left, right) == 0.5
    assert math.isclose(agreement.difference({"a": left["a"]}, {"a": right["a"]}), 0.25)


def test_nan_disagrees(monkeypatch, capsys):
    monkeypatch.setattr(bench_training, "agree", lambda trials, names: {bench_training.EAGER: math.nan})
    monkeypatch.setattr(bench_training, "prepare", lambda trials, epochs: {})
    assert bench_training.main(["--threads", str(torch.get_num_threads())]) == 1
    assert "disagree" in capsys.readouterr().out


def test_loop_makes_as_many_updates_as_the_engine():
    """364 rows are 9 updates of 4 minibatches of 10; 4 rows are left over."""
    work = workload.make(1, hidden=5)
    state, setting = (
        torch.utils._pytree.tree_map(lambda leaf: leaf[0], tree) for tree in (work.initial_state(), work.settings())
    )
    x, y = work.data()
    model = agreement.LoopModel(work.method, state, setting, x[0], y[0], together=False)
    model.train(torch.from_numpy(work.trials.rows[0]), epochs=2)
    assert model.optimizer.state[model.params["c"]]["step"] == 18


def test_jax_makes_as_many_updates_as_the_engine():
    jax = pytest.importorskip("jax")
    from peers import jax_scan

    work = workload.make(2, hidden=5)
    states = work.initial_state()
    rows = torch.stack([torch.from_numpy(own) for own in work.trials.rows])
    arguments = map(jax_scan.from_torch, (work.settings(), *work.data(), rows))
    keys = jax.random.split(jax.random.key(0), 2)
    final = jax.vmap(jax_scan.trainer(work.method, 2))(keys, jax_scan.state_from_torch(states), *arguments)
    assert final.updates.tolist() == [18, 18]
    assert all(bool(abs(value).max() < 100) for value in final.params.values())


def test_engine_epochs_are_all_timed():
    seconds = timing.engine_epochs(workload.make(2, hidden=5), 3, compile=False)
    assert seconds.shape == (3,)
    assert (seconds > 0).all()


@pytest.mark.parametrize(("dim", "trials"), [(101, 150), (10**5, 83), (10**6, 8), (10**8, 8)])
def test_fitting_trials(dim, trials):
    """Two gigabytes hold 15 float32 copies of 83 x 4 x 10^5 numbers."""
    assert scaling.fitting_trials(dim) == trials


@pytest.mark.parametrize("arguments", [["--trials", "0"], ["--repeats", "-1"], ["--epochs", "1.5"]])
def test_bad_counts_are_refused(arguments, capsys):
    with pytest.raises(SystemExit, match="2"):
        bench_training.main(arguments)
    assert "is not a whole number from 1 up" in capsys.readouterr().err

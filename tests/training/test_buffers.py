"""Running statistics of a model, and inputs that are changed at random: what the engine carries and draws."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch

from bdl.methods.conjugate import Conjugate
from bdl.methods.swag import Swag
from bdl.methods.vifa import Vifa
from bdl.models.likelihoods import GaussianLikelihood
from bdl.models.networks import LinearModel
from bdl.models.problem import Problem
from bdl.rng import random_normals, trial_keys
from bdl.training.batches import iterate_minibatches
from bdl.training.checkpoint import Checkpoint
from bdl.training.fitting import EvaluationSchedule, run_to_end
from bdl.training.schedule import Schedule

from .toy import fitted, pick, same, toy, toy_program, toy_trials


@dataclass(frozen=True)
class Tracking(LinearModel):
    """A linear model that remembers the sum of its inputs and of its parameters, and counts minibatches."""

    def buffers(self, d_in, d_out):
        return {
            "inputs": torch.zeros(d_in),
            "theta": torch.zeros(()),
            "count": torch.zeros((), dtype=torch.int64),
        }

    def predict(self, theta, x, d_out, buffers):
        return self(theta, x, d_out)

    def track(self, theta, x, d_out, buffers):
        return {
            "inputs": buffers["inputs"] + x.mean(0),
            "theta": buffers["theta"] + theta.sum(),
            "count": buffers["count"] + 1,
        }

    def widest(self, d_in, d_out):
        return d_in


VIFA = Vifa(gradients_per_update=2)


def tracking(method=VIFA, epochs: int = 3, **changes):
    schedule = Schedule(epochs, 8)
    return toy_program(
        problem=Problem(Tracking(), GaussianLikelihood(), 3),
        method=method,
        schedule=schedule,
        **changes,
    )


def test_statistics_are_of_the_first_minibatch_of_every_update():
    program = tracking()
    trials = toy_trials(program, [40, 24])
    end = fitted(program, trials)
    assert end.buffers["count"].tolist() == end.updates.tolist() == [7, 4]
    for i, own in enumerate(trials.rows):
        keys = trial_keys([trials.identities[i]], "shuffle")
        stream = iterate_minibatches([own], keys, program.schedule, batches_per_step=2)
        first = np.stack([rows[0, 0].numpy() for _, updates in stream for rows in updates])
        x = (program.dataset.x - program.dataset.x[own].mean(0)) / program.dataset.x[own].std(0)
        np.testing.assert_allclose(
            end.buffers["inputs"][i], x[first].mean(1).sum(0), rtol=0, atol=1e-4
        )


def test_parameters_are_drawn_from_the_posterior_after_the_update():
    """Summed over the updates, from the trial's stream "track"."""
    program = tracking(epochs=2)
    trials = toy_trials(program, [40])
    expected, evaluations = 0.0, EvaluationSchedule("updates", every=1)
    for n, snapshot in enumerate(program.fitting(trials).run(evaluations)):
        posterior = program.fitting(trials).posterior(snapshot, 0)
        pairs = (posterior.noise_dim + 1) // 2
        halves = random_normals(
            trial_keys(trials.identities, "track"), torch.tensor(n, dtype=torch.int32), pairs
        )
        expected += float(posterior.sample(torch.cat(halves, 1)[0, : posterior.noise_dim]).sum())
        assert float(snapshot.buffers["theta"][0]) == pytest.approx(expected, rel=1e-4, abs=1e-4)
    assert n == 4


def test_statistics_change_nothing_that_is_trained():
    plain = toy_program(
        problem=Problem(LinearModel(), GaussianLikelihood(), 3),
        method=VIFA,
        schedule=Schedule(3, 8),
    )
    trials = toy_trials(plain, [40, 24])
    expected, found = fitted(plain, trials), fitted(tracking(), trials)
    assert all(same(pick(found.state, i), pick(expected.state, i)) for i in range(2))
    assert expected.buffers == {}


def test_statistics_are_looked_at_and_kept_like_the_states(tmp_path):
    program = tracking(Swag(warmup_epochs=1), epochs=6)
    trials, evaluations = toy_trials(program, [40, 24]), EvaluationSchedule("epochs", every=3)
    expected = fitted(program, trials)
    short = fitted(tracking(Swag(warmup_epochs=1)), trials)
    halfway = [
        snapshot for snapshot in program.fitting(trials).run(evaluations) if not snapshot.last
    ]
    for i, snapshot in enumerate(halfway):
        assert all(
            torch.equal(snapshot.buffers[name][0], value[i])
            for name, value in short.buffers.items()
        )
    snapshots = program.fitting(trials).run(
        evaluations, checkpoint=Checkpoint(tmp_path, "k", every_seconds=0)
    )
    next(snapshots), next(snapshots), next(snapshots)
    found = run_to_end(program.fitting(trials), checkpoint=Checkpoint(tmp_path, "k"))
    assert all(torch.equal(found.buffers[name], value) for name, value in expected.buffers.items())


def test_statistics_of_direct_fits_are_those_before_training():
    program = toy_program(
        problem=Problem(Tracking(), GaussianLikelihood(), 3), method=Conjugate(), schedule=None
    )
    end = fitted(program, toy_trials(program, [40, 24]))
    assert end.buffers["inputs"].tolist() == [[0.0] * 3] * 2


def shifted(x, noise):
    """Move each input by a tenth of a normal: (M, 3), (M, 3)."""
    return x + 0.1 * noise


def test_inputs_are_changed_by_the_trials_own_numbers():
    """The sum of the minibatches' means moves by that of the normals of the stream "augment", of every update."""
    plain, moved = tracking(), tracking(dataset=toy(augment=shifted, augment_noise=3))
    trials = toy_trials(plain, [40, 24])
    one, two = fitted(plain, trials), fitted(moved, trials)
    for i, updates in enumerate(two.updates.tolist()):
        key, total = trial_keys([trials.identities[i]], "augment"), torch.zeros(3)
        for n in range(updates):
            halves = random_normals(
                key, torch.tensor(n, dtype=torch.int32), 24
            )  # 2 minibatches of 8 rows of 3
            total += 0.1 * torch.cat(halves, 1).view(2, 8, 3)[0].mean(0)
        torch.testing.assert_close(
            two.buffers["inputs"][i] - one.buffers["inputs"][i], total, rtol=0, atol=1e-4
        )
    assert not same(pick(one.state, 0), pick(two.state, 0))

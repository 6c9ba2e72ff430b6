"""Fits by methods without minibatches: seeds, what is shared, units, and methods that show themselves as they go."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pytest
import torch

from bdl.errors import InputError
from bdl.methods.base import Direct, ExternalMethod
from bdl.methods.conjugate import Conjugate
from bdl.models.likelihoods import GaussianLikelihood
from bdl.models.networks import LinearModel
from bdl.models.problem import Problem
from bdl.posteriors import DiagonalGaussian
from bdl.training.direct import TrainingData
from bdl.training.fitting import EvaluationSchedule, run_to_end

from .toy import HYPER, toy_program, toy_trials

LINEAR = Problem(LinearModel(), GaussianLikelihood(), d_in=3)
ROWS = [np.arange(40), np.arange(40), np.arange(20, 60)]


@dataclass(frozen=True)
class Drawn(Direct):
    """Draws its mean at random; remembers its seeds."""

    seeds: list[int] = field(default_factory=list, hash=False)

    def fit(self, problem, x, y, hyper, seed):
        self.seeds.append(seed)
        generator = torch.Generator().manual_seed(seed)
        mean = torch.randn(problem.dim, generator=generator, dtype=torch.float64)
        return DiagonalGaussian(mean, torch.ones_like(mean))


@dataclass(frozen=True)
class Counted(Drawn):
    """The same, but says that it is deterministic."""

    deterministic = True


def program_of(method):
    return toy_program(method=method, problem=LINEAR, schedule=None)


def trials_of(program, rows=ROWS, names=(0, 1, 2), prior_precisions=(0.5,) * 3):
    settings = [
        {"prior_precision": own, "noise_precision": HYPER["noise_precision"]}
        for own in prior_precisions
    ]
    return program.trials([("direct", name) for name in names], rows, settings)


def test_replicates_of_a_random_method_differ_and_are_their_own():
    method = Drawn()
    program = program_of(method)
    together = run_to_end(program.fitting(trials_of(program)))
    means = together.state.loc
    assert len(set(method.seeds)) == 3
    assert all(0 <= seed < 2**31 for seed in method.seeds)
    assert (means[0] - means[1]).abs().min() > 0
    alone = run_to_end(program.fitting(trials_of(program, ROWS[1:2], (1,), (0.5,))))
    assert torch.equal(alone.state.loc[0], means[1])
    assert together.updates.tolist() == together.diverged.tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("prior_precisions", "made"), [((0.5, 0.5, 0.5), 2), ((0.5, 0.6, 0.5), 3)]
)
def test_fits_of_a_deterministic_method_are_shared_by_trials_of_equal_rows_and_settings(
    prior_precisions, made
):
    method = Counted()
    program = program_of(method)
    snapshots = list(program.fitting(trials_of(program, prior_precisions=prior_precisions)).run())
    assert [(snapshot.index, snapshot.last) for snapshot in snapshots] == [
        ((0,), True),
        ((1,), True),
        ((2,), True),
    ]
    assert len(method.seeds) == made
    assert torch.equal(snapshots[0].state.loc, snapshots[1].state.loc) == (made == 2)


def test_the_posterior_is_that_of_the_standardised_rows():
    program = program_of(Conjugate())
    fitting = program.fitting(trials_of(program))
    end = run_to_end(fitting)
    for i, rows in enumerate(ROWS):
        x, y = program.dataset.x[rows], program.dataset.y[rows]
        design = np.append((x - x.mean(0)) / x.std(0), np.ones((len(y), 1)), axis=1)
        beta = 1e-3 * y.std() ** 2
        covariance = np.linalg.inv(0.5 * np.eye(4) + beta * design.T @ design)
        posterior = fitting.posterior(end, i)
        np.testing.assert_allclose(posterior.covariance(), covariance, rtol=1e-9, atol=1e-15)
        expected = beta * covariance @ design.T @ ((y - y.mean()) / y.std())
        np.testing.assert_allclose(posterior.mean(), expected, rtol=1e-9, atol=1e-12)
        assert posterior.mean().dtype == torch.float64


def test_other_rows_are_standardised_by_the_training_rows():
    dataset = program_of(Conjugate()).dataset
    data = TrainingData.of(dataset, ROWS[0], np.array([59, 3]))
    x, y = dataset.x[:40], dataset.y[:40]
    np.testing.assert_allclose(data.x, (dataset.x[[59, 3]] - x.mean(0)) / x.std(0), rtol=1e-12)
    np.testing.assert_allclose(
        data.y * data.y_unit + data.y_origin, dataset.y[[59, 3]], rtol=1e-12
    )
    own = data.hyper({"prior_precision": 2.0, "noise_precision": 3.0}, LINEAR)
    assert float(own["prior_precision"]) == 2
    assert float(own["noise_precision"]) == pytest.approx(3 * y.std() ** 2)


@dataclass(frozen=True)
class Showing(ExternalMethod):
    """Another library that shows its posterior after updates 3, 6, 9 and so on: its mean is their number."""

    stop: int = 10
    hyper = ("learning_rate",)

    def fits(self, problem, x, y, hyper, seed) -> Iterator[tuple[int, DiagonalGaussian]]:
        assert set(hyper) == {"learning_rate", "prior_precision", "noise_precision"}
        for updates in range(3, 3 * self.stop + 1, 3):
            mean = torch.full((problem.dim,), float(updates), dtype=torch.float64)
            yield updates, DiagonalGaussian(mean, torch.ones_like(mean))


def test_an_external_method_is_seen_where_looks_are_due_and_in_the_end():
    program = program_of(Showing())
    fitting = program.fitting(toy_trials(program, [40, 24]))
    seen = [
        (s.index, s.counters.updates, s.last)
        for s in fitting.run(EvaluationSchedule("updates", every=12))
    ]
    assert seen == [(index, at, at == 30) for index in ((0,), (1,)) for at in (12, 24, 30)]
    end = run_to_end(fitting)
    assert end.updates.tolist() == [30, 30]
    assert fitting.posterior(end, 1).mean().tolist() == [30.0] * 4
    with pytest.raises(InputError, match="Showing showed no posterior"):
        run_to_end(program_of(Showing(stop=0)).fitting(toy_trials(program, [40])))

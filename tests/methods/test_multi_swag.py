"""MultiSWAG: each member is a SWAG of its own."""

import numpy as np
import torch

from bdl.methods.deep_ensemble import MultiSwag
from bdl.methods.swag import Swag
from bdl.models.likelihoods import Gaussian
from bdl.models.networks import Mlp
from bdl.models.problem import Problem
from bdl.training.schedule import Schedule

from .targets import advance, linear_gaussian, normals
from .test_sgd_iterates import hyper_of, toy_trials, trained


def test_members_are_fits_by_swag():
    """Two members, two updates in an epoch, that is four in one of a member; seven of these, of which two warm up."""
    target, generator = linear_gaussian(), torch.Generator().manual_seed(0)
    method, single, hyper = MultiSwag(members=2, rank=3, warmup_epochs=4), Swag(0.1, 2, 3), hyper_of(target)
    start = normals(method.init_noise(target.problem), generator)
    together = method.init(target.problem, start)
    alone = [single.init(target.problem, {"theta": theta}) for theta in start["theta"]]
    for update in range(1, 29):
        rows = torch.randint(12, (2, 3), generator=generator)
        batches = target.data._replace(x=target.data.x[rows], y=target.data.y[rows])
        together = advance(method, together, update, 2, batches, hyper, {}, target.problem)
        for number in range(2):
            own = batches._replace(x=batches.x[number], y=batches.y[number])
            alone[number] = advance(single, alone[number], update, 4, own, hyper, {}, target.problem)
    assert together.members.collected.tolist() == [5, 5]
    for found, expected in zip(method.posterior(together).check().components(), alone, strict=True):
        for one, other in zip(found, single.posterior(expected), strict=True):
            assert torch.equal(one, other)


def test_the_engine_collects_once_in_an_epoch_of_each_member():
    """Five minibatches an epoch and two members: every second epoch ends within no update."""
    data, trials = toy_trials([40, 43])
    method = MultiSwag(0.5, members=2, rank=3, warmup_epochs=2)
    fit = trained(method, Problem(Mlp((2,)), Gaussian(), 3), data, trials, Schedule(epochs=9, batch_size=8))
    assert fit.state.members.collected.tolist() == [[3, 3], [3, 3]]
    posterior = method.posterior(type(fit.state)(type(fit.state.members)(*(leaf[0] for leaf in fit.state.members))))
    assert np.isfinite(posterior.check().covariance().numpy()).all()

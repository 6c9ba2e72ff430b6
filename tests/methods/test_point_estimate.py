"""Adam and gradient descent: bad input, the steps of torch's optimisers, and the mode that they lead to."""

import pytest
import torch

from bdl.errors import InputError
from bdl.methods import METHODS
from bdl.methods.point_estimate import Adam, Sgd
from bdl.models.likelihoods import Gaussian
from bdl.models.networks import Mlp
from bdl.models.priors import GaussianPrior
from bdl.models.problem import Batch, Problem
from bdl.posteriors import Point

from .targets import linear_gaussian, normals, repeat, repeated


def test_a_point_has_no_density():
    point = Point(torch.ones(3))
    for verb in (lambda: point.log_prob(point.loc), point.entropy):
        with pytest.raises(InputError, match="a point estimate has no density: leave out metrics") as error:
            verb()
        assert "\n" not in str(error.value)
    with pytest.raises(InputError, match=r"loc has shape \(1, 3\)"):
        Point(torch.ones(1, 3)).check()
    with pytest.raises(InputError, match="not finite: leave out what diverged"):
        Point(torch.tensor([1.0, torch.nan])).check()


def test_a_point_is_where_it_is():
    point = Point(torch.tensor([1.0, 2.0]))
    assert point.check() is point
    assert point.sample(torch.zeros(3, 4, point.noise_dim)).tolist() == [[[1, 2]] * 4] * 3
    assert point.variance().tolist() == [0, 0]
    assert point.covariance().tolist() == [[0, 0], [0, 0]]


@pytest.mark.parametrize("prior_share", [0.0, 1.0, 0.3])
@pytest.mark.parametrize("name", ["adam", "rmsprop", "sgd"])
def test_steps_are_those_of_torch(name, prior_share):
    """Which descend the same E, its gradient by autograd of the whole."""
    generator = torch.Generator().manual_seed(0)
    problem = Problem(Mlp(hidden=(3,)), Gaussian(), 2, prior=GaussianPrior(0.2))
    batch = Batch(
        *(normals({"v": shape}, generator)["v"] for shape in ((5, 2), (5,))), *torch.tensor([40.0, 2.5]).double()
    )
    hyper = {"prior_precision": torch.tensor(1.5).double(), "noise_precision": torch.tensor(0.4).double()}
    method = METHODS.get(name)(prior_share=prior_share)
    state = method.init(problem, normals(method.init_noise(problem), generator))
    theta = state.params["theta"].clone().requires_grad_()
    settings = {"adam": {}, "rmsprop": {"alpha": 0.9}, "sgd": {}}[name]
    optimizer = {"adam": torch.optim.Adam, "rmsprop": torch.optim.RMSprop, "sgd": torch.optim.SGD}[name](
        [theta], lr=0.05, **settings
    )
    given = hyper | {"learning_rate": torch.tensor(0.05, dtype=torch.float64)}
    for _ in range(20):
        state = method.step(state, repeat(batch, 1), given, {}, problem)
        optimizer.zero_grad()
        joint = problem.log_likelihood(theta, batch, hyper) + prior_share * problem.log_prior(theta, hyper)
        (-joint / batch.n).backward()
        optimizer.step()
    torch.testing.assert_close(method.posterior(state).loc, theta.detach(), rtol=1e-9, atol=1e-10)


def test_the_prior_decides_between_mode_and_largest_likelihood():
    problem, data, hyper, posterior = linear_gaussian()
    design = torch.cat([data.x, torch.ones_like(data.x[:, :1])], 1)
    expected = {1.0: posterior.loc, 0.0: torch.linalg.lstsq(design, data.y).solution}
    given = hyper | {"learning_rate": torch.tensor(0.5).double()}
    for prior_share, loc in expected.items():
        method = Sgd(prior_share=prior_share, initial_scale=0.0)
        state, step = method.init(problem, {"theta": torch.ones(3).double()}), repeated(method, problem)
        for _ in range(2000):
            state = step(state, repeat(data, 1), given, {})
        torch.testing.assert_close(method.posterior(state).loc, loc, rtol=1e-10, atol=1e-10)


def test_start():
    problem, noise = linear_gaussian().problem, {"theta": torch.tensor([1.0, -2.0, 3.0])}
    assert Adam(initial_scale=0.5).init(problem, noise).params["theta"].tolist() == [0.5, -1, 1.5]
    own = Adam().init(problem, noise).params["theta"]
    torch.testing.assert_close(own, torch.tensor([0.5**0.5, -(2**0.5), 0.0]))

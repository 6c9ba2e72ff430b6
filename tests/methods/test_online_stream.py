"""What a stream refuses, and that it is then as it was."""

import math

import pytest
import torch

from bdl.errors import InputError
from bdl.methods.online_em import OnlineEm
from bdl.methods.online_fa import FaStream
from bdl.methods.online_px_em import OnlinePxEm
from bdl.methods.online_sga import OnlineSga

each = pytest.mark.parametrize("kind", [OnlineSga, OnlineEm, OnlinePxEm])


def data(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


@each
@pytest.mark.parametrize("latent_dim", [-1, 0, 6, 7])
def test_impossible_number_of_factors(kind, latent_dim):
    with pytest.raises(InputError, match=f"latent_dim {latent_dim} does not suit 6 dimensions: give one of 1 to 5$"):
        FaStream(kind(latent_dim), 6)
    FaStream(kind(5), 6)


BAD = [
    (torch.zeros(5), r"observations has shape \(5,\): give it shape \(6,\) or \(B, 6\)$"),
    (torch.zeros(4, 7), r"observations has shape \(4, 7\): give it shape \(6,\) or \(B, 6\)$"),
    (torch.zeros(2, 4, 6), r"observations has shape \(2, 4, 6\): "),
    (torch.tensor(1.0), r"observations has shape \(\): "),
    (torch.full((6,), math.inf), "observations has values that are not finite: leave out what diverged$"),
    (torch.cat([torch.zeros(3, 6), torch.full((1, 6), math.nan)]), "values that are not finite"),
]


@each
@pytest.mark.parametrize(("observation", "message"), BAD)
def test_bad_observations_are_refused_and_change_nothing(kind, observation, message):
    stream = FaStream(kind(2), 6)
    stream.observe(data(150, 6))
    before = stream.state
    with pytest.raises(InputError, match=message):
        stream.observe(observation)
    assert stream.state is before


@each
def test_posterior_needs_more_than_the_warm_up(kind):
    stream = FaStream(kind(2), 6)
    stream.observe(data(100, 6))
    with pytest.raises(InputError, match="100 observations are too few for an estimate: give more than the 100 of the"):
        stream.posterior()
    stream.observe(data(6))
    assert stream.posterior().check().dim == 6


@each
def test_is_the_estimator(kind):
    """Seed, precision and order of observations are those given."""
    stream, x = FaStream(kind(2), 6, seed=3, dtype=torch.float64), data(250, 6).double()
    stream.observe(x[:200])
    for row in x[200:]:
        stream.observe(row)
    noise = torch.randn(6, 2, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    estimator = kind(2)
    state = estimator.update_block(estimator.init({"F": noise}), x[:200])
    for row in x[200:]:
        state = estimator.update(state, row)
    assert all(torch.equal(a, b) for a, b in zip(stream.posterior(), estimator.posterior(state), strict=True))

"""Newton's method against known modes and curvatures, from starts where the plain method fails."""

import math

import pytest
import torch

from bdl.errors import InputError
from bdl.models.mode import laplace, maximise_density


def start(*values):
    return torch.tensor(values, dtype=torch.float64)


def test_a_gaussian_is_its_own_approximation():
    mean, covariance = start(3, -2), torch.tensor([[2.0, 0.9], [0.9, 0.5]], dtype=torch.float64)
    gaussian = torch.distributions.MultivariateNormal(mean, covariance)
    mode, scale = laplace(gaussian.log_prob, start(0, 0))
    torch.testing.assert_close(mode, mean)
    torch.testing.assert_close(scale @ scale.T, covariance)
    gram = scale.T @ scale
    torch.testing.assert_close(gram, torch.diag(gram.diagonal()))


@pytest.mark.parametrize(
    ("density", "first", "mode", "curvature"),
    [
        # a z - e^z has its mode at log a, and curvature a there
        (lambda z: 3 * z - z.exp(), 0.0, math.log(3), 3.0),
        # a full step from here overshoots to -50: Newton's method diverges beyond |z| = 1.09
        (lambda z: -z.cosh().log(), 2.0, 0.0, 1.0),
        # convex beyond |z| = 1, where Newton's method walks away
        (lambda z: -3 * z.square().log1p(), 5.0, 0.0, 6.0),
        # the units do not matter
        (lambda z: -(1e8 * z - 5).cosh().log(), 0.0, 5e-8, 1e16),
    ],
)
def test_known_modes(density, first, mode, curvature):
    found, scale = laplace(lambda theta: density(theta).sum(-1), start(first))
    assert float(found) == pytest.approx(mode, abs=1e-5 * curvature**-0.5)
    assert float(scale.square()) == pytest.approx(1 / curvature, rel=1e-5)


@pytest.mark.parametrize(
    ("density", "message"),
    [
        (lambda z: z.square() - z**4, r"no proper mode at \[0.0\]"),
        (lambda z: z, "not finite"),
        (lambda z: z.log(), r"not finite at \[0.0\]"),
        (lambda z: 0 * z, "no proper mode"),
        (
            lambda z: (z - 1).floor() + 0.5 * z - z.detach() ** 2,
            "does not rise along .* take a smooth activation",
        ),
    ],
)
def test_densities_without_a_mode_are_refused_in_one_line(density, message):
    with pytest.raises(InputError, match=f"^[^\n]*{message}[^\n]*$"):
        laplace(lambda theta: density(theta).sum(-1), start(0.0))


@pytest.mark.parametrize(
    ("density", "top"),
    [
        (lambda z: -(z - start(1, 2)).square().sum(-1), (1.0, 2.0)),
        (lambda z: -(z * start(1, 3)).abs().sum(-1), (0.0, 0.0)),
        (lambda z: -(z - start(1, 2)).square().sum(-1) - 9 * z[..., 0].relu(), (0.0, 2.0)),
    ],
    ids=["smooth", "a kink in both", "a kink in one"],
)
def test_a_climb_ends_at_the_top_or_on_its_kink(density, top):
    """A kink holds the steps up before the top; here the loss in height is at most 0.02."""
    found = maximise_density(density, start(3, -4))
    assert float(density(start(*top)) - density(found)) < 0.02


def test_a_climb_from_where_the_density_is_not_finite_is_refused():
    with pytest.raises(InputError, match=r"log p\(D, theta\) is not finite at \["):
        maximise_density(lambda z: (z.square() + z.log()).sum(-1), start(-1.0))

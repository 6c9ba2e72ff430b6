"""What natural-gradient methods share: a Gaussian q whose precision is a running mean of curvatures.

Under q = N(mu, P^-1) the natural gradient of the ELBO by the natural parameters is its gradient by the expectation
parameters (Khan and Lin 2017, Khan and Rue 2023), so that an update averages the curvature of samples into P, and
moves mu by P^-1 times the mean gradient. Methods differ in the form of P and in the curvature that they take.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import torch
from annotated_types import Ge, Gt
from torch import Tensor

from bdl.methods.base import Noise, Shapes, StartedMethod
from bdl.models.problem import Hyper, Problem
from bdl.posteriors import DiagonalGaussian

Factor = Annotated[float, Gt(0)]


@dataclass(frozen=True)
class NaturalGradientMethod(StartedMethod):
    """A method with learning rates of the mean and of the precision.

    Parameters
    ----------
    samples
        Samples S from q in an update; each sees the whole minibatch.
    lr_factors
        Learning rates alpha of the mean and beta of the precision, as multiples of the hyper-parameter
        ``learning_rate``; beta has to stay below 1.
    """

    samples: Annotated[int, Ge(1)] = 4
    lr_factors: tuple[Factor, Factor] = (1.0, 1.0)

    @property
    def groups(self) -> tuple[str, ...]:
        return ("mean", "precision")

    @property
    def hyper_below(self) -> Mapping[str, float]:
        return {"learning_rate": 1 / self.lr_factors[1]}

    def step_noise(self, problem: Problem) -> Shapes:
        return {"theta": (self.samples, problem.dim)}

    def steps(self, hyper: Hyper) -> tuple[Tensor, Tensor]:
        """Return alpha and beta, scalars."""
        (first, second), (mean, precision) = self.lr_factors, self.rates(hyper).values()
        return first * mean, second * precision


class MomentsState(NamedTuple):
    """Mean, running moments, and what the posterior needs of an update."""

    mu: Tensor  # Mean, (D,)
    m: Tensor  # Running mean of gradients, (D,)
    s: Tensor  # Running mean of curvatures, (D,)
    var: Tensor  # Variances of q after the last update, (D,)
    updates: Tensor  # Updates made, a scalar


class MomentsMethod(StartedMethod):
    """A mean-field method whose state is that of Adam: running means of gradients and of squared gradients."""

    @property
    def _initial_variance(self) -> float:
        """Variance that q shows before the first update, which knows the prior."""
        return 1.0

    def init(self, problem: Problem, noise: Noise) -> MomentsState:
        mu = self.start(problem, noise["theta"])
        zeros = torch.zeros_like(mu)
        return MomentsState(mu, zeros, zeros, zeros + self._initial_variance, zeros[0])

    def posterior(self, state: MomentsState) -> DiagonalGaussian:
        return DiagonalGaussian(state.mu, state.var)

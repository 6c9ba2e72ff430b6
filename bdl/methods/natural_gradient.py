"""Natural-gradient variational inference with a Gaussian of full or diagonal precision.

Khan and Lin (2017): q(theta) = N(mu, P^-1). With S samples from q, a minibatch of M of the N
examples, log-likelihoods l and the prior precision lambda,

    C   = (N / (M S)) sum_{s,i} grad l (grad l)^T                        empirical Fisher, or
    C   = -(N / (M S)) sum_{s,i} grad^2 l                                Hessian
    P  <- (1 - beta) P + beta (C + diag(lambda))
    mu <- mu - alpha P^-1 (lambda mu - (N / (M S)) sum_{s,i} grad l)

of which the diagonal structure keeps the diagonal of C alone: the methods called VOGN and VON.
With all examples and exact expectations, the Hessian's fixed point is the optimum of the ELBO.

Under q = N(mu, P^-1) the natural gradient of the ELBO by the natural parameters is its gradient by
the expectation parameters (Khan and Rue 2023): so that an update averages the curvature of samples
into P, and moves mu by P^-1 times the mean gradient. Methods differ in the form of P and in the
curvature that they take.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

import torch
from annotated_types import Ge, Gt
from torch import Tensor

from bdl.errors import InputError
from bdl.methods.base import Noise, Shapes, StartedMethod
from bdl.models.gradients import example_gradients, example_hessians, is_single_output_layer
from bdl.models.problem import Batch, Hyper, Problem
from bdl.posteriors import DiagonalGaussian, FullPrecision, cholesky_or_nan

Factor = Annotated[float, Gt(0)]


@dataclass(frozen=True)
class NaturalGradientMethod(StartedMethod):
    """A method with learning rates of the mean and of the precision.

    Parameters
    ----------
    samples
        Samples S from q in an update; each sees the whole minibatch.
    lr_factors
        Learning rates alpha of the mean and beta of the precision, as multiples of the
        hyper-parameter ``learning_rate``; beta has to stay below 1.
    """

    samples: Annotated[int, Ge(1)] = 4
    lr_factors: tuple[Factor, Factor] = (1.0, 1.0)

    groups = ("mean", "precision")

    @property
    def hyper_below(self) -> Mapping[str, float]:
        return {"learning_rate": 1 / self.lr_factors[1]}

    def step_noise(self, problem: Problem) -> Shapes:
        return {"theta": (self.samples, problem.dim)}

    def steps(self, hyper: Hyper) -> tuple[Tensor, Tensor]:
        """Return alpha and beta, scalars."""
        (first, second), (mean, precision) = self.lr_factors, self.rates(hyper).values()
        return first * mean, second * precision


class State(NamedTuple):
    """Variational parameters, and the root of the precision that sampling and solving need."""

    mu: Tensor  # Mean, (D,)
    P: Tensor  # Precision, (D, D), or its diagonal, (D,)
    root: Tensor  # Cholesky factor of the precision, (D, D); empty where it is diagonal


@dataclass(frozen=True)
class NaturalGradient(NaturalGradientMethod):
    """Settings of natural-gradient variational inference.

    Parameters
    ----------
    curvature
        ``"fisher"``, the empirical Fisher matrix, or ``"hessian"``, for linear models with one
        output.
    structure
        Of the precision, ``"full"`` or ``"diagonal"``.
    initial_precision
        The precision starts as this multiple of the identity.
    """

    initial_scale: Annotated[float, Ge(0)] | None = 0.0
    curvature: Literal["fisher", "hessian"] = "fisher"
    structure: Literal["full", "diagonal"] = "full"
    initial_precision: Factor = 1.0

    def check(self, problem: Problem) -> None:
        if self.curvature == "hessian" and not is_single_output_layer(problem):
            raise InputError(
                "curvature hessian needs a linear model with one output: use curvature fisher"
            )

    def init(self, problem: Problem, noise: Noise) -> State:
        mu = self.start(problem, noise["theta"])
        P = torch.full_like(mu, self.initial_precision)
        return self._state(mu, P.diag() if self.structure == "full" else P)

    def step(
        self, state: State, batch: Batch, hyper: Hyper, noise: Noise, problem: Problem
    ) -> State:
        alpha, beta = self.steps(hyper)
        prior = problem.prior_precision(hyper).expand(problem.dim)

        differentiate = example_hessians if self.curvature == "hessian" else example_gradients
        G = differentiate(problem, self.posterior(state).sample(noise["theta"]), batch, hyper)
        scale = batch.n / (self.samples * len(batch.x))
        full = self.structure == "full"
        C = scale * G.outer() + prior.diag() if full else scale * G.squares() + prior
        updated = self._state(state.mu, torch.lerp(state.P, C, beta))
        force = prior * state.mu - scale * G.total()
        step = FullPrecision(state.mu, updated.root).solve(force) if full else force / updated.P
        return updated._replace(mu=state.mu - alpha * step)

    def posterior(self, state: State) -> FullPrecision | DiagonalGaussian:
        if self.structure == "full":
            return FullPrecision(state.mu, state.root)
        return DiagonalGaussian(state.mu, state.P.reciprocal())

    def _state(self, mu: Tensor, P: Tensor) -> State:
        root = cholesky_or_nan(P) if self.structure == "full" else P[:0]
        return State(mu, P, root)

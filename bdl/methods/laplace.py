"""Laplace's approximation: a Gaussian at the mode of the posterior, with the curvature there.

Its precision is that of the prior and the curvature of the likelihood at the mode: minus the
Hessian, or the generalised Gauss-Newton matrix H of `bdl.models.mode`. This one is never
indefinite and needs no exact mode, so that it suits networks, also such with kinks. It is exact
for the model linearised at the mode, and then predictions should be that model's, which
`linearised` asks for (Immer, Korzepa and Bauer 2021): under theta ~ N(mode, S) outputs are
N(f(mode), J S J^T).
"""

from dataclasses import dataclass
from functools import partial
from typing import Literal, cast

import torch
from torch import Tensor

from bdl.errors import InputError
from bdl.methods.base import Direct
from bdl.models.linear import derivatives, is_glm, prior_precision, problem_log_prob
from bdl.models.mode import (
    DensityDerivatives,
    gauss_newton,
    kronecker_gauss_newton,
    laplace,
    maximise_density,
)
from bdl.models.modules import Module, NetworkModule
from bdl.models.networks import LinearModel
from bdl.models.priors import PrecisionPrior
from bdl.models.problem import Hyper, Problem, full_batch, log_joint
from bdl.posteriors import FullGaussian, Linearised

_MAX_PARAMETERS = 2000
"""Parameters whose Hessian is formed and decomposed in seconds."""


@dataclass(frozen=True)
class Laplace(Direct):
    """N(mode, H^{-1}) with H the curvature of -log p(D, theta) at the mode.

    The prior is included (Bishop 2006, section 4.4). The mode is found by Newton's method. A
    linear model with one output starts at 0, and has H = diag(gamma) - X^T diag(l'') X; others
    start at their own start, so that the seed can decide which of several modes it is, and a
    network at hand at its weights. Where the curvature is not the Hessian, L-BFGS climbs instead;
    a network at hand it brings near its mode first.

    Parameters
    ----------
    curvature
        ``"hessian"``; ``"ggn"``, the Gauss-Newton matrix; or ``"kronecker"``, that by Kronecker
        factors for each dense layer; null for the Hessian, and the Gauss-Newton matrix of a
        network at hand.
    linearised
        Whether predictions are those of the model linearised at the mode.
    climb
        Whether the mode is looked for; if not, the approximation is at the start, the weights of a
        trained network.
    """

    curvature: Literal["hessian", "ggn", "kronecker"] | None = None
    linearised: bool = False
    climb: bool = True

    def check(self, problem: Problem) -> None:
        if problem.dim > _MAX_PARAMETERS:
            raise InputError(
                f"laplace forms the Hessian of {problem.dim} parameters: "
                f"use a model of {_MAX_PARAMETERS} at most"
            )
        if not isinstance(problem.prior, PrecisionPrior):
            raise InputError(
                "laplace needs a prior on the parameters themselves: use the prior 'gaussian'"
            )
        curvature = self._curvature(problem)
        if not self.climb and (curvature == "hessian" or not isinstance(problem.model, Module)):
            raise InputError(
                "climb: false is for a trained network, and not with its Hessian: "
                "use curvature: ggn"
            )
        if curvature != "hessian" and problem.recomputes:
            raise InputError(
                "under batch normalisation no row has an output of its own: "
                "use layer normalisation"
            )

    def fit(
        self, problem: Problem, x: Tensor, y: Tensor, hyper: Hyper, seed: int = 0
    ) -> FullGaussian:
        """Return the approximation; `seed` is that of the start.

        Raises `InputError` if a value is not finite, or there is no maximum with a definite
        curvature.
        """
        density = partial(log_joint, problem=problem, batch=full_batch(x, y), hyper=hyper)
        family, glm = Linearised if self.linearised else FullGaussian, is_glm(problem)
        curvature, theta = self._curvature(problem), _start(problem, x, seed)
        if (
            self.climb
            and not glm
            and (curvature != "hessian" or isinstance(problem.model, NetworkModule))
        ):
            theta = maximise_density(density, theta)
        if curvature == "hessian" or glm:
            theta, scale = laplace(
                density, theta, partial(_slopes, problem, x, y, hyper) if glm else None
            )
        if curvature == "hessian":
            return family.from_covariance(theta, scale @ scale.T)
        H = (gauss_newton if curvature == "ggn" else kronecker_gauss_newton)(
            problem, theta, x, hyper
        )
        root, info = torch.linalg.cholesky_ex(H + prior_precision(problem, hyper).diag())
        if bool(info):
            raise InputError(
                f"the {curvature} curvature is not definite: "
                "check the data, or raise prior_precision"
            )
        return family.from_covariance(theta, torch.cholesky_inverse(root))

    def _curvature(self, problem: Problem) -> str:
        return self.curvature or ("ggn" if isinstance(problem.model, NetworkModule) else "hessian")


def _start(problem: Problem, x: Tensor, seed: int) -> Tensor:
    if is_glm(problem):
        return x.new_zeros(problem.dim)
    if isinstance(problem.model, NetworkModule):
        return problem.model.weights.to(x)
    noise = torch.randn(problem.dim, generator=torch.Generator().manual_seed(seed), dtype=x.dtype)
    return problem.initial(noise)


def _slopes(
    problem: Problem, x: Tensor, y: Tensor, hyper: Hyper, theta: Tensor
) -> DensityDerivatives:
    """Differentiate log p(D, theta) by the parameters, through each row's output."""
    design, gamma = cast(LinearModel, problem.model).design(x), prior_precision(problem, hyper)
    # two derivatives of n scalars and products with the design, in place of D passes through
    # automatic differentiation
    value, first, second = derivatives(
        lambda f: problem_log_prob(problem, f, y, hyper), design @ theta
    )
    return DensityDerivatives(
        value.sum() + problem.log_prior(theta, hyper),
        design.T @ first - gamma * theta,
        gamma.diag() - (design.T * second) @ design,
    )

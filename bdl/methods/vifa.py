"""VIFA: variational inference with a factor-analysis posterior
(Brownlie 2022, chapter 5; VIFA paper 2023, Algorithm 1).

q(theta) = N(c, S), S = F F^T + diag(psi), gamma = log psi. With A = psi^-1 o F, B = F^T A and S^-1
F = C = A (I + B)^-1, the cost J = E_q[log q - log p(theta) - log p(D | theta)] has gradients

    dJ/dc     = alpha c + mean_l G_l
    dJ/dF     = alpha F - C + mean_l G_l h_l^T
    dJ/dgamma = (alpha psi + rowsum(C o F) - 1 + mean_l G_l o psi^1/2 o z_l) / 2

where theta_l = c + F h_l + psi^1/2 o z_l is drawn once per minibatch l and G_l is the gradient of
minus N times the mean log-likelihood of that minibatch. Corrections to the print: the thesis
writes g-hat where N g-hat is meant and z for z_l; the entropy part of dJ/dF is printed -A + C B^T,
equal to -C but cancelling in floating point; the paper uses the letter C for the mean as well.
"""

import math
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from annotated_types import Ge, Gt
from torch import Tensor

from bdl.methods.base import Noise, Shapes, check_rank
from bdl.methods.optim import (
    OPTIMIZERS,
    Descent,
    DescentState,
    Optimizer,
    Params,
    batch_gradients,
    clip_by_norm,
)
from bdl.models.problem import Batch, Hyper, Problem
from bdl.posteriors import FactorAnalysis


@dataclass(frozen=True)
class Vifa(Descent):
    """Settings of VIFA.

    The parameters in its state are ``c`` (D,), ``F`` (D, K) and ``gamma`` (D,).

    Parameters
    ----------
    latent_dim
        Rank K of the factors.
    gradients_per_update
        Minibatch gradients averaged per update, L.
    max_grad_norm
        Each of the three gradients (c; F; gamma) is clipped separately to this Frobenius norm.
    optimizer
        ``"adam"`` or ``"sgd"``.
    lr_factors
        Learning rates of c, F and gamma as multiples of the hyper-parameter ``learning_rate``.
    initial_scale
        Standard deviation of the initial c, which is normal with mean 0; null for the model's own
        start.
    initial_std
        Start of every psi^1/2. F starts with columns of norm 1.
    """

    initial_scale: Annotated[float, Ge(0)] | None = 0.0
    latent_dim: Annotated[int, Ge(1)] = 1
    gradients_per_update: Annotated[int, Ge(1)] = 4
    max_grad_norm: Annotated[float, Gt(0)] = 10.0
    optimizer: Literal["sgd", "adam"] = "adam"
    lr_factors: tuple[float, float, float] = (1.0, 1.0, 1.0)
    initial_std: Annotated[float, Gt(0)] = 1.0

    groups = ("c", "F", "gamma")

    @property
    def batches_per_step(self) -> int:
        return self.gradients_per_update

    @property
    def _optimizer(self) -> Optimizer:
        return OPTIMIZERS[self.optimizer]

    def check(self, problem: Problem) -> None:
        check_rank("latent_dim", self.latent_dim, problem)

    def init_noise(self, problem: Problem) -> Shapes:
        factors = {"F": (problem.dim, self.latent_dim)}
        return factors if self.initial_scale == 0 else {**factors, "c": (problem.dim,)}

    def init(self, problem: Problem, noise: Noise) -> DescentState:
        zero = torch.zeros_like(noise["F"][:, 0])
        c = zero if self.initial_scale == 0 else self.start(problem, noise["c"])
        params = {
            "c": c,
            # orthonormal, so that no two factors start in the same direction
            "F": torch.linalg.qr(noise["F"]).Q,
            # gamma is the logarithm of a variance
            "gamma": zero + 2 * math.log(self.initial_std),
        }
        return DescentState(params, self._optimizer.init(params))

    def step_noise(self, problem: Problem) -> Shapes:
        n = self.gradients_per_update
        return {"h": (n, self.latent_dim), "z": (n, problem.dim)}

    def gradients(
        self, state: DescentState, batches: Batch, hyper: Hyper, noise: Noise, problem: Problem
    ) -> Params:
        grads = factor_elbo_gradients(state.params, batches, hyper, noise, problem)
        return {name: clip_by_norm(grad, self.max_grad_norm) for name, grad in grads.items()}

    def _rates(self, grads: Params, hyper: Hyper) -> Params:
        rates = zip(self.rates(hyper).items(), self.lr_factors, strict=True)
        return {name: factor * rate for (name, rate), factor in rates}

    def posterior(self, state: DescentState) -> FactorAnalysis:
        params = state.params
        return FactorAnalysis(params["c"], params["F"], params["gamma"].exp())


def factor_elbo_gradients(
    params: Params, batches: Batch, hyper: Hyper, noise: Noise, problem: Problem
) -> Params:
    """Estimate the gradients of J by ``c``, ``F`` and ``gamma`` from L minibatches.

    Arguments as in `Vifa.step`.
    """
    h, z, scale = noise["h"], noise["z"], (0.5 * params["gamma"]).exp()
    G = batch_gradients(params["c"] + h @ params["F"].T + scale * z, batches, hyper, problem)
    fit = {"c": G.mean(0), "F": G.T @ h / len(h), "gamma": scale * (G * z).mean(0)}
    return with_divergence(params, fit, problem.prior_precision(hyper))


def with_divergence(params: Params, fit: Params, alpha: Tensor) -> Params:
    """Add the gradients of the divergence to those of the fit.

    The prior precision alpha is a scalar or (D,). `fit` has the means over minibatches of G_l, G_l
    h_l^T and G_l o psi^1/2 o z_l, under the keys of `params`.
    """
    c, F, psi = params["c"], params["F"], params["gamma"].exp()
    C = FactorAnalysis(c, F, psi).gain()
    return {
        "c": alpha * c + fit["c"],
        # transposed, since alpha may be one precision for each row of F
        "F": (alpha * F.T).T - C + fit["F"],
        # the diagonal of S^-1 F F^T, without a matrix of D x D
        "gamma": 0.5 * (alpha * psi + (C * F).sum(-1) - 1 + fit["gamma"]),
    }

"""VIFA: variational inference with a factor-analysis posterior (Brownlie 2022, ch. 5; VIFA paper 2023, Alg. 1).

q(theta) = N(c, S), S = F F^T + diag(psi), gamma = log psi. With A = psi^-1 o F, B = F^T A and
S^-1 F = C = A (I + B)^-1, the cost J = E_q[log q - log p(theta) - log p(D | theta)] has gradients

    dJ/dc     = alpha c + mean_l G_l
    dJ/dF     = alpha F - C + mean_l G_l h_l^T
    dJ/dgamma = (alpha psi + rowsum(C o F) - 1 + mean_l G_l o psi^1/2 o z_l) / 2

where theta_l = c + F h_l + psi^1/2 o z_l is drawn once per minibatch l and G_l is the gradient of minus
N times the mean log-likelihood of that minibatch. Corrections to the print: the thesis writes g-hat where
N g-hat is meant and z for z_l; the entropy part of dJ/dF is printed -A + C B^T, equal to -C but cancelling
in floating point; the paper uses the letter C for the mean as well.
"""

import math
from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

import torch
from annotated_types import Ge, Gt
from torch import Tensor

from bdl.errors import InputError
from bdl.methods.base import MinibatchMethod, Noise, Shapes, stacked, start
from bdl.methods.optim import OPTIMIZERS, OptimState, Params, clip_by_norm
from bdl.models.problem import Batch, Hyper, Problem
from bdl.posteriors import FactorAnalysis


class VifaState(NamedTuple):
    """Variational parameters ``c`` (D,), ``F`` (D, K), ``gamma`` (D,), and the optimiser's state."""

    params: Params
    optim: OptimState


@dataclass(frozen=True)
class Vifa(MinibatchMethod):
    """Settings of VIFA.

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
        Standard deviation of the initial c, which is normal with mean 0; null for the model's own start.
    initial_std
        Start of every psi^1/2. F starts with columns of norm 1.
    """

    latent_dim: Annotated[int, Ge(1)] = 1
    gradients_per_update: Annotated[int, Ge(1)] = 4
    max_grad_norm: Annotated[float, Gt(0)] = 10.0
    optimizer: Literal["sgd", "adam"] = "adam"
    lr_factors: tuple[float, float, float] = (1.0, 1.0, 1.0)
    initial_scale: Annotated[float, Ge(0)] | None = 0.0
    initial_std: Annotated[float, Gt(0)] = 1.0

    @property
    def batches_per_step(self) -> int:
        """Minibatches that one `step` consumes, L."""
        return self.gradients_per_update

    @property
    def groups(self) -> tuple[str, ...]:
        """Groups of parameters with learning rates of their own."""
        return ("c", "F", "gamma")

    def check(self, problem: Problem) -> None:
        """Raise `InputError` if there are more factors than parameters."""
        if self.latent_dim > problem.dim:
            raise InputError(
                f"latent_dim {self.latent_dim} exceeds the {problem.dim} parameters of the model; lower it"
            )

    def init_noise(self, problem: Problem) -> Shapes:
        """Declare the D x K matrix whose orthonormal columns start F, and for the initial c unless that is 0."""
        factors = {"F": (problem.dim, self.latent_dim)}
        return factors if self.initial_scale == 0 else {**factors, "c": (problem.dim,)}

    def init(self, problem: Problem, noise: Noise) -> VifaState:
        """Start with F = Q of the reduced QR decomposition."""
        zero = torch.zeros_like(noise["F"][:, 0])
        c = zero if self.initial_scale == 0 else start(problem, noise["c"], self.initial_scale)
        params = {"c": c, "F": torch.linalg.qr(noise["F"]).Q, "gamma": zero + 2 * math.log(self.initial_std)}
        return VifaState(params, OPTIMIZERS[self.optimizer].init(params))

    def step_noise(self, problem: Problem) -> Shapes:
        """Declare one h (K,) and one z (D,) a minibatch."""
        n = self.gradients_per_update
        return {"h": (n, self.latent_dim), "z": (n, problem.dim)}

    def step(self, state: VifaState, batches: Batch, hyper: Hyper, noise: Noise, problem: Problem) -> VifaState:
        """Average L minibatch gradients, clip each group, and move c, F and gamma once."""
        batches = stacked(batches, self.batches_per_step)
        grads = elbo_gradients(state.params, batches, hyper, noise, problem)
        grads = {name: clip_by_norm(grad, self.max_grad_norm) for name, grad in grads.items()}
        given = zip(self.rates(hyper).items(), self.lr_factors, strict=True)
        rates = {name: factor * rate for (name, rate), factor in given}
        steps, optim = OPTIMIZERS[self.optimizer].update(grads, state.optim, rates)
        return VifaState({name: state.params[name] + steps[name] for name in steps}, optim)

    def posterior(self, state: VifaState) -> FactorAnalysis:
        """Return N(c, F F^T + diag(exp(gamma)))."""
        params = state.params
        return FactorAnalysis(params["c"], params["F"], params["gamma"].exp())


def elbo_gradients(params: Params, batches: Batch, hyper: Hyper, noise: Noise, problem: Problem) -> Params:
    """Estimate the gradients of J (the negative ELBO) from L minibatches; formulas in the module docstring.

    Parameters
    ----------
    params
        ``c`` (D,), ``F`` (D, K), ``gamma`` (D,).
    batches, hyper, noise, problem
        As in `Vifa.step`.

    Returns
    -------
    dict
        Gradients with the same keys and shapes as `params`.
    """
    c, F, gamma = params["c"], params["F"], params["gamma"]
    h, z = noise["h"], noise["z"]
    psi, scale = gamma.exp(), (0.5 * gamma).exp()

    def cost(theta: Tensor, x: Tensor, y: Tensor) -> Tensor:
        return -problem.log_likelihood(theta, batches._replace(x=x, y=y), hyper)

    theta = c + h @ F.T + scale * z
    G = torch.func.vmap(torch.func.grad(cost))(theta, batches.x, batches.y)

    C = FactorAnalysis(c, F, psi).gain()
    alpha = problem.prior_precision(hyper)
    return {
        "c": alpha * c + G.mean(0),
        "F": (alpha * F.T).T - C + G.T @ h / len(h),
        "gamma": 0.5 * (alpha * psi + (C * F).sum(-1) - 1 + scale * (G * z).mean(0)),
    }

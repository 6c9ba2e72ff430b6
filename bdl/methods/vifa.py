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
from annotated_types import Ge, Gt, Le
from torch import Tensor

from bdl.methods.base import Noise, Shapes, StartedMethod, check_rank
from bdl.methods.counters import StepCounters
from bdl.methods.optim import (
    OPTIMIZERS,
    Adam,
    Descent,
    DescentState,
    Optimizer,
    OptimState,
    Params,
    batch_gradients,
    clip_by_norm,
)
from bdl.models.problem import Batch, Hyper, Problem
from bdl.posteriors import FactorAnalysis


@dataclass(frozen=True)
class Vifa(Descent):
    """Settings of VIFA; the parameters in its state are ``c`` (D,), ``F`` (D, K) and ``gamma`` (D,).

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
        params = {"c": c, "F": torch.linalg.qr(noise["F"]).Q, "gamma": zero + 2 * math.log(self.initial_std)}
        return DescentState(params, self._optimizer.init(params))

    def step_noise(self, problem: Problem) -> Shapes:
        n = self.gradients_per_update
        return {"h": (n, self.latent_dim), "z": (n, problem.dim)}

    def gradients(self, state: DescentState, batches: Batch, hyper: Hyper, noise: Noise, problem: Problem) -> Params:
        grads = elbo_gradients(state.params, batches, hyper, noise, problem)
        return {name: clip_by_norm(grad, self.max_grad_norm) for name, grad in grads.items()}

    def _rates(self, grads: Params, hyper: Hyper) -> Params:
        given = zip(self.rates(hyper).items(), self.lr_factors, strict=True)
        return {name: factor * rate for (name, rate), factor in given}

    def posterior(self, state: DescentState) -> FactorAnalysis:
        params = state.params
        return FactorAnalysis(params["c"], params["F"], params["gamma"].exp())


def elbo_gradients(params: Params, batches: Batch, hyper: Hyper, noise: Noise, problem: Problem) -> Params:
    """Estimate the gradients of J by ``c``, ``F`` and ``gamma`` from L minibatches; arguments as in `Vifa.step`."""
    h, z, scale = noise["h"], noise["z"], (0.5 * params["gamma"]).exp()
    G = batch_gradients(params["c"] + h @ params["F"].T + scale * z, batches, hyper, problem)
    fit = {"c": G.mean(0), "F": G.T @ h / len(h), "gamma": scale * (G * z).mean(0)}
    return with_divergence(params, fit, problem.prior_precision(hyper))


def with_divergence(params: Params, fit: Params, alpha: Tensor) -> Params:
    """Add the gradients of the divergence under prior precision alpha, a scalar or (D,), to those of the fit.

    `fit` has the means over minibatches of G_l, G_l h_l^T and G_l o psi^1/2 o z_l, under the keys of `params`.
    """
    c, F, psi = params["c"], params["F"], params["gamma"].exp()
    C = FactorAnalysis(c, F, psi).gain()
    return {
        "c": alpha * c + fit["c"],
        "F": (alpha * F.T).T - C + fit["F"],
        "gamma": 0.5 * (alpha * psi + (C * F).sum(-1) - 1 + fit["gamma"]),
    }


_ADAM = Adam()
_SPREAD = ("F", "gamma")


class TwoStageState(NamedTuple):
    """Variational parameters, optimisers and the sums of gradients since the last move."""

    params: Params  # ``c`` (D,), ``F`` (D, K) and ``gamma`` (D,)
    sums: Params
    """Of G_l, G_l h_l^T and G_l o z_l, with the names and shapes of `params`; they stay after a move until the next
    minibatch, since zeros would be as large as they are."""
    fresh: Tensor  # 1 where a sum begins with the next minibatch, else 0; a scalar
    mean_optim: OptimState  # Adam's state of c
    spread_optim: OptimState  # Adam's state of F and gamma
    epoch: Tensor  # Epochs that have ended, a scalar


@dataclass(frozen=True)
class TwoStageVifa(StartedMethod):
    """Settings of VIFA in two stages, for networks with millions of parameters (paper, section 4.3 and its code).

    The posterior, J and its gradients are those of VIFA. In the first epochs only the mean c moves, while theta is
    drawn from the narrow N(c, F F^T + diag(psi)) of the start. Then c, F and gamma move together, by optimisers of
    their own, with rates in epoch e (from 0) of

        c: eta b^e,    F and gamma: eta sigmoid(e - e_1)    printed,
                                    eta^2 sigmoid(e - e_1)  as the published code runs,

    where e_1 is the number of epochs of the first stage. As published eta is at most 5e-4, so that with the second F
    and gamma stay where they start (docs/errata.md).

    An update here is one minibatch, whose gradients are added to sums; every L-th moves the parameters. So the L draws
    of theta and their gradients are never in memory together, and the L minibatches may come from two epochs.

    Parameters
    ----------
    latent_dim
        Rank K of the factors.
    gradients_per_update
        Minibatch gradients averaged per move, L.
    mean_epochs
        Epochs of the first stage, e_1.
    ramp
        ``"printed"`` or ``"as-run"``; see above.
    decay
        Base b of the rate of c.
    max_grad_norm
        Each of the three gradients (c; F; gamma) is clipped separately to this Frobenius norm.
    initial_std
        Start of every psi^1/2. F starts with columns of norm initial_std^2.
    """

    latent_dim: Annotated[int, Ge(1)] = 1
    gradients_per_update: Annotated[int, Ge(1)] = 12
    mean_epochs: Annotated[int, Ge(0)] = 2
    ramp: Literal["printed", "as-run"] = "printed"
    decay: Annotated[float, Gt(0), Le(1)] = 0.95
    max_grad_norm: Annotated[float, Gt(0)] = 10.0
    initial_std: Annotated[float, Gt(0)] = 1e-5**0.5

    def check(self, problem: Problem) -> None:
        check_rank("latent_dim", self.latent_dim, problem)

    def init_noise(self, problem: Problem) -> Shapes:
        return {"c": (problem.dim,), "F": (problem.dim, self.latent_dim)}

    def init(self, problem: Problem, noise: Noise) -> TwoStageState:
        c, variance = self.start(problem, noise["c"]), self.initial_std**2
        params = {
            "c": c,
            "F": variance * torch.linalg.qr(noise["F"]).Q,
            "gamma": torch.full_like(c, math.log(variance)),
        }
        mean, spread = (_ADAM.init({name: params[name] for name in group}) for group in (("c",), _SPREAD))
        sums = {name: torch.zeros_like(value) for name, value in params.items()}
        return TwoStageState(params, sums, torch.ones_like(c[0]), mean, spread, torch.zeros_like(c[0]))

    def step_noise(self, problem: Problem) -> Shapes:
        return {"h": (self.latent_dim,), "z": (problem.dim,)}

    def due(self, counters: StepCounters) -> tuple[str, ...]:
        stage = "move_mean" if counters.epoch < self.mean_epochs else "move"
        moves = (stage,) if counters.updates % self.gradients_per_update == 0 else ()
        return (*moves, "next_epoch") if counters.ended else moves

    def step(self, state: TwoStageState, batch: Batch, hyper: Hyper, noise: Noise, problem: Problem) -> TwoStageState:
        params, h, z, keep = state.params, noise["h"], noise["z"], 1 - state.fresh
        theta = params["c"] + params["F"] @ h + (0.5 * params["gamma"]).exp() * z
        G = torch.func.grad(lambda theta: -problem.log_likelihood(theta, batch, hyper))(theta)
        terms = {"c": G, "F": G.unsqueeze(1) * h, "gamma": G * z}
        sums = {name: torch.addcmul(terms.pop(name), keep, value) for name, value in state.sums.items()}
        return state._replace(sums=sums, fresh=torch.zeros_like(keep))

    def move_mean(
        self, state: TwoStageState, batch: Batch, hyper: Hyper, noise: Noise, problem: Problem
    ) -> TwoStageState:
        """Move c by the averaged gradients, and let the sums begin anew."""
        c = state.params["c"]
        gradient = problem.prior_precision(hyper) * c + state.sums["c"] / self.gradients_per_update
        rates = {"c": hyper["learning_rate"] * self.decay**state.epoch}
        clipped = {"c": clip_by_norm(gradient, self.max_grad_norm)}
        moved, optim = _ADAM.move(state.params, clipped, state.mean_optim, rates)
        return state._replace(params=state.params | moved, fresh=torch.ones_like(state.fresh), mean_optim=optim)

    def move(self, state: TwoStageState, batch: Batch, hyper: Hyper, noise: Noise, problem: Problem) -> TwoStageState:
        """Move c, F and gamma."""
        fit = {name: value / self.gradients_per_update for name, value in state.sums.items()}
        fit["gamma"] = (0.5 * state.params["gamma"]).exp() * state.sums["gamma"] / self.gradients_per_update
        gradients = with_divergence(state.params, fit, problem.prior_precision(hyper))
        clipped = {name: clip_by_norm(gradients[name], self.max_grad_norm) for name in _SPREAD}
        eta = hyper["learning_rate"]
        rate = (eta if self.ramp == "printed" else eta.square()) * torch.sigmoid(state.epoch - self.mean_epochs)
        spread, optim = _ADAM.move(state.params, clipped, state.spread_optim, dict.fromkeys(_SPREAD, rate))
        moved = self.move_mean(state, batch, hyper, noise, problem)
        return moved._replace(params=moved.params | spread, spread_optim=optim)

    def next_epoch(
        self, state: TwoStageState, batch: Batch, hyper: Hyper, noise: Noise, problem: Problem
    ) -> TwoStageState:
        """Count an epoch."""
        return state._replace(epoch=state.epoch + 1)

    def posterior(self, state: TwoStageState) -> FactorAnalysis:
        return FactorAnalysis(state.params["c"], state.params["F"], state.params["gamma"].exp())

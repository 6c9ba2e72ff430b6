"""VIFA in two stages, for networks with millions of parameters
(VIFA paper 2023, section 4.3, and its code).

The posterior, the cost J and its gradients are those of `bdl.methods.vifa`. In the first epochs
only the mean c moves, while theta is drawn from the narrow N(c, F F^T + diag(psi)) of the start.
Then c, F and gamma move together, by optimisers of their own, with rates in epoch e (from 0) of

    c: eta b^e,    F and gamma: eta sigmoid(e - e_1)    printed,
                                eta^2 sigmoid(e - e_1)  as the published code runs,

where e_1 is the number of epochs of the first stage. As published eta is at most 5e-4, so that
with the second F and gamma stay where they start (docs/errata.md).

An update here is one minibatch, whose gradients are added to sums; every L-th moves the
parameters. So the L draws of theta and their gradients are never in memory together, and the L
minibatches may come from two epochs.
"""

import math
from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

import torch
from annotated_types import Ge, Gt, Le
from torch import Tensor

from bdl.methods.base import Noise, Shapes, StartedMethod, check_rank
from bdl.methods.counters import StepCounters
from bdl.methods.optim import AdamUpdate, OptimState, Params, clip_by_norm
from bdl.methods.vifa import with_divergence
from bdl.models.problem import Batch, Hyper, Problem
from bdl.posteriors import FactorAnalysis

_ADAM = AdamUpdate()
_SPREAD = ("F", "gamma")


class State(NamedTuple):
    """Variational parameters, optimisers and the sums of gradients since the last move."""

    params: Params  # ``c`` (D,), ``F`` (D, K) and ``gamma`` (D,)
    sums: Params
    """Of G_l, G_l h_l^T and G_l o z_l, with the names and shapes of `params`.

    They stay after a move until the next minibatch, since zeros would be as large as they are.
    """
    fresh: Tensor  # 1 where a sum begins with the next minibatch, else 0; a scalar
    mean_optim: OptimState  # Adam's state of c
    spread_optim: OptimState  # Adam's state of F and gamma
    epoch: Tensor  # Epochs that have ended, a scalar


@dataclass(frozen=True)
class TwoStageVifa(StartedMethod):
    """Settings of VIFA in two stages.

    Parameters
    ----------
    latent_dim
        Rank K of the factors.
    gradients_per_update
        Minibatch gradients averaged per move, L.
    mean_epochs
        Epochs of the first stage, e_1.
    ramp
        ``"printed"`` or ``"as-run"``; module docstring.
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

    def init(self, problem: Problem, noise: Noise) -> State:
        c, variance = self.start(problem, noise["c"]), self.initial_std**2
        params = {
            "c": c,
            "F": variance * torch.linalg.qr(noise["F"]).Q,
            "gamma": torch.full_like(c, math.log(variance)),
        }
        mean, spread = (
            _ADAM.init({name: params[name] for name in group}) for group in (("c",), _SPREAD)
        )
        sums = {name: torch.zeros_like(value) for name, value in params.items()}
        return State(params, sums, torch.ones_like(c[0]), mean, spread, torch.zeros_like(c[0]))

    def step_noise(self, problem: Problem) -> Shapes:
        return {"h": (self.latent_dim,), "z": (problem.dim,)}

    def due(self, counters: StepCounters) -> tuple[str, ...]:
        stage = "move_mean" if counters.epoch < self.mean_epochs else "move"
        moves = (stage,) if counters.updates % self.gradients_per_update == 0 else ()
        return (*moves, "next_epoch") if counters.ended else moves

    def step(
        self, state: State, batch: Batch, hyper: Hyper, noise: Noise, problem: Problem
    ) -> State:
        params, h, z, keep = state.params, noise["h"], noise["z"], 1 - state.fresh
        theta = params["c"] + params["F"] @ h + (0.5 * params["gamma"]).exp() * z
        G = torch.func.grad(lambda theta: -problem.log_likelihood(theta, batch, hyper))(theta)
        terms = {"c": G, "F": G.unsqueeze(1) * h, "gamma": G * z}
        sums = {
            name: torch.addcmul(terms.pop(name), keep, value) for name, value in state.sums.items()
        }
        return state._replace(sums=sums, fresh=torch.zeros_like(keep))

    def move_mean(
        self, state: State, batch: Batch, hyper: Hyper, noise: Noise, problem: Problem
    ) -> State:
        """Move c by the averaged gradients, and let the sums begin anew."""
        c = state.params["c"]
        gradient = problem.prior_precision(hyper) * c + state.sums["c"] / self.gradients_per_update
        rates = {"c": hyper["learning_rate"] * self.decay**state.epoch}
        clipped = {"c": clip_by_norm(gradient, self.max_grad_norm)}
        mean, optim = _ADAM.move(state.params, clipped, state.mean_optim, rates)
        return state._replace(
            params=state.params | mean, fresh=torch.ones_like(state.fresh), mean_optim=optim
        )

    def move(
        self, state: State, batch: Batch, hyper: Hyper, noise: Noise, problem: Problem
    ) -> State:
        """Move c, F and gamma."""
        fit = {name: value / self.gradients_per_update for name, value in state.sums.items()}
        fit["gamma"] = (
            (0.5 * state.params["gamma"]).exp() * state.sums["gamma"] / self.gradients_per_update
        )
        gradients = with_divergence(state.params, fit, problem.prior_precision(hyper))
        clipped = {name: clip_by_norm(gradients[name], self.max_grad_norm) for name in _SPREAD}
        eta = hyper["learning_rate"]
        rate = (eta if self.ramp == "printed" else eta.square()) * torch.sigmoid(
            state.epoch - self.mean_epochs
        )
        spread, optim = _ADAM.move(
            state.params, clipped, state.spread_optim, dict.fromkeys(_SPREAD, rate)
        )
        state = self.move_mean(state, batch, hyper, noise, problem)
        return state._replace(params=state.params | spread, spread_optim=optim)

    def next_epoch(
        self, state: State, batch: Batch, hyper: Hyper, noise: Noise, problem: Problem
    ) -> State:
        """Count an epoch."""
        return state._replace(epoch=state.epoch + 1)

    def posterior(self, state: State) -> FactorAnalysis:
        return FactorAnalysis(state.params["c"], state.params["F"], state.params["gamma"].exp())

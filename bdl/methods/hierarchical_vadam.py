"""VOGN and Vadam with learnt prior scales: automatic relevance determination, and the horseshoe.

Given precisions alpha_i the prior is Gaussian, theta_i ~ N(0, 1 / alpha_i), so that an update is
one of `Vadam` under the precisions' posterior means. Theirs are in closed form given the weights'
q: after each epoch, with E_i = mu_i^2 + var_i, coordinate ascent on the ELBO sets

    ard         alpha_i = 1 / E_i, the means of Gamma posteriors under a flat prior of log alpha_i;
    horseshoe   alpha_i = l_i t with theta_i ~ N(0, lambda_i^2 tau^2), lambda_i ~ C+(0, 1) and
                tau ~ C+(0, kappa): of the inverse Gammas of lambda_i^2, tau^2 and of their
                auxiliaries (Makalic and Schmidt 2016) the means are
                    l_i = 2 / (2 a_i + t E_i),                  a_i = 1 / (1 + l_i)
                    t   = (D + 1) / (2 b + sum_i l_i E_i),      b   = 1 / (1 / kappa^2 + t).

Mata (2018, chapter 5) differentiates through the scales of a noisy optimiser and reports that it
does not work. Here scales need no gradients, but they need variances that can be trusted: Vadam's
curvature, the square of a mean gradient, is too small by the size of the minibatch, its variances
are nearly the prior's, and E_i then says that every weight may be as large as its scale, which
stays. VOGN has the squares of single gradients, and its scales do shrink.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import torch
from annotated_types import Ge, Gt
from torch import Tensor

from bdl.errors import InputError
from bdl.methods.base import Noise, Shapes, StartedMethod
from bdl.methods.counters import StepCounters
from bdl.methods.vadam import MomentsState, Vadam, Vogn, VpropRoot
from bdl.models.priors import GaussianPrior
from bdl.models.problem import Batch, Hyper, Problem
from bdl.posteriors import DiagonalGaussian


class ScaledState(NamedTuple):
    """The state of `Vadam`, and the means of the scales' posteriors."""

    weights: MomentsState
    # Prior precisions, (D,); 0 before the first update, which takes the hyper-parameter
    alpha: Tensor
    local_precision: Tensor  # l of each weight, (D,)
    global_precision: Tensor  # t, a scalar


@dataclass(frozen=True)
class HierarchicalVadam(StartedMethod):
    """Settings of Vadam with learnt scales.

    Parameters
    ----------
    scales
        ``"ard"`` or ``"horseshoe"``.
    optimizer
        Which of the `Vadam` family moves the weights.
    samples
        As in `Vadam`.
    global_scale
        kappa of the horseshoe.
    """

    scales: Literal["ard", "horseshoe"] = "horseshoe"
    optimizer: Literal["vadam", "vprop-root", "vogn"] = "vogn"
    samples: Annotated[int, Ge(1)] = 1
    global_scale: Annotated[float, Gt(0)] = 1.0

    retired: ClassVar[Mapping[str, Any]] = {"shared": "weights"}

    @property
    def _inner(self) -> Vadam:
        kind = {"vadam": Vadam, "vprop-root": VpropRoot, "vogn": Vogn}[self.optimizer]
        return kind(samples=self.samples, initial_scale=self.initial_scale)

    def check(self, problem: Problem) -> None:
        if problem.prior != GaussianPrior():
            raise InputError(
                "hierarchical-vadam learns the precisions of its prior: leave the prior out"
            )
        if self.scales == "ard" and self.global_scale != 1:
            raise InputError(
                "global_scale is of the horseshoe: leave it out, or use scales: horseshoe"
            )

    def init(self, problem: Problem, noise: Noise) -> ScaledState:
        inner = self._inner.init(problem, noise)
        unit = torch.ones_like(inner.mu)
        return ScaledState(inner, 0 * unit, unit, unit[0])

    def step_noise(self, problem: Problem) -> Shapes:
        return self._inner.step_noise(problem)

    def step(
        self, state: ScaledState, batches: Batch, hyper: Hyper, noise: Noise, problem: Problem
    ) -> ScaledState:
        alpha = torch.where(state.weights.updates == 0, hyper["prior_precision"], state.alpha)
        inner_hyper = {**hyper, "prior_precision": alpha}
        weights = self._inner.step(state.weights, batches, inner_hyper, noise, problem)
        return state._replace(weights=weights, alpha=alpha)

    def due(self, counters: StepCounters) -> tuple[str, ...]:
        return ("learn",) if counters.ended else ()

    def learn(
        self, state: ScaledState, batches: Batch, hyper: Hyper, noise: Noise, problem: Problem
    ) -> ScaledState:
        """Set the means of the scales' posteriors; formulas in the module docstring."""
        q = self._inner.posterior(state.weights)
        local, t = state.local_precision, state.global_precision
        E = q.loc.square() + q.var
        if self.scales == "ard":
            return state._replace(alpha=1 / E)
        local = 2 / (2 / (1 + local) + t * E)
        t = (len(E) + 1) / (2 / (self.global_scale**-2 + t) + (local * E).sum())
        return ScaledState(state.weights, local * t, local, t)

    def posterior(self, state: ScaledState) -> DiagonalGaussian:
        return self._inner.posterior(state.weights)

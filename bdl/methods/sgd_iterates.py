"""Iterates of constant-rate SGD as posterior samples
(Mandt et al. 2017; Brownlie 2022, section 4.4.2).

SGD descends E(theta) = -(1/N) log p(D | theta) + (lambda / 2) ||theta||^2, whose minimum is the
mode of the posterior when lambda = alpha / N. With a constant learning rate the iterates never
settle; their mean is stochastic weight averaging (Izmailov et al. 2018), and their covariance is
taken for that of the posterior.

Brownlie (2022, section 4.4.2) descends the mean of squared errors instead, which is 2 / beta times
the mean negative log-likelihood of a Gaussian likelihood with noise precision beta (in the unit of
the targets that the model sees). Its learning rate eta and weight decay lambda are
``learning_rate`` = 2 eta / beta and ``weight_decay`` = lambda beta / 2 here, and the decay that
agrees with the prior is lambda = 2 alpha / (beta N): the thesis says alpha / beta, because its
equation 4.42 has a sum of squares where its code has a mean.
"""

from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import torch
from annotated_types import Ge, Gt
from torch import Tensor

from bdl.errors import InputError
from bdl.methods.base import Noise, StartedMethod
from bdl.methods.counters import StepCounters
from bdl.methods.optim import mean_gradient
from bdl.models.problem import Batch, Hyper, Problem
from bdl.posteriors import FullGaussian, Traced, cholesky_or_nan

VARIANCE_FLOOR = 1e-12
"""Least variance of a parameter, squared parameter units: a standard deviation of 1e-6."""


@dataclass(frozen=True)
class ConstantSgd(StartedMethod):
    """Base of methods that use iterates of SGD with a constant learning rate.

    Parameters
    ----------
    warmup_epochs
        Epochs of phase 1, in which nothing is collected; train for more epochs than these. Until
        something is collected the posterior is a narrow Gaussian at the last iterate.
    initial_scale
        Standard deviation of the initial parameters, which are normal with mean 0; null for the
        model's own start. The published start is uniform on +-1 / sqrt(fan_in), of standard
        deviation 1 / sqrt(3 fan_in); phase 1 forgets the difference.
    """

    initial_scale: Annotated[float, Gt(0)] | None = 0.1
    warmup_epochs: Annotated[int, Ge(0)] = 500

    def decay(self, hyper: Hyper, n: Tensor, problem: Problem) -> Tensor:
        """Return the weight decay lambda = alpha / N.

        It is a scalar, or (D,) when the biases have their own prior.
        """
        return problem.prior_precision(hyper) / n

    def step(self, state: Any, batch: Batch, hyper: Hyper, noise: Noise, problem: Problem) -> Any:
        return state._replace(
            theta=sgd_step(state.theta, hyper, self.decay(hyper, batch.n, problem), batch, problem)
        )


def sgd_step(theta: Tensor, hyper: Hyper, decay: Tensor, batch: Batch, problem: Problem) -> Tensor:
    """Make one SGD step on E, with the weight decay lambda, from theta (D,), by a minibatch."""
    gradient = mean_gradient(theta, batch, hyper, problem) + decay * theta
    return theta - hyper["learning_rate"] * gradient


def welford_weights(count: Tensor) -> tuple[Tensor, Tensor]:
    """Return the weights of the `count`-th value in running moments (Welford 1962).

    With delta = value - mean, ``mean + weight * delta`` is the new mean and ``scatter + gain *
    delta delta^T`` the new sum of outer products of deviations. Unlike the difference of two raw
    moments, nothing cancels.
    """
    weight = 1 / count
    return weight, weight * (count - 1)


_LARGEST_DIM = 2000
"""Parameters whose D x D covariance is still collected; each trial then holds 16 MB."""


class SgdState(NamedTuple):
    """The iterate and the running moments of the windows."""

    theta: Tensor  # Parameters, (D,)
    filled: Tensor  # Iterates in the current window, a scalar
    window: Tensor  # Their mean, (D,)
    collected: Tensor  # Windows completed in phase 2, T, a scalar
    mean: Tensor  # Mean of the completed windows, (D,)
    # Sum of outer products of the completed windows' deviations from their mean, (D, D)
    scatter: Tensor
    start: Tensor  # The iterate at the end of phase 1, (D,)
    path: Tensor  # The first windows completed, as many as the setting `kept`, (kept, D)


@dataclass(frozen=True)
class SgdIterates(ConstantSgd):
    """Settings of the Gaussian with the empirical mean and covariance of SGD's iterates.

    Every update makes an iterate.

    Parameters
    ----------
    window
        Iterates averaged into one sample; windows are consecutive and disjoint (thesis B.2).
    separate_warmup
        True gives phase 1 a learning rate of its own, the hyper-parameter
        ``warmup_learning_rate``, and no decay, as published. False makes it the same as phase 2.
    prior_decay
        True takes the decay alpha / N of the prior (the biases' own where they have one). False
        takes the hyper-parameter ``weight_decay`` for every parameter.
    kept
        Windows that the posterior keeps with their moments, the first of phase 2, for a figure.
    """

    window: Annotated[int, Ge(1)] = 1
    separate_warmup: bool = False
    prior_decay: bool = True
    kept: Annotated[int, Ge(0)] = 0

    @property
    def hyper(self) -> tuple[str, ...]:
        names = ["learning_rate"]
        if not self.prior_decay:
            names.append("weight_decay")
        if self.separate_warmup:
            names.append("warmup_learning_rate")
        return tuple(names)

    def decay(self, hyper: Hyper, n: Tensor, problem: Problem) -> Tensor:
        return super().decay(hyper, n, problem) if self.prior_decay else hyper["weight_decay"]

    def check(self, problem: Problem) -> None:
        if problem.dim > _LARGEST_DIM:
            raise InputError(
                f"{problem.dim} parameters are too many for a dense covariance "
                f"(at most {_LARGEST_DIM}); use swag"
            )

    def init(self, problem: Problem, noise: Noise) -> SgdState:
        theta = self.start(problem, noise["theta"])
        zero = torch.zeros_like(theta[0])
        path = theta.new_zeros(self.kept, problem.dim)
        return SgdState(
            theta, zero, theta, zero, theta, torch.zeros_like(theta).diag_embed(), theta, path
        )

    def _count_iterates(self, counters: StepCounters) -> int:
        """Count the iterates of phase 2."""
        return int(counters.updates - self.warmup_epochs * counters.per_epoch)

    def phase(self, counters: StepCounters) -> str:
        return (
            "warm_up" if self.separate_warmup and self._count_iterates(counters) <= 0 else "step"
        )

    def due(self, counters: StepCounters) -> tuple[str, ...]:
        iterates = self._count_iterates(counters)
        if iterates < 0:
            return ()
        if iterates == 0:  # the last update of phase 1
            return ("begin",) if self.kept else ()
        return ("average",) if iterates % self.window else ("average", "collect")

    def warm_up(
        self, state: SgdState, batches: Batch, hyper: Hyper, noise: Noise, problem: Problem
    ) -> SgdState:
        """Descend once in phase 1, without decay."""
        rates = {**hyper, "learning_rate": hyper["warmup_learning_rate"]}
        theta = sgd_step(state.theta, rates, torch.zeros_like(batches.n), batches, problem)
        return state._replace(theta=theta)

    def begin(
        self, state: SgdState, batches: Batch, hyper: Hyper, noise: Noise, problem: Problem
    ) -> SgdState:
        """Remember where phase 2 starts."""
        return state._replace(start=state.theta)

    def average(
        self, state: SgdState, batches: Batch, hyper: Hyper, noise: Noise, problem: Problem
    ) -> SgdState:
        """Take the iterate into the mean of its window."""
        filled = state.filled + 1
        return state._replace(
            filled=filled, window=torch.lerp(state.window, state.theta, 1 / filled)
        )

    def collect(
        self, state: SgdState, batches: Batch, hyper: Hyper, noise: Noise, problem: Problem
    ) -> SgdState:
        """Take the window into the moments, and begin another."""
        collected = state.collected + 1
        weight, gain = welford_weights(collected)
        delta = state.window - state.mean
        is_next = torch.arange(self.kept, device=delta.device).unsqueeze(-1) == state.collected
        return state._replace(
            filled=torch.zeros_like(state.filled),
            collected=collected,
            mean=torch.lerp(state.mean, state.window, weight),
            scatter=state.scatter + gain * torch.outer(delta, delta),
            path=torch.where(is_next, state.window, state.path),
        )

    def posterior(self, state: SgdState) -> FullGaussian | Traced:
        """Return the Gaussian with mean and covariance (divisor T - 1) of the T completed windows.

        Each variance is raised by 4 (D + sqrt(T)) rounding units, the size of the rounding errors,
        and by `VARIANCE_FLOOR`: where the windows span fewer than D dimensions a Cholesky factor
        exists all the same. A covariance that has none even so, of a diverged trial say, gives NaN
        throughout. Before a window is completed the mean is that of the iterates in it, or else
        the iterate.
        """
        latest = torch.where(state.filled > 0, state.window, state.theta)
        mean = torch.where(state.collected > 0, state.mean, latest)
        covariance = state.scatter / (state.collected - 1).clamp(min=1)
        variance = covariance.diagonal()
        slack = 4 * torch.finfo(variance.dtype).eps * (len(variance) + state.collected.sqrt())
        factor = cholesky_or_nan(covariance + (slack * variance + VARIANCE_FLOOR).diag_embed())
        if not self.kept:
            return FullGaussian(mean, factor)
        filled = torch.arange(self.kept, device=mean.device).unsqueeze(-1) < state.collected
        return Traced(mean, factor, state.start, torch.where(filled, state.path, mean))

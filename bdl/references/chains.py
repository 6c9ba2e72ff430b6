"""The log posterior that methods see, as fast functions of numpy vectors, and chains of NUTS over
network parameters.

A chain that starts at a mode may never leave it, and chains that start in the prior may all miss
one. So half of them start at modes, as the members of a deep ensemble, and half at draws of the
prior (MILE: Sommer et al. 2025).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from time import perf_counter
from typing import Annotated, Any

import numpy as np
import torch
from annotated_types import Ge, Gt, Le, Lt
from numpy.typing import NDArray
from torch import Tensor

from bdl.models.likelihoods import Bernoulli, GaussianLikelihood
from bdl.models.networks import Mlp
from bdl.models.problem import Hyper, Problem, full_batch, log_joint
from bdl.references.mcmc import (
    ChainDraws,
    convert_tree,
    describe_origin,
    import_optional,
    sample_by_nutpie,
)
from bdl.runtime import one_thread

Vector = NDArray[np.float64]
LogPosterior = Callable[[Vector], tuple[float, Vector]]
"""Parameters (D,) to log p(D, theta), nats, up to a constant, and its gradient, (D,)."""
NormalLaw = tuple[float, float]
"""Mean and standard deviation of a normal law."""
_LARGEST_LOG_PRECISION = 300.0
"""Logarithm of a precision from which the density counts as zero: trajectories that diverge come
to where it overflows.
"""


def build_log_posterior(problem: Problem, x: Tensor, y: Tensor, hyper: Hyper) -> LogPosterior:
    """Return the log posterior of training data as the model sees them, float64, (n, d) and (n,).

    Networks of one hidden layer have a compiled one, many times as fast as automatic
    differentiation, which serves every other model.
    """
    if has_compiled_posterior(problem):
        noise = (
            float(hyper["noise_precision"])
            if isinstance(problem.likelihood, GaussianLikelihood)
            else 0.0
        )
        prior = problem.prior_precision(hyper).expand(problem.dim).numpy().copy()
        # transposed, as the loops go over the rows of one unit after the other
        data = np.ascontiguousarray(x.numpy().T), y.numpy(), prior, noise, _uses_tanh(problem)
        compiled = _compile_log_posterior()
        return lambda theta: compiled(theta, *data)
    batch = full_batch(x, y)

    def differentiate(theta: Vector) -> tuple[float, Vector]:
        parameters = torch.tensor(theta, requires_grad=True)
        value = log_joint(parameters.unsqueeze(0), problem, batch, hyper).squeeze(0)
        return float(value.detach()), torch.autograd.grad(value, parameters)[0].numpy()

    return differentiate


def build_log_posterior_with_precisions(
    problem: Problem, x: Tensor, y: Tensor, prior: NormalLaw, noise: NormalLaw
) -> LogPosterior:
    """Return the log posterior of parameters and of the logarithms of prior and noise precision,
    (D + 2,).

    The problem has a compiled posterior (`has_compiled_posterior`), the likelihood `gaussian`, and
    one prior precision for all parameters; training data are as the model sees them, float64. The
    laws are of log ``prior_precision`` and log ``noise_precision`` in the unit of `y`, the two
    last coordinates.
    """
    dim, rows = problem.dim, len(y)
    centres, widths = np.array([prior, noise]).T
    equal_precisions = np.ones(dim)
    columns, targets = np.ascontiguousarray(x.numpy().T), y.numpy()
    tanh, compiled = _uses_tanh(problem), _compile_log_posterior()

    def evaluate(phi: Vector) -> tuple[float, Vector]:
        theta, logs = np.ascontiguousarray(phi[:dim]), phi[dim:]
        if np.abs(logs).max() > _LARGEST_LOG_PRECISION:
            return -math.inf, np.zeros_like(phi)
        # the sampler moves on unbounded coordinates, and precisions are positive
        alpha, beta = map(math.exp, logs)
        value, slopes = compiled(theta, columns, targets, alpha * equal_precisions, beta, tanh)
        prior_energy = alpha * float(theta @ theta) / 2
        noise_energy = -value - prior_energy  # beta times half the sum of squared errors
        deviations = (logs - centres) / widths
        # by log alpha, D/2 log alpha - alpha |theta|^2 / 2 has the slope D/2 - prior energy, and
        # likewise by log beta; the normal laws of both add their own
        gradient = np.concatenate(
            [
                slopes,
                np.array([dim / 2 - prior_energy, rows / 2 - noise_energy]) - deviations / widths,
            ]
        )
        value += dim * logs[0] / 2 + rows * logs[1] / 2 - float(deviations @ deviations) / 2
        return value, gradient

    return evaluate


def has_compiled_posterior(problem: Problem) -> bool:
    """Return whether the compiled log posterior is of this problem."""
    model = problem.model
    return (
        isinstance(model, Mlp)
        and len(model.hidden) == 1
        and model.activation in ("relu", "tanh")
        and problem.d_out == 1
        and isinstance(problem.likelihood, GaussianLikelihood | Bernoulli)
    )


def _uses_tanh(problem: Problem) -> bool:
    return isinstance(problem.model, Mlp) and problem.model.activation == "tanh"


@lru_cache(maxsize=1)
def _compile_log_posterior() -> Any:
    """Compile the log posterior of a network of one hidden layer: matrix products, and loops over
    a unit's rows.
    """

    # no flag that takes numbers for finite: trajectories that diverge overflow, and must be seen
    # to
    compile_loops = import_optional("numba").njit(fastmath={"contract", "reassoc"})

    @compile_loops  # type: ignore[untyped-decorator]
    def log_posterior(
        theta: Vector, x: Vector, y: Vector, prior: Vector, noise: float, tanh: bool
    ) -> tuple[float, Vector]:
        d, n = x.shape
        h = (len(theta) - 1) // (d + 2)
        biases, tops = h * d, h * d + h
        units, f, error = (
            np.dot(theta[:biases].reshape(h, d), x),
            np.full(n, theta[-1]),
            np.empty(n),
        )
        for j in range(h):
            unit, bias, top = units[j], theta[biases + j], theta[tops + j]
            for i in range(n):
                unit[i] = np.tanh(unit[i] + bias) if tanh else max(unit[i] + bias, 0.0)
                f[i] += top * unit[i]
        value = 0.0
        for i in range(n):
            if noise > 0:
                error[i] = noise * (y[i] - f[i])
                value -= 0.5 * (y[i] - f[i]) * error[i]
            else:
                # the exponent is never positive, so that no output overflows
                small = np.exp(-abs(f[i]))
                value += y[i] * f[i] - max(f[i], 0.0) - np.log1p(small)
                error[i] = y[i] - (1.0 if f[i] > 0 else small) / (1.0 + small)
        gradient = np.empty_like(theta)
        gradient[-1] = error.sum()
        for j in range(h):
            unit, top = units[j], theta[tops + j]
            by_top, by_bias = 0.0, 0.0
            for i in range(n):
                by_top += unit[i] * error[i]
                back = error[i] * top
                unit[i] = (
                    back * (1.0 - unit[i] * unit[i]) if tanh else (back if unit[i] > 0 else 0.0)
                )
                by_bias += unit[i]
            gradient[tops + j], gradient[biases + j] = by_top, by_bias
        gradient[:biases] = np.dot(units, x.T).ravel()
        for i in range(len(theta)):
            gradient[i] -= prior[i] * theta[i]
            value -= 0.5 * prior[i] * theta[i] * theta[i]
        return value, gradient

    return log_posterior


MOST_CLIMBING_STEPS = 1000
"""Most iterations of L-BFGS towards a mode: a member need not have converged."""


@dataclass(frozen=True)
class ChainSettings:
    """How long to sample, and how.

    Parameters
    ----------
    draws
        Iterations of each chain that are judged.
    tune
        Iterations before these, in which step size and scales are adapted; they are dropped.
    chains
        Number of chains, even: the first half starts at modes, the second at draws of the prior.
    kept
        Draws of each chain that are stored, evenly spaced.
    seed
        Gives all chains their randomness; the last bit of a gradient may differ all the same, and
        draws with it.
    target_accept
        Acceptance rate that the warm-up adapts the step size to; nearer to 1, steps are smaller.
    max_depth
        A trajectory has at most 2^max_depth steps.
    """

    draws: Annotated[int, Ge(1)] = 750
    tune: Annotated[int, Ge(1)] = 500
    chains: Annotated[int, Ge(4)] = 8
    kept: Annotated[int, Ge(1)] = 250
    seed: Annotated[int, Ge(0)] = 1
    target_accept: Annotated[float, Gt(0), Lt(1)] = 0.8
    max_depth: Annotated[int, Ge(1), Le(15)] = 8

    @property
    def stored_draws(self) -> NDArray[np.int64]:
        """Numbers of the draws of a chain that are stored."""
        return np.linspace(0, self.draws - 1, min(self.kept, self.draws)).round().astype(np.int64)


def find_starts(
    problem: Problem, hyper: Hyper, log_posterior: LogPosterior, settings: ChainSettings
) -> list[Vector]:
    """Find where chains start: modes that random networks lead to, then as many draws of the
    prior.
    """
    generator = torch.Generator().manual_seed(settings.seed)
    noise = torch.randn(settings.chains, problem.dim, generator=generator, dtype=torch.float64)
    half = settings.chains // 2
    modes = [climb_to_mode(problem.initial(row).numpy(), log_posterior) for row in noise[:half]]
    return [*modes, *problem.prior.sample(noise[half:], hyper, problem.layout).numpy()]


def climb_to_mode(start: Vector, log_posterior: LogPosterior) -> Vector:
    """Climb from a start towards a mode of the posterior by L-BFGS."""
    from scipy.optimize import minimize

    def descent(theta: Vector) -> tuple[float, Vector]:
        value, gradient = log_posterior(theta)
        return -value, -gradient

    mode: Vector = minimize(
        descent, start, jac=True, method="L-BFGS-B", options={"maxiter": MOST_CLIMBING_STEPS}
    ).x
    return mode


def sample_chains(
    log_posterior: LogPosterior, starts: list[Vector], settings: ChainSettings
) -> ChainDraws:
    """Sample chains one after the other, on one thread.

    `InputError` if nutpie is not installed.
    """
    start = perf_counter()
    with one_thread():
        trees = []
        for number, point in enumerate(starts):
            trees.append(_sample_chain(log_posterior, point, settings, settings.seed + number))
    packages = ("nutpie", "numba", "numpy", "scipy")
    origin = describe_origin(
        "nutpie", settings.seed, settings.tune, packages, perf_counter() - start
    )
    chains = [convert_tree(tree, "theta", origin) for tree in trees]
    return ChainDraws(
        np.concatenate([chain.theta for chain in chains]),
        np.concatenate([chain.diverging for chain in chains]),
        np.concatenate([chain.energy for chain in chains]),
        np.concatenate([chain.steps for chain in chains]),
        origin,
    )


def _sample_chain(
    log_posterior: LogPosterior, start: Vector, settings: ChainSettings, seed: int
) -> Any:
    model = import_optional("nutpie.compiled_pyfunc").from_pyfunc(
        len(start),
        lambda: log_posterior,
        lambda *_: lambda theta: {"theta": theta},
        [np.dtype(np.float64)],
        [(len(start),)],
        ["theta"],
        make_initial_point_fn=lambda _: start,
    )
    lengths = settings.draws, settings.tune, settings.target_accept
    return sample_by_nutpie(
        model, *lengths, chains=1, cores=1, seed=seed, maxdepth=settings.max_depth
    )

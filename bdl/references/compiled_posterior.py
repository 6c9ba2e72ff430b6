"""The log posterior of networks of one hidden layer, compiled, so that chains call no Python."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from bdl.models.likelihoods import Bernoulli, GaussianLikelihood
from bdl.models.networks import Mlp
from bdl.models.problem import Hyper, Problem
from bdl.references.mcmc import import_optional

Vector = NDArray[np.float64]
NormalLaw = tuple[float, float]
"""Mean and standard deviation of a normal law."""
_LARGEST_LOG_PRECISION = 300.0
"""Logarithm of a precision from which the density counts as zero: trajectories that diverge come
to where it overflows.
"""
_HEADER = 9
"""Numbers before the data in `CompiledLogPosterior.numbers`."""


@dataclass(frozen=True, eq=False)
class CompiledLogPosterior:
    """A log posterior as numbers, which one compiled function evaluates for all.

    It maps parameters, (`dim`,), to nats, up to a constant, and the gradient, (`dim`,).
    """

    dim: int
    numbers: Vector
    """Whether precisions are sampled, whether the activation is tanh, inputs, rows, noise
    precision, means and deviations of the laws of both log precisions; then the prior precisions,
    the inputs, one after the other, and the targets.
    """

    def __call__(self, point: Vector) -> tuple[float, Vector]:
        value, gradient = compile_log_posterior().evaluate(point, self.numbers)
        return value, gradient

    def build_sampler_model(self, start: Vector) -> Any:
        """Build what nutpie samples, from a start."""
        functions = compile_log_posterior()
        return import_optional("nutpie.compile_pymc").CompiledPyMCModel(
            dims={},
            _n_dim=self.dim,
            _coords={},
            _shapes={"theta": (self.dim,)},
            compiled_logp_func=functions.log_posterior_callback,
            compiled_expand_func=functions.expand_callback,
            initial_point_func=lambda _: start,
            shared_data={},
            user_data=self.numbers,
            n_expanded=self.dim,
            shape_info=(["theta"], None, [(self.dim,)]),
            logp_func=None,
            expand_func=None,
        )


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


def build_compiled_posterior(
    problem: Problem, x: Tensor, y: Tensor, hyper: Hyper
) -> CompiledLogPosterior:
    """Return the log posterior of training data as the model sees them, float64, (n, d) and (n,).

    The problem has a compiled posterior (`has_compiled_posterior`).
    """
    is_regression = isinstance(problem.likelihood, GaussianLikelihood)
    noise = float(hyper["noise_precision"]) if is_regression else 0.0
    prior = problem.prior_precision(hyper).expand(problem.dim).numpy()
    numbers = _pack_numbers(problem, x, y, prior, noise)
    return CompiledLogPosterior(problem.dim, numbers)


def build_log_posterior_with_precisions(
    problem: Problem, x: Tensor, y: Tensor, prior: NormalLaw, noise: NormalLaw
) -> CompiledLogPosterior:
    """Return the log posterior of parameters and of the logarithms of prior and noise precision,
    (D + 2,).

    The problem has a compiled posterior (`has_compiled_posterior`), the likelihood `gaussian`, and
    one prior precision for all parameters; training data are as the model sees them, float64. The
    laws are of log ``prior_precision`` and log ``noise_precision`` in the unit of `y`, the two
    last coordinates.
    """
    numbers = _pack_numbers(problem, x, y, np.ones(problem.dim), 0.0, (prior, noise))
    return CompiledLogPosterior(problem.dim + 2, numbers)


def _pack_numbers(
    problem: Problem,
    x: Tensor,
    y: Tensor,
    prior: Vector,
    noise: float,
    laws: tuple[NormalLaw, NormalLaw] | None = None,
) -> Vector:
    tanh = isinstance(problem.model, Mlp) and problem.model.activation == "tanh"
    means, deviations = zip(*(laws or ((0.0, 1.0), (0.0, 1.0))), strict=True)
    header = [laws is not None, tanh, x.shape[1], x.shape[0], noise, *means, *deviations]
    # transposed, as the loops go over the rows of one unit after the other
    return np.concatenate([np.array(header, dtype=float), prior, x.numpy().T.ravel(), y.numpy()])


class CompiledFunctions(NamedTuple):
    """What is compiled, once in a process."""

    evaluate: Callable[[Vector, Vector], tuple[float, Vector]]
    """Log posterior and gradient, from a point and `CompiledLogPosterior.numbers`."""
    log_posterior_callback: Any
    """The same in the form in which nutpie calls it, without Python."""
    expand_callback: Any
    """A point as it is stored: itself."""


@lru_cache(maxsize=1)
def compile_log_posterior() -> CompiledFunctions:
    """Compile the log posterior of a network of one hidden layer."""
    numba = import_optional("numba")
    # no flag that takes numbers for finite: trajectories that diverge overflow, and must be seen
    # to
    compile_loops = numba.njit(fastmath={"contract", "reassoc"})

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

    @numba.njit  # type: ignore[untyped-decorator]
    def add_precisions(
        point: Vector, x: Vector, y: Vector, means: Vector, deviations: Vector, tanh: bool
    ) -> tuple[float, Vector]:
        dim, rows = len(point) - 2, len(y)
        theta, logs = point[:dim], point[dim:]
        gradient = np.zeros(len(point))
        if np.abs(logs).max() > _LARGEST_LOG_PRECISION:
            return -math.inf, gradient
        # the sampler moves on unbounded coordinates, and precisions are positive
        alpha, beta = math.exp(logs[0]), math.exp(logs[1])
        value, slopes = log_posterior(theta, x, y, np.full(dim, alpha), beta, tanh)
        prior_energy = alpha * np.dot(theta, theta) / 2
        noise_energy = -value - prior_energy  # beta times half the sum of squared errors
        distances = (logs - means) / deviations
        # by log alpha, D/2 log alpha - alpha |theta|^2 / 2 has the slope D/2 - prior energy, and
        # likewise by log beta; the normal laws of both add their own
        gradient[:dim] = slopes
        gradient[dim] = dim / 2 - prior_energy - distances[0] / deviations[0]
        gradient[dim + 1] = rows / 2 - noise_energy - distances[1] / deviations[1]
        value += dim * logs[0] / 2 + rows * logs[1] / 2 - np.dot(distances, distances) / 2
        return value, gradient

    @numba.njit  # type: ignore[untyped-decorator]
    def evaluate(point: Vector, numbers: Vector) -> tuple[float, Vector]:
        samples_precisions, tanh = numbers[0] > 0, numbers[1] > 0
        d, n, dim = int(numbers[2]), int(numbers[3]), len(point)
        if samples_precisions:
            dim -= 2
        inputs = _HEADER + dim
        targets = inputs + d * n
        x, y = numbers[inputs:targets].reshape(d, n), numbers[targets : targets + n]
        if samples_precisions:
            return add_precisions(point, x, y, numbers[5:7], numbers[7:9], tanh)
        return log_posterior(point, x, y, numbers[_HEADER:inputs], numbers[4], tanh)

    types = numba.types
    array = types.CPointer(types.double)

    @numba.cfunc(types.int64(types.int64, array, array, array, array))  # type: ignore[untyped-decorator]
    def log_posterior_callback(dim: int, point: Any, gradient: Any, value: Any, data: Any) -> int:
        theta = numba.carray(point, (dim,))
        header = numba.carray(data, (_HEADER,))
        n_parameters = dim - 2 if header[0] > 0 else dim
        length = _HEADER + n_parameters + int(header[3]) * (int(header[2]) + 1)
        log_density, slopes = evaluate(theta, numba.carray(data, (length,)))
        numba.carray(value, (1,))[0] = log_density
        numba.carray(gradient, (dim,))[:] = slopes
        # a number that is not finite ends the trajectory as a divergence
        return 0 if np.isfinite(log_density) and np.isfinite(slopes).all() else 3

    @numba.cfunc(types.int64(types.int64, types.int64, array, array, array))  # type: ignore[untyped-decorator]
    def expand_callback(dim: int, expanded: int, point: Any, values: Any, data: Any) -> int:
        numba.carray(values, (expanded,))[:] = numba.carray(point, (dim,))
        return 0

    return CompiledFunctions(evaluate, log_posterior_callback, expand_callback)

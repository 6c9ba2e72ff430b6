"""Generalised linear models: expectations over their Gaussian outputs, ELBO and evidence.

Under theta ~ N(m, S) the output of a linear model for the row x of its design matrix is N(x m, x S
x^T), so the expectation of anything that is a sum over rows needs one-dimensional integrals only.

They are sums by the trapezoid rule, over nodes f = centre + spread z with z from -9 to 9 by the
step h. For an integrand that is analytic within pi of the real line, as log sigmoid is, the error
falls as exp(-2 pi^2 / (h spread)) (Trefethen and Weideman 2014, SIAM Review 56(3), theorem 5.1): h
is made to fit the widest spread, and for log sigmoid the error is below 1e-13 of the largest of 1,
|centre| and spread at every spread up to 200. Gauss-Hermite quadrature, which is made for
polynomials, converges far slower next to a pole: with 200 nodes its relative errors are 2e-9 at a
spread of 5, 6e-6 at 10 and 3e-4 at 20, all of which occur in logistic regression under a wide
prior.
"""

import math
from collections.abc import Callable
from typing import NamedTuple, cast

import numpy as np
import torch
from torch import Tensor

from bdl.errors import InputError
from bdl.models.networks import LinearModel
from bdl.models.problem import Buffers, Hyper, Problem
from bdl.posteriors import DiagonalGaussian, GaussianPosterior, kl_divergence
from bdl.types import Array

REACH = 9.0
"""Largest |z|: beyond it lies 2e-19 of the mass."""
STEP = 0.4
"""Largest step, for narrow spreads; the normal density alone would bear 0.7."""
STEP_TIMES_SPREAD = 0.55
"""2 pi^2 / 36: the error is a multiple of e^-36, a multiple that is large for second derivatives.
"""
MOST_STEPS = 3300
"""Largest number of steps to one side, enough for a spread of 200: a descent that leaps far out
does not fill the memory.
"""
VALUES_AT_ONCE = 1 << 22
"""Nodes times rows that are evaluated at a time."""


class Derivatives(NamedTuple):
    """A function of each of n outputs, and its derivatives by them; (n,) each."""

    value: Tensor
    first: Tensor
    second: Tensor


def is_glm(problem: Problem) -> bool:
    """Return whether the model is linear with one output, so that quadrature applies."""
    return isinstance(problem.model, LinearModel) and problem.d_out == 1


def check_glm(name: str, problem: Problem) -> None:
    """Raise `InputError` unless `is_glm`; `name` is that of the component that needs it."""
    if not is_glm(problem):
        raise InputError(
            f"{name} needs a linear model with one output: "
            "its ELBO is a sum of integrals over them"
        )


def output_moments(problem: Problem, q: GaussianPosterior, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return means (n,) and standard deviations (n,) of a GLM's outputs for inputs (n, d_in).

    With a root A of the covariance, `q.sample` being m + A z, the deviation is |A^T x|: a sum of
    squares, for the cost of a sample for each row, whatever the family. Differentiable in the
    tensors of q.
    """
    design = cast(LinearModel, problem.model).design(x)
    # a sample is linear in its noise: its transposed derivative is A^T, at any point
    transposed = torch.func.vjp(q.sample, design.new_zeros(len(design), q.noise_dim))[1]
    return design @ q.mean(), transposed(design)[0].norm(dim=-1)


def linearised_moments(
    problem: Problem, q: GaussianPosterior, x: Tensor, buffers: Buffers
) -> tuple[Tensor, Tensor]:
    """Return means (n,) and deviations (n,) of the one output, linearised at the mean of q.

    Inputs are (n, d_in). The deviation is |A^T J^T|, with A as in `output_moments` and J the
    derivative of each row's output by the parameters: the row of the design matrix, if the model
    is linear.
    """
    transposed_sample = torch.func.vjp(q.sample, q.mean().new_zeros(q.noise_dim))[1]

    def output(theta: Tensor, row: Tensor) -> Tensor:
        return problem.predict(theta, row.unsqueeze(0), buffers).squeeze()

    def moments(row: Tensor) -> tuple[Tensor, Tensor]:
        slope, value = torch.func.grad_and_value(output)(q.mean(), row)
        return value, transposed_sample(slope)[0].norm()

    size = max(1, VALUES_AT_ONCE // max(q.dim, q.noise_dim, problem.widest))
    mean, deviation = torch.func.vmap(moments, chunk_size=size)(x)
    return mean, deviation


def expectation(
    values: Callable[[Tensor], Tensor], centre: Tensor, spread: Tensor, finer: int = 1
) -> Tensor:
    """Compute E[values(f_n)] with f_n ~ N(centre_n, spread_n^2), (n,).

    `values` treats outputs element by element. Differentiable in `centre` and `spread`, float64,
    (n,). `finer` divides the step: a comparison shows the error of the rule.
    """
    widest = float(spread.detach().max()) if spread.numel() else 0.0
    needed = REACH * max(1 / STEP, widest / STEP_TIMES_SPREAD)
    steps = finer * math.ceil(min(needed, MOST_STEPS))
    nodes = torch.linspace(-REACH, REACH, 2 * steps + 1, dtype=torch.float64)
    nodes, weights = nodes.to(centre), torch.softmax(-0.5 * nodes.square(), 0).to(centre)
    size = max(1, VALUES_AT_ONCE // max(1, len(centre)))
    total = torch.zeros_like(centre)
    blocks = zip(torch.split(nodes, size), torch.split(weights, size), strict=True)
    for node_block, weight_block in blocks:
        values_at_nodes = torch.func.vmap(lambda z: values(centre + z * spread))(node_block)
        total = total + weight_block @ values_at_nodes
    return total


def derivatives(values: Callable[[Tensor], Tensor], at: Tensor) -> Derivatives:
    """Differentiate a function of outputs (n,) -> (n,), element by element, twice."""
    with torch.enable_grad():
        at = at.detach().requires_grad_()
        value = values(at)
        (first,) = torch.autograd.grad(value.sum(), at, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), at)
    return Derivatives(value.detach(), first.detach(), second)


def expected_derivatives(
    values: Callable[[Tensor], Tensor], centre: Tensor, spread: Tensor, finer: int = 1
) -> Derivatives:
    """Return E[v(f_n)], E[v'(f_n)] and E[v''(f_n)]; arguments as in `expectation`.

    They are the expectation and its derivatives by the centre (Bonnet), the last also twice that
    by the squared spread (Price).
    """
    return derivatives(lambda at: expectation(values, at, spread.detach(), finer), centre)


def problem_log_prob(problem: Problem, f: Tensor, y: Tensor, hyper: Hyper) -> Tensor:
    """Evaluate the log-density of targets, in the unit that the model sees, for outputs (n,)."""
    return problem.likelihood.log_prob(
        f.unsqueeze(-1), y, hyper, torch.ones((), dtype=f.dtype, device=f.device)
    )


def expected_log_likelihood(
    problem: Problem, q: GaussianPosterior, x: Tensor, y: Tensor, hyper: Hyper, finer: int = 1
) -> Tensor:
    """Compute E_q[log p(y | x, theta)] of a GLM (`is_glm`), summed over rows, nats.

    Differentiable in the tensors of q, float64. Hyper-parameters are in the unit of `y`; `finer`
    as in `expectation`.
    """
    centre, spread = output_moments(problem, q, x)
    return expectation(
        lambda f: problem_log_prob(problem, f, y, hyper), centre, spread, finer
    ).sum()


class Elbo(NamedTuple):
    """ELBO(q) = E_q[log p(D | theta)] - KL(q || prior), and expectations for its derivatives.

    `slope` is the derivative by the mean of q, and that by its covariance S is (S^{-1} - H) / 2
    with H the `curvature`.
    """

    value: Tensor  # Nats, a scalar
    slope: Tensor  # E_q[d log p(D, theta) / d theta], (D,)
    curvature: Tensor  # H = -E_q[d^2 log p(D, theta) / d theta^2], (D, D)


def elbo(
    problem: Problem, q: GaussianPosterior, x: Tensor, y: Tensor, hyper: Hyper, finer: int = 1
) -> Elbo:
    """Evaluate the bound of a GLM (`is_glm`) with a Gaussian prior; not differentiable.

    q and the training rows, as the model sees them, are float64, hyper-parameters in the unit of
    `y`; `finer` divides the step of the quadrature. `InputError` if the prior has no precision.
    """
    design, precision = cast(LinearModel, problem.model).design(x), prior_precision(problem, hyper)
    centre, spread = output_moments(problem, q, x)
    expected = expected_derivatives(
        lambda f: problem_log_prob(problem, f, y, hyper), centre, spread, finer
    )
    prior = DiagonalGaussian(torch.zeros_like(precision), precision.reciprocal())
    return Elbo(
        expected.value.sum() - kl_divergence(q, prior),
        design.T @ expected.first - precision * q.mean(),
        precision.diag() - (design.T * expected.second) @ design,
    )


def prior_precision(problem: Problem, hyper: Hyper) -> Tensor:
    """Return the prior precision of each parameter, (D,)."""
    return problem.prior_precision(hyper).expand(problem.dim)


_PRIOR_RANGE, _NOISE_RANGE = (1e-6, 1e6), (1e-2, 1e8)
"""Ranges of the precisions, in the units of the rows: prior standard deviations from 0.001 to
1000.
"""
_GRID_POINTS = 25
"""Values of each precision on a grid, from whose best point the maximisation starts."""


class Spectrum(NamedTuple):
    """Singular values of a design matrix, and targets in their basis, for the evidence."""

    values: Array  # Singular values of the design matrix, (k,)
    projections: Array  # Targets along its left singular vectors, (k,)
    residual: float  # Squared length of the targets' remainder, orthogonal to these
    rows: int  # Number of rows, n

    @classmethod
    def of(cls, design: Array, y: Array) -> "Spectrum":
        """Decompose a design matrix (n, D) with its targets (n,)."""
        # once: each of the hundreds of evaluations then costs k numbers, not a factorisation
        left, values, _ = np.linalg.svd(design, full_matrices=False)
        projections = left.T @ y
        residual = float(np.square(y - left @ projections).sum())
        return cls(values, projections, residual, len(y))


def log_evidence(spectrum: Spectrum, prior_precision: float, noise_precision: float) -> float:
    """Compute log N(y; 0, X X^T / alpha + I / beta), nats (Bishop 2006, section 3.5.1)."""
    joint = prior_precision + noise_precision * spectrum.values**2
    misfit = spectrum.residual + float((spectrum.projections**2 * prior_precision / joint).sum())
    volume = spectrum.rows * math.log(noise_precision / (2 * math.pi)) + float(
        np.log(prior_precision / joint).sum()
    )
    return 0.5 * (volume - noise_precision * misfit)


def remove_mean(values: Array) -> Array:
    """Return n - 1 orthonormal contrasts of n values, or of each column of a matrix.

    They are the last ones after the reflection that maps the vector of ones onto the first axis. A
    constant that is added to the values does not change them.
    """
    normal = np.full(len(values), len(values) ** -0.5)
    normal[0] -= 1
    reflected = values - 2 * np.multiply.outer(normal, normal @ values) / (normal @ normal)
    return np.asarray(reflected[1:])


PRECISIONS = ("prior_precision", "noise_precision")
"""Hyper-parameters of a linear model with Gaussian noise."""


def check_precision(name: str, precision: float) -> None:
    """Raise `InputError` if a precision is not positive and finite."""
    if not 0 < precision < math.inf:
        raise InputError(f"{name} is {precision:g}: give a positive number")


def best_precisions(
    design: Array,
    y: Array,
    prior_precision: float | None = None,
    noise_precision: float | None = None,
) -> tuple[float, float]:
    """Return the prior precision and the noise precision with the highest evidence.

    `design` is X, (n, D), and `y` is (n,). A precision that is a number stays; one that is None is
    chosen, within limits that are relative to the scales of design matrix and targets. `InputError`
    if one is not positive and finite.
    """
    from scipy.optimize import minimize

    for name, fixed in zip(PRECISIONS, (prior_precision, noise_precision), strict=True):
        if fixed is not None:
            check_precision(name, fixed)
    spectrum = Spectrum.of(design, y)
    spread = float(np.var(y)) or 1.0
    size = float(np.square(design).mean()) or 1.0
    ranges = [
        _log_range(prior_precision, _PRIOR_RANGE, size / spread),
        _log_range(noise_precision, _NOISE_RANGE, 1 / spread),
    ]

    def cost(logs: Array) -> float:
        return -log_evidence(spectrum, math.exp(logs[0]), math.exp(logs[1]))

    axes = [np.unique(np.linspace(low, high, _GRID_POINTS)) for low, high in ranges]
    # from a grid, as the evidence may have two maxima: all noise, or next to none
    start = min((np.array([a, b]) for a in axes[0] for b in axes[1]), key=cost)
    free = [low < high for low, high in ranges]
    if not any(free):
        return math.exp(start[0]), math.exp(start[1])

    def insert_free(logs: Array) -> Array:
        point = start.copy()
        point[free] = logs
        return point

    bounds = [(low, high) for low, high in ranges if low < high]
    options = {"xatol": 1e-6, "fatol": 1e-9}
    end = minimize(
        lambda logs: cost(insert_free(logs)),
        start[free],
        method="Nelder-Mead",
        bounds=bounds,
        options=options,
    )  # type: ignore[call-overload]
    alpha, beta = np.exp(insert_free(end.x))
    return float(alpha), float(beta)


def _log_range(
    fixed: float | None, limits: tuple[float, float], unit: float
) -> tuple[float, float]:
    """Return the limits of a precision's logarithm, which are equal if the precision is fixed."""
    low, high = (fixed, fixed) if fixed is not None else (limits[0] * unit, limits[1] * unit)
    return math.log(low), math.log(high)

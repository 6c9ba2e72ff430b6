"""Laplace's approximation: mode of a density, curvature there, and Gauss-Newton matrices."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch import Tensor
from torch.func import grad, jacrev

from bdl.errors import InputError
from bdl.models.base import Layers
from bdl.models.problem import Hyper, Problem

LogDensity = Callable[[Tensor], Tensor]
"""Parameters (m, D) to log-densities (m,), nats, up to a constant."""

NEWTON_STEPS, HALVINGS = 200, 40
ARMIJO = 1e-4
RISE = 1e-10
"""Nats that a Newton step must promise, relative to the log-density, for heights to be compared;
less is rounding.
"""
LEAST_GAIN = 1e-6
"""Share of the log-density that a step of L-BFGS has to gain. With the network 13-50-1 it then
ends a nat or two below the mode, and the posterior mostly lies hundreds of nats below it.
"""
_ADVICE = (
    "take a smooth activation (tanh), since a mode may lie on a kink of relu; laplace needs no exact "
    "one with curvature: ggn"
)
CHUNK = 64
"""Rows of a Hessian that are differentiated together."""


class DensityDerivatives(NamedTuple):
    """A log-density and its derivatives at a point."""

    value: Tensor  # Nats, a scalar
    slope: Tensor  # Its gradient, (D,)
    curvature: Tensor  # Minus its Hessian, (D, D)


def laplace(
    log_density: LogDensity,
    start: Tensor,
    differentiate: Callable[[Tensor], DensityDerivatives] | None = None,
) -> tuple[Tensor, Tensor]:
    """Climb from `start` to a mode by Newton's method with backtracking.

    The method is that of Nocedal & Wright (2006, section 3.4). Return the mode, (D,), and S with
    orthogonal columns, (D, D): S S^T is the inverse of minus the Hessian. `differentiate` returns
    the derivatives of the log-density; by default they are those of `torch.func`, row by row of
    the Hessian. `InputError` if the log-density or a derivative is not finite on the way, or there
    is no maximum with a definite Hessian.
    """

    def height(theta: Tensor) -> Tensor:
        return log_density(theta.unsqueeze(0)).squeeze(0)

    def differentiate_by_rows(theta: Tensor) -> DensityDerivatives:
        return DensityDerivatives(
            height(theta), grad(height)(theta), -jacrev(grad(height), chunk_size=CHUNK)(theta)
        )

    differentiate = differentiate or differentiate_by_rows
    theta, smallest_rise, is_near = start, torch.inf, False
    for _ in range(NEWTON_STEPS):
        value, slope, curvature = differentiate(theta)
        if not all(bool(tensor.isfinite().all()) for tensor in (value, slope, curvature)):
            raise InputError(
                f"log p(D, theta) or a derivative is not finite at {_format_point(theta)}: "
                "check the data and the precisions"
            )
        values, vectors = torch.linalg.eigh(curvature)
        # absolute values, so that it climbs where the density is not log-concave as well
        ascent = vectors @ (
            vectors.T @ slope / values.abs().clamp_min(torch.finfo(values.dtype).tiny)
        )
        rise = float(slope @ ascent)
        is_near = rise <= RISE * (1 + abs(float(value)))
        if not is_near:
            theta = _search_line(height, theta, ascent, value, rise)
        elif rise < smallest_rise:
            # steps too short for their heights to be compared go on as long as they shrink
            theta, smallest_rise = theta + ascent, rise
        else:
            break
    # Rounding may go on shortening the steps near a mode.
    if not is_near:
        raise InputError(
            f"no mode found in {NEWTON_STEPS} Newton steps: raise prior_precision, or {_ADVICE}"
        )
    if bool((values <= 0).any()):
        raise InputError(
            f"the posterior has no proper mode at {_format_point(theta)}: raise prior_precision"
        )
    return theta, vectors * values.rsqrt()


def maximise_density(log_density: LogDensity, start: Tensor) -> Tensor:
    """Climb from `start` by L-BFGS until it gains no more; return that point, (D,).

    It is a mode or, for a density with kinks, may be one of these. `InputError` if the log-density
    is not finite there.
    """
    options = {"maxiter": 10_000, "maxfun": 20_000, "maxcor": 30, "ftol": LEAST_GAIN}
    optimum = minimise(
        lambda theta: -log_density(theta.unsqueeze(0)).squeeze(0), start.numpy(), options
    )
    mode = torch.from_numpy(optimum.x)
    if not bool(torch.tensor(optimum.fun).isfinite()):
        raise InputError(
            f"log p(D, theta) is not finite at {_format_point(mode)}: "
            "check the data and the precisions"
        )
    return mode


def minimise(
    cost: Callable[[Tensor], Tensor],
    start: NDArray[np.float64],
    options: dict[str, Any],
    bounds: Any = None,
) -> Any:
    """Minimise a function of a float64 tensor by L-BFGS.

    Options, bounds and result are those of `scipy.optimize.minimize`.
    """

    def value_and_gradient(flat: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        point = torch.from_numpy(flat).requires_grad_()
        value = cost(point)
        (gradient,) = torch.autograd.grad(value, point)
        return float(value.detach()), gradient.numpy()

    return minimize(  # type: ignore[call-overload]
        value_and_gradient, start, jac=True, method="L-BFGS-B", options=options, bounds=bounds
    )


def _search_line(
    height: Callable[[Tensor], Tensor], theta: Tensor, ascent: Tensor, value: Tensor, rise: float
) -> Tensor:
    """Return a point along `ascent` that gains a fair share of the rise that the slope promises.

    The step is halved until it does (Armijo's condition).
    """
    for halvings in range(HALVINGS):
        size = 0.5**halvings
        candidate = theta + size * ascent
        if bool(height(candidate) >= value + ARMIJO * size * rise):
            return candidate
    raise InputError(
        f"the log posterior does not rise along its gradient at {_format_point(theta)}: {_ADVICE}"
    )


def _format_point(theta: Tensor) -> str:
    """Format a point, or the beginning of a long one, for a message."""
    first = [float(f"{value:.6g}") for value in theta[:3].tolist()]
    return str(first) if len(theta) <= 3 else f"{str(first)[:-1]}, ...]"


_NUMBERS_AT_ONCE = 1 << 22
"""Numbers of the rows R_i^T J_i that are held at a time."""


def gauss_newton(problem: Problem, theta: Tensor, x: Tensor, hyper: Hyper) -> Tensor:
    """Return the generalised Gauss-Newton matrix H of minus the log-likelihood, (D, D).

    With the derivative J_i, (C, D), of the C outputs of row i, and a root R_i of the Fisher
    information of its likelihood about them,

        H = sum_i (R_i^T J_i)^T (R_i^T J_i).

    It is minus the Hessian where the model is linear in its parameters, and the likelihood's
    information about the outputs does not depend on the target. Hyper-parameters are in the unit
    of the targets that the model sees.
    """

    def rows(x: Tensor, root: Tensor) -> Tensor:
        """Compute R_i^T J_i, (C, D), of one row."""
        # C products from the left, for C outputs, in place of the D columns of J
        pull = torch.func.vjp(
            lambda at: problem.predict(at, x.unsqueeze(0), {}).squeeze(0), theta
        )[1]
        return torch.func.vmap(pull)(root.mT)[0]

    total = theta.new_zeros(len(theta), len(theta))
    size = max(1, _NUMBERS_AT_ONCE // (len(theta) * problem.d_out))
    roots = _fisher_roots(problem, theta, x, hyper)
    for x_block, root_block in zip(torch.split(x, size), torch.split(roots, size), strict=True):
        G = torch.func.vmap(rows)(x_block, root_block).flatten(0, 1)
        total.addmm_(G.mT, G)
    return total


def kronecker_gauss_newton(problem: Problem, theta: Tensor, x: Tensor, hyper: Hyper) -> Tensor:
    """Return H by Kronecker factors, (D, D); arguments as for `gauss_newton`.

    It is block diagonal. The weights of each dense layer have the block (1/n) sum_i e_i^T e_i (x)
    sum_i a_i a_i^T and its biases have sum_i e_i^T e_i, where a_i are the layer's inputs and the
    rows of e_i, (C, out), the errors of R_i^T f_i (Botev, Ritter and Barber 2017). Weights and
    biases have blocks of their own, as in the software of Daxberger et al. (2021). `InputError` if
    the model is not made of dense layers, or some of them have biases and some have none.
    """
    # a `LayeredModel` has the first method, and a `bdl.models.modules.Module` the second
    backpropagate: Callable[..., Layers] | None = getattr(
        problem.model, "backpropagate", getattr(problem.model, "dense_layers", None)
    )
    if backpropagate is None:
        raise InputError(
            f"{type(problem.model).__name__} is not made of dense layers: use curvature: ggn"
        )
    roots = _fisher_roots(problem, theta, x, hyper)
    passes = [
        # a default, since a lambda looks its names up when it is called
        backpropagate(theta, x, problem.d_out, lambda f, column=column: column)
        for column in roots.unbind(-1)
    ]
    blocks = []
    for passes_of_layer in zip(*passes, strict=True):
        inputs = passes_of_layer[0][0]  # the same in every pass
        errors = torch.cat([errors for _, errors in passes_of_layer])
        outer = errors.mT @ errors
        blocks += [torch.kron(outer, inputs.mT @ inputs / len(x)), outer]
    if sum(map(len, blocks)) != len(theta):  # the layers have no biases
        blocks = blocks[::2]
    if sum(map(len, blocks)) != len(theta):
        raise InputError(
            "curvature kronecker takes biases in all layers or in none, and this model has them in "
            "some: use curvature: ggn"
        )
    return torch.block_diag(*blocks)  # type: ignore[no-untyped-call]


def _fisher_roots(problem: Problem, theta: Tensor, x: Tensor, hyper: Hyper) -> Tensor:
    """Return R_i of each row, (n, C, C)."""
    f = problem.predict(theta, x, {})
    return problem.likelihood.root_fisher(f, hyper, torch.ones((), dtype=f.dtype))

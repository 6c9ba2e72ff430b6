"""Exact posteriors: of linear regression in closed form, of one or two parameters by sums over a
grid; best Gaussians.

The trapezoidal rule converges geometrically in 1 / step for a function that is analytic and decays
at both ends (Trefethen & Weideman 2014, SIAM Review 56(3), theorem 5.1), so that a modest grid
gives moments to rounding.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from bdl.errors import InputError
from bdl.methods.conjugate import Conjugate
from bdl.methods.exact_gaussian import ExactGaussian
from bdl.models.linear import check_glm, elbo, expected_log_likelihood, prior_precision
from bdl.models.mode import LogDensity, laplace
from bdl.models.problem import Hyper, Problem, full_batch, log_joint
from bdl.posteriors import DiagonalGaussian, FullGaussian, kl_divergence
from bdl.references.base import Reference, Truth


@dataclass(frozen=True)
class ConjugateReference(Reference):
    """The posterior under known precisions, in closed form."""

    def check(self, problem: Problem) -> None:
        Conjugate().check(problem)

    def fit(self, problem: Problem, x: Tensor, y: Tensor, hyper: Hyper) -> Truth:
        exact = Conjugate().fit(problem, x, y, hyper)
        return Truth(exact.mean(), exact.covariance(), {})


@dataclass(frozen=True)
class BayesianRidgeReference(Reference):
    """Precisions by maximising the evidence with scikit-learn's `BayesianRidge`, and the posterior
    under them.

    Its ``lambda_`` is the papers' prior precision alpha, its ``alpha_`` their noise precision
    beta.

    Parameters
    ----------
    bias
        ``"unpenalised"``: the bias is the intercept of `BayesianRidge`, which has no prior, and
        the covariance is that of the weights (Brownlie 2022, section 5.2.2). ``"penalised"``: the
        bias has the weights' prior, as in the approximations, and the covariance has its row and
        column; only the precisions are `BayesianRidge`'s.
    """

    bias: Literal["unpenalised", "penalised"] = "unpenalised"

    estimates = ("prior_precision", "noise_precision")

    def check(self, problem: Problem) -> None:
        Conjugate().check(problem)
        if problem.dim == problem.d_in:
            raise InputError("bayesian-ridge fits an intercept: give the linear model its bias")

    def fit(self, problem: Problem, x: Tensor, y: Tensor, hyper: Hyper) -> Truth:
        """Find precisions and posterior; `hyper` has no part.

        `InputError` if the targets are constant.
        """
        from sklearn.linear_model import BayesianRidge

        if bool((y == y[0]).all()):
            raise InputError("the targets are constant: there is no noise precision to estimate")
        ridge = BayesianRidge().fit(x.numpy(), y.numpy())
        precisions = {
            "prior_precision": float(ridge.lambda_),
            "noise_precision": float(ridge.alpha_),
        }
        if self.bias == "penalised":
            hyper_tensors = {}
            for name, value in precisions.items():
                hyper_tensors[name] = torch.tensor(value, dtype=torch.float64)
            exact = Conjugate().fit(problem, x, y, hyper_tensors)
            return Truth(exact.mean(), exact.covariance(), precisions)
        mean = torch.tensor([*ridge.coef_, ridge.intercept_], dtype=torch.float64)
        return Truth(mean, torch.from_numpy(ridge.sigma_), precisions)


REACH, STEP = 8.0, 0.4
"""Half-width and step of the first grid, in standard deviations of the Laplace approximation."""
EDGE = 30.0
"""Nats below the peak at which a density may be cut off: e^-30 is 1e-13."""
AGREEMENT = 1e-8
"""Largest change of moments, relative to the covariance, by which a grid is fine enough."""
MOST_POINTS = 2**22


@dataclass(frozen=True)
class GridReference(Reference):
    """The posterior of one or two parameters under any likelihood, by sums over a grid.

    Its axes are the principal axes of the Laplace approximation. The grid is widened until it
    holds the density, and its step halved until that changes mean and covariance by less than 1e-8
    of the covariance.
    """

    def check(self, problem: Problem) -> None:
        if problem.dim > 2:
            raise InputError(
                f"a grid has room for two parameters: the model has {problem.dim}; use "
                "another reference"
            )

    def fit(self, problem: Problem, x: Tensor, y: Tensor, hyper: Hyper) -> Truth:
        """Find mean and covariance, and give the log-density.

        `InputError` if the density is not finite, has no proper mode, or is too skewed for a grid
        of 4 million points.
        """
        log_density = partial(log_joint, problem=problem, batch=full_batch(x, y), hyper=hyper)
        mode, scale = laplace(log_density, torch.zeros(problem.dim, dtype=torch.float64))
        mean, covariance = integrate_moments(
            lambda z: log_density(mode + z @ scale.T), problem.dim
        )
        return Truth(
            mode + scale @ mean, scale @ covariance @ scale.T, {}, log_density=log_density
        )


def integrate_moments(log_density: LogDensity, dim: int) -> tuple[Tensor, Tensor]:
    """Sum a density over grids around 0, ever wider and finer, until its moments stand: mean and
    covariance, float64.

    The density is of about unit scale around 0; a second mode is found unless the first grid ends
    in a valley before it. A step twice as long gives the same to `AGREEMENT`, and geometric
    convergence makes the error far smaller for an analytic density. `InputError` if a value is NaN
    or infinite (minus infinity is allowed), or `MOST_POINTS` points are not enough.
    """
    step, reach = STEP, torch.full((dim, 2), REACH, dtype=torch.float64)
    while True:
        points = _lay_grid(reach, step)
        values = log_density(points.view(-1, dim)).view(points.shape[:-1])
        if bool((values.isnan() | values.isposinf()).any()):
            raise InputError(
                "log p(D, theta) is not finite on the grid: check the data and the likelihood"
            )
        # log-densities of thousands of nats underflow; the moments do not depend on a factor
        values = values - values.max()
        open_sides = torch.zeros(dim, 2, dtype=torch.bool)
        for axis in range(dim):
            for side, edge in enumerate((0, -1)):
                open_sides[axis, side] = values.select(axis, edge).max() > -EDGE
        # Before the step is judged: two grids that cut off the same tail agree on wrong moments.
        if bool(open_sides.any()):
            reach = torch.where(open_sides, 2 * reach, reach)
            continue
        # a grid of twice the step, among the same points: the comparison costs no further density
        every_other = (slice(None, None, 2),) * dim
        mean, covariance = _compute_weighted_moments(points, values.exp())
        coarse_mean, coarse_covariance = _compute_weighted_moments(
            points[every_other], values[every_other].exp()
        )
        size = covariance.norm()
        if bool(
            ((coarse_mean - mean).norm() <= AGREEMENT * size.sqrt())
            & ((coarse_covariance - covariance).norm() <= AGREEMENT * size)
        ):
            return mean, covariance
        step /= 2


def _lay_grid(reach: Tensor, step: float) -> Tensor:
    """Lay a grid from -reach[i, 0] to reach[i, 1] along axis i: points (n_1, ..., n_D, D)."""
    ends = (reach / step).round().long().tolist()
    if math.prod(1 + low + high for low, high in ends) > MOST_POINTS:
        raise InputError(
            f"the posterior is too skewed, or not smooth enough, for {MOST_POINTS} "
            "points: raise prior_precision"
        )
    axes = [step * torch.arange(-low, high + 1, dtype=torch.float64) for low, high in ends]
    return torch.stack(torch.meshgrid(axes, indexing="ij"), -1)


def _compute_weighted_moments(points: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and covariance under weights: (..., D), (...) -> (D,), (D, D)."""
    points, weights = points.reshape(-1, points.shape[-1]), weights.reshape(-1, 1) / weights.sum()
    mean = (weights * points).sum(0)
    centred = points - mean
    return mean, centred.T @ (weights * centred)


class OptimumCertificate(NamedTuple):
    """How far q = N(m, L L^T) is from the optimum.

    Expectations by quadrature with half the step of the fit's.
    """

    neg_elbo: float
    """Nats."""
    gradient: float
    """Length of the derivative of the ELBO by m and L, by automatic differentiation, over the
    ELBO.
    """
    mean_identity: float
    """Largest entry of L^T E_q[d log p(D, theta) / d theta], which is 0 at the optimum: nats per
    standard deviation.
    """
    covariance_identity: float
    """Largest entry of L^T H L - I with H = -E_q[d^2 log p(D, theta) / d theta^2], which is 0 at
    the optimum.
    """
    quadrature: float
    """Change of the ELBO by halving the step, over the ELBO."""

    def admit(self) -> "OptimumCertificate":
        """Return the certificate itself if it keeps every limit.

        `InputError` names the first that it does not.
        """
        for name, limit in LIMITS.items():
            if not (value := getattr(self, name)) <= limit:
                raise InputError(
                    f"reference exact-gaussian refused: {name} is {value:.2g}, above "
                    f"{limit:g}; raise prior_precision, "
                    "or take the reference 'nuts'"
                )
        return self

    def describe(self) -> list[str]:
        """Name each number, with its limit if it has one."""
        lines = []
        for name, value in self._asdict().items():
            if name in LIMITS:
                lines.append(f"{name} {value:.2g} <= {LIMITS[name]:g}")
            else:
                lines.append(f"{name} {value:.8g} nats")
        return lines


LIMITS: Mapping[str, float] = {
    "gradient": 1e-8,
    "mean_identity": 1e-8,
    "covariance_identity": 1e-8,
    "quadrature": 1e-10,
}
"""Largest values that a certificate may have."""


def certify_optimum(
    problem: Problem, q: FullGaussian, x: Tensor, y: Tensor, hyper: Hyper
) -> OptimumCertificate:
    """Judge whether q has the best ELBO of all Gaussians.

    Arguments as in `bdl.models.linear.elbo`.
    """
    q_with_gradient = FullGaussian(
        q.loc.detach().requires_grad_(), q.scale_tril.detach().requires_grad_()
    )
    precision = prior_precision(problem, hyper)
    divergence = kl_divergence(
        q_with_gradient, DiagonalGaussian(torch.zeros_like(precision), precision.reciprocal())
    )
    # not by the rule of the fit, whose own error would not show in its gradient
    bound = expected_log_likelihood(problem, q_with_gradient, x, y, hyper, finer=2) - divergence
    by_mean, by_factor = torch.autograd.grad(bound, list(q_with_gradient))
    coarse, fine = elbo(problem, q, x, y, hyper), elbo(problem, q, x, y, hyper, finer=2)
    curvature = q.scale_tril.mT @ fine.curvature @ q.scale_tril
    size = fine.value.abs()
    return OptimumCertificate(
        neg_elbo=-float(fine.value),
        # the entries above the diagonal are no parameters
        gradient=float(torch.cat([by_mean, by_factor.tril().flatten()]).norm() / size),
        mean_identity=float((q.scale_tril.mT @ fine.slope).abs().max()),
        covariance_identity=float(
            (curvature - torch.eye(q.dim, dtype=curvature.dtype)).abs().max()
        ),
        quadrature=float((coarse.value - fine.value).abs() / size),
    )


@dataclass(frozen=True)
class ExactGaussianReference(Reference):
    """The Gaussian of any covariance with the best ELBO, by `ExactGaussian`, if its certificate
    keeps the limits.

    It is not the posterior, but the best that any Gaussian can do: what variational methods with
    fewer parameters, or with noise, are measured against (SLANG paper 2018, Tables 1, 4, 6 and 7).
    """

    def check(self, problem: Problem) -> None:
        check_glm("reference exact-gaussian", problem)

    def fit(self, problem: Problem, x: Tensor, y: Tensor, hyper: Hyper) -> Truth:
        """Find the optimum; the entries of a benchmark, which ask for the same, get it at once.

        `InputError` if the climb has not converged, or the certificate is above a limit.
        """
        q, _ = _find_optimum(problem, x, y, hyper)
        return Truth(q.mean(), q.covariance(), {})

    def evidence(self, problem: Problem, x: Tensor, y: Tensor, hyper: Hyper) -> list[str]:
        return _find_optimum(problem, x, y, hyper)[1].describe()


_OPTIMA: dict[tuple[Any, ...], tuple[FullGaussian, OptimumCertificate]] = {}
"""By the problem and the content of training data and hyper-parameters."""


def _find_optimum(
    problem: Problem, x: Tensor, y: Tensor, hyper: Hyper
) -> tuple[FullGaussian, OptimumCertificate]:
    # by content: each entry of a benchmark has tensors of its own
    data = sha256(
        x.double().contiguous().numpy().tobytes() + y.double().numpy().tobytes()
    ).digest()
    key = (
        problem,
        x.shape,
        data,
        tuple(sorted((name, float(value)) for name, value in hyper.items())),
    )
    if key not in _OPTIMA:
        q = ExactGaussian("full").fit(problem, x.double(), y.double(), hyper)
        assert isinstance(q, FullGaussian), "the structure says so"
        _OPTIMA[key] = q, certify_optimum(problem, q, x.double(), y.double(), hyper).admit()
    return _OPTIMA[key]

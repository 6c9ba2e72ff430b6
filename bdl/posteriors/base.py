"""The contract of posterior families, and the divergence between two Gaussian ones.

A family is a NamedTuple of tensors that describes ONE distribution over D parameters. Being a
NamedTuple it passes in and out of `torch.func.vmap`, which is how thousands of posteriors are
handled at once. A family of this package is a subclass of its fields and of `Posterior` or
`GaussianPosterior`, which document the verbs; it defines those that differ.
"""

from math import log, pi
from typing import Any, ClassVar, NoReturn, Self

import torch
from torch import Tensor

from bdl.errors import InputError


class Posterior:
    """A distribution over the flat parameter vector theta, of D entries.

    By default it has a field `loc`, its mean, independent parameters, and one normal a parameter
    in a sample.
    """

    loc: Tensor
    version: ClassVar[int] = 1
    """Version of what it computes; `bdl.versions` says when it goes up."""

    @property
    def dim(self) -> int:
        """Number of parameters, D."""
        return self.loc.shape[-1]

    @property
    def noise_dim(self) -> int:
        """Number of standard-normal values that one sample consumes."""
        return self.dim

    def mean(self) -> Tensor:
        """Return the mean, shape (D,)."""
        return self.loc

    def variance(self) -> Tensor:
        """Return the marginal variances, shape (D,)."""
        raise NotImplementedError

    def covariance(self) -> Tensor:
        """Return the dense covariance, shape (D, D)."""
        return self.variance().diag_embed()

    def log_prob(self, theta: Tensor) -> Tensor:
        """Return the log-density in nats at `theta`, shape (..., D) -> (...).

        `InputError` if there is no density.
        """
        raise NotImplementedError

    def entropy(self) -> Tensor:
        """Return the differential entropy in nats, a scalar.

        `InputError` if there is no density.
        """
        raise NotImplementedError

    def sample(self, noise: Tensor) -> Tensor:
        """Map standard-normal `noise`, shape (..., noise_dim), to samples, shape (..., D)."""
        raise NotImplementedError

    def check(self) -> Self:
        """Return the posterior itself; not for use under vmap.

        `InputError` if shapes disagree, or a value is not one of those that the class documents.
        """
        self.check_shapes()
        self.check_values()
        return self

    def check_shapes(self) -> None:
        """Raise `InputError` if shapes disagree; not for use under vmap."""
        check_shape("its mean", self.mean(), self.dim)
        check_shape("its variance", self.variance(), self.dim)

    def check_values(self) -> None:  # a family may allow any number
        """Raise `InputError` for values that the class does not document; shapes agree."""


class GaussianPosterior(Posterior):
    """A Gaussian posterior N(mean, S).

    Density, entropy and KL divergences are built from its verbs.
    """

    def log_prob(self, theta: Tensor) -> Tensor:
        squared = self.whiten(theta - self.mean()).square().sum(-1)
        return -0.5 * (squared + self.log_det() + self.dim * log(2 * pi))

    def entropy(self) -> Tensor:
        return 0.5 * (self.dim * (1 + log(2 * pi)) + self.log_det())

    def log_det(self) -> Tensor:
        """Return the log-determinant of S, a scalar."""
        raise NotImplementedError

    def whiten(self, delta: Tensor) -> Tensor:
        """Find the shortest noise with ``sample(noise) == mean + delta``.

        The shape is (..., D) -> (..., noise_dim). Its squared norm is the Mahalanobis form delta^T
        S^{-1} delta: a sum of squares, so nothing cancels and it is never negative.
        """
        raise NotImplementedError

    def precision_diagonal(self) -> Tensor:
        """Return the diagonal of S^{-1}, shape (D,)."""
        raise NotImplementedError

    def trace_solve(self, p: "GaussianPosterior") -> Tensor:
        """Return tr(S_p^{-1} S), a scalar."""
        raise NotImplementedError


def check_posterior(posterior: Any, dim: int) -> None:
    """Raise `InputError` unless this is a posterior over D = `dim` parameters; not under vmap.

    Its shapes have to agree. Values are not looked at: before training they prove nothing.
    """
    if not hasattr(posterior, "sample"):
        raise InputError(
            "return a posterior of bdl.posteriors, such as DiagonalGaussian(mean, variance)"
        )
    location = getattr(posterior, "loc", None)
    if isinstance(location, Tensor):
        check_shape("loc", location, dim)
    if isinstance(posterior, Posterior):
        posterior.check_shapes()
    if posterior.dim != dim:
        raise InputError(f"it is over {posterior.dim} parameters, and the model has {dim}")
    if isinstance(location, Tensor):
        # no random numbers: a check must not change those of the fit
        noise = location.new_zeros(posterior.noise_dim)
        check_shape("its sample", posterior.sample(noise), dim)


def is_multimodal(posterior: Posterior) -> bool:
    """Return whether it is a set of parameter vectors that may be far apart, as an ensemble."""
    return bool(getattr(posterior, "multimodal", False))


def is_linearised(posterior: Posterior) -> bool:
    """Return whether its predictions are those of the model linearised at its mean."""
    return bool(getattr(posterior, "linearised", False))


class NoDensity(Posterior):
    """A family without a density in closed form: `log_prob` and `entropy` raise `InputError`."""

    _reason: ClassVar[str]

    def log_prob(self, theta: Tensor) -> NoReturn:
        raise InputError(self._reason)

    def entropy(self) -> NoReturn:
        raise InputError(self._reason)


def check_shape(name: str, tensor: Tensor, *shape: int) -> None:
    """Raise InputError unless `tensor` has exactly this shape."""
    if tensor.shape != shape:
        raise InputError(f"{name} has shape {tuple(tensor.shape)}: give it shape {shape}")


def check_vector(name: str, tensor: Tensor) -> None:
    """Raise InputError unless `tensor` is a vector with at least one entry."""
    if tensor.ndim != 1 or not len(tensor):
        raise InputError(
            f"{name} has shape {tuple(tensor.shape)}: give one vector of at least one entry"
        )
    if not tensor.is_floating_point():
        raise InputError(f"{name} is {str(tensor.dtype)[6:]}: give floating-point numbers")


def check_positive(name: str, tensor: Tensor) -> None:
    """Raise InputError unless every entry is positive and finite."""
    if not bool(((tensor > 0) & torch.isfinite(tensor)).all()):
        raise InputError(
            f"{name} must be positive and finite: "
            f"it ranges from {tensor.min():g} to {tensor.max():g}"
        )


def check_finite(name: str, tensor: Tensor, advice: str = "leave out what diverged") -> None:
    """Raise InputError unless every entry is finite."""
    if not bool(torch.isfinite(tensor).all()):
        raise InputError(f"{name} has values that are not finite: {advice}")


def inverse_tril(root: Tensor) -> Tensor:
    """Invert a lower triangular matrix, (D, D)."""
    eye = torch.eye(len(root), dtype=root.dtype, device=root.device)
    return torch.linalg.solve_triangular(root, eye, upper=False)


def check_index(name: str, tensor: Tensor, count: int, meaning: str) -> None:
    """Raise InputError unless every entry is in 0 to `count`."""
    if not bool(((tensor >= 0) & (tensor <= count)).all()):
        raise InputError(f"{name} must be in 0 to {count}, {meaning}")


def check_tril(name: str, tensor: Tensor) -> None:
    """Raise InputError unless a square matrix is lower triangular with a positive diagonal."""
    check_positive(f"the diagonal of {name}", tensor.diagonal())
    if bool(tensor.triu(1).any()):
        raise InputError(f"{name} is not lower triangular: pass its .tril()")


def kl_divergence(q: GaussianPosterior, p: GaussianPosterior) -> Tensor:
    """Compute KL(q || p) = E_q[log q - log p] in nats, summed over parameters, a scalar.

    `InputError` if dimensions differ.

    One closed form serves every pair of families, (tr(S_p^{-1} S_q) + |p.whiten(mean_q -
    mean_p)|^2 - D + log |S_p| - log |S_q|) / 2, so it costs what the two families' verbs cost: O(D
    K^2) among diagonal and factor-analysis posteriors. When they are close the terms cancel, to
    about D times the precision of the dtype: pass float64 tensors.
    """
    if q.dim != p.dim:
        raise InputError(
            f"KL of {q.dim} against {p.dim} parameters: both posteriors must have the same number"
        )
    shift = p.whiten(q.mean() - p.mean()).square().sum(-1)
    return 0.5 * (q.trace_solve(p) + shift - q.dim + p.log_det() - q.log_det())

"""What every posterior family offers, and the formulas that all Gaussian families share.

A family is a NamedTuple of tensors that describes ONE distribution over D parameters. Being a NamedTuple it
passes in and out of `torch.func.vmap`, which is how thousands of posteriors are handled at once.
"""

from math import log, pi
from typing import Protocol, Self, runtime_checkable

import torch
from torch import Tensor

from bdl.errors import InputError


class Posterior(Protocol):
    """A distribution over the flat parameter vector theta, of D entries."""

    @property
    def dim(self) -> int:
        """Number of parameters, D."""

    @property
    def noise_dim(self) -> int:
        """Number of standard-normal values that one sample consumes."""

    def mean(self) -> Tensor:
        """Mean, shape (D,)."""

    def variance(self) -> Tensor:
        """Marginal variances, shape (D,)."""

    def covariance(self) -> Tensor:
        """Dense covariance, shape (D, D)."""

    def log_prob(self, theta: Tensor) -> Tensor:
        """Log-density in nats at `theta`, shape (..., D) -> (...)."""

    def entropy(self) -> Tensor:
        """Differential entropy in nats, a scalar."""

    def sample(self, noise: Tensor) -> Tensor:
        """Map standard-normal `noise`, shape (..., noise_dim), to samples, shape (..., D)."""

    def check(self) -> Self:
        """Return the posterior itself if its shapes and values are valid; not for use under vmap.

        Raises
        ------
        InputError
            If shapes disagree or the covariance is not positive definite.
        """


@runtime_checkable
class Gaussian(Posterior, Protocol):
    """A Gaussian posterior N(mean, S): the verbs that density, entropy and KL divergences are built from."""

    def log_det(self) -> Tensor:
        """Log-determinant of S, a scalar."""

    def whiten(self, delta: Tensor) -> Tensor:
        """Find the shortest noise with ``sample(noise) == mean + delta``.

        Parameters
        ----------
        delta
            Displacements from the mean, shape (..., D).

        Returns
        -------
        Tensor
            Shape (..., noise_dim). Its squared norm is the Mahalanobis form delta^T S^{-1} delta: a sum of
            squares, so nothing cancels and it is never negative.
        """

    def precision_diagonal(self) -> Tensor:
        """Diagonal of S^{-1}, shape (D,)."""

    def trace_solve(self, other: "Gaussian") -> Tensor:
        """tr(S_other^{-1} S), a scalar."""


def multimodal(posterior: Posterior) -> bool:
    """Return whether it is a set of parameter vectors that need not be near each other, such as an ensemble."""
    return bool(getattr(posterior, "multimodal", False))


def gaussian_log_prob(posterior: Gaussian, theta: Tensor) -> Tensor:
    """Log-density of a Gaussian at `theta`, shape (..., D) -> (...), in nats."""
    squared = posterior.whiten(theta - posterior.mean()).square().sum(-1)
    return -0.5 * (squared + posterior.log_det() + posterior.dim * log(2 * pi))


def gaussian_entropy(posterior: Gaussian) -> Tensor:
    """Differential entropy of a Gaussian in nats, a scalar: (D + D log 2 pi + log |S|) / 2."""
    return 0.5 * (posterior.dim * (1 + log(2 * pi)) + posterior.log_det())


def check_shape(name: str, tensor: Tensor, *shape: int) -> None:
    """Raise InputError unless `tensor` has exactly this shape."""
    if tensor.shape != shape:
        raise InputError(f"{name} has shape {tuple(tensor.shape)}: give it shape {shape}")


def check_vector(name: str, tensor: Tensor) -> None:
    """Raise InputError unless `tensor` is a vector with at least one entry."""
    if tensor.ndim != 1 or not len(tensor):
        raise InputError(f"{name} has shape {tuple(tensor.shape)}: give one vector of at least one entry")


def check_positive(name: str, tensor: Tensor) -> None:
    """Raise InputError unless every entry is positive and finite."""
    if not bool(((tensor > 0) & torch.isfinite(tensor)).all()):
        raise InputError(f"{name} must be positive and finite: it ranges from {tensor.min():g} to {tensor.max():g}")

"""Online factor analysis: what its estimators share (Brownlie 2022, section 4.3).

Observations theta = c + F h + psi^{1/2} o z, with h and z standard normal, come one by one. After t of them the
estimate of c is their mean, and with d = theta - mean the latent variable h has the posterior N(m, Sigma),

    Sigma = (I + F^T diag(psi)^{-1} F)^{-1},  m = Sigma F^T diag(psi)^{-1} d.

The estimators are written for ONE stream. Every tensor but the number seen may also have the streams as leading
dimensions, written (..., D) below; that is several times faster than `torch.func.vmap`, which works as well.
Time and memory are O(D K^2) and O(D K) an observation. F is kept transposed: K rows of D neighbouring values halve
the time.

Correction to the print: line 5 of Algorithms 1 and 2 has the new mean on both sides; the old one belongs inside the
bracket, mean_t = mean_{t-1} + (theta_t - mean_{t-1}) / t.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import torch
from annotated_types import Ge
from torch import Tensor

from bdl.errors import InputError
from bdl.methods.base import Noise, Shapes, StreamMethod
from bdl.posteriors import FactorAnalysis

_SLICE = 1 << 13
"""Coordinates handled at once, so that what is computed on the way stays in the cache."""


@dataclass(frozen=True)
class FactorEstimator(StreamMethod):
    """What estimators of factor-analysis posteriors share.

    Parameters
    ----------
    latent_dim
        Factors, K.
    """

    latent_dim: Annotated[int, Ge(1)] = 10

    def check_dim(self, dim: int) -> None:
        """Raise `InputError` unless there are fewer factors than parameters."""
        check_rank(self.latent_dim, dim)

    def init_noise(self, dim: int) -> Shapes:
        """Declare the D x K matrix whose orthonormal columns start F."""
        return {"F": (dim, self.latent_dim)}


@dataclass(frozen=True)
class OnlineEstimator(FactorEstimator):
    """An estimator that learns from one observation at a time, and keeps no more than O(DK) numbers."""

    @property
    @abstractmethod
    def warmup(self) -> int:
        """Observations in which F and psi do not learn."""

    @abstractmethod
    def update(self, state: Any, observation: Tensor) -> Any:
        """Learn from one observation, (..., D)."""

    @abstractmethod
    def posterior(self, state: Any) -> FactorAnalysis:
        """Return the estimate, of one stream; before the warm-up has ended it says nothing of F and psi."""


class Latent(NamedTuple):
    """Posterior of the latent variables of B observations."""

    means: Tensor
    """m, (..., B, K)."""
    covariance: Tensor
    """Sigma, the same for all, (..., K, K)."""


def check_rank(latent_dim: int, dim: int) -> None:
    """Raise `InputError` unless there is a factor, and fewer factors than dimensions."""
    if not 1 <= latent_dim < dim:
        raise InputError(f"latent_dim {latent_dim} does not suit {dim} dimensions: give one of 1 to {dim - 1}")


def start(noise: Noise) -> Tensor:
    """Return Q^T, (..., K, D), of the reduced QR decomposition of the noise, (..., D, K): F starts at Q."""
    columns: Tensor = torch.linalg.qr(noise["F"]).Q
    return columns.mT.contiguous()


def centre(seen: Tensor, mean: Tensor, observations: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Move the running mean on by B observations.

    Parameters
    ----------
    seen, mean
        Number, (), and mean, (..., D), of the observations before.
    observations
        Shape (..., B, D).

    Returns
    -------
    tuple of Tensor
        New number, new mean, and the observations' deviations from the new mean, (..., B, D).
    """
    seen = seen + observations.shape[-2]
    mean = mean + (observations - mean.unsqueeze(-2)).sum(-2) / seen
    return seen, mean, observations - mean.unsqueeze(-2)


def latent_posterior(loadings: Tensor, diag: Tensor, deviations: Tensor) -> Latent:
    """Infer h from deviations d (module docstring).

    Parameters
    ----------
    loadings
        F^T, (..., K, D).
    diag
        psi, (..., D).
    deviations
        Shape (..., B, D).
    """
    precision = torch.eye(loadings.shape[-2], dtype=loadings.dtype, device=loadings.device)
    projected = torch.zeros_like(deviations[..., :1])
    for rows, psi, d in slices(loadings, diag, deviations):
        projection = rows / psi.unsqueeze(-2)
        precision = precision + projection @ rows.mT
        projected = projected + d @ projection.mT
    covariance = inverse(precision)
    return Latent(projected @ covariance, covariance)


def blend(cross: Tensor, square: Tensor, means: Tensor, deviations: Tensor, gain: Tensor) -> tuple[Tensor, Tensor]:
    """Move the statistics ``cross`` and ``square`` towards those of B observations alone.

    Parameters
    ----------
    cross, square
        Of m d^T, (..., K, D), and of d o d, (..., D).
    means
        m, (..., B, K).
    deviations
        d, (..., B, D).
    gain
        Fraction of the way, ().
    """
    new = product(means / deviations.shape[-2], deviations)
    return torch.lerp(cross, new, gain), torch.lerp(square, deviations.square().mean(-2), gain)


def product(left: Tensor, right: Tensor) -> Tensor:
    """Return A^T B for matrices (..., B, K) and (..., B, D); of one row without a matrix product, which is slower."""
    return left.mT * right if left.shape[-2] == 1 else left.mT @ right


def inverse(matrix: Tensor) -> Tensor:
    """Invert positive definite matrices, (..., K, K); one that is not gives NaN or nonsense, never an error."""
    factor: Tensor = torch.linalg.cholesky_ex(matrix).L
    pivots = factor.diagonal(dim1=-2, dim2=-1)
    pivots.masked_fill_(pivots == 0, torch.nan)  # a zero in one of them is an error for the whole batch
    return torch.cholesky_inverse(factor)


def slices(*tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Cut tensors (..., D) alike into runs of neighbouring coordinates."""
    return zip(*(torch.split(tensor, _SLICE, -1) for tensor in tensors), strict=True)


def by_coordinate(function: Callable[..., tuple[Tensor, ...]], *tensors: Tensor) -> tuple[Tensor, ...]:
    """Apply a function that treats coordinates apart, tensors (..., D) to tensors (..., D), slice by slice."""
    dim = tensors[0].shape[-1]
    if dim <= _SLICE:
        return function(*tensors)
    whole: list[Tensor] = []
    for index, parts in enumerate(slices(*tensors)):
        results = function(*parts)
        whole = whole or [part.new_empty(*part.shape[:-1], dim) for part in results]
        for target, part in zip(whole, results, strict=True):
            target.narrow(-1, index * _SLICE, part.shape[-1]).copy_(part)
    return tuple(whole)

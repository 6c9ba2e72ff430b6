"""Online factor analysis: what its estimators share (Brownlie 2022, section 4.3).

Observations theta = c + F h + psi^{1/2} o z, with h and z standard normal, come one by one. After
t of them the estimate of c is their mean, and with d = theta - mean the latent variable h has the
posterior N(m, Sigma),

    Sigma = (I + F^T diag(psi)^{-1} F)^{-1},  m = Sigma F^T diag(psi)^{-1} d.

The estimators are written for ONE stream. Every tensor but the number seen may also have the
streams as leading dimensions, written (..., D) below; that is several times faster than
`torch.func.vmap`, which works as well. Time and memory are O(D K^2) and O(D K) an observation. F
is kept transposed: K rows of D neighbouring values halve the time.

Correction to the print: line 5 of Algorithms 1 and 2 has the new mean on both sides; the old one
belongs inside the bracket, mean_t = mean_{t-1} + (theta_t - mean_{t-1}) / t.
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
    """A method that learns a factor-analysis posterior from a stream.

    Parameters
    ----------
    latent_dim
        Factors, K.
    """

    latent_dim: Annotated[int, Ge(1)] = 10

    def check_dim(self, dim: int) -> None:
        if not 1 <= self.latent_dim < dim:
            raise InputError(
                f"latent_dim {self.latent_dim} does not suit {dim} dimensions: give one of 1 to {dim - 1}"
            )


@dataclass(frozen=True)
class OnlineEstimator(FactorEstimator):
    """An estimator that learns from one observation at a time, and keeps no more than O(DK) numbers.

    Parameters
    ----------
    warmup
        First observations, in which F and psi do not learn: until they are over the estimate says
        nothing of these.
    """

    warmup: Annotated[int, Ge(0)] = 100

    def init_noise(self, dim: int) -> Shapes:
        return {"F": (dim, self.latent_dim)}

    @abstractmethod
    def update(self, state: Any, observation: Tensor) -> Any:
        """Learn from one observation, (..., D)."""

    def update_block(self, state: Any, observations: Tensor) -> Any:
        for observation in observations.unbind(-2):
            state = self.update(state, observation)
        return state

    def posterior(self, state: Any) -> FactorAnalysis:
        return FactorAnalysis(state.mean, state.loadings.mT, state.diag)


class Latent(NamedTuple):
    """Posterior of the latent variables of B observations."""

    means: Tensor  # m, (..., B, K)
    covariance: Tensor  # Sigma, the same for all, (..., K, K)


def start(noise: Noise) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return 0 observations seen, the mean 0, F^T and psi = 1 before the first observation.

    F starts at the Q of the reduced QR decomposition of the noise, (..., D, K).
    """
    loadings = torch.linalg.qr(noise["F"]).Q.mT.contiguous()
    zero = torch.zeros_like(loadings[..., 0, :])
    return (
        torch.zeros((), dtype=torch.int64, device=zero.device),
        zero,
        loadings,
        torch.ones_like(zero),
    )


def centre(seen: Tensor, mean: Tensor, observations: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Move the running mean (..., D) of `seen` observations on by B observations (..., B, D).

    Returns the new number, the new mean, and the observations' deviations from the new mean, (...,
    B, D).
    """
    seen = seen + observations.shape[-2]
    mean = mean + (observations - mean.unsqueeze(-2)).sum(-2) / seen
    return seen, mean, observations - mean.unsqueeze(-2)


def latent_posterior(loadings: Tensor, diag: Tensor, deviations: Tensor) -> Latent:
    """Infer h (module docstring) from F^T (..., K, D), psi (..., D) and deviations d (..., B, D)."""
    precision = torch.eye(loadings.shape[-2], dtype=loadings.dtype, device=loadings.device)
    projected = torch.zeros_like(deviations[..., :1])
    for rows, psi, d in slices(loadings, diag, deviations):
        projection = rows / psi.unsqueeze(-2)
        precision = precision + projection @ rows.mT
        projected = projected + d @ projection.mT
    covariance = inverse(precision)
    return Latent(projected @ covariance, covariance)


def blend(
    cross: Tensor, square: Tensor, means: Tensor, deviations: Tensor, gain: Tensor
) -> tuple[Tensor, Tensor]:
    """Move statistics a fraction `gain` of the way to those of B observations alone.

    `cross` is that of m d^T, (..., K, D), and `square` that of d o d, (..., D); `means` are m,
    (..., B, K), and `deviations` d, (..., B, D).
    """
    new = product(means / deviations.shape[-2], deviations)
    return torch.lerp(cross, new, gain), torch.lerp(square, deviations.square().mean(-2), gain)


def product(left: Tensor, right: Tensor) -> Tensor:
    """Return A^T B for matrices (..., B, K) and (..., B, D).

    Of one row without a matrix product, which is slower.
    """
    return left.mT * right if left.shape[-2] == 1 else left.mT @ right


def inverse(matrix: Tensor) -> Tensor:
    """Invert positive definite matrices, (..., K, K).

    One that is not gives NaN or nonsense, never an error.
    """
    factor: Tensor = torch.linalg.cholesky_ex(matrix).L
    pivots = factor.diagonal(dim1=-2, dim2=-1)
    pivots.masked_fill_(
        pivots == 0, torch.nan
    )  # a zero in one of them is an error for the whole batch
    return torch.cholesky_inverse(factor)


def slices(*tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Cut tensors (..., D) alike into runs of neighbouring coordinates."""
    return zip(*(torch.split(tensor, _SLICE, -1) for tensor in tensors), strict=True)


def by_coordinate(
    function: Callable[..., tuple[Tensor, ...]], *tensors: Tensor
) -> tuple[Tensor, ...]:
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

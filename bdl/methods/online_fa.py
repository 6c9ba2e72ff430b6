"""Online factor analysis: the base of its estimators (Brownlie 2022, section 4.3).

Observations theta = c + F h + psi^{1/2} o z, with h and z standard normal, come one by one. After
t of them the estimate of c is their mean, and with d = theta - mean the latent variable h has the
posterior N(m, Sigma),

    Sigma = (I + F^T diag(psi)^{-1} F)^{-1},  m = Sigma F^T diag(psi)^{-1} d.

The estimators are written for ONE stream. Every tensor but the number of observations may also
have the streams as leading dimensions, written (..., D) below; that is several times faster than
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
"""Coordinates handled at once, so that intermediate results stay in the cache."""


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
                f"latent_dim {self.latent_dim} does not suit {dim} dimensions: "
                f"give one of 1 to {dim - 1}"
            )


@dataclass(frozen=True)
class OnlineEstimator(FactorEstimator):
    """An estimator that learns from one observation at a time, and keeps O(DK) numbers.

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


def initial_estimate(noise: Noise) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the number of observations, their mean, F^T and psi before the first observation.

    The number and the mean are 0, psi is 1. F starts at the Q of the reduced QR decomposition of
    the noise, (..., D, K).
    """
    loadings = torch.linalg.qr(noise["F"]).Q.mT.contiguous()
    zero = torch.zeros_like(loadings[..., 0, :])
    return (
        # an integer: float32 counts to 2^24 only
        torch.zeros((), dtype=torch.int64, device=zero.device),
        zero,
        loadings,
        torch.ones_like(zero),
    )


def centre(
    n_observations: Tensor, mean: Tensor, observations: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Take B observations (..., B, D) into the running mean (..., D) of those before.

    Returns the new number, the new mean, and the observations' deviations from the new mean, (...,
    B, D).
    """
    n_observations = n_observations + observations.shape[-2]
    mean = mean + (observations - mean.unsqueeze(-2)).sum(-2) / n_observations
    return n_observations, mean, observations - mean.unsqueeze(-2)


def latent_posterior(loadings: Tensor, diag: Tensor, deviations: Tensor) -> Latent:
    """Infer h (module docstring) from F^T (..., K, D), psi (..., D) and d (..., B, D)."""
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
    block_cross = product(means / deviations.shape[-2], deviations)
    block_square = deviations.square().mean(-2)
    return torch.lerp(cross, block_cross, gain), torch.lerp(square, block_square, gain)


def product(left: Tensor, right: Tensor) -> Tensor:
    """Return A^T B for matrices (..., B, K) and (..., B, D).

    For one row it multiplies entry by entry: a matrix product is slower there.
    """
    return left.mT * right if left.shape[-2] == 1 else left.mT @ right


def inverse(matrix: Tensor) -> Tensor:
    """Invert positive definite matrices, (..., K, K).

    One that is not gives NaN or nonsense, never an error.
    """
    factor: Tensor = torch.linalg.cholesky_ex(matrix).L
    pivots = factor.diagonal(dim1=-2, dim2=-1)
    # a pivot of zero in one matrix would be an error for the whole batch
    pivots.masked_fill_(pivots == 0, torch.nan)
    return torch.cholesky_inverse(factor)


def slices(*tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Cut tensors (..., D) into the same runs of neighbouring coordinates."""
    return zip(*(torch.split(tensor, _SLICE, -1) for tensor in tensors), strict=True)


def map_coordinates(
    function: Callable[..., tuple[Tensor, ...]], *tensors: Tensor
) -> tuple[Tensor, ...]:
    """Apply a function of tensors (..., D) that treats coordinates separately, slice by slice."""
    dim = tensors[0].shape[-1]
    if dim <= _SLICE:
        return function(*tensors)
    outputs: list[Tensor] = []
    for index, arguments in enumerate(slices(*tensors)):
        columns = function(*arguments)
        outputs = outputs or [tensor.new_empty(*tensor.shape[:-1], dim) for tensor in columns]
        for output, tensor in zip(outputs, columns, strict=True):
            output.narrow(-1, index * _SLICE, tensor.shape[-1]).copy_(tensor)
    return tuple(outputs)

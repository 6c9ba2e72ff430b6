"""Online factor analysis: by gradient ascent, by expectation maximisation, and what all share (Brownlie 2022, 4.3).

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
from annotated_types import Ge, Gt
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
            raise InputError(f"latent_dim {self.latent_dim} does not suit {dim} dimensions: give one of 1 to {dim - 1}")


@dataclass(frozen=True)
class OnlineEstimator(FactorEstimator):
    """An estimator that learns from one observation at a time, and keeps no more than O(DK) numbers.

    Parameters
    ----------
    warmup
        First observations, in which F and psi do not learn: until they are over the estimate says nothing of these.
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
    return torch.zeros((), dtype=torch.int64, device=zero.device), zero, loadings, torch.ones_like(zero)


def centre(seen: Tensor, mean: Tensor, observations: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Move the running mean (..., D) of `seen` observations on by B observations (..., B, D).

    Returns the new number, the new mean, and the observations' deviations from the new mean, (..., B, D).
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


def blend(cross: Tensor, square: Tensor, means: Tensor, deviations: Tensor, gain: Tensor) -> tuple[Tensor, Tensor]:
    """Move statistics a fraction `gain` of the way to those of B observations alone.

    `cross` is that of m d^T, (..., K, D), and `square` that of d o d, (..., D); `means` are m, (..., B, K), and
    `deviations` d, (..., B, D).
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


class SgaState(NamedTuple):
    """The estimate."""

    seen: Tensor  # Observations seen, ()
    mean: Tensor  # Their mean, (..., D)
    loadings: Tensor  # F^T, (..., K, D)
    diag: Tensor  # psi, (..., D)


@dataclass(frozen=True)
class OnlineSga(OnlineEstimator):
    """Online stochastic gradient ascent (Algorithm 1).

    Each observation makes one step of plain gradient ascent on its own log-likelihood, in F and gamma = log psi. With
    r = d - F m,

        dL/dF     = diag(psi)^{-1} (r m^T - F Sigma)
        dL/dgamma = (psi^{-1} o (r o r + rowsum(F Sigma o F)) - 1) / 2.

    This is the print's d m^T - F (Sigma + m m^T) and d o d - 2 d o (F m) + rowsum((F (Sigma + m m^T)) o F), in which
    less cancels. Correction: equation 4.26 has exp(beta) where exp(gamma) is meant.

    Parameters
    ----------
    learning_rate
        Step of F and of gamma.
    """

    learning_rate: Annotated[float, Gt(0)] = 0.001

    def init(self, noise: Noise) -> SgaState:
        return SgaState(*start(noise))

    def update(self, state: SgaState, observation: Tensor) -> SgaState:
        seen, mean, deviations = centre(state.seen, state.mean, observation.unsqueeze(-2))
        latent = latent_posterior(state.loadings, state.diag, deviations)
        rate = self.learning_rate * (seen > self.warmup).to(mean.dtype)

        def ascend(loadings: Tensor, diag: Tensor, deviation: Tensor) -> tuple[Tensor, Tensor]:
            residual = deviation - latent.means @ loadings
            spread = latent.covariance @ loadings
            to_loadings = (latent.means.mT * residual - spread) / diag.unsqueeze(-2)
            squares = residual.squeeze(-2).square() + (spread * loadings).sum(-2)
            to_log_diag = 0.5 * (squares / diag - 1)
            return loadings + rate * to_loadings, diag * (rate * to_log_diag).exp()

        return SgaState(seen, mean, *by_coordinate(ascend, state.loadings, state.diag, deviations))


class EmState(NamedTuple):
    """The estimate, and the means over observations of what the complete-data likelihood depends on."""

    seen: Tensor  # Observations seen, ()
    mean: Tensor  # Their mean, (..., D)
    cross: Tensor  # Mean of m d^T, A^T: (..., K, D)
    second: Tensor  # Mean of m m^T, B: (..., K, K)
    square: Tensor  # Mean of d o d, s: (..., D)
    loadings: Tensor  # F^T, (..., K, D)
    diag: Tensor  # psi, (..., D)


@dataclass(frozen=True)
class OnlineEm(OnlineEstimator):
    """Online expectation maximisation (Algorithm 2); the warm-up moves the mean and the statistics.

    The complete-data statistics are running means over all observations, each made with the F and psi of its time,

        A = mean(d m^T),  B = mean(m m^T),  s = mean(d o d),

    and after each observation, with H = B + Sigma, F = A H^{-1} and psi = s - rowsum(F o A). This psi is the print's
    s + rowsum((F H) o F - 2 F o A) for the new F. Published as it is: Sigma is the latest, not averaged; psi has no
    floor.
    """

    def init(self, noise: Noise) -> EmState:
        seen, zero, loadings, diag = start(noise)
        cross = torch.zeros_like(loadings)
        return EmState(seen, zero, cross, cross @ cross.mT, zero, loadings, diag)

    def update(self, state: EmState, observation: Tensor) -> EmState:
        seen, mean, deviations = centre(state.seen, state.mean, observation.unsqueeze(-2))
        latent = latent_posterior(state.loadings, state.diag, deviations)
        gain = seen.to(mean.dtype).reciprocal()
        second = torch.lerp(state.second, product(latent.means, latent.means), gain)
        solve, learning = inverse(second + latent.covariance), seen > self.warmup

        def learn(cross: Tensor, square: Tensor, loadings: Tensor, diag: Tensor, d: Tensor) -> tuple[Tensor, ...]:
            cross, square = blend(cross, square, latent.means, d, gain)
            new = solve @ cross
            new_diag = square - (new * cross).sum(-2)
            return cross, square, torch.where(learning, new, loadings), torch.where(learning, new_diag, diag)

        old = state.cross, state.square, state.loadings, state.diag
        cross, square, loadings, diag = by_coordinate(learn, *old, deviations)
        return EmState(seen, mean, cross, second, square, loadings, diag)

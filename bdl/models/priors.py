"""Priors: log p(phi) of latent variables phi, and the parameters theta that they stand for.

A Gaussian prior has phi = theta and a precision, which methods for Gaussians use directly. Any other prior says how to
draw phi, what its density is, and how to push it to theta: with scales among the latent variables, for example, the
parameters are scale times standard normal, and methods need no case for it.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Protocol, runtime_checkable

import torch
from annotated_types import Gt
from torch import Tensor

from bdl.models.layout import Layout


class Prior(Protocol):
    """What a prior must say about itself; a frozen dataclass whose fields are its YAML settings.

    `layout` says in every verb where the parameters stand in the model.
    """

    @property
    def hyper(self) -> tuple[str, ...]:
        """Names of the per-trial hyper-parameters it needs."""
        ...

    def latent_dim(self, layout: Layout) -> int:
        """Count the latent variables of a model's parameters: P."""
        ...

    def push(self, phi: Tensor, hyper: Mapping[str, Tensor], layout: Layout) -> Tensor:
        """Map latent variables (P,) to parameters (D,)."""
        ...

    def log_prob(self, phi: Tensor, hyper: Mapping[str, Tensor], layout: Layout) -> Tensor:
        """Log-density of the latent variables, normalised: (..., P) -> (...), nats."""
        ...

    def sample(self, noise: Tensor, hyper: Mapping[str, Tensor], layout: Layout) -> Tensor:
        """Map standard-normal noise (..., P) to draws of the latent variables, (..., P)."""
        ...


@runtime_checkable
class PrecisionPrior(Prior, Protocol):
    """A prior N(0, 1 / precision) of each parameter, independently; the latent variables are the parameters."""

    def precision(self, hyper: Mapping[str, Tensor], layout: Layout) -> Tensor:
        """Precision: a scalar, or one of each parameter, (D,)."""
        ...


@runtime_checkable
class ExpectedPrior(Prior, Protocol):
    """A prior whose log-density has a known mean under independent Gaussian latent variables."""

    def expected_log_prob(self, mu: Tensor, var: Tensor, hyper: Mapping[str, Tensor], layout: Layout) -> Tensor:
        """Mean of `log_prob` under N(mu, diag(var)), both (P,): a scalar, nats."""
        ...


@runtime_checkable
class ScaledPrior(Prior, Protocol):
    """A prior of parameters that are Gaussian given their scales: theta_i = phi_i exp(sum_j ell_source[j, i]).

    The latent variables phi are D values, and after them the logarithms ell of K scales.
    """

    def source(self, layout: Layout) -> Tensor:
        """Number the scales of each parameter, 0 to K - 1; K stands for none. Integers, (J, D)."""
        ...


@dataclass(frozen=True)
class GaussianPrior:
    """N(0, 1/alpha) on every parameter, alpha being the hyper-parameter ``prior_precision``.

    Parameters
    ----------
    bias_precision
        Prior precision of the biases; null gives them that of the weights.
    """

    bias_precision: Annotated[float, Gt(0)] | None = None

    @property
    def hyper(self) -> tuple[str, ...]:
        """Names of the per-trial hyper-parameters it needs."""
        return ("prior_precision",)

    def latent_dim(self, layout: Layout) -> int:
        """Count the latent variables: they are the parameters."""
        return layout.dim

    def push(self, phi: Tensor, hyper: Mapping[str, Tensor], layout: Layout) -> Tensor:
        """Return the parameters, which are the latent variables: (D,) -> (D,)."""
        return phi

    def precision(self, hyper: Mapping[str, Tensor], layout: Layout) -> Tensor:
        """Precision: a scalar, or (D,) when the biases have their own."""
        alpha = hyper["prior_precision"]
        if self.bias_precision is None:
            return alpha
        return torch.where(layout.biases.to(alpha.device), self.bias_precision, alpha)

    def log_prob(self, phi: Tensor, hyper: Mapping[str, Tensor], layout: Layout) -> Tensor:
        """Log-density of the parameters, normalised: (..., D) -> (...), nats."""
        alpha = self.precision(hyper, layout)
        return 0.5 * (alpha.log() - math.log(2 * math.pi) - alpha * phi.square()).sum(-1)

    def sample(self, noise: Tensor, hyper: Mapping[str, Tensor], layout: Layout) -> Tensor:
        """Map standard-normal noise to draws of the parameters: (..., D) -> (..., D)."""
        return noise * self.precision(hyper, layout).rsqrt()

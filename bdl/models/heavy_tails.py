"""Priors with heavier tails than a Gaussian's, independent over the parameters: Student's t, and a spike and a slab."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import torch
from annotated_types import Gt
from torch import Tensor

from bdl.models.layout import Layout


class _OfParameters:
    """What priors share whose latent variables are the parameters."""

    def latent_dim(self, layout: Layout) -> int:
        """Count the latent variables: they are the parameters."""
        return layout.dim

    def push(self, phi: Tensor, hyper: Mapping[str, Tensor], layout: Layout) -> Tensor:
        """Return the parameters, which are the latent variables: (D,) -> (D,)."""
        return phi


@dataclass(frozen=True)
class StudentTPrior(_OfParameters):
    """Student's t on every parameter, centred at 0, its scale being the hyper-parameter ``prior_scale``.

    A precision that is drawn from a Gamma distribution of shape a and rate b makes it of a Gaussian: the degrees of
    freedom are 2 a and the scale sqrt(b / a). Mata (2018, below 3.5) prints the inverse of that scale.

    Parameters
    ----------
    degrees
        Degrees of freedom: 1 is a Cauchy distribution, and many are a Gaussian.
    """

    degrees: Annotated[float, Gt(0)] = 1.0

    @property
    def hyper(self) -> tuple[str, ...]:
        """Names of the per-trial hyper-parameters it needs."""
        return ("prior_scale",)

    @property
    def hyper_above(self) -> dict[str, float]:
        """Limits that hyper-parameters must stay above."""
        return {"prior_scale": 0.0}

    def log_prob(self, phi: Tensor, hyper: Mapping[str, Tensor], layout: Layout) -> Tensor:
        """Log-density of the parameters, normalised: (..., D) -> (...), nats."""
        return student_t_log_prob(phi, hyper["prior_scale"], self.degrees).sum(-1)

    def sample(self, noise: Tensor, hyper: Mapping[str, Tensor], layout: Layout) -> Tensor:
        """Map standard-normal noise to draws of the parameters by the quantile function: (..., D) -> (..., D)."""
        from scipy.special import ndtr, stdtrit

        tail = torch.from_numpy(stdtrit(self.degrees, ndtr(-noise.abs().double().cpu().numpy())))
        return hyper["prior_scale"] * -noise.sign() * tail.to(noise)


@dataclass(frozen=True)
class SpikeSlabPrior(_OfParameters):
    """A mixture of two Gaussians on every parameter, wide and narrow (Blundell et al. 2015, eq. 7).

    p(theta) = w N(theta; 0, s^2) + (1 - w) N(theta; 0, t^2) with the hyper-parameters ``slab_share`` w, ``slab_scale``
    s and ``spike_scale`` t.
    """

    @property
    def hyper(self) -> tuple[str, ...]:
        """Names of the per-trial hyper-parameters it needs."""
        return ("slab_share", "slab_scale", "spike_scale")

    @property
    def hyper_above(self) -> dict[str, float]:
        """Limits that hyper-parameters must stay above."""
        return dict.fromkeys(self.hyper, 0.0)

    @property
    def hyper_below(self) -> dict[str, float]:
        """Limits that hyper-parameters must stay below."""
        return {"slab_share": 1.0}

    def log_prob(self, phi: Tensor, hyper: Mapping[str, Tensor], layout: Layout) -> Tensor:
        """Log-density of the parameters, normalised: (..., D) -> (...), nats."""
        share = hyper["slab_share"]
        slab = share.log() + _normal_log_prob(phi, hyper["slab_scale"])
        spike = torch.log1p(-share) + _normal_log_prob(phi, hyper["spike_scale"])
        return torch.logaddexp(slab, spike).sum(-1)

    def sample(self, noise: Tensor, hyper: Mapping[str, Tensor], layout: Layout) -> Tensor:
        """Map standard-normal noise to draws of the parameters: (..., D) -> (..., D).

        Noise below its `slab_share` quantile makes the slab, and what is left of it, normal again, its value.
        """
        share, uniform = hyper["slab_share"], torch.special.ndtr(noise)
        inside = uniform < share
        rest = torch.where(inside, uniform / share, (uniform - share) / (1 - share))
        scale = torch.where(inside, hyper["slab_scale"], hyper["spike_scale"])
        value: Tensor = torch.special.ndtri(rest)
        return scale * value


def student_t_log_prob(theta: Tensor, scale: Tensor, degrees: float | Tensor) -> Tensor:
    """Log-density of Student's t, centred at 0, entry by entry, nats."""
    nu = torch.as_tensor(degrees, dtype=theta.dtype, device=theta.device)
    constant = torch.lgamma((nu + 1) / 2) - torch.lgamma(nu / 2) - 0.5 * (nu * math.pi).log()
    return constant - scale.log() - (nu + 1) / 2 * torch.log1p((theta / scale).square() / nu)


def _normal_log_prob(theta: Tensor, scale: Tensor) -> Tensor:
    return -0.5 * (theta / scale).square() - scale.log() - 0.5 * math.log(2 * math.pi)

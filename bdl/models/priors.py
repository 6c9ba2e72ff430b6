"""Priors: log p(phi) of latent variables phi, and the parameters theta that they stand for.

A Gaussian prior has phi = theta and a precision, which methods for Gaussians use directly. Any
other prior says how to draw phi, what its density is, and how to push it to theta: with scales
among the latent variables, for example, the parameters are scale times standard normal, and
methods need no case for it.

The horseshoe prior (Carvalho et al. 2010; Louizos et al. 2017): a weight of unit u in layer l is
theta = w tau_l lambda_u with w ~ N(0, 1), tau_l ~ C+(0, kappa) and lambda_u ~ C+(0, 1). A
half-Cauchy variable is the root of a product (Mata 2018, eq. 3.12):

    tau^2 = a b,  a ~ Gamma(1/2, scale kappa^2),  b ~ inverse Gamma(1/2, scale 1),

and lambda^2 likewise with kappa = 1. The latent variables are the w and the logarithms ell of the
roots of all a and b: with e = 1 for a and -1 for b (whose kappa is 1) their density is

    log p(ell) = log 2 - log(pi) / 2 - log kappa + e ell - exp(2 e ell) / kappa^2,

whose mean under N(m, s^2) replaces exp(2 e ell) by exp(2 e m + 2 s^2). Log-normal distributions of
the a and b, as the thesis has them, are Gaussian ones of the ell: the divergences are those of its
(3.23) to (3.27), of which (3.23) prints + log kappa - exp(..) / kappa and (3.26) copies (3.25).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, Protocol, runtime_checkable

import torch
from annotated_types import Gt
from torch import Tensor

from bdl.models.base import Layout
from bdl.posteriors.independent import student_t_log_prob


class Prior(Protocol):
    """Contract of a prior: a frozen dataclass whose fields are its YAML settings.

    In all methods `layout` is that of the model's parameters.
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
        """Evaluate the normalised log-density of latent variables: (..., P) -> (...), nats."""
        ...

    def sample(self, noise: Tensor, hyper: Mapping[str, Tensor], layout: Layout) -> Tensor:
        """Map standard-normal noise (..., P) to draws of the latent variables, (..., P)."""
        ...


@runtime_checkable
class PrecisionPrior(Prior, Protocol):
    """A prior N(0, 1 / precision) of each parameter, independently.

    The latent variables are the parameters.
    """

    def precision(self, hyper: Mapping[str, Tensor], layout: Layout) -> Tensor:
        """Return the precision: a scalar, or one of each parameter, (D,)."""
        ...


class _ParameterPrior:
    """Base of priors whose latent variables are the parameters."""

    def latent_dim(self, layout: Layout) -> int:
        return layout.dim

    def push(self, phi: Tensor, hyper: Mapping[str, Tensor], layout: Layout) -> Tensor:
        return phi


@dataclass(frozen=True)
class GaussianPrior(_ParameterPrior):
    """N(0, 1/alpha) on every parameter, alpha being the hyper-parameter ``prior_precision``.

    Parameters
    ----------
    bias_precision
        Prior precision of the biases; null for that of the weights.
    """

    bias_precision: Annotated[float, Gt(0)] | None = None

    hyper = ("prior_precision",)

    def precision(self, hyper: Mapping[str, Tensor], layout: Layout) -> Tensor:
        alpha = hyper["prior_precision"]
        if self.bias_precision is None:
            return alpha
        # layouts are made on the CPU, whatever the device of a fit
        return torch.where(layout.biases.to(alpha.device), self.bias_precision, alpha)

    def log_prob(self, phi: Tensor, hyper: Mapping[str, Tensor], layout: Layout) -> Tensor:
        alpha = self.precision(hyper, layout)
        return 0.5 * (alpha.log() - math.log(2 * math.pi) - alpha * phi.square()).sum(-1)

    def sample(self, noise: Tensor, hyper: Mapping[str, Tensor], layout: Layout) -> Tensor:
        return noise * self.precision(hyper, layout).rsqrt()


@dataclass(frozen=True)
class StudentTPrior(_ParameterPrior):
    """Student's t on every parameter, centred at 0, of scale ``prior_scale``.

    The scale is a hyper-parameter. A Gaussian whose precision is drawn from a Gamma distribution
    of shape a and rate b has this law: the degrees of freedom are 2 a and the scale sqrt(b / a).
    Mata (2018, below 3.5) prints the inverse of that scale.

    Parameters
    ----------
    degrees
        Degrees of freedom: 1 is a Cauchy distribution, and many are a Gaussian.
    """

    degrees: Annotated[float, Gt(0)] = 1.0

    hyper = ("prior_scale",)
    hyper_above: ClassVar[Mapping[str, float]] = {"prior_scale": 0.0}

    def log_prob(self, phi: Tensor, hyper: Mapping[str, Tensor], layout: Layout) -> Tensor:
        return student_t_log_prob(phi, hyper["prior_scale"], self.degrees).sum(-1)

    def sample(self, noise: Tensor, hyper: Mapping[str, Tensor], layout: Layout) -> Tensor:
        """Map standard-normal noise to draws of parameters, by quantiles: (..., D) -> (..., D)."""
        from scipy.special import ndtr, stdtrit

        # in the lower tail, and mirrored: probabilities near 1 have no digits left for the upper
        # one
        tail = torch.from_numpy(stdtrit(self.degrees, ndtr(-noise.abs().double().cpu().numpy())))
        return hyper["prior_scale"] * -noise.sign() * tail.to(noise)


@dataclass(frozen=True)
class SpikeSlabPrior(_ParameterPrior):
    """A mixture of two Gaussians on every parameter, wide and narrow.

    It is that of Blundell et al. (2015, eq. 7), p(theta) = w N(theta; 0, s^2) + (1 - w) N(theta;
    0, t^2) with the hyper-parameters ``slab_share`` w, ``slab_scale`` s and ``spike_scale`` t.
    """

    hyper = ("slab_share", "slab_scale", "spike_scale")
    hyper_above: ClassVar[Mapping[str, float]] = dict.fromkeys(hyper, 0.0)
    hyper_below: ClassVar[Mapping[str, float]] = {"slab_share": 1.0}

    def log_prob(self, phi: Tensor, hyper: Mapping[str, Tensor], layout: Layout) -> Tensor:
        share = hyper["slab_share"]
        slab = share.log() + _normal_log_prob(phi, hyper["slab_scale"])
        spike = torch.log1p(-share) + _normal_log_prob(phi, hyper["spike_scale"])
        # far from 0 the density of the spike underflows, and its logarithm does not
        return torch.logaddexp(slab, spike).sum(-1)

    def sample(self, noise: Tensor, hyper: Mapping[str, Tensor], layout: Layout) -> Tensor:
        """Map standard-normal noise to draws of the parameters: (..., D) -> (..., D).

        Noise below its `slab_share` quantile chooses the slab. Its rank among such noise is
        uniform, and is made the quantile of a normal value.
        """
        share, uniform = hyper["slab_share"], torch.special.ndtr(noise)
        inside = uniform < share
        rest = torch.where(inside, uniform / share, (uniform - share) / (1 - share))
        scale = torch.where(inside, hyper["slab_scale"], hyper["spike_scale"])
        value: Tensor = torch.special.ndtri(rest)
        return scale * value


def _normal_log_prob(theta: Tensor, scale: Tensor) -> Tensor:
    return -0.5 * (theta / scale).square() - scale.log() - 0.5 * math.log(2 * math.pi)


@dataclass(frozen=True)
class HorseshoePrior:
    """A scale for each layer and each unit; kappa is the hyper-parameter ``global_scale``.

    The latent variables phi are D values, and after them the logarithms ell of K scales: theta_i =
    phi_i exp(sum_j ell_source[j, i]). Biases have no scales: they are N(0, 1).

    Parameters
    ----------
    units
        Weights that share a unit's scale: those that leave it, as in Louizos et al., or those that
        enter it. The thesis means the second in (3.10) and runs the first in its appendix C.
    """

    units: Literal["leaving", "entering"] = "leaving"

    hyper = ("global_scale",)
    hyper_above: ClassVar[Mapping[str, float]] = dict.fromkeys(hyper, 0.0)

    def latent_dim(self, layout: Layout) -> int:
        return layout.dim + 2 * (layout.n_layers + self._n_units(layout))

    def source(self, layout: Layout) -> Tensor:
        """Return the indices of the scales of each weight, integers, (4, D).

        Layers come before units, and all a before all b. K stands for no scale.
        """
        n = layout.n_layers + self._n_units(layout)
        units = layout.units if self.units == "leaving" else layout.target_units
        pair = torch.stack([layout.layers, layout.n_layers + units])
        return torch.where(layout.biases, 2 * n, torch.cat([pair, n + pair]))

    def push(self, phi: Tensor, hyper: Mapping[str, Tensor], layout: Layout) -> Tensor:
        w, ell = phi[: layout.dim], phi[layout.dim :]
        source = self.source(layout).to(phi.device)
        # the 0 after the last logarithm is that of no scale, which biases have
        return w * torch.cat([ell, torch.zeros_like(ell[:1])])[source].sum(0).exp()

    def log_prob(self, phi: Tensor, hyper: Mapping[str, Tensor], layout: Layout) -> Tensor:
        return self.expected_log_prob(phi, torch.zeros_like(phi), hyper, layout)

    def expected_log_prob(
        self, mu: Tensor, var: Tensor, hyper: Mapping[str, Tensor], layout: Layout
    ) -> Tensor:
        """Compute the mean of `log_prob` under N(mu, diag(var)), both (P,): a scalar, nats."""
        sign, kappa = self._signs_and_scales(mu, hyper, layout)
        w, m = mu[..., : layout.dim], mu[..., layout.dim :]
        v, s2 = var[..., : layout.dim], var[..., layout.dim :]
        # the mean of a square is the squared mean plus the variance
        normal = -0.5 * (w.square() + v + math.log(2 * math.pi))
        roots = math.log(2) - 0.5 * math.log(math.pi) - kappa.log() + sign * m
        return normal.sum(-1) + (roots - (2 * sign * m + 2 * s2).exp() / kappa.square()).sum(-1)

    def sample(self, noise: Tensor, hyper: Mapping[str, Tensor], layout: Layout) -> Tensor:
        """Map standard-normal noise z to draws of the latent variables, (..., P).

        a is kappa^2 z^2 / 2, and so is 1 / b.
        """
        sign, kappa = self._signs_and_scales(noise, hyper, layout)
        w, z = noise[..., : layout.dim], noise[..., layout.dim :]
        return torch.cat([w, sign * (kappa * z.abs() / math.sqrt(2)).log()], dim=-1)

    def _n_units(self, layout: Layout) -> int:
        return layout.n_units if self.units == "leaving" else layout.n_target_units

    def _signs_and_scales(
        self, template: Tensor, hyper: Mapping[str, Tensor], layout: Layout
    ) -> tuple[Tensor, Tensor]:
        """Return e and kappa of every ell, (K,), with the type and device of `template`."""
        n = layout.n_layers + self._n_units(layout)
        unscaled = torch.ones(n, dtype=template.dtype, device=template.device)
        of_layer = torch.arange(n, device=template.device) < layout.n_layers
        kappa = torch.where(of_layer, hyper["global_scale"].to(template.dtype), unscaled)
        return torch.cat([unscaled, -unscaled]), torch.cat([kappa, unscaled])

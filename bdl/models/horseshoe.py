"""The horseshoe prior: Gaussian weights of units with half-Cauchy scales (Carvalho et al. 2010; Louizos et al. 2017).

A weight of unit u in layer l is theta = w tau_l lambda_u with w ~ N(0, 1), tau_l ~ C+(0, kappa) and
lambda_u ~ C+(0, 1). A half-Cauchy variable is the root of a product (Mata 2018, eq. 3.12):

    tau^2 = a b,  a ~ Gamma(1/2, scale kappa^2),  b ~ inverse Gamma(1/2, scale 1),

and lambda^2 likewise with kappa = 1. The latent variables are the w and the logarithms ell of the roots of all a and
b: with e = 1 for a and -1 for b (whose kappa is 1) their density is

    log p(ell) = log 2 - log(pi) / 2 - log kappa + e ell - exp(2 e ell) / kappa^2,

whose mean under N(m, s^2) replaces exp(2 e ell) by exp(2 e m + 2 s^2). Log-normal distributions of the a and b, as
the thesis has them, are Gaussian ones of the ell: the divergences are those of its (3.23) to (3.27), of which (3.23)
prints + log kappa - exp(..) / kappa and (3.26) copies (3.25).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from bdl.models.layout import Layout


@dataclass(frozen=True)
class HorseshoePrior:
    """A scale for each layer and each unit; kappa is the hyper-parameter ``global_scale``.

    Biases have no scales: they are N(0, 1).

    Parameters
    ----------
    units
        Weights that share a unit's scale: those that leave it, as in Louizos et al., or those that enter it. The thesis
        means the second in (3.10) and runs the first in its appendix C.
    """

    units: Literal["leaving", "entering"] = "leaving"

    @property
    def hyper(self) -> tuple[str, ...]:
        """Names of the per-trial hyper-parameters it needs."""
        return ("global_scale",)

    def latent_dim(self, layout: Layout) -> int:
        """Count the latent variables: the parameters, and two for each layer and each unit."""
        return layout.dim + 2 * (layout.n_layers + self._n_units(layout))

    def source(self, layout: Layout) -> Tensor:
        """Number the four scales of each weight, those of layers before those of units, all a before all b: (4, D)."""
        n = layout.n_layers + self._n_units(layout)
        units = layout.units if self.units == "leaving" else layout.entered
        pair = torch.stack([layout.layers, layout.n_layers + units])
        return torch.where(layout.biases, 2 * n, torch.cat([pair, n + pair]))

    def push(self, phi: Tensor, hyper: Mapping[str, Tensor], layout: Layout) -> Tensor:
        """Scale the weights: latent variables (P,) -> parameters (D,)."""
        w, ell = phi[: layout.dim], phi[layout.dim :]
        source = self.source(layout).to(phi.device)
        return w * torch.cat([ell, torch.zeros_like(ell[:1])])[source].sum(0).exp()

    def log_prob(self, phi: Tensor, hyper: Mapping[str, Tensor], layout: Layout) -> Tensor:
        """Log-density of the latent variables, normalised: (..., P) -> (...), nats."""
        return self.expected_log_prob(phi, torch.zeros_like(phi), hyper, layout)

    def expected_log_prob(self, mu: Tensor, var: Tensor, hyper: Mapping[str, Tensor], layout: Layout) -> Tensor:
        """Mean of `log_prob` under N(mu, diag(var)): (..., P) -> (...), nats."""
        sign, kappa = self._signs_and_scales(mu, hyper, layout)
        w, m = mu[..., : layout.dim], mu[..., layout.dim :]
        v, s2 = var[..., : layout.dim], var[..., layout.dim :]
        normal = -0.5 * (w.square() + v + math.log(2 * math.pi))
        roots = math.log(2) - 0.5 * math.log(math.pi) - kappa.log() + sign * m
        return normal.sum(-1) + (roots - (2 * sign * m + 2 * s2).exp() / kappa.square()).sum(-1)

    def sample(self, noise: Tensor, hyper: Mapping[str, Tensor], layout: Layout) -> Tensor:
        """Map standard-normal noise z to draws of the latent variables, (..., P): a is kappa^2 z^2 / 2, so is 1 / b."""
        sign, kappa = self._signs_and_scales(noise, hyper, layout)
        w, z = noise[..., : layout.dim], noise[..., layout.dim :]
        return torch.cat([w, sign * (kappa * z.abs() / math.sqrt(2)).log()], dim=-1)

    def _n_units(self, layout: Layout) -> int:
        return layout.n_units if self.units == "leaving" else layout.n_entered

    def _signs_and_scales(self, like: Tensor, hyper: Mapping[str, Tensor], layout: Layout) -> tuple[Tensor, Tensor]:
        """Return e and kappa of every ell, (K,)."""
        n = layout.n_layers + self._n_units(layout)
        half = torch.ones(n, dtype=like.dtype, device=like.device)
        layers = torch.arange(n, device=like.device) < layout.n_layers
        kappa = torch.where(layers, hyper["global_scale"].to(like.dtype), half)
        return torch.cat([half, -half]), torch.cat([kappa, half])

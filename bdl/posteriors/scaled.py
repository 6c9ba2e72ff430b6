"""Gaussian parameters times log-normal scales that some of them share."""

from typing import NamedTuple

import torch
from torch import Tensor

from bdl.errors import InputError
from bdl.posteriors.base import check_positive, check_shape, check_vector


class Scaled(NamedTuple):
    """theta_i = w_i prod_j s_source[j, i], w ~ N(loc, diag(var)) and log s ~ N(log_loc, diag(log_var)).

    Parameters
    ----------
    loc, var
        Means and variances of the w, shape (D,).
    log_loc, log_var
        Means and variances of the logarithms of the K scales, shape (K,).
    source
        Scales of each parameter, 0 to K - 1, no scale twice; K stands for none. Integers, shape (J, D).
    """

    loc: Tensor
    var: Tensor
    log_loc: Tensor
    log_var: Tensor
    source: Tensor

    @property
    def dim(self) -> int:
        """Number of parameters, D."""
        return self.loc.shape[-1]

    @property
    def noise_dim(self) -> int:
        """Standard-normal values per sample: one a parameter and one a scale, D + K."""
        return self.dim + self.log_loc.shape[-1]

    def mean(self) -> Tensor:
        """Mean loc exp(m + v / 2), shape (D,), m and v being the moments of the logarithm of a parameter's scale."""
        return self.loc * (self._spread(self.log_loc) + 0.5 * self._spread(self.log_var)).exp()

    def variance(self) -> Tensor:
        """Marginal variances (loc^2 + var) exp(2 m + 2 v) - mean^2, shape (D,)."""
        m, v = self._spread(self.log_loc), self._spread(self.log_var)
        return (2 * m + v).exp() * (self.var * v.exp() + self.loc.square() * torch.expm1(v))

    def covariance(self) -> Tensor:
        """Dense covariance, shape (D, D): parameters that share a scale are correlated."""
        leaves = torch.nn.functional.one_hot(self.source, self.log_loc.shape[-1] + 1).sum(0)[:, :-1].to(self.loc)
        shared = torch.expm1((leaves * self.log_var) @ leaves.T)
        mean = self.mean()
        m, v = self._spread(self.log_loc), self._spread(self.log_var)
        return mean.unsqueeze(-1) * mean * shared + (self.var * (2 * m + 2 * v).exp()).diag_embed()

    def log_prob(self, theta: Tensor) -> Tensor:
        """Raise `InputError`: the density is an integral over the scales without a closed form."""
        raise InputError("posterior 'scaled' has no closed density: leave out metrics that need one")

    def entropy(self) -> Tensor:
        """Raise `InputError`, as `log_prob` does."""
        raise InputError("posterior 'scaled' has no closed entropy: leave out metrics that need one")

    def sample(self, noise: Tensor) -> Tensor:
        """Draw weights and scales, shape (..., D + K) -> (..., D)."""
        z, e = noise[..., : self.dim], noise[..., self.dim :]
        return (self.loc + self.var.sqrt() * z) * self._spread(self.log_loc + self.log_var.sqrt() * e).exp()

    def check(self) -> "Scaled":
        """Return the posterior itself if its shapes and values are valid; not for use under vmap.

        Raises
        ------
        InputError
            If shapes disagree, a variance is not positive and finite, or a source is no scale.
        """
        check_vector("loc", self.loc)
        check_vector("log_loc", self.log_loc)
        check_shape("var", self.var, self.dim)
        check_shape("log_var", self.log_var, len(self.log_loc))
        check_shape("source", self.source, len(self.source), self.dim)
        check_positive("var", self.var)
        check_positive("log_var", self.log_var)
        if not bool(((self.source >= 0) & (self.source <= len(self.log_loc))).all()):
            raise InputError(f"source must be in 0 to {len(self.log_loc)}, the number of scales, which stands for none")
        return self

    def _spread(self, scales: Tensor) -> Tensor:
        """Add up the values of each parameter's scales, shape (..., K) -> (..., D)."""
        padded = torch.cat([scales, torch.zeros_like(scales[..., :1])], dim=-1)
        flat = padded.gather(-1, self.source.flatten().expand(*padded.shape[:-1], -1))
        return flat.reshape(*flat.shape[:-1], *self.source.shape).sum(-2)

"""Gaussian parameters times log-normal scales that some of them share."""

from typing import NamedTuple

import torch
from torch import Tensor

from bdl.posteriors.base import NoDensity, check_index, check_positive, check_shape, check_vector


class _Fields(NamedTuple):
    loc: Tensor
    var: Tensor
    log_loc: Tensor
    log_var: Tensor
    source: Tensor


class Scaled(_Fields, NoDensity):
    """theta_i = w_i prod_j s_source[j, i], w ~ N(loc, diag(var)) and log s ~ N(log_loc, diag(log_var)).

    With m and v the mean and variance of the logarithm of a parameter's scale, its mean is loc exp(m + v / 2) and its
    variance (loc^2 + var) exp(2 m + 2 v) - mean^2; parameters that share a scale are correlated. The density is an
    integral over the scales without a closed form. A sample takes one normal a parameter, and then one a scale.

    Parameters
    ----------
    loc, var
        Means and variances of the w, shape (D,).
    log_loc, log_var
        Means and variances of the logarithms of the K scales, shape (K,).
    source
        Scales of each parameter, 0 to K - 1, no scale twice; K stands for none. Integers, shape (J, D).
    """

    _reason = "posterior 'scaled' has no closed density: leave out metrics that need one"

    @property
    def noise_dim(self) -> int:
        return self.dim + self.log_loc.shape[-1]

    def mean(self) -> Tensor:
        return self.loc * (self._spread(self.log_loc) + 0.5 * self._spread(self.log_var)).exp()

    def variance(self) -> Tensor:
        m, v = self._spread(self.log_loc), self._spread(self.log_var)
        return (2 * m + v).exp() * (self.var * v.exp() + self.loc.square() * torch.expm1(v))

    def covariance(self) -> Tensor:
        leaves = torch.nn.functional.one_hot(self.source, self.log_loc.shape[-1] + 1).sum(0)[:, :-1].to(self.loc)
        shared = torch.expm1((leaves * self.log_var) @ leaves.T)
        mean = self.mean()
        m, v = self._spread(self.log_loc), self._spread(self.log_var)
        return mean.unsqueeze(-1) * mean * shared + (self.var * (2 * m + 2 * v).exp()).diag_embed()

    def sample(self, noise: Tensor) -> Tensor:
        z, e = noise[..., : self.dim], noise[..., self.dim :]
        return (self.loc + self.var.sqrt() * z) * self._spread(self.log_loc + self.log_var.sqrt() * e).exp()

    def _validate(self) -> None:
        check_vector("loc", self.loc)
        check_vector("log_loc", self.log_loc)
        check_shape("var", self.var, self.dim)
        check_shape("log_var", self.log_var, len(self.log_loc))
        check_shape("source", self.source, len(self.source), self.dim)
        check_positive("var", self.var)
        check_positive("log_var", self.log_var)
        check_index("source", self.source, len(self.log_loc), "the number of scales, which stands for none")

    def _spread(self, scales: Tensor) -> Tensor:
        """Add up the values of each parameter's scales, shape (..., K) -> (..., D)."""
        padded = torch.cat([scales, torch.zeros_like(scales[..., :1])], dim=-1)
        flat = padded.gather(-1, self.source.flatten().expand(*padded.shape[:-1], -1))
        return flat.reshape(*flat.shape[:-1], *self.source.shape).sum(-2)

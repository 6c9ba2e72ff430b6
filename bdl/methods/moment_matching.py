"""The Gaussian with the mean and the covariance of the posterior.

Of all Gaussians q it has the least KL(p || q) from the posterior p, since the cross-entropy with a Gaussian depends on
the first two moments of p alone; variational inference has the least KL(q || p) instead, which is narrower. The moments
are those of `bdl.methods.importance_sampling` under a proposal by Student's t, with a Monte-Carlo error: if n draws
count, the mean is off by about (D / n)^1/2 posterior standard deviations, all D parameters together, and the covariance
by as much of its norm where its eigenvalues are alike.
"""

from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge
from torch import Tensor

from bdl.errors import InputError
from bdl.methods.base import Direct
from bdl.methods.importance_sampling import Approximation, ImportanceSampling
from bdl.models.problem import Hyper, Problem
from bdl.posteriors import FullGaussian

_LEAST = 2
"""Effective draws a parameter, below which a covariance says little beyond the proposal's."""


@dataclass(frozen=True)
class MomentMatching(Direct):
    """Settings of moment matching.

    Parameters
    ----------
    samples, proposal, degrees
        As in `bdl.methods.importance_sampling.ImportanceSampling`.
    """

    samples: Annotated[int, Ge(2)] = 10_000
    proposal: Approximation = "laplace"
    degrees: Annotated[int, Ge(1)] = 10

    @property
    def draws(self) -> int:
        """Parameter vectors that it holds in memory at once."""
        return self.samples

    @property
    def _sampling(self) -> ImportanceSampling:
        return ImportanceSampling(self.samples, self.proposal, self.degrees)

    def check(self, problem: Problem) -> None:
        self._sampling.check(problem)

    def fit(self, problem: Problem, x: Tensor, y: Tensor, hyper: Hyper, seed: int) -> FullGaussian:
        """Weigh draws, and take their moments.

        Raises
        ------
        InputError
            Also if the effective sample size is below two a parameter.
        """
        weighted = self._sampling.fit(problem, x, y, hyper, seed)
        size = float(weighted.effective_size())
        if size < _LEAST * problem.dim:
            raise InputError(
                f"moment-matching: {self.samples} draws have an effective size of {size:.0f}, which is below "
                f"{_LEAST} for each of {problem.dim} parameters: raise samples or change degrees"
            )
        return FullGaussian.from_covariance(weighted.mean(), weighted.covariance())

"""One stream of observations, learnt from with every check that pure functions leave out."""

from collections.abc import Mapping

import torch
from torch import Tensor

from bdl.errors import InputError
from bdl.methods.online_fa import OnlineEstimator
from bdl.posteriors import FactorAnalysis


class FaStream:
    """An online estimator and its state, for observations of length `dim`, D.

    The initial F is drawn by PyTorch's generator with `seed`; `dtype` is float32 or float64. Raises `InputError` if the
    estimator's K is not one of 1 to D - 1.
    """

    def __init__(self, estimator: OnlineEstimator, dim: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> None:
        estimator.check_dim(dim)
        generator = torch.Generator().manual_seed(seed)
        noise: Mapping[str, Tensor] = {
            name: torch.randn(shape, generator=generator, dtype=dtype)
            for name, shape in estimator.init_noise(dim).items()
        }
        self.estimator = estimator
        self.state = estimator.init(noise)

    def observe(self, observations: Tensor) -> None:
        """Learn from one observation (D,), or from several (B, D) in turn.

        Raises `InputError` if they have another shape or are not all finite; the state is then what it was.
        """
        dim = len(self.state.mean)
        if observations.ndim not in (1, 2) or observations.shape[-1] != dim:
            raise InputError(
                f"observations has shape {tuple(observations.shape)}: give it shape ({dim},) or (B, {dim})"
            )
        if not bool(torch.isfinite(observations).all()):
            raise InputError("observations has values that are not finite: leave out what diverged")
        learn = self.estimator.update if observations.ndim == 1 else self.estimator.update_block
        self.state = learn(self.state, observations.to(self.state.mean.dtype))

    def posterior(self) -> FactorAnalysis:
        """Return the estimate; raises `InputError` if no more observations were seen than the warm-up takes."""
        seen, warmup = int(self.state.seen), self.estimator.warmup
        if seen <= warmup:
            raise InputError(
                f"{seen} observations are too few for an estimate: give more than the {warmup} of the warm-up"
            )
        return self.estimator.posterior(self.state)

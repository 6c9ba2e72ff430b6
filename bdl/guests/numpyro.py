"""Variational inference and NUTS of NumPyro."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from annotated_types import Ge, Gt

from bdl.guests.jax_density import Data, Density, JaxGuest, Network, build_density
from bdl.methods.base import check_rank
from bdl.methods.guest import Train
from bdl.models.problem import Problem
from bdl.posteriors import Empirical, FactorAnalysis

_NEEDS = {"numpyro": "bdl-bench[numpyro]"}


@dataclass(frozen=True)
class AutoLowRank(JaxGuest):
    """`AutoLowRankMultivariateNormal` by stochastic variational inference with Adam.

    Parameters
    ----------
    rank
        Factors of the covariance.
    steps
        Updates, by all rows.
    initial_std
        Standard deviations that it starts from.
    """

    rank: Annotated[int, Ge(1)] = 10
    steps: Annotated[int, Ge(1)] = 5000
    initial_std: Annotated[float, Gt(0)] = 0.05

    needs: ClassVar = _NEEDS
    hyper = ("learning_rate",)

    def check(self, problem: Problem) -> None:
        super().check(problem)
        check_rank("rank", self.rank, problem)

    def fit(self, train: Train, hyper: Mapping[str, float], seed: int) -> FactorAnalysis:
        import jax

        with jax.enable_x64(True):
            target = build_density(train, hyper, seed)
            run = _low_rank(self.rank, self.steps, self.initial_std, target.network)
            fields = run(target.data, hyper["learning_rate"], jax.random.key(seed))
            # copies: arrays of JAX cannot be written to, of which PyTorch warns
            arrays = [np.array(field) for field in fields]
        return FactorAnalysis(*map(torch.from_numpy, arrays))


@lru_cache(maxsize=16)
def _low_rank(rank: int, steps: int, initial_std: float, network: Network) -> Callable[..., Any]:
    """Return the program that fits, compiled once for data of the same shapes."""
    import jax
    from numpyro.infer import SVI, Trace_ELBO, init_to_value
    from numpyro.infer.autoguide import AutoLowRankMultivariateNormal
    from numpyro.optim import Adam

    def run(data: Data, rate: Any, key: Any) -> tuple[Any, ...]:
        model, start = _model(Density(network, data)), init_to_value(values={"theta": data.start})
        guide = AutoLowRankMultivariateNormal(
            model, rank=rank, init_scale=initial_std, init_loc_fn=start
        )
        fit = SVI(model, guide, Adam(rate), Trace_ELBO()).run(key, steps, progress_bar=False)
        normal = guide.get_posterior(fit.params)
        return normal.loc, normal.cov_factor, normal.cov_diag

    return jax.jit(run)


@dataclass(frozen=True)
class Nuts(JaxGuest):
    """The no-U-turn sampler (Hoffman and Gelman 2014), one chain.

    Parameters
    ----------
    warmup, draws
        Iterations that adapt, and that are kept.
    depth
        Doublings of a trajectory at the most.
    """

    warmup: Annotated[int, Ge(1)] = 500
    draws: Annotated[int, Ge(1)] = 500
    depth: Annotated[int, Ge(1)] = 10

    needs: ClassVar = _NEEDS

    def fit(self, train: Train, hyper: Mapping[str, float], seed: int) -> Empirical:
        import jax
        from numpyro.infer import MCMC, NUTS, init_to_value

        with jax.enable_x64(True):
            target = build_density(train, hyper, seed)
            start = init_to_value(values={"theta": target.data.start})
            kernel = NUTS(_model(target), max_tree_depth=self.depth, init_strategy=start)
            chain = MCMC(
                kernel, num_warmup=self.warmup, num_samples=self.draws, progress_bar=False
            )
            chain.run(jax.random.key(seed))
            return Empirical(torch.from_numpy(np.array(chain.get_samples()["theta"])))


# a model of NumPyro, which returns nothing
def _model(target: Density):  # type: ignore[no-untyped-def]
    import numpyro
    from numpyro.distributions import Normal

    def model() -> None:
        theta = numpyro.sample("theta", Normal(0.0, target.data.deviations).to_event(1))
        numpyro.factor("data", target.log_likelihood(theta))

    return model

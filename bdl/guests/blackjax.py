"""Microcanonical Langevin Monte Carlo of BlackJAX."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from annotated_types import Ge

from bdl.errors import InputError
from bdl.guests.jax_density import Data, Density, JaxGuest, Network, build_density
from bdl.methods.guest import Train
from bdl.models.problem import Problem
from bdl.posteriors import Empirical


@dataclass(frozen=True)
class Mclmc(JaxGuest):
    """`blackjax.mclmc` (Robnik et al. 2023): one chain without corrections, tuned by BlackJAX.

    Parameters
    ----------
    steps
        Steps of the chain, after as many of which a third or more have tuned it.
    draws
        Parameter vectors that are kept, at equal distances.
    """

    steps: Annotated[int, Ge(100)] = 20_000
    draws: Annotated[int, Ge(1)] = 200

    needs: ClassVar = {"blackjax": "bdl-bench[blackjax]"}

    def check(self, problem: Problem) -> None:
        super().check(problem)
        if self.steps % self.draws:
            raise InputError(
                f"steps {self.steps} is no multiple of draws {self.draws}: make it one"
            )

    def fit(self, train: Train, hyper: Mapping[str, float], seed: int) -> Empirical:
        import jax

        with jax.enable_x64(True):
            target = build_density(train, hyper, seed)
            run = _chain(self.steps, self.draws, target.network)
            # a copy: arrays of JAX cannot be written to, of which PyTorch warns
            return Empirical(torch.from_numpy(np.array(run(target.data, jax.random.key(seed)))))


@lru_cache(maxsize=16)
def _chain(steps: int, draws: int, network: Network) -> Callable[..., Any]:
    """Return the program that tunes and samples, compiled once for data of the same shapes."""
    import blackjax
    import jax

    def run(data: Data, key: Any) -> Any:
        target = Density(network, data)
        init_key, tuning_key, chain_key = jax.random.split(key, 3)
        state = blackjax.mcmc.mclmc.init(data.start, target.log_joint, init_key)
        state, tuned, _ = blackjax.mclmc_find_L_and_step_size(
            mclmc_kernel=blackjax.mcmc.mclmc.build_kernel(),
            num_steps=steps,
            state=state,
            rng_key=tuning_key,
            logdensity_fn=target.log_joint,
        )
        chain = blackjax.mclmc(
            target.log_joint,
            L=tuned.L,
            step_size=tuned.step_size,
            inverse_mass_matrix=tuned.inverse_mass_matrix,
        )

        def step(state, key):  # type: ignore[no-untyped-def]
            new_state, _ = chain.step(key, state)
            return new_state, None

        # only the end of a stretch is kept: the positions of all steps would take many times as
        # much
        def stretch(state, key):  # type: ignore[no-untyped-def]
            new_state, _ = jax.lax.scan(step, state, jax.random.split(key, steps // draws))
            return new_state, new_state.position

        _, positions = jax.lax.scan(stretch, state, jax.random.split(chain_key, draws))
        return positions

    return jax.jit(run)

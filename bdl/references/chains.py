"""Chains of NUTS over network parameters, by the log posterior that methods see.

A chain that starts at a mode may never leave it, and chains that start in the prior may all miss
one. So half of them start at modes, as the members of a deep ensemble, and half at draws of the
prior (MILE: Sommer et al. 2025).
"""

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Annotated, Any

import numpy as np
import torch
from annotated_types import Ge, Gt, Le, Lt
from numpy.typing import NDArray
from torch import Tensor

from bdl.models.problem import Hyper, Problem, full_batch, log_joint
from bdl.references.compiled_posterior import (
    CompiledLogPosterior,
    Vector,
    build_compiled_posterior,
    has_compiled_posterior,
)
from bdl.references.mcmc import (
    ChainDraws,
    convert_tree,
    describe_origin,
    import_optional,
    sample_by_nutpie,
)
from bdl.runtime import one_thread

LogPosterior = Callable[[Vector], tuple[float, Vector]]
"""Parameters (D,) to log p(D, theta), nats, up to a constant, and its gradient, (D,)."""


def build_log_posterior(problem: Problem, x: Tensor, y: Tensor, hyper: Hyper) -> LogPosterior:
    """Return the log posterior of training data as the model sees them, float64, (n, d) and (n,).

    Networks of one hidden layer have a compiled one, many times as fast as automatic
    differentiation, which serves every other model.
    """
    if has_compiled_posterior(problem):
        return build_compiled_posterior(problem, x, y, hyper)
    batch = full_batch(x, y)

    def differentiate(theta: Vector) -> tuple[float, Vector]:
        parameters = torch.tensor(theta, requires_grad=True)
        value = log_joint(parameters.unsqueeze(0), problem, batch, hyper).squeeze(0)
        return float(value.detach()), torch.autograd.grad(value, parameters)[0].numpy()

    return differentiate


MOST_CLIMBING_STEPS = 1000
"""Most iterations of L-BFGS towards a mode: a member need not have converged."""


@dataclass(frozen=True)
class ChainSettings:
    """How long to sample, and how.

    Parameters
    ----------
    draws
        Iterations of each chain that are judged.
    tune
        Iterations before these, in which step size and scales are adapted; they are dropped.
    chains
        Number of chains, even: the first half starts at modes, the second at draws of the prior.
    kept
        Draws of each chain that are stored, evenly spaced.
    seed
        Gives all chains their randomness; the last bit of a gradient may differ all the same, and
        draws with it.
    target_accept
        Acceptance rate that the warm-up adapts the step size to; nearer to 1, steps are smaller.
    max_depth
        A trajectory has at most 2^max_depth steps.
    """

    draws: Annotated[int, Ge(1)] = 750
    tune: Annotated[int, Ge(1)] = 500
    chains: Annotated[int, Ge(4)] = 8
    kept: Annotated[int, Ge(1)] = 250
    seed: Annotated[int, Ge(0)] = 1
    target_accept: Annotated[float, Gt(0), Lt(1)] = 0.8
    max_depth: Annotated[int, Ge(1), Le(15)] = 8

    @property
    def stored_draws(self) -> NDArray[np.int64]:
        """Numbers of the draws of a chain that are stored."""
        return np.linspace(0, self.draws - 1, min(self.kept, self.draws)).round().astype(np.int64)


def find_starts(
    problem: Problem, hyper: Hyper, log_posterior: LogPosterior, settings: ChainSettings
) -> list[Vector]:
    """Find where chains start: modes that random networks lead to, then as many draws of the
    prior.
    """
    generator = torch.Generator().manual_seed(settings.seed)
    noise = torch.randn(settings.chains, problem.dim, generator=generator, dtype=torch.float64)
    half = settings.chains // 2
    modes = [climb_to_mode(problem.initial(row).numpy(), log_posterior) for row in noise[:half]]
    return [*modes, *problem.prior.sample(noise[half:], hyper, problem.layout).numpy()]


def climb_to_mode(start: Vector, log_posterior: LogPosterior) -> Vector:
    """Climb from a start towards a mode of the posterior by L-BFGS."""
    from scipy.optimize import minimize

    def descent(theta: Vector) -> tuple[float, Vector]:
        value, gradient = log_posterior(theta)
        return -value, -gradient

    mode: Vector = minimize(
        descent, start, jac=True, method="L-BFGS-B", options={"maxiter": MOST_CLIMBING_STEPS}
    ).x
    return mode


def sample_chains(
    log_posterior: LogPosterior, starts: list[Vector], settings: ChainSettings
) -> ChainDraws:
    """Sample chains one after the other, on one thread.

    `InputError` if nutpie is not installed.
    """
    start = perf_counter()
    with one_thread():
        trees = []
        for number, point in enumerate(starts):
            trees.append(_sample_chain(log_posterior, point, settings, settings.seed + number))
    packages = ("nutpie", "numba", "numpy", "scipy")
    origin = describe_origin(
        "nutpie", settings.seed, settings.tune, packages, perf_counter() - start
    )
    chains = [convert_tree(tree, "theta", origin) for tree in trees]
    return ChainDraws(
        np.concatenate([chain.theta for chain in chains]),
        np.concatenate([chain.diverging for chain in chains]),
        np.concatenate([chain.energy for chain in chains]),
        np.concatenate([chain.steps for chain in chains]),
        origin,
    )


def _sample_chain(
    log_posterior: LogPosterior, start: Vector, settings: ChainSettings, seed: int
) -> Any:
    if isinstance(log_posterior, CompiledLogPosterior):
        model = log_posterior.build_sampler_model(start)
    else:
        model = import_optional("nutpie.compiled_pyfunc").from_pyfunc(
            len(start),
            lambda: log_posterior,
            lambda *_: lambda theta: {"theta": theta},
            [np.dtype(np.float64)],
            [(len(start),)],
            ["theta"],
            make_initial_point_fn=lambda _: start,
        )
    lengths = settings.draws, settings.tune, settings.target_accept
    return sample_by_nutpie(
        model, *lengths, chains=1, cores=1, seed=seed, maxdepth=settings.max_depth
    )

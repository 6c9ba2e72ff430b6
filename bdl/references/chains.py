"""Chains of the No-U-Turn sampler over the parameters of a network, from starts of two kinds.

A chain that starts at a mode may never leave it, and chains that start in the prior may all miss one. So half of them
start at modes, as the members of a deep ensemble, and half at draws of the prior (MILE: Sommer et al. 2025).
"""

import sys
from dataclasses import dataclass
from importlib.metadata import version
from time import perf_counter
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import torch
from annotated_types import Ge, Gt, Le, Lt
from numpy.typing import NDArray
from scipy.optimize import minimize

from bdl.models.problem import Hyper, Problem
from bdl.references.density import Slope, Vector
from bdl.references.mcmc import Origin, optional
from bdl.runtime import one_thread

Start = Literal["mode", "prior"]
CLIMB = 1000
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
        Gives all chains their randomness; the last bit of a gradient may differ all the same, and draws with it.
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


class Chains(NamedTuple):
    """What the sampler gave: C chains of S draws after warm-up."""

    theta: NDArray[np.float64]
    """Parameters, (C, S, D)."""
    starts: tuple[Start, ...]
    """Where each chain began."""
    diverging: NDArray[np.bool_]
    """Whether the trajectory diverged, (C, S)."""
    energy: NDArray[np.float64]
    """Hamiltonian, (C, S), nats."""
    steps: NDArray[np.int64]
    """Steps of the trajectory, (C, S)."""
    origin: Origin


def starts(problem: Problem, hyper: Hyper, slope: Slope, settings: ChainSettings) -> list[tuple[Start, Vector]]:
    """Find where chains start: modes that random networks lead to, and draws of the prior."""
    generator = torch.Generator().manual_seed(settings.seed)
    noise = torch.randn(settings.chains, problem.dim, generator=generator, dtype=torch.float64)
    half = settings.chains // 2
    modes = [("mode", climb(problem.initial(row).numpy(), slope)) for row in noise[:half]]
    drawn = problem.prior.sample(noise[half:], hyper, problem.layout)
    return [*modes, *(("prior", row.numpy()) for row in drawn)]  # type: ignore[list-item]


def climb(start: Vector, slope: Slope) -> Vector:
    """Climb from a start towards a mode of the posterior by L-BFGS."""

    def descent(theta: Vector) -> tuple[float, Vector]:
        value, gradient = slope(theta)
        return -value, -gradient

    found: Vector = minimize(descent, start, jac=True, method="L-BFGS-B", options={"maxiter": CLIMB}).x
    return found


def run(slope: Slope, begin: list[tuple[Start, Vector]], settings: ChainSettings) -> Chains:
    """Sample chains one after the other, on one thread.

    Raises
    ------
    InputError
        If nutpie is not installed.
    """
    began = perf_counter()
    with one_thread():
        done = [_chain(slope, point, settings, settings.seed + number) for number, (_, point) in enumerate(begin)]
    versions = {name: version(name) for name in ("nutpie", "numba", "numpy", "scipy")}
    origin = Origin(
        "nutpie",
        settings.seed,
        settings.tune,
        versions | {"python": sys.version.split()[0]},
        perf_counter() - began,
    )
    theta, diverging, energy, steps = (np.stack(part) for part in zip(*done, strict=True))
    return Chains(theta, tuple(kind for kind, _ in begin), diverging, energy, steps, origin)


def _chain(slope: Slope, start: Vector, settings: ChainSettings, seed: int) -> tuple[Any, ...]:
    nutpie, name = optional("nutpie"), "theta"
    from_pyfunc = optional("nutpie.compiled_pyfunc").from_pyfunc
    model = from_pyfunc(
        len(start),
        lambda: slope,
        lambda *_: lambda theta: {name: theta},
        [np.dtype(np.float64)],
        [(len(start),)],
        [name],
        make_initial_point_fn=lambda _: start,
    )
    tree = nutpie.sample(
        model,
        draws=settings.draws,
        tune=settings.tune,
        chains=1,
        cores=1,
        seed=seed,
        target_accept=settings.target_accept,
        maxdepth=settings.max_depth,
        save_warmup=False,
        progress_bar=False,
    )
    statistics = tree["sample_stats"]
    return (
        tree["posterior"][name].to_numpy()[0].astype(np.float64),
        statistics["diverging"].to_numpy()[0].astype(np.bool_),
        statistics["energy"].to_numpy()[0].astype(np.float64),
        statistics["n_steps"].to_numpy()[0].astype(np.int64),
    )

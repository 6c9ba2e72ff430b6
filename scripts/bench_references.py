"""Time what ground truth costs: samplers on the same posteriors, and 2-Wasserstein distances.

NUTS by nutpie and by pymc draw from the posteriors of logistic-posterior. Printed are seconds with
model building and compilation, the smallest effective sample size, its quotient with the time,
whether the rules of admission hold, and the largest difference of the two samplers' means and
covariance entries in standard errors. One call each: the second in a process would find the
compiled code of the first. ``--large`` adds the distance at D = 5000.

With ``--network yacht`` NUTS by nutpie and by NumPyro and BlackJAX's adjusted MCLMC draw from the
posterior of the network of network-posterior on its first split, from the same starts, one chain
after the other on one thread. Chains are judged as functions by the rules of references; MCLMC has
no energy, so that rule 8 is left out for it. Printed are CPU seconds with compilation, those that
400 effective draws of every function take at this rate, which rules break, and the largest
difference of the functions' means and standard deviations from those of nutpie in standard errors.
"""

import argparse
import json
import math
import resource
from collections.abc import Callable
from pathlib import Path
from time import perf_counter, process_time
from typing import Any, NamedTuple

import numpy as np
import torch

from bdl.guests.jax_density import build_density
from bdl.methods.guest import Train
from bdl.metrics.distances import wasserstein2
from bdl.plan.planning import list_tasks
from bdl.plan.reference_posteriors import find_recipe
from bdl.references.certificate import certify, estimate_moment_errors
from bdl.references.chains import (
    ChainSettings,
    build_log_posterior,
    find_starts,
    sample_chains,
)
from bdl.references.compiled_posterior import Vector
from bdl.references.function_certificate import (
    certify_functions,
    compare_groups,
    evaluate_functions,
    lay_grid,
)
from bdl.references.mcmc import (
    ChainDraws,
    Origin,
    Regression,
    Sampler,
    SamplerSettings,
    sample_regression,
)
from bdl.references.nuts import LinearRecipe, NetworkRecipe
from bdl.runtime import one_thread
from bdl.spec import load_benchmark, load_request

SAMPLERS: tuple[Sampler, ...] = ("nutpie", "pymc")


def regression(dataset: str) -> Regression:
    """Take the problem of a data set from the benchmark."""
    (cell,) = list_tasks(load_benchmark("logistic-posterior").select([dataset], ["vifa"]))
    found = find_recipe(cell, 0)
    assert isinstance(found, LinearRecipe)
    return found.regression


def timed(given: Regression, settings: SamplerSettings) -> tuple[dict[str, Any], ChainDraws]:
    """Sample once and judge the draws."""
    start = perf_counter()
    drawn = sample_regression(given, settings)
    seconds = perf_counter() - start
    certificate = certify(drawn)
    ess = min(certificate.bulk_ess + certificate.tail_ess)
    found = {
        "sampler": settings.sampler,
        "draws": settings.chains * settings.draws,
        "seconds": round(seconds, 1),
        "smallest_ess": round(ess),
        "ess_per_second": round(ess / seconds, 1),
        "admitted": not certificate.broken_rules(),
    }
    return found, drawn


def disagreement(first: ChainDraws, second: ChainDraws) -> float:
    """Largest difference of mean and covariance entries, in standard errors of the difference."""
    scores = []
    dim = first.theta.shape[2]
    lower = np.tril_indices(dim)
    moments = [
        (pooled.mean(0), np.cov(pooled.T))
        for pooled in (d.theta.reshape(-1, dim) for d in (first, second))
    ]
    errors = [estimate_moment_errors(drawn.theta) for drawn in (first, second)]
    scores.append(np.abs(moments[0][0] - moments[1][0]) / np.hypot(errors[0].mean, errors[1].mean))
    differences = np.abs(moments[0][1] - moments[1][1]) / np.hypot(
        errors[0].covariance, errors[1].covariance
    )
    scores.append(differences[lower])
    return float(max(score.max() for score in scores))


def compare(dataset: str, draws: int) -> list[dict[str, Any]]:
    """Sample one posterior with every sampler; print and return the rows."""
    given = regression(dataset)
    results = [timed(given, SamplerSettings(draws=draws, sampler=sampler)) for sampler in SAMPLERS]
    count = given.x.shape[1] * (given.x.shape[1] + 3) // 2
    print(f"{dataset}, {given.x.shape[0]} rows, {given.x.shape[1]} parameters")
    for found, _ in results:
        ratio = found["ess_per_second"] / results[-1][0]["ess_per_second"]
        print(
            "  "
            + ", ".join(f"{name} {value}" for name, value in found.items())
            + f", {ratio:.1f}x pymc's ESS/s"
        )
    worst = disagreement(results[0][1], results[1][1])
    print(
        f"  largest of {count} differences: {worst:.1f} standard errors (about {expected(count):.1f} expected)"
    )
    return [{"dataset": dataset, **found, "disagreement": round(worst, 2)} for found, _ in results]


def expected(count: int) -> float:
    """Median of the largest of so many absolute standard normals."""
    return math.sqrt(2) * float(
        torch.erfinv(torch.tensor(0.5 ** (1 / count), dtype=torch.float64))
    )


class Sampled(NamedTuple):
    """Chains of one sampler on the posterior of a network."""

    chains: ChainDraws
    seconds: float
    energy: bool
    """Whether the chains have an energy, which rule 8 needs."""


def by_nutpie(asked: NetworkRecipe, begin: list[Vector]) -> Sampled:
    """Sample as references are sampled."""
    start = process_time()
    chains = sample_chains(
        build_log_posterior(asked.problem, asked.x, asked.y, asked.hyper), begin, asked.settings
    )
    return Sampled(chains, process_time() - start, energy=True)


def by_jax(
    asked: NetworkRecipe,
    begin: list[Vector],
    chain: Callable[..., Any],
    name: str,
    *,
    energy: bool,
) -> Sampled:
    """Sample by a program of JAX: a log density, a start (D,) and a key to draws, divergences, energies and steps."""
    import jax

    start = process_time()
    with jax.enable_x64(True):
        train = Train(asked.x.numpy(), asked.y.numpy(), asked.problem)
        target = build_density(
            train, {name: float(value) for name, value in asked.hyper.items()}, 0
        )
        program = jax.jit(lambda at, key: chain(target.log_joint, at, key, asked.settings))
        done = [
            [np.asarray(part) for part in program(point, jax.random.key(number))]
            for number, point in enumerate(begin)
        ]
    theta, diverging, energies, steps = (np.stack(part) for part in zip(*done, strict=True))
    origin = Origin(name, 0, asked.settings.tune, {}, 0.0)
    return Sampled(
        ChainDraws(theta, diverging, energies, steps, origin), process_time() - start, energy
    )


def nuts_of_numpyro(
    log_density: Callable[..., Any], at: Any, key: Any, settings: ChainSettings
) -> tuple[Any, ...]:
    """NUTS with the settings of references."""
    from numpyro.infer import MCMC, NUTS

    kernel = NUTS(
        potential_fn=lambda theta: -log_density(theta),
        target_accept_prob=settings.target_accept,
        max_tree_depth=settings.max_depth,
    )
    chain = MCMC(kernel, num_warmup=settings.tune, num_samples=settings.draws, progress_bar=False)
    chain.run(key, init_params=at, extra_fields=("diverging", "energy", "num_steps"))
    told = chain.get_extra_fields()
    return chain.get_samples(), told["diverging"], told["energy"], told["num_steps"]


STRIDE = 5
"""Transitions of MCLMC from one draw to the next, each of two steps on average."""


def adjusted_mclmc(
    log_density: Callable[..., Any], at: Any, key: Any, settings: ChainSettings
) -> tuple[Any, ...]:
    """Adjusted microcanonical Langevin Monte Carlo, tuned by BlackJAX, with its default of two steps a transition."""
    import blackjax
    import jax
    import jax.numpy as jnp

    first, tuning, running = jax.random.split(key, 3)
    dynamic = blackjax.mcmc.adjusted_mclmc_dynamic
    kernel = dynamic.build_kernel(
        integration_steps_fn=lambda key, average: jnp.ceil(
            2 * average * jax.random.uniform(key)
        ).astype(int)
    )
    state, tuned, _ = blackjax.adjusted_mclmc_find_L_and_step_size(
        mclmc_kernel=kernel,
        logdensity_fn=log_density,
        num_steps=5 * STRIDE * settings.tune,  # a fifth of which tune
        state=dynamic.init(at, log_density, first),
        rng_key=tuning,
        target=0.9,
    )

    def transition(state: Any, key: Any) -> tuple[Any, Any]:
        after, told = kernel(
            rng_key=key,
            state=state,
            logdensity_fn=log_density,
            step_size=tuned.step_size,
            inverse_mass_matrix=tuned.inverse_mass_matrix,
            integration_steps_params=(tuned.L / tuned.step_size,),
        )
        return after, (told.is_divergent, told.num_integration_steps)

    def draw(state: Any, key: Any) -> tuple[Any, Any]:
        after, (diverging, steps) = jax.lax.scan(transition, state, jax.random.split(key, STRIDE))
        return after, (after.position, diverging.any(), -after.logdensity, steps.sum())

    return tuple(jax.lax.scan(draw, state, jax.random.split(running, settings.draws))[1])


def network(dataset: str) -> list[dict[str, Any]]:
    """Sample the posterior of a network with every sampler; print and return the rows."""
    cell = next(
        cell
        for cell in list_tasks(load_request("network-posterior").selected_benchmark)
        if cell.dataset == dataset
    )
    asked = find_recipe(cell, 0)
    assert isinstance(asked, NetworkRecipe)
    problem = asked.problem
    begin = find_starts(
        problem,
        asked.hyper,
        build_log_posterior(problem, asked.x, asked.y, asked.hyper),
        asked.settings,
    )
    samplers: dict[str, Callable[[], Sampled]] = {
        "NUTS, nutpie": lambda: by_nutpie(asked, begin),
        "NUTS, NumPyro": lambda: by_jax(asked, begin, nuts_of_numpyro, "numpyro", energy=True),
        "adjusted MCLMC, BlackJAX": lambda: by_jax(
            asked, begin, adjusted_mclmc, "blackjax", energy=False
        ),
    }
    print(f"network on {dataset}, {len(asked.y)} rows, {problem.dim} parameters")
    rows: list[dict[str, Any]] = []
    inputs, first = torch.cat([asked.test_x, lay_grid(asked.test_x)]), None
    for name, sample_all in samplers.items():
        chains, seconds, energy = sample_all()
        certificate = certify_functions(problem, chains, asked.test_x, asked.test_y, asked.hyper)
        broken = sorted(
            {failure.rule.number for failure in certificate.broken_rules()}
            - (set() if energy else {8})
        )
        ess = min(certificate.bulk_ess + certificate.tail_ess)
        outputs = evaluate_functions(problem, chains.theta, inputs)
        f = outputs.reshape(*outputs.shape[:2], -1)
        first = f if first is None else first
        away = float(compare_groups(first, f).max())
        found = {
            "dataset": dataset,
            "sampler": name,
            "cpu_seconds": round(seconds, 1),
            "gradients": int(chains.steps.sum()),
            "smallest_ess": round(ess),
            "cpu_seconds_to_ess_400": round(400 / ess * seconds, 1),
            "r_hat": round(max(certificate.r_hat), 4),
            "breaks": broken,
            "disagreement": round(away, 2),
        }
        rows.append(found)
        ratio = found["cpu_seconds_to_ess_400"] / rows[0]["cpu_seconds_to_ess_400"]
        told = {key: value for key, value in found.items() if key not in ("dataset", "sampler")}
        print(
            f"  {name}: "
            + ", ".join(f"{key} {value}" for key, value in told.items())
            + f"; {ratio:.1f}x nutpie's time"
        )
    count = 2 * len(inputs)
    print(
        f"  of {count} differences the largest is expected to be about {expected(count):.1f} standard errors"
    )
    return rows


def distance(dim: int) -> dict[str, Any]:
    """Time the 2-Wasserstein distance of two random Gaussians."""
    generator = torch.Generator().manual_seed(0)
    factors = torch.randn(2, dim, dim, generator=generator, dtype=torch.float64)
    first, second = (factor @ factor.T / dim for factor in factors)
    zero = torch.zeros(dim, dtype=torch.float64)
    start = perf_counter()
    wasserstein2((zero, first), (zero, second))
    seconds, peak = (
        perf_counter() - start,
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
    )
    print(
        f"2-Wasserstein at D = {dim}: {seconds:.2f} s; largest memory of the process so far {peak:.1f} GB"
    )
    return {"dim": dim, "seconds": round(seconds, 2), "peak_gb": round(peak, 2)}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--dataset", action="append", default=[], help="default: breast_cancer and a1a"
    )
    parser.add_argument("--draws", type=int, default=2_000, help="of each of four chains")
    parser.add_argument("--large", action="store_true", help="also the distance at D = 5000")
    parser.add_argument(
        "--network", action="append", default=[], help="data set of network-posterior"
    )
    parser.add_argument("--json", type=Path, help="write the numbers to this file")
    options = parser.parse_args()
    found: dict[str, Any] = (
        json.loads(options.json.read_text("utf-8"))
        if options.json and options.json.exists()
        else {}
    )
    if options.network:
        with one_thread():
            found["networks"] = [row for name in options.network for row in network(name)]
    else:
        found["distances"] = [
            distance(dim) for dim in (100, 1000, *([5000] if options.large else []))
        ]
        found["samplers"] = [
            row
            for name in options.dataset or ["breast_cancer", "a1a"]
            for row in compare(name, options.draws)
        ]
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()

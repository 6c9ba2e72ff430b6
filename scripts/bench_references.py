"""Time what ground truth costs: NUTS by nutpie and by pymc on the same posteriors, and 2-Wasserstein distances.

Both samplers draw from the posteriors of logistic-posterior. Printed are seconds with model building and compilation,
the smallest effective sample size, its quotient with the time, whether the rules of admission hold, and the largest
difference of the two samplers' means and covariance entries in standard errors. One call each: the second in a
process would find the compiled code of the first. ``--large`` adds the distance at D = 5000.
"""

import argparse
import json
import math
import resource
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch

from bdl.metrics.distances import wasserstein2
from bdl.plan.planning import cells_of
from bdl.plan.reference import recipe
from bdl.references.certificate import certify, monte_carlo_errors
from bdl.references.mcmc import Draws, Regression, Sampler, Settings, sample
from bdl.references.nuts import LinearRecipe
from bdl.spec import load_benchmark

SAMPLERS: tuple[Sampler, ...] = ("nutpie", "pymc")


def regression(dataset: str) -> Regression:
    """Take the problem of a data set from the benchmark."""
    (cell,) = cells_of(load_benchmark("logistic-posterior").select([dataset], ["vifa"]))
    found = recipe(cell, 0)
    assert isinstance(found, LinearRecipe)
    return found.regression


def timed(given: Regression, settings: Settings) -> tuple[dict[str, Any], Draws]:
    """Sample once and judge the draws."""
    start = perf_counter()
    drawn = sample(given, settings)
    seconds = perf_counter() - start
    certificate = certify(drawn)
    ess = min(certificate.bulk_ess + certificate.tail_ess)
    found = {
        "sampler": settings.sampler,
        "draws": settings.chains * settings.draws,
        "seconds": round(seconds, 1),
        "smallest_ess": round(ess),
        "ess_per_second": round(ess / seconds, 1),
        "admitted": not certificate.failures(),
    }
    return found, drawn


def disagreement(first: Draws, second: Draws) -> float:
    """Largest difference of mean and covariance entries, in standard errors of the difference."""
    scores = []
    dim = first.theta.shape[2]
    lower = np.tril_indices(dim)
    moments = [(pooled.mean(0), np.cov(pooled.T)) for pooled in (d.theta.reshape(-1, dim) for d in (first, second))]
    errors = [monte_carlo_errors(drawn.theta) for drawn in (first, second)]
    scores.append(np.abs(moments[0][0] - moments[1][0]) / np.hypot(errors[0].mean, errors[1].mean))
    differences = np.abs(moments[0][1] - moments[1][1]) / np.hypot(errors[0].covariance, errors[1].covariance)
    scores.append(differences[lower])
    return float(max(score.max() for score in scores))


def compare(dataset: str, draws: int) -> list[dict[str, Any]]:
    """Sample one posterior with every sampler; print and return the rows."""
    given = regression(dataset)
    results = [timed(given, Settings(draws=draws, sampler=sampler)) for sampler in SAMPLERS]
    count = given.x.shape[1] * (given.x.shape[1] + 3) // 2
    print(f"{dataset}, {given.x.shape[0]} rows, {given.x.shape[1]} parameters")
    for found, _ in results:
        ratio = found["ess_per_second"] / results[-1][0]["ess_per_second"]
        print("  " + ", ".join(f"{name} {value}" for name, value in found.items()) + f", {ratio:.1f}x pymc's ESS/s")
    worst = disagreement(results[0][1], results[1][1])
    print(f"  largest of {count} differences: {worst:.1f} standard errors (about {expected(count):.1f} expected)")
    return [{"dataset": dataset, **found, "disagreement": round(worst, 2)} for found, _ in results]


def expected(count: int) -> float:
    """Median of the largest of so many absolute standard normals."""
    return math.sqrt(2) * float(torch.erfinv(torch.tensor(0.5 ** (1 / count), dtype=torch.float64)))


def distance(dim: int) -> dict[str, Any]:
    """Time the 2-Wasserstein distance of two random Gaussians."""
    generator = torch.Generator().manual_seed(0)
    factors = torch.randn(2, dim, dim, generator=generator, dtype=torch.float64)
    first, second = (factor @ factor.T / dim for factor in factors)
    zero = torch.zeros(dim, dtype=torch.float64)
    start = perf_counter()
    wasserstein2(zero, first, zero, second)
    seconds, peak = perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"2-Wasserstein at D = {dim}: {seconds:.2f} s; largest memory of the process so far {peak:.1f} GB")
    return {"dim": dim, "seconds": round(seconds, 2), "peak_gb": round(peak, 2)}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--dataset", action="append", default=[], help="default: breast_cancer and a1a")
    parser.add_argument("--draws", type=int, default=2_000, help="of each of four chains")
    parser.add_argument("--large", action="store_true", help="also the distance at D = 5000")
    parser.add_argument("--json", type=Path, help="write the numbers to this file")
    options = parser.parse_args()
    distances = [distance(dim) for dim in (100, 1000, *([5000] if options.large else []))]
    rows = [row for name in options.dataset or ["breast_cancer", "a1a"] for row in compare(name, options.draws)]
    if options.json:
        options.json.write_text(json.dumps({"distances": distances, "samplers": rows}, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()

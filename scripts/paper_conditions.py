"""What conditions of the papers do to their numbers: a truncated matrix root, a truth from fewer draws, released code.

Run ``bdl-bench run uci-linear-posterior`` and ``logistic-posterior`` first, or give ``--streams``.
For each data set this prints the mean over the stored posteriors of VIFA of its distances as this
package computes them; of the 2-Wasserstein distance per parameter by the trace formula with the
matrix root of the papers' code (32 bits, without eigenvalues below 1.192e-4 of the largest); and,
where the truth is sampled, of the distances to the moments of the first 5,000 draws.

With ``--streams`` it does the same for the published estimators of ``online-fa``, which it runs
again, on the data sets that are named, or all with 100 parameters (three minutes; the three of
Table B.2 with 1000 take a quarter of an hour).

With ``--slang-release`` it looks at the logistic regressions of the SLANG paper (minutes). On the
data sets that are named, or breast_cancer, it trains SLANG with L = 1 for 1,000 epochs on split 0,
as corrected and as the code does that its authors released, and prints divergences from the exact
Gaussian: means over five streams of random numbers, and the range. Of the exact Gaussians of all
four data sets it prints the scores, means over splits, with and without the constant of the bias'
prior, beside the table that the authors' code holds and the printed one.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from peers import slang_release

from bdl.data import load_stream
from bdl.metrics.distances import relative_distance, wasserstein2
from bdl.plan.fittings import build_final_fitting
from bdl.plan.planning import group_tasks, list_tasks
from bdl.plan.reference_posteriors import compute_truth
from bdl.plan.task import Task
from bdl.posteriors import Posterior
from bdl.references.base import Truth
from bdl.spec import Request, load_benchmark
from bdl.stored_results.folders import locate_folder, open_store

CUT = 1.192e-4
FEW = 5_000
ESTIMATORS = ("online-sga", "online-em", "batch-svd")
Array = NDArray[np.floating]


def truncated_root(matrix: Array) -> Array:
    """Symmetric root in float32 from the eigenvalues above the cut."""
    values, vectors = np.linalg.eigh(matrix.astype(np.float32))
    kept = np.abs(values) > CUT * np.abs(values).max()
    root: Array = (vectors[:, kept] * np.sqrt(np.abs(values[kept]))) @ vectors[:, kept].T
    return root


def truncated_w2(mean: Array, cov: Array, true_mean: Array, true_cov: Array) -> float:
    """The trace formula of the 2-Wasserstein distance, per parameter, with truncated roots."""
    root = truncated_root(true_cov)
    inner = truncated_root(root @ cov.astype(np.float32) @ root)
    squared = (
        ((mean - true_mean) ** 2).sum() + np.trace(cov) + np.trace(true_cov) - 2 * np.trace(inner)
    )
    return float(np.sqrt(max(squared, 0.0)) / len(mean))


def row(moments: Array, known: Truth) -> list[float]:
    """Measure one posterior every way, on the parameters whose covariance the truth knows."""
    d = len(known.covariance)
    mean, cov = moments[0, :d].astype(float), moments[1 : d + 1, :d].astype(float)
    found = [
        *distances(mean, cov, known),
        truncated_w2(mean, cov, known.mean[:d].numpy(), known.covariance.numpy()),
    ]
    return found if known.chains is None else found + distances(mean, cov, shortened(known.chains))


def distances(mean: Array, cov: Array, reference: Truth) -> list[float]:
    """Distances of means and covariances, and the 2-Wasserstein distance per parameter."""
    ours, known = (
        (torch.from_numpy(mean), torch.from_numpy(cov)),
        (reference.mean[: len(mean)], reference.covariance),
    )
    pairs = zip(ours, known, strict=True)
    return [
        *(float(relative_distance(*pair)) for pair in pairs),
        float(wasserstein2(ours, known)) / len(mean),
    ]


def shortened(chains: torch.Tensor) -> Truth:
    """Moments of the first `FEW` draws, equally many from each chain."""
    few = chains[:, : FEW // len(chains)].flatten(0, 1)
    return Truth(few.mean(0), torch.cov(few.T), {})


def moments_of(posterior: Posterior) -> Array:
    """Mean above covariance, (1 + D, D), float64."""
    found: Array = (
        torch.cat([posterior.mean().unsqueeze(0), posterior.covariance()]).double().numpy()
    )
    return found


def streams(datasets: Sequence[str]) -> None:
    """Learn from all observations of streams, by default those with 100 parameters.

    Print the distances at the end.
    """
    benchmark = load_benchmark("online-fa")
    print(f"{'':<22} covariance      W2   truncated")
    names = datasets or [name for name in benchmark.datasets if load_stream(name).dim == 100]
    for batch in group_tasks(list_tasks(benchmark.select(names, ESTIMATORS))):
        members = [(cell, split) for split in range(benchmark.splits) for cell in batch]
        fitting = build_final_fitting(members, [{}] * len(members), compile=False)
        *_, end = fitting.run()
        values: dict[Task, list[list[float]]] = {cell: [] for cell in batch}
        for position, (cell, split) in enumerate(members):
            q, reference = fitting.posterior(end, position), compute_truth(cell, split)
            assert reference is not None
            values[cell].append(row(moments_of(q), reference))
        for cell, own in values.items():
            _, cov, w2, truncated = np.mean(own, 0)
            print(
                f"{cell.dataset + ' ' + cell.entry:<30} {cov:.4f} {w2:7.4f} {truncated:11.4f}",
                flush=True,
            )


def slang(datasets: Sequence[str]) -> None:
    """Print what the released SLANG reaches, and how exact solutions score."""
    print(
        f"{'':<26} symmetric KL        range   KL(exact, q)   KL(q, exact)   without the widest direction"
    )
    for dataset in datasets:
        for name, found in slang_release.divergences(dataset).items():
            least, most = found.symmetric.min(), found.symmetric.max()
            text = f"{dataset + ' ' + name:<26} {found.symmetric.mean():12.3f} {f'{least:.2f} to {most:.2f}':>16}"
            others = (found.forward, found.reverse, found.without)
            print(text + "".join(f"{values.mean():15.3f}" for values in others), flush=True)
    print(
        f"\n{'':<14} rows  training   neg. ELBO  no constant  stored  printed   NLL as printed  stored  printed"
    )
    for dataset, own in slang_release.exact_solutions():
        stored = [
            "-" if value is None else f"{value:.6f}" for value in slang_release.STORED[dataset]
        ]
        text = f"{dataset:<14} {own.rows:5} {own.training:8} {own.elbo:12.6f} {own.without:11.6f} {stored[0]:>9}"
        print(
            f"{text} {own.printed[0]:>7} {own.nll:12.6f} {stored[1]:>9} {own.printed[1]:>7}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--results", type=Path, default=Path("results"))
    parser.add_argument("--streams", nargs="*", metavar="DATASET")
    parser.add_argument(
        "--slang-release", nargs="*", metavar="DATASET", choices=slang_release.DATASETS
    )
    options = parser.parse_args()
    if options.slang_release is not None:
        slang(options.slang_release or ["breast_cancer"])
        return
    if options.streams is not None:
        streams(options.streams)
        return
    results = options.results
    print(
        f"{'':<14}    mean covariance      W2   truncated   {FEW} draws: mean covariance      W2"
    )
    for benchmark in map(load_benchmark, ("uci-linear-posterior", "logistic-posterior")):
        with open_store(locate_folder(results, Request(benchmark))) as store:
            for cell in list_tasks(benchmark.select(entries=["vifa"])):
                reference = compute_truth(cell, 0)
                kept = [row.artefact for row in store.load_rows("final", cell.key) if row.artefact]
                moments = [moments_of(store.posteriors.read(sha)[0]) for sha in kept]
                values = [row(own, reference) for own in moments if reference is not None]
                mean, cov, w2, truncated, *few = np.mean(values, 0)
                text = f"{cell.dataset:<14} {mean:7.4f} {cov:10.4f} {w2:7.4f} {truncated:11.4f}"
                print(text + (f" {few[0]:18.4f} {few[1]:10.4f} {few[2]:7.4f}" if few else ""))


if __name__ == "__main__":
    main()

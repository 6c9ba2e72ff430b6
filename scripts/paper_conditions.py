"""What two conditions of the papers do to their distances: a truncated matrix root, and a truth from fewer draws.

Run ``bdl-bench run uci-linear-posterior`` and ``logistic-posterior`` first, or give ``--streams``. For each data set
this prints the mean over the stored posteriors of VIFA of its distances as this package computes them; of the
2-Wasserstein distance per parameter by the trace formula with the matrix root of the papers' code (32 bits, without
eigenvalues below 1.192e-4 of the largest); and, where the truth is sampled, of the distances to the moments of the
first 5,000 draws.

With ``--streams`` it does the same for the published estimators of ``online-fa``, which it runs again, on the data
sets that are named, or all with 100 parameters (three minutes; the three of Table B.2 with 1000 take a quarter of an
hour).
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from bdl.data import load_stream
from bdl.execution.streaming import StreamGroup, batches
from bdl.metrics.distances import rel_cov_dist, rel_mean_dist, scaled_w2
from bdl.plan.cell import Cell
from bdl.references.base import Truth
from bdl.spec import load_benchmark
from bdl.store.folder import existing

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
    squared = ((mean - true_mean) ** 2).sum() + np.trace(cov) + np.trace(true_cov) - 2 * np.trace(inner)
    return float(np.sqrt(max(squared, 0.0)) / len(mean))


def row(moments: Array, truth: Truth) -> list[float]:
    """Measure one posterior every way, on the parameters whose covariance the truth knows."""
    d = len(truth.covariance)
    mean, cov = moments[0, :d].astype(float), moments[1 : d + 1, :d].astype(float)
    found = [*distances(mean, cov, truth), truncated_w2(mean, cov, truth.mean[:d].numpy(), truth.covariance.numpy())]
    return found if truth.chains is None else found + distances(mean, cov, shortened(truth.chains))


def distances(mean: Array, cov: Array, truth: Truth) -> list[float]:
    """Distances of means and covariances, and the 2-Wasserstein distance per parameter."""
    ours, known = (torch.from_numpy(mean), torch.from_numpy(cov)), (truth.mean[: len(mean)], truth.covariance)
    relative = rel_mean_dist(ours[0], known[0]), rel_cov_dist(ours[1], known[1])
    return [*map(float, relative), float(scaled_w2(*ours, *known))]


def shortened(chains: torch.Tensor) -> Truth:
    """Moments of the first `FEW` draws, equally many from each chain."""
    few = chains[:, : FEW // len(chains)].flatten(0, 1)
    return Truth(few.mean(0), torch.cov(few.T), {})


def streams(datasets: Sequence[str]) -> None:
    """Learn from all observations of streams, by default those with 100 parameters; print the distances at the end."""
    benchmark = load_benchmark("online-fa")
    print(f"{'':<22} covariance      W2   truncated")
    datasets = datasets or [name for name in benchmark.datasets if load_stream(name).dim == 100]
    splits = tuple(range(benchmark.splits))
    cells = [Cell(benchmark, name, entry, splits) for entry in ESTIMATORS for name in datasets]
    for batch in batches(cells):
        members = [(cell, split) for split in splits for cell in batch]
        *_, (_, ends) = StreamGroup(tuple(members)).posteriors(lambda work: None)
        values: dict[Cell, list[list[float]]] = {cell: [] for cell in batch}
        for (cell, split), q in zip(members, ends, strict=True):
            truth = cell.truth(split)
            assert truth is not None
            values[cell].append(row(torch.cat([q.mean().unsqueeze(0), q.covariance()]).numpy(), truth))
        for cell, own in values.items():
            _, cov, w2, truncated = np.mean(own, 0)
            print(f"{cell.dataset + ' ' + cell.entry:<30} {cov:.4f} {w2:7.4f} {truncated:11.4f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--results", type=Path, default=Path("results"))
    parser.add_argument("--streams", nargs="*", metavar="DATASET")
    options = parser.parse_args()
    if options.streams is not None:
        streams(options.streams)
        return
    results = options.results
    print(f"{'':<14}    mean covariance      W2   truncated   {FEW} draws: mean covariance      W2")
    for benchmark in map(load_benchmark, ("uci-linear-posterior", "logistic-posterior")):
        with existing(results, benchmark) as store:
            for dataset in benchmark.datasets:
                truth = Cell(benchmark, dataset, "vifa", (0,)).truth(0)
                kept = [store.predictions(dataset, "vifa", split) for split in range(benchmark.splits)]
                values = [row(moments, truth) for moments in kept if moments is not None and truth is not None]
                mean, cov, w2, truncated, *few = np.mean(values, 0)
                text = f"{dataset:<14} {mean:7.4f} {cov:10.4f} {w2:7.4f} {truncated:11.4f}"
                print(text + (f" {few[0]:18.4f} {few[1]:10.4f} {few[2]:7.4f}" if few else ""))


if __name__ == "__main__":
    main()

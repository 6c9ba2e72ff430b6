"""What a truncated matrix root does to the 2-Wasserstein distances of uci-linear-posterior.

Run ``bdl-bench run uci-linear-posterior`` first. For each data set this prints the mean and standard error over the
stored posteriors of VIFA of the distance per parameter, as this package computes it, and by the trace formula with the
matrix root of the papers' code: 32 bits, without eigenvalues below 1.192e-4 of the largest.
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from bdl.metrics.distances import scaled_w2
from bdl.references.base import Truth
from bdl.runs.folder import existing
from bdl.runs.plan import Cell
from bdl.spec import load_benchmark

CUT = 1.192e-4
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


def both(moments: Array, truth: Truth) -> tuple[float, float]:
    """Measure one posterior both ways, on the parameters whose covariance the truth knows."""
    d = len(truth.covariance)
    mean, cov = moments[0, :d].astype(float), moments[1 : d + 1, :d].astype(float)
    exact = scaled_w2(torch.from_numpy(mean), torch.from_numpy(cov), truth.mean[:d], truth.covariance)
    return float(exact), truncated_w2(mean, cov, truth.mean[:d].numpy(), truth.covariance.numpy())


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--results", type=Path, default=Path("results"))
    benchmark = load_benchmark("uci-linear-posterior")
    with existing(parser.parse_args().results, benchmark) as store:
        for dataset in benchmark.datasets:
            truth = Cell(benchmark, dataset, "vifa", (0,)).truth(0)
            kept = [store.predictions(dataset, "vifa", split) for split in range(benchmark.splits)]
            values = np.array([both(moments, truth) for moments in kept if moments is not None and truth is not None])
            errors = values.std(0, ddof=1) / np.sqrt(len(values))
            exact, truncated = (f"{m:.4f} +- {e:.4f}" for m, e in zip(values.mean(0), errors, strict=True))
            print(f"{dataset:<10} exact {exact}   truncated {truncated}")


if __name__ == "__main__":
    main()

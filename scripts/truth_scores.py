"""How well the true posterior of a network predicts, beside the approximations that a benchmark holds against it.

For each data set of a benchmark with the reference ``network-mcmc`` this prints the mean over
splits of the negative log predictive density per test row, original units, of the reference's
draws, which are sampled where they are not in the data directory (minutes a split; ``bdl-bench
references`` lists them). Below it stands the rank correlation over entries of the published means
of the first score of predictions and of the benchmark's first distance.

    python scripts/truth_scores.py network-posterior
"""

import argparse
from collections.abc import Sequence
from math import log
from pathlib import Path

import torch
from scipy.stats import spearmanr

from bdl.metrics import METRICS
from bdl.plan.planning import list_tasks
from bdl.plan.reference_posteriors import find_recipe, load_training_data
from bdl.plan.task import Task
from bdl.references.base import load_or_sample
from bdl.references.function_certificate import evaluate_functions
from bdl.references.nuts import NetworkRecipe
from bdl.spec import load_request
from bdl.stored_results.loading import load_results

RESULTS = Path(__file__).parents[1] / "results"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("benchmark", help="name of a benchmark")
    parser.add_argument("--dataset", action="append", help="only this one (repeatable)")
    options = parser.parse_args(arguments)
    variant = load_request(options.benchmark)
    rows, metrics = (
        load_results(variant, RESULTS).rows,
        [str(name) for name in variant.benchmark.metrics],
    )
    predictive, distance = (
        next(name for name in metrics if METRICS.get(name).info.kind == kind)
        for kind in ("predictive", "distance")
    )
    for dataset in options.dataset or variant.benchmark.datasets:
        cell = next(
            cell for cell in list_tasks(variant.selected_benchmark) if cell.dataset == dataset
        )
        scores = [score(cell, split) for split in cell.splits]
        print(
            f"{dataset}: {sum(scores) / len(scores):.3f} ({', '.join(f'{one:.3f}' for one in scores)})"
        )
        means = (
            rows[rows.dataset == dataset].groupby("entry")[[predictive, distance]].mean().dropna()
        )
        rank = spearmanr(means).statistic
        print(
            f"  rank correlation of {predictive} and {distance} over {len(means)} entries: {rank:.2f}"
        )
    return 0


def score(cell: Task, split: int) -> float:
    """Negative log predictive density of the reference's draws, nats per test row, original units."""
    asked = find_recipe(cell, split)
    assert isinstance(asked, NetworkRecipe)
    f = torch.from_numpy(
        evaluate_functions(asked.problem, load_or_sample(asked).theta, asked.test_x)
    ).flatten(0, 1)
    density = asked.problem.likelihood.predictive(f, asked.hyper).log_prob(asked.test_y)
    mixed = density.logsumexp(0) - log(len(f))
    return log(load_training_data(cell, split).y_unit) - float(mixed.mean())


if __name__ == "__main__":
    raise SystemExit(main())

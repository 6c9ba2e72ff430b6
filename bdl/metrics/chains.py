"""Monte-Carlo errors of scores of predictions by several Markov chains."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from bdl.metrics.evaluation import Evaluation
from bdl.references.jackknife import jackknife_error


def score_chains(
    score: Callable[[Evaluation], float], evaluation: Evaluation
) -> float | dict[str, float]:
    """Score predictions, with the Monte-Carlo error of a posterior of several chains.

    A posterior that has a `chain_count` above 1 and a method `leave_out` for each chain has an
    error, the suffix ``mcse``: the jackknife's over chains. Chains are independent and start far
    apart, so that their differences show how far chains as long as these predict otherwise.
    """
    value = score(evaluation)
    posterior: Any = evaluation.posterior
    count = int(getattr(posterior, "chain_count", 1))
    if count < 2:
        return value
    scores = np.array(
        [
            # predictions at hand are those of all chains
            score(replace(evaluation, posterior=posterior.leave_out(chain), predicted=None))
            for chain in range(count)
        ]
    )
    return {"": value, "mcse": jackknife_error(scores)}

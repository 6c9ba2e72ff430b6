"""Rules that chains over the parameters of a network must pass in function space before they count
as the truth.

Weights may be permuted without a change of the function, so chains need not agree in them. What is
judged are the network's outputs at the test rows, and between and beyond them. R-hat and effective
sample sizes are those of Vehtari, Gelman, Simpson, Carpenter & Buerkner (2021), Bayesian Analysis
16(2).
"""

import numpy as np
import torch
from torch import Tensor

from bdl.errors import InputError
from bdl.models.problem import Hyper, Problem
from bdl.references.certificate import (
    FloatArray,
    FunctionCertificate,
    compute_statistics,
    estimate_batch_errors,
    estimate_moment_errors,
    round_digits,
)
from bdl.references.mcmc import ChainDraws

LINE_COUNT, LINE_POSITIONS = 20, (-0.5, 0.5, 1.5)
"""Pairs of test rows whose lines the grid follows, and its places there: beyond the one, between,
beyond the other.
"""
_VALUES_AT_ONCE = 2**22


def lay_grid(test: Tensor) -> Tensor:
    """Lay inputs on lines through pairs of test rows, between and beyond: (m, d) -> (60, d)."""
    generator = np.random.default_rng(0)
    starts = test[torch.from_numpy(generator.integers(len(test), size=LINE_COUNT))]
    ends = test[torch.from_numpy(generator.integers(len(test), size=LINE_COUNT))]
    return torch.cat([starts + position * (ends - starts) for position in LINE_POSITIONS])


def evaluate_functions(problem: Problem, theta: FloatArray, x: Tensor) -> FloatArray:
    """Evaluate the model at draws (C, S, D) and inputs (m, d): outputs as it sees the targets, (C,
    S, m, d_out).
    """
    flat = torch.from_numpy(theta.reshape(-1, theta.shape[-1]))
    size = max(1, _VALUES_AT_ONCE // (len(x) * problem.widest))

    def evaluate(parameters: Tensor) -> Tensor:
        return problem.model(parameters, x, problem.d_out)

    values = torch.func.vmap(evaluate, chunk_size=size)(flat)
    outputs: FloatArray = values.numpy().reshape(*theta.shape[:2], len(x), problem.d_out)
    return outputs


def certify_functions(
    problem: Problem, draws: ChainDraws, x: Tensor, y: Tensor, hyper: Hyper, *, beyond: bool = True
) -> FunctionCertificate:
    """Judge chains by the functions that they are, whether good or bad.

    The first half started at modes.

    Test rows are as the model sees them, float64, (m, d) and (m,), hyper-parameters in the unit of
    `y`. One that each draw has its own value of, (C, S, 1), is judged as well, by its logarithm,
    after the inputs. Functions are judged on the grid between and `beyond` the rows, too.
    `InputError` if a chain never moves, or arviz is not installed.
    """
    outputs = evaluate_functions(
        problem, draws.theta, torch.cat([x, lay_grid(x)]) if beyond else x
    )
    sampled = [np.log(value.numpy()) for value in hyper.values() if value.ndim]
    f = np.concatenate([outputs.reshape(*outputs.shape[:2], -1), *sampled], axis=2)
    if (stuck := ~(np.ptp(f, axis=1) > 0).all(1)).any():
        raise InputError(
            f"chain {stuck.argmax()} never moves: the sampler failed, raise tune or check "
            "the model"
        )
    errors, sd = estimate_moment_errors(f), f.std((0, 1))
    predictive = problem.likelihood.predictive(torch.from_numpy(outputs[:, :, : len(x)]), hyper)
    densities = predictive.log_prob(y).numpy()
    # densities of many nats underflow; a factor that all draws share cancels in the relative error
    densities = np.exp(densities - densities.max((0, 1)))
    return FunctionCertificate(
        **compute_statistics(f, draws, 5),
        divergences=round_digits(draws.diverging.mean(1), 5),
        mean_error=round_digits(errors.mean / sd, 5),
        sd_error=round_digits(errors.sd / sd, 5),
        density_error=round_digits(
            estimate_moment_errors(densities).mean / densities.mean((0, 1)), 5
        ),
        agreement=round_digits(compare_groups(*np.split(f, 2)), 5),
        gradients=int(draws.steps.sum()),
    )


def compare_groups(first: FloatArray, second: FloatArray) -> FloatArray:
    """Compare two groups of chains, (C, S, m): the larger difference of mean and sd, in standard
    errors, (m,).

    The errors are those of batches: an effective sample size falls where chains of a group differ,
    which would hide that the groups differ.
    """
    errors, other_errors = estimate_batch_errors(first), estimate_batch_errors(second)
    mean_difference = np.abs(first.mean((0, 1)) - second.mean((0, 1)))
    sd_difference = np.abs(first.std((0, 1)) - second.std((0, 1)))
    larger: FloatArray = np.maximum(
        mean_difference / np.hypot(errors.mean, other_errors.mean),
        sd_difference / np.hypot(errors.sd, other_errors.sd),
    )
    return larger

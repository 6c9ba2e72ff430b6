"""Evaluations for tests of scores: of given outputs, of given answers, or of a given posterior."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Normal

from bdl.metrics.evaluation import Evaluation
from bdl.metrics.predictions import as_tensors, summarise
from bdl.metrics.targets import Examples
from bdl.models.likelihoods import Bernoulli, Categorical, GaussianLikelihood, Likelihood
from bdl.models.networks import LinearModel
from bdl.models.problem import Problem
from bdl.posteriors import DiagonalGaussian
from bdl.posteriors.predictive import MeanVariance
from bdl.rng import trial_keys

KEY = trial_keys([("fit",)], "predict")[0]
NOWHERE = DiagonalGaussian(torch.zeros(1), torch.ones(1))


def normal(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def tensor(*values: object) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def examples(x: Tensor, y: Tensor, unit: float = 1.0, origin: float = 0.0) -> Examples:
    return Examples(x, y, unit, origin)


def fit(posterior: Any = NOWHERE, problem: Problem | None = None, **changes: Any) -> Evaluation:
    """Make an evaluation that has nothing else to look at unless `changes` give it."""
    none = examples(torch.zeros(0, 1), torch.zeros(0))
    rest = {"hyper": {}, "test": lambda: none, "training": lambda: none, "samples": 1, "key": KEY}
    return Evaluation(posterior, problem, **(rest | changes))


def predicted(
    f: Tensor, y: Tensor, likelihood: Likelihood, hyper: Mapping[str, float] | None = None
) -> Evaluation:
    """Evaluate given outputs (S, n, d_out) at targets (n,)."""
    problem = Problem(LinearModel(), likelihood, 1, f.shape[-1])
    predictions = summarise(problem, f, y, as_tensors(hyper or {}))
    return fit(
        problem=problem, predicted=predictions, test=lambda: examples(torch.zeros(len(y), 1), y)
    )


def regression(f: Tensor, y: Tensor, beta: float = 1.0) -> Evaluation:
    """Evaluate outputs (S, n) under a Gaussian likelihood of precision beta."""
    return predicted(f.unsqueeze(-1), y, GaussianLikelihood(), {"noise_precision": beta})


def labelled(probabilities: Tensor, y: Tensor) -> Evaluation:
    """Evaluate probabilities (S, n, C) of classes."""
    return predicted(probabilities.log(), y, Categorical())


def binary(probabilities: Tensor, y: Tensor) -> Evaluation:
    """Evaluate probabilities (S, n) of the class 1."""
    return predicted(probabilities.logit().unsqueeze(-1), y, Bernoulli())


def answered(answer: Any, y: Tensor, likelihood: Likelihood | None = None) -> Evaluation:
    """Evaluate what a method answers, or mixtures of S normals, (n, S), at targets (n,)."""
    rows = examples(torch.arange(float(len(y))).unsqueeze(-1), y)
    if isinstance(answer, Normal):
        answer = MeanVariance(answer.mean.T, answer.variance.T)
    outputs = answer[0].shape[-1] if isinstance(likelihood, Categorical) else 1
    problem = Problem(LinearModel(), likelihood or GaussianLikelihood(), 1, outputs)
    return fit(lambda x: answer, problem, test=lambda: rows, hyper={"noise_precision": 0.8})

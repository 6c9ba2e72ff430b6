"""Scores from the likelihood of the test targets, each sample of the posterior being a model of its own."""

import math
from dataclasses import dataclass
from typing import ClassVar

from bdl.metrics.base import MetricInfo
from bdl.metrics.evaluation import At, Evaluation


@dataclass(frozen=True)
class Nmll:
    """Negative mean marginal log-likelihood, nats per test point.

    The mean over points of -log (1/S) sum_s p(y_i | theta_s), a mixture for each point on its own (VIFA paper 2023,
    section 4.2.1).

    Parameters
    ----------
    at
        Parameters that predict: samples of the posterior, or its mean alone.
    """

    at: At = "samples"

    info: ClassVar = MetricInfo("NMLL", "nats per test point", "lower", "predictive", "regression", margin=0.05)

    def __call__(self, evaluation: Evaluation) -> float:
        """Score a fit."""
        return -float(evaluation.at(self.at).predictions.log_likelihood.mean())


@dataclass(frozen=True)
class JointNll:
    """Negative joint predictive log-density, nats per test point.

    -(1/n) log (1/S) sum_s prod_i p(y_i | theta_s), one mixture for all n points together, as the published code of
    SLANG evaluates it (Mishkin et al. 2018). It is between the mean negative log-likelihood of the best sample and
    log(S) / n more.
    """

    info: ClassVar = MetricInfo("Joint NLL", "nats per test point", "lower", "predictive", "regression", margin=0.05)

    def __call__(self, evaluation: Evaluation) -> float:
        """Score a fit."""
        joint = evaluation.predictions.sample_log_likelihood
        return float(math.log(len(joint)) - joint.logsumexp(0)) / len(evaluation.predictions.log_likelihood)


@dataclass(frozen=True)
class Nll:
    """Negative log-likelihood of labels, nats per test point: the mean of -log of the label's mean probability.

    Parameters
    ----------
    at
        Parameters that predict: samples of the posterior, or its mean alone.
    """

    at: At = "samples"

    info: ClassVar = MetricInfo("NLL", "nats per test point", "lower", "predictive", "classification", margin=0.02)

    def __call__(self, evaluation: Evaluation) -> float:
        """Score a fit."""
        return -float(evaluation.at(self.at).predictions.log_likelihood.mean())

"""Scores of linear models without Monte-Carlo error, and the evidence lower bound of any Gaussian
posterior.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated

import torch
from annotated_types import Ge
from torch import Tensor

from bdl.errors import InputError
from bdl.metrics import MetricInfo
from bdl.metrics.evaluation import Evaluation
from bdl.metrics.predictions import Draws, as_tensors
from bdl.metrics.targets import Examples
from bdl.models.likelihoods import Bernoulli
from bdl.models.linear import expectation, is_glm, output_moments
from bdl.posteriors import DiagonalGaussian, GaussianPosterior, kl_divergence

_CPU = torch.device("cpu")


def require_gaussian(name: str, evaluation: Evaluation) -> GaussianPosterior:
    """Return the posterior, float64 on the CPU, for the metric of that name.

    `InputError` if it is not Gaussian.
    """
    if not isinstance(evaluation.precise, GaussianPosterior):
        raise InputError(
            f"{name}: {type(evaluation.precise).__name__} is not Gaussian: leave the metric out"
        )
    return evaluation.precise


def expect_over_outputs(
    evaluation: Evaluation, examples: Examples, values: Callable[[Tensor], Tensor]
) -> Tensor:
    """Expect a function of the targets' log-densities, (n,) -> (n,), in original units: (n,).

    For a GLM.
    """
    likelihood, hyper = evaluation.model.likelihood, as_tensors(evaluation.hyper)
    y = examples.y.to(_CPU, torch.float64)

    def integrand(f: Tensor) -> Tensor:
        target = likelihood.predictive(likelihood.restore(f.unsqueeze(-1), *examples.scale), hyper)
        return values(target.log_prob(y))

    return expectation(integrand, *_compute_output_moments(evaluation, examples))


def _compute_output_moments(evaluation: Evaluation, examples: Examples) -> tuple[Tensor, Tensor]:
    """Means and standard deviations of the outputs, (n,) each, as the model sees them.

    For a GLM.
    """
    posterior = evaluation.precise
    assert isinstance(posterior, GaussianPosterior), "whoever asks has checked it"
    return output_moments(evaluation.model, posterior, examples.x.to(_CPU, torch.float64))


_STEP = 1
"""Counter of its draws: the draws of predictions have 0, so the errors of both are independent."""


@dataclass(frozen=True)
class NegElbo:
    """Negative evidence lower bound, nats per training point.

    (KL(q || prior) - E_q log p(D | theta)) / N with all N training rows, targets in original
    units; q and prior have to be Gaussian. The divergence is exact and summed over all parameters.
    So is the expectation for a linear model with one output, by quadrature; for others it is a
    mean over draws from q, and ``neg_elbo_mcse`` is the standard error of the score, same unit.

    Parameters
    ----------
    samples
        Draws from q, where they are needed.
    """

    info = MetricInfo(
        "Negative ELBO", "nats per training point", "lower", "posterior", margin=0.02
    )

    samples: Annotated[int, Ge(2)] = 100

    def __call__(self, evaluation: Evaluation) -> Mapping[str, float]:
        evaluation = evaluation.as_fitted
        divergence, n = _prior_divergence("neg_elbo", evaluation), len(evaluation.trained.y)
        if is_glm(evaluation.model):
            likelihood = expect_over_outputs(
                evaluation, evaluation.trained, lambda log_prob: log_prob
            ).sum()
            return {"": float(divergence - likelihood) / n}
        predicted = evaluation.predict(
            evaluation.trained, Draws(self.samples, evaluation.key, _STEP)
        )
        log_likelihoods = predicted.sample_log_likelihood
        error = log_likelihoods.std() / math.sqrt(self.samples)
        return {"": float(divergence - log_likelihoods.mean().cpu()) / n, "mcse": float(error) / n}


@dataclass(frozen=True)
class PriorKl:
    """KL(q || prior), the part of the negative evidence lower bound that is not the fit, nats per
    training point.

    It is exact and summed over all parameters; q and prior have to be Gaussian.
    """

    info = MetricInfo("Divergence from the prior", "nats per training point", "none", "posterior")

    def __call__(self, evaluation: Evaluation) -> float:
        return float(_prior_divergence("prior_kl", evaluation)) / len(evaluation.trained.y)


@dataclass(frozen=True)
class NegElboPrinted(NegElbo):
    """`NegElbo` without the constant of the biases' prior, as the SLANG paper (2018) prints it in
    Tables 1 and 4.

    Its authors' code sums log gamma, of the prior precisions, over the weights alone, so that KL(q
    || prior) lacks -(1/2) sum log gamma over the biases: 5.76 nats for the bias precision 1e-5, by
    which the printed values are too low. They are too high, by about 1e-4 nats per training point,
    by the bound that stands for the expectation there.
    """

    info = MetricInfo(
        "Negative ELBO as printed", "nats per training point", "lower", "posterior", margin=0.02
    )

    def __call__(self, evaluation: Evaluation) -> Mapping[str, float]:
        scores = super().__call__(evaluation)
        constant = -0.5 * float(
            _prior_precision(evaluation)[evaluation.model.layout.biases].log().sum()
        )
        return {**scores, "": scores[""] - constant / len(evaluation.trained.y)}


def _prior_divergence(name: str, evaluation: Evaluation) -> Tensor:
    posterior, variance = (
        require_gaussian(name, evaluation),
        _prior_precision(evaluation).reciprocal(),
    )
    return kl_divergence(posterior, DiagonalGaussian(torch.zeros_like(variance), variance))


def _prior_precision(evaluation: Evaluation) -> Tensor:
    """Prior precision of each parameter, float64, (D,)."""
    problem = evaluation.model
    return problem.prior_precision(as_tensors(evaluation.hyper)).expand(problem.dim)


_WIDTHS = (0.44, 0.41, 0.40, 0.39, 0.36)
_SHARES = (
    1.146480988574439e02,
    -1.508871030070582e03,
    2.676085036831241e03,
    -1.356294962039222e03,
    7.543285642111850e01,
)
"""sigmoid(f) is about the sum of shares times Phi(sqrt(2) width f): the constants of
`likLogistic`.
"""


@dataclass(frozen=True)
class NllByQuadrature:
    """Negative log-probability of the test labels, nats per test point: the mean of -log E_q p(y_i
    | theta).

    For logistic regression and a Gaussian q, E_q is exact, by quadrature. Unlike `Nll`, it draws
    nothing.
    """

    info = MetricInfo(
        "Test NLL", "nats per test point", "lower", "predictive", "classification", margin=0.02
    )

    def __call__(self, evaluation: Evaluation) -> float:
        _check_logistic("test_nll", evaluation)
        return -float(expect_over_outputs(evaluation, evaluation.tested, torch.exp).log().mean())


@dataclass(frozen=True)
class NllPrinted:
    """`NllByQuadrature` by the approximation with which the SLANG paper (2018) makes its column
    NLL.

    E_q sigmoid(f) is `probability_of_one`, cut off at the precision of float64 from both ends.
    """

    info = MetricInfo(
        "Test NLL as printed",
        "nats per test point",
        "lower",
        "predictive",
        "classification",
        margin=0.02,
    )

    def __call__(self, evaluation: Evaluation) -> float:
        _check_logistic("test_nll_printed", evaluation)
        epsilon = torch.finfo(torch.float64).eps
        p = probability_of_one(*_compute_output_moments(evaluation, evaluation.tested)).clamp(
            epsilon, 1 - epsilon
        )
        y = evaluation.tested.y.to(p)
        return -float(torch.where(y == 1, p.log(), (-p).log1p()).mean())


def probability_of_one(centre: Tensor, spread: Tensor) -> Tensor:
    """E[sigmoid(f)] with f ~ N(centre, spread^2), float64, (n,) -> (n,), as GPML's `likLogistic`
    approximates it.

    A mixture of five normal distribution functions stands for the sigmoid. Where |centre| is far
    above 0.98 spread^2 + 4, all the mass is in the tail, and the smaller of both probabilities is
    exp(spread^2 / 2 - |centre|), at most exp(-0.1). In between, logarithms are interpolated
    (Rasmussen and Nickisch 2010, GPML toolbox, JMLR 11).
    """
    variance, size = spread.square(), centre.abs()
    terms = []
    for width, share in zip(_WIDTHS, _SHARES, strict=True):
        argument = math.sqrt(2) * width * centre / (1 + 2 * width**2 * variance).sqrt()
        terms.append(share * torch.special.ndtr(argument))
    # Shares of up to 2,676 nearly cancel, which leaves no digits of a small probability: hence the
    # formula of the tail.
    mixture = torch.stack(terms).sum(0)
    rare = (variance / 2 - size).clamp(max=-0.1)
    tail = torch.where(centre > 0, (-rare.exp()).log1p(), rare)
    weight = torch.sigmoid(10 * (size - 0.98 * variance - 4))
    # where the tail counts, rounding may leave a mixture below 0, which has no logarithm
    mixed = (1 - weight) * mixture.log() + weight * tail
    return torch.where((weight == 1) | (mixture <= 0), tail, mixed).exp()


def _check_logistic(name: str, evaluation: Evaluation) -> None:
    problem = evaluation.model
    if not (is_glm(problem) and isinstance(problem.likelihood, Bernoulli)):
        raise InputError(
            f"{name} needs a linear model and the likelihood 'bernoulli' of two classes: use nll"
        )
    require_gaussian(name, evaluation)

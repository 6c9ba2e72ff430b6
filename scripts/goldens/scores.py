"""Golden trials of scores: every metric on small fixed evaluations, those that it refuses left out."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import lru_cache

import torch
from torch import Tensor

from bdl.errors import InputError
from bdl.metrics import METRICS
from bdl.metrics.evaluation import Evaluation
from bdl.metrics.predictions import Draws, as_tensors, summarise
from bdl.metrics.targets import Examples
from bdl.models.likelihoods import Bernoulli, Categorical, GaussianLikelihood, Likelihood
from bdl.models.networks import LinearModel, Mlp
from bdl.models.priors import GaussianPrior
from bdl.models.problem import Problem
from bdl.posteriors import DiagonalGaussian, Weighted
from bdl.posteriors.base import Posterior
from bdl.references.base import Truth
from bdl.rng import trial_keys
from goldens import problems
from goldens.case import DOUBLE, Case
from goldens.shipped_settings import Settings, text

SKIPPED = {
    "runtime": "it is what the counters of a run says",
    "k_hat": "a package of the extra `mcmc` computes it",
}
"""Metrics without a case, and why."""
_TESTED, _TRAINED, _SAMPLES = 12, 20, 8
_FLOAT32 = 2e-5
"""Models predict in float32, 7 digits; scores sum a few dozen of their logarithms, which may
cancel.
"""
_HYPER = {"noise_precision": 0.3, "prior_precision": 0.7}
_OTHERS = (
    *(
        "scoring",
        "model:linear",
        "model:mlp",
        "likelihood:gaussian",
        "likelihood:bernoulli",
        "likelihood:categorical",
    ),
    *("prior:gaussian", "posterior:diagonal", "posterior:weighted"),
)


def case(settings: Settings) -> Case:
    """Make the case of a metric."""
    own, options = (
        settings["name"],
        {field: value for field, value in settings.items() if field != "name"},
    )

    def compute() -> dict[str, Tensor]:
        metric, found = METRICS.build(own, options), dict[str, Tensor]()
        for name, make in EVALUATIONS.items():
            evaluation = make()
            labels = not evaluation.model.likelihood.fits(0)
            if metric.info.task not in (None, "classification" if labels else "regression"):
                continue
            with suppress(InputError):
                value = metric(evaluation)
                parts = value if isinstance(value, Mapping) else {"": value}
                found |= {
                    f"{name} {part}".strip(): torch.tensor(own, dtype=torch.float64)
                    for part, own in parts.items()
                }
        return found

    return Case(
        text(settings, "metric"), f"metric:{own}", compute, _OTHERS, _tolerance(own), settings
    )


def predictions() -> Case:
    """Make the case of predictions themselves, with units restored."""

    def compute() -> dict[str, Tensor]:
        found = dict[str, Tensor]()
        for name, make in EVALUATIONS.items():
            evaluation = make()
            drawn = evaluation.predict(evaluation.tested, Draws(_SAMPLES, evaluation.key))
            found |= {
                f"{name} {field}": value
                for field, value in drawn._asdict().items()
                if value.numel()
            }
        return found

    return Case("predictions", "scoring", compute, ("engine", *_OTHERS[1:]), _FLOAT32)


def _tolerance(name: str) -> float:
    """Return the tolerance: scores of predictions made ahead, and of posteriors, are float64 throughout."""
    of_outputs = (
        "spread",
        "training_nll",
        "training_nmll",
        "training_error_pct",
        "neg_elbo",
        "neg_elbo_printed",
    )
    of_components = (
        "crps",
        "coverage",
        "interval_width",
        "pit_distance",
        "dyadic_nll",
        "calibrated_nll",
    )
    of_mean_outputs = ("mse_at_mean", "neg_log_joint", "rmse")
    is_single = name in of_outputs + of_components + of_mean_outputs
    return _FLOAT32 if is_single or name.startswith("function_") else DOUBLE


def _evaluation(
    likelihood: Likelihood, classes: int, model: LinearModel | Mlp, weighted: bool = False
) -> Evaluation:
    outputs = likelihood.outputs(classes)
    problem = Problem(model, likelihood, 2, outputs, GaussianPrior(bias_precision=0.2))
    dim = problem.dim
    key = trial_keys([("golden",)], "predict")[0]
    posterior: Posterior = DiagonalGaussian(
        problems.wave(dim), problems.wave(dim, phase=1.0).exp()
    )
    if weighted:
        posterior = Weighted(
            problems.wave(_SAMPLES * 2, dim), problems.wave(_SAMPLES * 2, phase=1.0)
        )
    tested, trained = _examples(_TESTED, classes, 0.0), _examples(_TRAINED, classes, 6.0)
    f = problems.wave(_SAMPLES, _TESTED, outputs, phase=7.0)
    made = summarise(
        problem, f if classes else f + tested.y.unsqueeze(-1), tested.y, as_tensors(_HYPER)
    )
    return Evaluation(
        *(posterior, problem, _HYPER, lambda: tested, lambda: trained, _SAMPLES, key),
        truth=lambda: _truth(dim),
        predicted=made,
        generating=problems.wave(dim, phase=3.0),
    )


def _examples(n: int, classes: int, phase: float) -> Examples:
    x = problems.wave(n, 2, phase=phase)
    x[:, 0] = torch.linspace(0.05, 0.95, n, dtype=x.dtype)  # `spread` counts rows between 0 and 1
    order = x.sum(1).argsort().argsort()
    y = (
        (order * classes // n).double()
        if classes
        else 5 + 2 * x.sum(1) + problems.wave(n, phase=2.0)
    )
    return Examples(x, y, 1.0 if classes else 2.0, 0.0 if classes else 5.0)


def _truth(dim: int) -> Truth:
    chains = problems.wave(4, 40, dim, phase=8.0) + problems.wave(dim, phase=9.0)
    pooled = chains.flatten(0, 1)
    return Truth(pooled.mean(0), torch.cov(pooled.T).reshape(dim, dim), {}, chains)


def _kept(*given: object) -> Callable[[], Evaluation]:
    return lru_cache(maxsize=1)(lambda: _evaluation(*given))  # type: ignore[arg-type]


EVALUATIONS: dict[str, Callable[[], Evaluation]] = {
    "numbers": _kept(GaussianLikelihood(), 0, LinearModel()),
    "two classes": _kept(Bernoulli(), 2, LinearModel()),
    "three classes": _kept(Categorical(), 3, LinearModel()),
    "network": _kept(GaussianLikelihood(), 0, Mlp((3,))),
    "weighted numbers": _kept(GaussianLikelihood(), 0, LinearModel(), True),
    "weighted classes": _kept(Bernoulli(), 2, LinearModel(), True),
}

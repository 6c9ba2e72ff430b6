"""What scores of a generalised linear model are made of: expectations over the Gaussian law of its outputs."""

from collections.abc import Callable

import torch
from torch import Tensor

from bdl.errors import InputError
from bdl.metrics.evaluation import Evaluation, Examples
from bdl.metrics.predictions import tensors_of
from bdl.models.linear import expectation, outputs
from bdl.posteriors import Gaussian
from bdl.posteriors.tensors import as_type

_CPU = torch.device("cpu")


def gaussian(name: str, evaluation: Evaluation) -> Gaussian:
    """Return the posterior, float64 on the CPU, for the metric of that name.

    Raises
    ------
    InputError
        If it is not Gaussian.
    """
    posterior = as_type(evaluation.posterior, torch.float64, _CPU)
    if not isinstance(posterior, Gaussian):
        raise InputError(f"{name}: {type(posterior).__name__} is not Gaussian: leave the metric out")
    return posterior


def law(evaluation: Evaluation, posterior: Gaussian, examples: Examples) -> tuple[Tensor, Tensor]:
    """Means and standard deviations of the outputs, (n,) each, as the model sees them; for a GLM."""
    return outputs(evaluation.model, posterior, examples.x.to(_CPU, torch.float64))


def expected(
    evaluation: Evaluation, posterior: Gaussian, examples: Examples, values: Callable[[Tensor], Tensor]
) -> Tensor:
    """Expect a function of the targets' log-densities, (n,) -> (n,), in original units: (n,); for a GLM."""
    likelihood, hyper = evaluation.model.likelihood, tensors_of(evaluation.hyper)
    unit, origin = (torch.as_tensor(value, dtype=torch.float64) for value in (examples.y_unit, examples.y_origin))
    y = examples.y.to(_CPU, torch.float64)

    def at(f: Tensor) -> Tensor:
        target = likelihood.predictive(likelihood.restore(f.unsqueeze(-1), unit, origin), hyper)
        return values(target.log_prob(y))

    return expectation(at, *law(evaluation, posterior, examples))

"""Laplace's approximation by laplace-torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from threading import RLock
from typing import Annotated, Any, ClassVar, Literal

import torch
from annotated_types import Ge
from torch import Tensor, nn

from bdl.errors import InputError
from bdl.methods.guest import Guest, Train, minimise_with_adam
from bdl.models.likelihoods import Bernoulli
from bdl.models.problem import Problem
from bdl.posteriors import FullGaussian
from bdl.posteriors.base import Posterior
from bdl.posteriors.predictive import MeanVariance, Predictive, Probabilities

_MAX_PARAMETERS = 2000
"""Parameters whose covariance is formed."""


@dataclass(frozen=True)
class LaplaceTorch(Guest):
    """`laplace.Laplace` (Daxberger et al. 2021) at a mode that Adam finds.

    The curvature is the generalised Gauss-Newton matrix.

    Parameters
    ----------
    structure
        Of the curvature.
    layers
        Whether all layers are uncertain, or the last.
    prediction
        By the linearised network (Immer et al. 2021), or by samples of all parameters.
    tuning
        Whether the marginal likelihood chooses the prior precision of the curvature, after
        training with that of the entry.
    steps
        Updates of Adam, by all rows.
    """

    structure: Literal["full", "kron", "diag"] = "kron"
    layers: Literal["all", "last_layer"] = "all"
    prediction: Literal["linearised", "samples"] = "linearised"
    tuning: Literal["none", "marglik"] = "none"
    steps: Annotated[int, Ge(1)] = 2000

    needs_model = True
    needs: ClassVar = {"laplace": "bdl-bench[laplace]"}
    hyper = ("learning_rate",)

    def check(self, problem: Problem) -> None:
        super().check(problem)
        if isinstance(problem.likelihood, Bernoulli):
            raise InputError(
                "laplace-torch has no likelihood of one logit: use the likelihood categorical"
            )
        if getattr(problem.prior, "bias_precision", None) is not None:
            raise InputError(
                "laplace-torch has one prior precision: use the prior gaussian without "
                "bias_precision"
            )
        if self.prediction == "samples" and (
            self.layers != "all" or problem.dim > _MAX_PARAMETERS
        ):
            raise InputError(
                "prediction: samples are drawn of all layers, "
                f"and of {_MAX_PARAMETERS} parameters at most"
            )

    def fit(self, train: Train, hyper: Mapping[str, float], seed: int) -> Posterior | Predictive:
        from laplace import Laplace
        from tqdm import tqdm

        # laplace-torch shows its progress by tqdm, whose own lock is one of processes: a worker
        # that is ended leaves its semaphore behind, of which Python warns
        tqdm.set_lock(RLock())
        module, x, y = (
            train.module(seed).double(),
            torch.from_numpy(train.x),
            torch.from_numpy(train.y),
        )

        def cost() -> Tensor:
            theta = nn.utils.parameters_to_vector(module.parameters())
            # a mean over rows, so that one learning rate suits data sets of any size
            return -train.log_joint(theta, hyper) / len(y)

        minimise_with_adam(module.parameters(), cost, self.steps, hyper["learning_rate"])
        kind = "classification" if train.classes else "regression"
        noise = {} if train.classes else {"sigma_noise": hyper["noise_precision"] ** -0.5}
        approximation = Laplace(
            module,
            kind,
            self.layers,
            self.structure,
            prior_precision=hyper["prior_precision"],
            **noise,
        )
        targets = y.long() if train.classes else y.unsqueeze(1)
        approximation.fit(
            torch.utils.data.DataLoader(
                torch.utils.data.TensorDataset(x, targets), batch_size=len(y)
            )
        )
        if self.tuning == "marglik":
            approximation.optimize_prior_precision(method="marglik", pred_type="glm")
        return (
            _posterior(approximation)
            if self.prediction == "samples"
            else _linearised(approximation, train.classes, hyper)
        )


def _posterior(approximation: Any) -> FullGaussian:
    """Return the distribution of all parameters.

    A Kronecker-factored precision is multiplied out.
    """
    precision = approximation.posterior_precision
    dense = precision.to_matrix() if hasattr(precision, "to_matrix") else precision
    dense = dense if dense.ndim == 2 else dense.diag()
    covariance = torch.linalg.inv(dense).detach()
    return FullGaussian.from_covariance(approximation.mean.detach(), covariance)


def _linearised(approximation: Any, classes: int, hyper: Mapping[str, float]) -> Predictive:
    def predict(x: Tensor) -> MeanVariance | Probabilities:
        with torch.enable_grad():  # of outputs by parameters
            if classes:
                return Probabilities(approximation(x, pred_type="glm", link_approx="probit"))
            mean, variance = approximation(x, pred_type="glm")
        return MeanVariance(mean.flatten(), variance.flatten() + 1 / hyper["noise_precision"])

    return predict

"""Variational Bayesian last layers: a network with a Bayesian linear model as last layer."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from annotated_types import Ge
from torch import Tensor, nn

from bdl.errors import InputError
from bdl.methods.guest import Guest, Train, minimise_with_adam
from bdl.models.networks import Mlp
from bdl.models.problem import Problem
from bdl.posteriors.predictive import MeanVariance, Predictive, Probabilities


@dataclass(frozen=True)
class Vbll(Guest):
    """`vbll` (Harrison et al. 2024) on the hidden layers of the model, by Adam.

    It learns the noise.

    Parameters
    ----------
    steps
        Updates.
    batch_size
        Rows of an update, drawn anew each time; null for all. An update costs in proportion to
        them, since the library multiplies a covariance for each row.
    """

    steps: Annotated[int, Ge(1)] = 2000
    batch_size: Annotated[int, Ge(1)] | None = None

    self_tuned = True
    needs_model = True
    needs: ClassVar = {"vbll": "bdl-bench[vbll]"}
    hyper = ("learning_rate", "weight_decay")

    def check(self, problem: Problem) -> None:
        super().check(problem)
        if not isinstance(problem.model, Mlp):
            raise InputError("vbll needs hidden layers: give the model {name: mlp}")

    def fit(self, train: Train, hyper: Mapping[str, float], seed: int) -> Predictive:
        import vbll

        x = torch.from_numpy(train.x).float()
        *hidden, last = train.module(seed).children()
        features = nn.Sequential(*hidden)
        assert isinstance(last, nn.Linear)
        # the loss is a mean over rows, so that the divergence weighs 1 / rows
        shape = (last.in_features, train.classes or 1, 1 / len(x))
        head = vbll.DiscClassification(*shape) if train.classes else vbll.Regression(*shape)
        y = (
            torch.from_numpy(train.y).long()
            if train.classes
            else torch.from_numpy(train.y).float().unsqueeze(1)
        )

        def cost() -> Tensor:
            decay = (
                sum(weight.square().sum() for weight in features.parameters())
                * hyper["weight_decay"]
                / 2
            )
            rows = (
                slice(None)
                if self.batch_size is None
                else torch.randint(len(x), (self.batch_size,))
            )
            loss: Tensor = head(features(x[rows])).train_loss_fn(y[rows]) + decay
            return loss

        minimise_with_adam(
            [*features.parameters(), *head.parameters()], cost, self.steps, hyper["learning_rate"]
        )

        def predict(x: Tensor) -> MeanVariance | Probabilities:
            predictive = head(features(x.float())).predictive
            if train.classes:
                return Probabilities(predictive.probs)
            return MeanVariance(predictive.mean.flatten(), predictive.variance.flatten())

        return predict

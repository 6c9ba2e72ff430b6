"""Likelihoods: log p(y | f) in nats, one value per example."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor


class Likelihood(Protocol):
    """What a likelihood must say about itself; a frozen dataclass whose fields are its YAML settings."""

    @property
    def hyper(self) -> tuple[str, ...]:
        """Names of the per-trial hyper-parameters it needs."""
        ...

    def fits(self, n_classes: int) -> bool:
        """Tell whether it describes labels of so many classes; 0 stands for targets that are numbers."""
        ...

    def outputs(self, n_classes: int) -> int:
        """Count the model outputs it reads."""
        ...

    def log_prob(self, f: Tensor, y: Tensor, hyper: Mapping[str, Tensor], y_unit: Tensor) -> Tensor:
        """Log-density of each target: outputs (M, d_out), targets (M,) -> (M,)."""
        ...


@dataclass(frozen=True)
class Gaussian:
    """y ~ N(f, 1 / beta), where the noise precision beta is stated in original target units.

    Targets are standardised for training: y = (y_original - mean) / y_unit. Their noise precision is
    therefore beta * y_unit^2, which is what `log_prob` uses.
    """

    @property
    def hyper(self) -> tuple[str, ...]:
        """Names of the per-trial hyper-parameters it needs."""
        return ("noise_precision",)

    def fits(self, n_classes: int) -> bool:
        """Tell whether the targets are numbers."""
        return n_classes == 0

    def outputs(self, n_classes: int) -> int:
        """Count the model outputs it reads: one, whatever `n_classes` is."""
        return 1

    def log_prob(self, f: Tensor, y: Tensor, hyper: Mapping[str, Tensor], y_unit: Tensor) -> Tensor:
        """Log-density of the standardised targets: (M, 1), (M,) -> (M,)."""
        precision = hyper["noise_precision"] * y_unit.square()
        return 0.5 * (precision.log() - math.log(2 * math.pi) - precision * (y - f.squeeze(-1)).square())


@dataclass(frozen=True)
class Bernoulli:
    """P(y = 1) = sigmoid(f) for y in {0, 1}."""

    @property
    def hyper(self) -> tuple[str, ...]:
        """Names of the per-trial hyper-parameters it needs: none."""
        return ()

    def fits(self, n_classes: int) -> bool:
        """Tell whether there are two classes."""
        return n_classes == 2

    def outputs(self, n_classes: int) -> int:
        """Count the model outputs it reads: one logit."""
        return 1

    def log_prob(self, f: Tensor, y: Tensor, hyper: Mapping[str, Tensor], y_unit: Tensor) -> Tensor:
        """Log-probability of the labels: (M, 1), (M,) -> (M,)."""
        return F.logsigmoid((2 * y - 1) * f.squeeze(-1))


@dataclass(frozen=True)
class Categorical:
    """P(y = c) = softmax(f)_c for y in {0, ..., C - 1}."""

    @property
    def hyper(self) -> tuple[str, ...]:
        """Names of the per-trial hyper-parameters it needs: none."""
        return ()

    def fits(self, n_classes: int) -> bool:
        """Tell whether the targets are labels."""
        return n_classes >= 2

    def outputs(self, n_classes: int) -> int:
        """Count the model outputs it reads: one logit a class."""
        return n_classes

    def log_prob(self, f: Tensor, y: Tensor, hyper: Mapping[str, Tensor], y_unit: Tensor) -> Tensor:
        """Log-probability of the labels: (M, C), (M,) -> (M,)."""
        return torch.log_softmax(f, -1).gather(-1, y.long().unsqueeze(-1)).squeeze(-1)

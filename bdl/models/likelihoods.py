"""Likelihoods: the law of a target given outputs f, and log p(y | f) in nats for each example.

Hyper-parameters are stated in original target units. The targets that a model sees may be
standardised, y = (y_original - origin) / unit; `log_prob` converts, and so do `to_model_units` and
`to_original_units`: no other module knows which hyper-parameters have a unit.
"""

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Protocol, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, distributions

Quantity = TypeVar("Quantity", float, Tensor)


class Likelihood(Protocol):
    """Contract of a likelihood: a frozen dataclass whose fields are its YAML settings.

    A derived class has no hyper-parameters unless it names some, which then are precisions of its
    targets; and its outputs have no unit.

    `y_unit` and `y_origin` are the unit and origin of the targets that the model sees, in original
    target units.
    """

    @property
    def hyper(self) -> tuple[str, ...]:
        """Names of the per-trial hyper-parameters it needs."""
        return ()

    @abstractmethod
    def fits(self, n_classes: int) -> bool:
        """Return whether it describes labels of `n_classes` classes; 0 stands for numbers."""
        ...

    @abstractmethod
    def outputs(self, n_classes: int) -> int:
        """Count the model outputs that it needs."""
        ...

    @abstractmethod
    def log_prob(
        self, f: Tensor, y: Tensor, hyper: Mapping[str, Tensor], y_unit: Tensor
    ) -> Tensor:
        """Evaluate the log-density of each target: outputs (M, d_out), targets (M,) -> (M,)."""
        ...

    def to_model_units(
        self, hyper: Mapping[str, Quantity], y_unit: Quantity | float
    ) -> dict[str, Quantity]:
        """Convert hyper-parameters from original units to those of the targets the model sees."""
        return {
            name: value * y_unit**2 if name in self.hyper else value
            for name, value in hyper.items()
        }

    def to_original_units(
        self, hyper: Mapping[str, Quantity], y_unit: Quantity | float
    ) -> dict[str, Quantity]:
        """Undo `to_model_units`."""
        return {
            name: value / y_unit**2 if name in self.hyper else value
            for name, value in hyper.items()
        }

    def restore(self, f: Tensor, y_unit: Tensor, y_origin: Tensor) -> Tensor:
        """Return model outputs, (..., d_out), in original units."""
        return f

    @abstractmethod
    def predictive(self, f: Tensor, hyper: Mapping[str, Tensor]) -> distributions.Distribution:
        """Return the distribution of targets, (...), at outputs (..., d_out).

        Both arguments in original units.
        """
        ...

    @abstractmethod
    def sample(self, f: Tensor, hyper: Mapping[str, Tensor], noise: Tensor) -> Tensor:
        """Map standard-normal noise (...) to targets (...) at outputs (..., d_out).

        Hyper-parameters are in the unit of the outputs, which is that of the targets. Labels have
        the type of `f`.
        """
        ...

    @abstractmethod
    def root_fisher(self, f: Tensor, hyper: Mapping[str, Tensor], y_unit: Tensor) -> Tensor:
        """Return a root R, (M, d_out, d_out), of the Fisher information R R^T.

        That is the information of `log_prob` about each row's outputs.
        """
        ...


@dataclass(frozen=True)
class GaussianLikelihood(Likelihood):
    """y ~ N(f, 1 / beta), where the noise precision beta is stated in original target units.

    Targets are standardised for training: y = (y_original - mean) / y_unit. Their noise precision
    is therefore beta * y_unit^2, which is what `log_prob` uses.
    """

    hyper = ("noise_precision",)
    hyper_above: ClassVar[Mapping[str, float]] = {"noise_precision": 0.0}

    def __repr__(self) -> str:
        # in the digests of published references, made when the class was called so
        return "Gaussian()"

    def fits(self, n_classes: int) -> bool:
        return n_classes == 0

    def outputs(self, n_classes: int) -> int:
        return 1

    def log_prob(
        self, f: Tensor, y: Tensor, hyper: Mapping[str, Tensor], y_unit: Tensor
    ) -> Tensor:
        # a precision has the inverse square of the target's unit
        precision = hyper["noise_precision"] * y_unit.square()
        return 0.5 * (
            precision.log() - math.log(2 * math.pi) - precision * (y - f.squeeze(-1)).square()
        )

    def restore(self, f: Tensor, y_unit: Tensor, y_origin: Tensor) -> Tensor:
        return f * y_unit + y_origin

    def predictive(self, f: Tensor, hyper: Mapping[str, Tensor]) -> distributions.Normal:
        return distributions.Normal(
            f.squeeze(-1), hyper["noise_precision"].rsqrt(), validate_args=False
        )

    def sample(self, f: Tensor, hyper: Mapping[str, Tensor], noise: Tensor) -> Tensor:
        return f.squeeze(-1) + noise * hyper["noise_precision"].rsqrt()

    def root_fisher(self, f: Tensor, hyper: Mapping[str, Tensor], y_unit: Tensor) -> Tensor:
        """Return the square root of the noise precision of the standardised targets, (M, 1, 1)."""
        return (torch.zeros_like(f) + hyper["noise_precision"].sqrt() * y_unit).unsqueeze(-1)


@dataclass(frozen=True)
class Bernoulli(Likelihood):
    """P(y = 1) = sigmoid(f) for y in {0, 1}."""

    def fits(self, n_classes: int) -> bool:
        return n_classes == 2

    def outputs(self, n_classes: int) -> int:
        return 1

    def log_prob(
        self, f: Tensor, y: Tensor, hyper: Mapping[str, Tensor], y_unit: Tensor
    ) -> Tensor:
        margin = (2 * y - 1) * f.squeeze(-1)
        # vmap cannot map the empty second result of logsigmoid on CUDA. Above the threshold
        # softplus is the identity, which is exact: float64 adds no 1 to exp(40).
        return -F.softplus(-margin, threshold=40) if margin.is_cuda else F.logsigmoid(margin)

    def predictive(self, f: Tensor, hyper: Mapping[str, Tensor]) -> distributions.Bernoulli:
        return distributions.Bernoulli(logits=f.squeeze(-1), validate_args=False)

    def sample(self, f: Tensor, hyper: Mapping[str, Tensor], noise: Tensor) -> Tensor:
        """Return 1 where Phi(noise) < sigmoid(f), else 0: (..., 1), (...) -> (...)."""
        below: Tensor = torch.special.ndtr(noise) < torch.sigmoid(f.squeeze(-1))
        return below.to(f.dtype)

    def root_fisher(self, f: Tensor, hyper: Mapping[str, Tensor], y_unit: Tensor) -> Tensor:
        """Return the square root of p (1 - p), (M, 1, 1)."""
        # sigmoid(-f), and not 1 - p, which has no digits left where p is near 1
        return (torch.sigmoid(f) * torch.sigmoid(-f)).sqrt().unsqueeze(-1)


@dataclass(frozen=True)
class Categorical(Likelihood):
    """P(y = c) = softmax(f)_c for y in {0, ..., C - 1}."""

    def fits(self, n_classes: int) -> bool:
        return n_classes >= 2

    def outputs(self, n_classes: int) -> int:
        return n_classes

    def log_prob(
        self, f: Tensor, y: Tensor, hyper: Mapping[str, Tensor], y_unit: Tensor
    ) -> Tensor:
        return torch.log_softmax(f, -1).gather(-1, y.long().unsqueeze(-1)).squeeze(-1)

    def predictive(self, f: Tensor, hyper: Mapping[str, Tensor]) -> distributions.Categorical:
        return distributions.Categorical(logits=f, validate_args=False)

    def sample(self, f: Tensor, hyper: Mapping[str, Tensor], noise: Tensor) -> Tensor:
        """Count the classes before the one in which Phi(noise) falls: (..., C), (...) -> (...)."""
        # without the last sum, which rounding may leave below 1
        bounds = torch.softmax(f, -1).cumsum(-1)[..., :-1]
        passed: Tensor = torch.special.ndtr(noise).unsqueeze(-1) >= bounds
        return passed.sum(-1).to(f.dtype)

    def root_fisher(self, f: Tensor, hyper: Mapping[str, Tensor], y_unit: Tensor) -> Tensor:
        """Return R = diag(s) - p s^T with s = sqrt(p), (M, C, C): R R^T = diag(p) - p p^T."""
        p = torch.softmax(f, -1)
        s = p.sqrt()
        return torch.diag_embed(s) - p.unsqueeze(-1) * s.unsqueeze(-2)

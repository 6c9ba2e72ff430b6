"""What a reference posterior is."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

from torch import Tensor

from bdl.models.problem import Hyper, Problem

if TYPE_CHECKING:
    from bdl.references.cache import Recipe


class Truth(NamedTuple):
    """The posterior that approximations are held against, float64."""

    mean: Tensor
    """Mean of all parameters, (D,); empty where the posterior is known as functions only, by its chains."""
    covariance: Tensor
    """Covariance of the first d parameters, (d, d); d is below D where the reference knows no more."""
    hyper: Mapping[str, float]
    """Hyper-parameters that the reference estimated; methods may ask for them."""
    chains: Tensor | None = None
    """Draws that mean and covariance come from, (C, S, D); None where they are exact."""
    log_density: Callable[[Tensor], Tensor] | None = None
    """Log-density of parameters up to a constant, (m, D) -> (m,), nats; None where the mean and covariance say all."""


class Reference(Protocol):
    """Finds the truth; a frozen dataclass whose fields are its YAML settings."""

    @property
    def estimates(self) -> tuple[str, ...]:
        """Names of the hyper-parameters that it estimates; the others are given to it."""
        ...

    def check(self, problem: Problem) -> None:
        """Raise `InputError` if it cannot know the posterior of such a problem."""
        ...

    def fit(self, problem: Problem, x: Tensor, y: Tensor, hyper: Hyper) -> Truth:
        """Find the posterior for training data as the model sees them, float64, (n, d) and (n,)."""
        ...


@runtime_checkable
class SampledReference(Protocol):
    """A reference that samples, which takes minutes, and keeps its draws."""

    def fit(self, problem: Problem, x: Tensor, y: Tensor, hyper: Hyper) -> Truth:
        """Find the posterior, as a `Reference` does."""
        ...

    def recipe(self, problem: Problem, x: Tensor, y: Tensor, hyper: Hyper) -> "Recipe":
        """Describe what `fit` would sample, for the same arguments."""
        ...


@runtime_checkable
class CertifiedReference(Reference, Protocol):
    """A reference that is computed when it is needed, and judged by numbers."""

    def evidence(self, problem: Problem, x: Tensor, y: Tensor, hyper: Hyper) -> list[str]:
        """Describe by which numbers the result of `fit`, for the same arguments, is known to be right: one a line."""
        ...


@runtime_checkable
class FunctionReference(Reference, Protocol):
    """A reference that samples functions, and has to know where they will be compared."""

    def at(self, test_x: Tensor, test_y: Tensor) -> SampledReference:
        """Return the reference that is judged at test rows as the model sees them, (m, d) and (m,)."""
        ...

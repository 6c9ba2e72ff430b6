"""The method contract: pure functions for ONE model, which the engine batches with `torch.func.vmap`."""

from collections.abc import Mapping
from typing import Any, Protocol

from torch import Tensor

from bdl.models.problem import Batch, Hyper, Problem
from bdl.posteriors.base import Posterior

Noise = Mapping[str, Tensor]
Shapes = Mapping[str, tuple[int, ...]]


class Method(Protocol):
    """A minibatch method: a frozen dataclass whose fields are its static YAML settings.

    The state is any pytree of tensors (a NamedTuple). Nothing is modified in place, nothing draws its own
    random numbers, nothing branches on the value of a tensor. A method may have a property ``hyper_below``, a mapping
    of hyper-parameters to limits that they must stay below; values and search ranges are held against it.
    """

    def __hash__(self) -> int:
        """Hash by the settings, as a frozen dataclass does: compiled programs are kept by it."""
        ...

    @property
    def hyper(self) -> tuple[str, ...]:
        """Names of the per-trial hyper-parameters it needs beside those of the problem."""
        ...

    @property
    def batches_per_step(self) -> int:
        """Minibatches that one `step` consumes, L."""
        ...

    def check(self, problem: Problem) -> None:
        """Raise `InputError` if the settings do not fit the problem."""
        ...

    def init_noise(self, problem: Problem) -> Shapes:
        """Name and shape the standard normals that `init` needs."""
        ...

    def init(self, problem: Problem, noise: Noise) -> Any:
        """Make the initial state."""
        ...

    def step_noise(self, problem: Problem) -> Shapes:
        """Name and shape the standard normals that one `step` needs."""
        ...

    def step(self, state: Any, batches: Batch, hyper: Hyper, noise: Noise, problem: Problem) -> Any:
        """Update the state from L minibatches: `batches.x` is (L, M, d_in), `batches.y` is (L, M)."""
        ...

    def posterior(self, state: Any) -> Posterior:
        """Give the approximate posterior over the flat parameter vector."""
        ...


class DirectMethod(Protocol):
    """A method without minibatches: a frozen dataclass whose fields are its static YAML settings."""

    @property
    def hyper(self) -> tuple[str, ...]:
        """Names of the hyper-parameters it needs beside those of the problem."""
        ...

    def check(self, problem: Problem) -> None:
        """Raise `InputError` if the settings do not fit the problem."""
        ...

    def fit(self, problem: Problem, x: Tensor, y: Tensor, hyper: Hyper) -> Posterior:
        """Give the posterior for training data as the model sees them, float64, (n, d) and (n,)."""
        ...


class StreamMethod(Protocol):
    """A method that learns from a stream of parameter vectors: a frozen dataclass of its static YAML settings.

    The state is a NamedTuple of tensors, and its first field is ``seen``, the observations seen, of shape (). All other
    tensors may have the streams as leading dimensions, (..., D) for a vector of parameters.
    """

    def check_dim(self, dim: int) -> None:
        """Raise `InputError` if the settings do not fit parameter vectors of length D."""
        ...

    def init_noise(self, dim: int) -> Shapes:
        """Name and shape the standard normals that `init` needs, for one stream."""
        ...

    def init(self, noise: Noise) -> Any:
        """Make the state before the first observation; `noise` also has ``seed``, integers of shape (...), for
        libraries with random numbers of their own."""
        ...

    def update_block(self, state: Any, observations: Tensor) -> Any:
        """Learn from consecutive observations, (..., B, D)."""
        ...

    def posterior(self, state: Any) -> Posterior:
        """Give the estimate of one stream."""
        ...

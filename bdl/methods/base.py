"""The method contracts, and base classes with what most methods answer alike.

A minibatch method is pure functions for ONE model, which the engine batches with `torch.func.vmap`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Protocol

from annotated_types import Ge
from torch import Tensor

from bdl.errors import InputError
from bdl.methods.counters import StepCounters
from bdl.models.problem import Batch, Hyper, Problem
from bdl.posteriors.base import Posterior

Noise = Mapping[str, Tensor]
Shapes = Mapping[str, tuple[int, ...]]


class Method(Protocol):
    """A minibatch method: a frozen dataclass whose fields are its static YAML settings.

    The state is any pytree of tensors (a NamedTuple). Nothing is modified in place, nothing draws its own
    random numbers, nothing branches on the value of a tensor. `MinibatchMethod` answers most of this, and declares
    what a method may say more: `due`, `phase`, `groups`, `hyper_below` and `hyper_above`.
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
        """Return the approximate posterior over the flat parameter vector."""
        ...


@dataclass(frozen=True)
class MinibatchMethod:
    """Answers that most minibatch methods share: one learning rate, one minibatch an update, any problem will do."""

    version: ClassVar[int] = 1
    """Version of what it computes; `bdl.versions` says when it goes up."""
    retired: ClassVar[Mapping[str, Any]] = {}
    """Settings that are gone, and the value of each that stored specs may still have: what was its default."""

    @property
    def hyper(self) -> tuple[str, ...]:
        return ("learning_rate",)

    @property
    def hyper_below(self) -> Mapping[str, float]:
        """Limits that hyper-parameters must stay below; values and search ranges are held against them."""
        return {}

    @property
    def hyper_above(self) -> Mapping[str, float]:
        """Limits that hyper-parameters must stay above."""
        return {}

    @property
    def batches_per_step(self) -> int:
        return 1

    @property
    def groups(self) -> tuple[str, ...]:
        """Groups of parameters with learning rates of their own.

        Where a schedule changes the rates, ``hyper["learning_rate"]`` has one rate for each group, in this order.
        """
        return ()

    def check(self, problem: Problem) -> None:
        pass

    def init_noise(self, problem: Problem) -> Shapes:
        return {"theta": (problem.dim,)}

    def step_noise(self, problem: Problem) -> Shapes:
        return {}

    def phase(self, counters: StepCounters) -> str:
        """Name the function that makes this update; it has the arguments of `step`, and returns the new state."""
        return "step"

    def due(self, counters: StepCounters) -> tuple[str, ...]:
        """Name functions, like `step`, that are applied in order after this update."""
        return ()

    def rates(self, hyper: Hyper) -> dict[str, Tensor]:
        """Return the learning rate of each group."""
        rate = hyper["learning_rate"]
        return {name: rate[i] if rate.ndim else rate for i, name in enumerate(self.groups)}


@dataclass(frozen=True)
class StartedMethod(MinibatchMethod):
    """A minibatch method whose parameters, or their means, start at random.

    Parameters
    ----------
    initial_scale
        Standard deviation of the initial parameters, or means, which are normal with mean 0; null for the model's own
        start.
    """

    initial_scale: Annotated[float, Ge(0)] | None = None

    def start(self, problem: Problem, noise: Tensor) -> Tensor:
        """Map standard normals (D,) to initial parameters (D,)."""
        return problem.initial(noise) if self.initial_scale is None else self.initial_scale * noise


@dataclass(frozen=True)
class WeightedDivergence(StartedMethod):
    """A method with the weight of the divergence as a hyper-parameter, ``kl_weight``; without it q has no width."""

    @property
    def hyper(self) -> tuple[str, ...]:
        return ("learning_rate", "kl_weight")

    @property
    def hyper_above(self) -> Mapping[str, float]:
        return {"kl_weight": 0.0}


def only(batches: Batch) -> Batch:
    """Return the minibatch of an update that takes one, `x` (M, d_in) and `y` (M,)."""
    return batches._replace(x=batches.x[0], y=batches.y[0])


def check_rank(name: str, rank: int, problem: Problem) -> None:
    """Raise `InputError` if the setting of this name asks for more factors than there are parameters."""
    if rank > problem.dim:
        raise InputError(f"{name} {rank} exceeds the {problem.dim} parameters of the model; lower it")


class DirectMethod(Protocol):
    """A method without minibatches: a frozen dataclass whose fields are its static YAML settings."""

    @property
    def hyper(self) -> tuple[str, ...]:
        """Names of the hyper-parameters it needs beside those of the problem."""
        ...

    @property
    def deterministic(self) -> bool:
        """Whether `fit` ignores its seed; fits of the same rows and hyper-parameters are then made once."""
        ...

    def check(self, problem: Problem) -> None:
        """Raise `InputError` if the settings do not fit the problem."""
        ...

    def fit(self, problem: Problem, x: Tensor, y: Tensor, hyper: Hyper, seed: int) -> Posterior:
        """Return the posterior for training data as the model sees them, float64, (n, d) and (n,).

        Hyper-parameters are in the unit of `y`; `seed`, of 31 bits, is the trial's own.
        """
        ...


class ExternalMethod(Protocol):
    """A method that trains by itself, with another library say, and shows its posterior as it goes."""

    @property
    def hyper(self) -> tuple[str, ...]:
        """Names of the hyper-parameters it needs beside those of the problem."""
        ...

    def check(self, problem: Problem) -> None:
        """Raise `InputError` if the settings do not fit the problem."""
        ...

    def fits(self, problem: Problem, x: Tensor, y: Tensor, hyper: Hyper, seed: int) -> Iterator[tuple[int, Posterior]]:
        """Yield updates made and the posterior after them, as often as it likes; the last is the result.

        Arguments are those of `DirectMethod.fit`.
        """
        ...


@dataclass(frozen=True)
class Direct:
    """Answers that most direct methods share: no hyper-parameters of their own, any problem will do."""

    deterministic: ClassVar[bool] = False
    """Whether `fit` ignores its seed."""
    version: ClassVar[int] = 1
    """Version of what it computes; `bdl.versions` says when it goes up."""

    @property
    def hyper(self) -> tuple[str, ...]:
        return ()

    def check(self, problem: Problem) -> None:
        pass


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
        """Return the estimate of one stream."""
        ...

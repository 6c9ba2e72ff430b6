"""The contract of methods: two kinds, with a default for whatever a method need not define.

- A **stepped** method (`MinibatchMethod`, `StreamMethod`) is pure functions of tensors, which the
  engine calls once for each update: with minibatches of rows, or with a stream of observations.
- A method that **yields posteriors** (`ExternalMethod`) trains by itself. `Direct` is one that
  yields a single one.

Every method is a frozen dataclass whose fields are its static YAML settings. The package registers
those of the suite by name; a benchmark names one of yours as ``file.py:Class``. Most that take
minibatches derive from `Descent` or `SampledDescent` of `bdl.methods.optim`, whose `step` makes
the update.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, get_args, get_type_hints

from annotated_types import Ge
from torch import Tensor

from bdl.errors import InputError
from bdl.methods.counters import StepCounters
from bdl.models.problem import Batch, Hyper, Problem
from bdl.posteriors.base import Posterior

Noise = Mapping[str, Tensor]
Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class Method(ABC):
    """Base of all methods; compiled programs are cached by the hash of their settings."""

    version: ClassVar[int] = 1
    """Version of what it computes; `bdl.versions` says when it goes up."""
    retired: ClassVar[Mapping[str, Any]] = {}
    """Former settings with their defaults, with which alone a stored spec may still name them."""
    source: ClassVar[Literal["minibatches", "observations", "rows"]]
    """Whether it learns from minibatches, a stream of observations, or all rows at once."""
    course: ClassVar[bool] = True
    """Whether there are posteriors to evaluate before the last one."""
    self_tuned: ClassVar[bool] = False
    """Whether it finds prior and noise itself: an entry has no hyper-parameters of them, and may
    leave out its model and likelihood.
    """

    @property
    def hyper(self) -> tuple[str, ...]:
        """Names of the per-trial hyper-parameters that it adds to those of the problem."""
        return ()

    @property
    def hyper_below(self) -> Mapping[str, float]:
        """Limits that hyper-parameters must stay below.

        Values and search ranges are held against them.
        """
        return {}

    @property
    def hyper_above(self) -> Mapping[str, float]:
        """Limits that hyper-parameters must stay above."""
        return {}

    @property
    def missing(self) -> str:
        """Message about packages that have to be installed first, one line; empty if none are."""
        return ""

    def check(self, problem: Problem) -> None:  # noqa: B027  # most methods fit any problem
        """Raise `InputError` if the settings do not fit the problem."""

    def posterior(self, state: Any) -> Posterior:
        """Return the posterior of one fit's state, over the flat parameter vector.

        By default it is the state.
        """
        return state


@dataclass(frozen=True)
class MinibatchMethod(Method):
    """A method that the engine steps by minibatches.

    It is written for ONE model, and batched over trials with `torch.func.vmap`. The state is any
    pytree of tensors (a NamedTuple). Nothing is modified in place, nothing draws its own random
    numbers, nothing branches on the value of a tensor. By default there is one learning rate and
    one minibatch an update, and any problem will do.
    """

    source = "minibatches"

    @property
    def hyper(self) -> tuple[str, ...]:
        return ("learning_rate",)

    @property
    def batches_per_step(self) -> int:
        """Minibatches that one `step` consumes, L."""
        return 1

    @property
    def groups(self) -> tuple[str, ...]:
        """Groups of parameters with learning rates of their own.

        Where a schedule changes the rates, ``hyper["learning_rate"]`` has one rate for each group,
        in this order.
        """
        return ()

    @property
    def idle_epochs(self) -> int:
        """Number of first epochs whose iterates are discarded, by default ``warmup_epochs``.

        Training has to be longer.
        """
        return int(getattr(self, "warmup_epochs", 0))

    def init_noise(self, problem: Problem) -> Shapes:
        """Name and shape the standard normals that `init` needs."""
        return {"theta": (problem.dim,)}

    @abstractmethod
    def init(self, problem: Problem, noise: Noise) -> Any:
        """Build the initial state."""

    def step_noise(self, problem: Problem) -> Shapes:
        """Name and shape the standard normals that one `step` needs."""
        return {}

    @abstractmethod
    def step(
        self, state: Any, batches: Batch, hyper: Hyper, noise: Noise, problem: Problem
    ) -> Any:
        """Update the state from L minibatches.

        `x` is (L, M, d_in) and `y` (L, M), without the axis L where it is 1.
        """

    def phase(self, counters: StepCounters) -> str:
        """Return the name of the method of this class that makes this update in place of `step`.

        It has the arguments of `step`, and returns the new state. `bdl.training.updates` looks it
        up by this name.
        """
        return "step"

    def due(self, counters: StepCounters) -> tuple[str, ...]:
        """Return the names of methods, like `step`, that are applied in order after this update.

        Other updates pay nothing.
        """
        return ()

    @abstractmethod
    def posterior(self, state: Any) -> Posterior: ...

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
        Standard deviation of the initial parameters, or means, which are normal with mean 0; null
        for the model's own start.
    """

    initial_scale: Annotated[float, Ge(0)] | None = None

    def start(self, problem: Problem, noise: Tensor) -> Tensor:
        """Map standard normals (D,) to initial parameters (D,)."""
        return problem.initial(noise) if self.initial_scale is None else self.initial_scale * noise


@dataclass(frozen=True)
class WeightedDivergence(StartedMethod):
    """A method with the weight of the divergence as a hyper-parameter, ``kl_weight``.

    It is above 0, where the standard deviations of q would shrink to 0.
    """

    hyper_above: ClassVar[Mapping[str, float]] = {"kl_weight": 0.0}

    @property
    def hyper(self) -> tuple[str, ...]:
        return ("learning_rate", "kl_weight")


def check_rank(name: str, rank: int, problem: Problem) -> None:
    """Raise `InputError` if the setting of this name is more factors than there are parameters."""
    if rank > problem.dim:
        raise InputError(
            f"{name} {rank} exceeds the {problem.dim} parameters of the model; lower it"
        )


def with_minibatch_axis(batches: Batch, count: int) -> Batch:
    """Return L minibatches as (L, M, ...): the engine leaves the axis L out where L is 1."""
    return (
        batches._replace(x=batches.x.unsqueeze(0), y=batches.y.unsqueeze(0))
        if count == 1
        else batches
    )


@dataclass(frozen=True)
class StreamMethod(Method):
    """A method that the engine steps by blocks of observations of a stream of parameter vectors.

    It needs no model.

    The state is a NamedTuple of tensors, and its first field is ``n_observations``, the number
    seen, of shape (). All other tensors may have the streams as leading dimensions, (..., D) for a
    vector of parameters: the engine gives all streams at once.
    """

    source = "observations"

    @abstractmethod
    def check_dim(self, dim: int) -> None:
        """Raise `InputError` if the settings do not fit parameter vectors of length D."""

    @abstractmethod
    def init_noise(self, dim: int) -> Shapes:
        """Name and shape the standard normals that `init` needs, for one stream."""

    @abstractmethod
    def init(self, noise: Noise) -> Any:
        """Build the state before the first observation.

        `noise` also has ``seed``, integers of shape (...), for libraries with random numbers of
        their own.
        """

    @abstractmethod
    def update_block(self, state: Any, observations: Tensor) -> Any:
        """Learn from consecutive observations, (..., B, D)."""

    @abstractmethod
    def posterior(self, state: Any) -> Posterior: ...


@dataclass(frozen=True)
class ExternalMethod(Method):
    """A method that trains by itself, with another library say, and yields its posteriors."""

    source = "rows"
    deterministic: ClassVar[bool] = False
    """Whether `fits` ignores its seed; equal rows and hyper-parameters are then fitted once."""

    @property
    def draws(self) -> int:
        """Parameter vectors that it holds in memory at once."""
        return 0

    @property
    def limit(self) -> float | None:
        """Seconds that one fit may take; None for as long as the benchmark allows."""
        return None

    @abstractmethod
    def fits(
        self, problem: Problem, x: Tensor, y: Tensor, hyper: Hyper, seed: int
    ) -> Iterator[tuple[int, Posterior]]:
        """Yield updates made and the posterior after them, as often as it likes.

        The last is the result. Training data are as the model sees them, float64, (n, d) and (n,),
        hyper-parameters in the unit of `y`, float64 scalars; the seed, of 31 bits, is the trial's
        own.
        """


@dataclass(frozen=True)
class Direct(ExternalMethod):
    """A method that yields one posterior, which `fit` returns."""

    course = False

    @abstractmethod
    def fit(self, problem: Problem, x: Tensor, y: Tensor, hyper: Hyper, seed: int) -> Posterior:
        """Return the posterior; arguments as for `ExternalMethod.fits`."""

    def fits(
        self, problem: Problem, x: Tensor, y: Tensor, hyper: Hyper, seed: int
    ) -> Iterator[tuple[int, Posterior]]:
        yield 0, self.fit(problem, x, y, hyper, seed)


def list_posterior_families(method: Method) -> list[type]:
    """List the families of posteriors in the return annotation of a method."""
    if isinstance(method, Direct):
        maker: Callable[..., Any] = type(method).fit
    elif isinstance(method, MinibatchMethod | StreamMethod):
        maker = type(method).posterior
    else:
        return []
    annotation = get_type_hints(maker).get("return")
    members = get_args(annotation) or (annotation,)
    return sorted(
        (member for member in members if isinstance(member, type)),
        key=lambda member: member.__name__,
    )

"""The contract of guests, methods of other libraries: one function from training data to a fit."""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import packages_distributions, version
from importlib.util import find_spec
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from annotated_types import Gt
from torch import Tensor, nn

from bdl.errors import InputError, summarise_error
from bdl.methods.base import ExternalMethod
from bdl.methods.contract_check import KnownHyper, returned_by
from bdl.models.base import NoModel
from bdl.models.modules import torch_module
from bdl.models.problem import Hyper, Problem, full_batch
from bdl.posteriors.base import Posterior
from bdl.posteriors.predictive import Predictive, check_fit, is_predictive
from bdl.runtime import time_limit
from bdl.types import Array

# it reads the metadata of every installed package, which takes half a second
_distributions = cache(packages_distributions)


class OutOfTime(TimeoutError):
    """The time of a fit is over."""


@dataclass(frozen=True, eq=False)
class Train:
    """The training data of a guest: inputs, (n, d), and targets, (n,), standardised both.

    What is standardised is a setting of the benchmark, `preparation`. Labels are 0 to C - 1.
    """

    x: Array
    y: Array
    problem: Problem

    @property
    def classes(self) -> int:
        """Number of classes; 0 for targets that are numbers."""
        return self.problem.classes

    def module(self, seed: int) -> nn.Module:
        """Build the model as a module, float32, which maps (m, d) to (m, d_out).

        Its initial parameters are drawn from the same distribution as those of the engine's
        fits. The parameters, one after the other (``torch.nn.utils.parameters_to_vector``), are
        the vector that a posterior is over.
        `InputError` if the entry names no model, or one that is no module.
        """
        return torch_module(self.problem, seed)

    def log_joint(self, theta: Tensor, hyper: Mapping[str, float]) -> Tensor:
        """Evaluate log p(D, theta), nats, in the precision of `theta`, (D,).

        The hyper-parameters are those of the entry.
        """
        x, y = (torch.from_numpy(array).to(theta.dtype) for array in (self.x, self.y))
        values = {name: theta.new_tensor(value) for name, value in hyper.items()}
        rows = self.problem.log_likelihoods(theta, full_batch(x, y), values)
        return rows.sum() + self.problem.log_prior(theta, values)


@dataclass(frozen=True)
class Guest(ExternalMethod):
    """A method of another library.

    Parameters
    ----------
    seconds
        Wall time that one fit may take.
    """

    seconds: Annotated[float, Gt(0)] = field(default=3600.0, kw_only=True)

    course = False
    needs: ClassVar[Mapping[str, str]] = {}
    """Modules that have to be there, and what to install for each: ``{"ngboost":
    "bdl-bench[ngboost]"}``.
    """
    needs_model: ClassVar[bool] = False
    """Whether it fits the model of the entry; one that does not needs none."""
    needs_numbers: ClassVar[bool] = False
    """Whether targets have to be numbers."""

    @property
    def packages(self) -> str:
        """The packages that it needs, with their versions, for the rows."""
        distributions = _distributions()
        packages: list[str] = []
        for module in self.needs:
            packages += [f"{name} {version(name)}" for name in distributions.get(module, ())]
        return ", ".join(packages)

    @property
    def limit(self) -> float:
        return self.seconds

    @abstractmethod
    def fit(self, train: Train, hyper: Mapping[str, float], seed: int) -> Posterior | Predictive:
        """Return a distribution over the parameters of the model, or a predictive.

        A predictive is a function of inputs, (n, d) float64 tensor, that answers with
        `MeanVariance`, `Outputs` or `Probabilities`. Hyper-parameters are in the unit of
        ``train.y``. The generators of torch and NumPy start from the seed, of 31 bits, the trial's
        own.
        """

    @property
    def missing(self) -> str:
        for module, package in self.needs.items():
            if find_spec(module) is None:
                return f"{type(self).__name__} needs {module}: pip install '{package}'"
        return ""

    def check(self, problem: Problem) -> None:
        if self.missing:
            raise InputError(self.missing)
        if self.needs_model and isinstance(problem.model, NoModel):
            raise InputError(
                f"{type(self).__name__} fits the model of the entry: "
                "give one, such as {name: mlp}"
            )
        if self.needs_numbers and problem.classes:
            raise InputError(
                f"{type(self).__name__} is for targets that are numbers: use another method"
            )

    def fits(
        self, problem: Problem, x: Tensor, y: Tensor, hyper: Hyper, seed: int
    ) -> Iterator[tuple[int, Any]]:
        """Yield the posterior or predictive that `fit` returns; `InputError` if it is neither.

        `OutOfTime` after `seconds`, which include those of predictions that are made before the
        iterator is advanced.
        """
        train = Train(x.numpy(), y.numpy(), problem)
        values = KnownHyper({name: float(value) for name, value in hyper.items()})
        error = OutOfTime(f"the fit took more than {self.seconds:g} seconds (method.seconds)")
        with time_limit(self.seconds, error), _seed_generators(seed):
            try:
                fitted = self.fit(train, values, seed)
            except (Exception, KeyboardInterrupt, SystemExit):
                raise
            # a panic of a library in Rust is no Exception, and cannot be pickled
            except BaseException as panic:
                raise RuntimeError(summarise_error(panic)) from None
            with returned_by(self, "fit", fitted):
                posterior = check_fit(fitted, problem.dim)
            missing = [name for name in problem.likelihood.hyper if name not in values]
            if missing and not is_predictive(posterior):
                raise InputError(f"a posterior predicts with the {missing[0]}: name it in `hyper`")
            yield 0, posterior


@contextmanager
def _seed_generators(seed: int) -> Iterator[None]:
    """Seed the global generators, which guests may use, for a block, and restore them."""
    numpy_state = np.random.get_state()  # noqa: NPY002  # the generator that libraries share
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        np.random.seed(seed)  # noqa: NPY002
        try:
            yield
        finally:
            np.random.set_state(numpy_state)  # noqa: NPY002


def minimise_with_adam(
    parameters: Iterable[nn.Parameter], cost: Callable[[], Tensor], steps: int, rate: float
) -> None:
    """Minimise a cost, evaluated anew for each step, by Adam.

    The rate falls to 0 along a half cosine.
    """
    optimizer = torch.optim.Adam(parameters, lr=rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(steps):
        optimizer.zero_grad()
        cost().backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()

"""The programs of a fit: a method's functions for one model, mapped over trials and compiled."""

from collections.abc import Callable, Iterable
from functools import lru_cache, partial
from typing import Any

import torch
from torch import Tensor

from bdl.methods.base import Method
from bdl.methods.counters import StepCounters
from bdl.models.problem import Batch, Hyper, Problem
from bdl.rng import random_bits, random_normals
from bdl.training.compiling import compiled
from bdl.training.noise import shaped
from bdl.training.trials import View

Halves = tuple[Tensor, ...]
"""Normals as the generator gives them, or nothing."""
Augment = Callable[[Tensor, Tensor], Tensor]
Occasion = tuple[str, ...]
"""Names of the functions that make one update, the first of which descends."""


def occasion(method: Method, counters: StepCounters) -> Occasion:
    """Name the functions that make the update which `counters` counts last."""
    phase, due = getattr(method, "phase", None), getattr(method, "due", None)
    return (phase(counters) if phase else "step", *(due(counters) if due else ()))


class Programs:
    """A method's functions on one kind of data, mapped over trials.

    Parameters
    ----------
    method, problem
        What is trained, on what kind of model.
    augment, augment_noise
        What changes training inputs, if anything does, and the normals that it takes for a row.
    compile
        Whether to compile.
    """

    def __init__(
        self, method: Method, problem: Problem, augment: Augment | None, augment_noise: int, compile: bool
    ) -> None:
        self.method, self.problem, self.augment, self.augment_noise = method, problem, augment, augment_noise
        self.compile = compile
        self._made: dict[Occasion, Callable[..., Any]] = {}

    def parts(self, names: Occasion, fused: Iterable[Occasion]) -> list[Callable[..., Any]]:
        """Return what makes an update, one after the other.

        Parameters
        ----------
        names
            The occasion.
        fused
            Occasions that are frequent enough for a compiled program of their own. Of the others the first function is
            compiled, which is that of most updates, and the rest is not.
        """
        if not self.compile or len(names) == 1 or names in fused:
            return [self._program(names, self.compile)]
        return [self._program(names[:1], True), self._program(names[1:], False)]

    def _program(self, names: Occasion, compile: bool) -> Callable[..., Any]:
        if names not in self._made:
            functions, shapes = [getattr(self.method, name) for name in names], self.method.step_noise(self.problem)

            def one(
                state: Any, noise: Halves, extra: Halves, rows: Tensor, x: Tensor, y: Tensor, view: View, hyper: Hyper
            ) -> Any:
                batches, normals = self._batches(extra, rows, x, y, view), shaped(noise, shapes)
                for function in functions:
                    state = function(state, batches, hyper, normals, self.problem)
                return state

            mapped = torch.func.vmap(one, in_dims=(0, 0, 0, 0, None, None, 0, 0))
            self._made[names] = compiled(mapped) if compile else mapped
        return self._made[names]

    def _batches(self, extra: Halves, rows: Tensor, x: Tensor, y: Tensor, view: View) -> Batch:
        """Gather L minibatches, rows (L, M), and change their inputs at random."""
        batches = view.batch(x, y, rows)
        if self.augment is None:
            return batches
        noise = shaped(extra, {"rows": (*rows.shape, self.augment_noise)})["rows"]
        return batches._replace(x=torch.func.vmap(self.augment)(batches.x, noise))

    def track(self) -> Callable[..., Any]:
        """Return what moves the running statistics on, by the first minibatch under one sample of the posterior."""
        if () not in self._made:

            def one(
                state: Any, buffers: Any, noise: Halves, extra: Halves, rows: Tensor, x: Tensor, y: Tensor, view: View
            ) -> Any:
                posterior = self.method.posterior(state)
                theta = posterior.sample(torch.cat(noise)[: posterior.noise_dim])
                inputs = self._batches(extra, rows, x, y, view).x[0]
                return self.problem.track(theta, inputs, buffers)

            mapped = torch.func.vmap(one, in_dims=(0, 0, 0, 0, 0, None, None, 0))
            self._made[()] = compiled(mapped) if self.compile else mapped
        return self._made[()]


@lru_cache(maxsize=64)
def programs(method: Method, problem: Problem, augment: Augment | None, augment_noise: int, compile: bool) -> Programs:
    """Return the programs of a kind of fit, made once; arguments as for `Programs`."""
    return Programs(method, problem, augment, augment_noise, compile)


@lru_cache(maxsize=4)
def generators(dtype: torch.dtype, compile: bool) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return the generators of normals and of bits, compiled or not."""
    normals = random_normals if dtype == torch.float32 else partial(random_normals, dtype=dtype)
    if not compile:
        return normals, random_bits
    # Four rounds of the cipher are 28 operations. Told to keep the result of so many, the compiler takes a
    # quarter of the time; left to itself it repeats rounds within rounds.
    options = {"realize_opcount_threshold": 28}
    return compiled(normals, dynamic=True, options=options), compiled(random_bits, dynamic=True, options=options)

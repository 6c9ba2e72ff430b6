"""The programs of a fit: the functions of a method for one model, mapped over trials, and compiled where that pays."""

import logging
import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache, partial
from math import prod
from typing import Any

import torch
from torch import Tensor

from bdl.methods.base import MinibatchMethod, Shapes
from bdl.methods.counters import StepCounters
from bdl.models.problem import Batch, Hyper, Problem
from bdl.rng import random_normals
from bdl.training.compiler import compiled
from bdl.training.traced import Repeated, settled
from bdl.training.trials import View

log = logging.getLogger(__name__)

Halves = tuple[Tensor, ...]
"""Normals as the generator gives them, or nothing."""
Augment = Callable[[Tensor, Tensor], Tensor]
Occasion = tuple[str, ...]
"""Names of the functions that make one update, the first of which descends."""

# Measured on one core (scripts/bench_single.py and bench_training.py): an update by its trace
# takes about 0.45 ms and 25 ns a parameter of each model-minibatch, a compiled one a third of
# that; compiling a program takes 10 s.
_LAUNCH, _PARAMETER, _COMPILED = 0.45e-3, 25e-9, 1 / 3
COMPILATION = 10.0
"""Seconds that a program takes to compile."""

AHEAD = 2**15
"""Pairs of normals drawn at once, and numbers gathered, unless an update alone needs more; larger
blocks leave the
processor's cache."""


def occasion(method: MinibatchMethod, counters: StepCounters) -> Occasion:
    """Name the functions that make the update which `counters` counts last."""
    return (method.phase(counters), *method.due(counters))


def pairs(shapes: Shapes) -> int:
    """Count the generator's pairs that fill these shapes."""
    return (sum(map(prod, shapes.values())) + 1) // 2


def shaped(halves: Halves, shapes: Shapes) -> dict[str, Tensor]:
    """Cut one trial's normals, tensors of one axis end to end, into named tensors."""
    sizes = [prod(shape) for shape in shapes.values()]
    flat = torch.cat(halves)[: sum(sizes)]
    parts = torch.split(flat, sizes)
    return {
        name: part.view(shape) for (name, shape), part in zip(shapes.items(), parts, strict=True)
    }


class Programs:
    """A method's functions on one kind of data, mapped over trials.

    `augment` changes training inputs, if anything does, and takes `augment_noise` normals for a
    row.
    """

    def __init__(
        self,
        method: MinibatchMethod,
        problem: Problem,
        augment: Augment | None,
        augment_noise: int,
        compile: bool,
    ) -> None:
        self.method, self.problem, self.augment, self.augment_noise = (
            method,
            problem,
            augment,
            augment_noise,
        )
        self.compile, self._single = compile, method.batches_per_step == 1
        self._made: dict[Occasion, Repeated] = {}

    def parts(self, names: Occasion, fused: Iterable[Occasion]) -> list[Repeated]:
        """Return what makes an update, one after the other.

        The arguments of each are the state; normals, those that change the inputs, x, y and the
        hyper-parameters of this update; and scalings and hyper-parameters of all updates. The
        occasions `fused` are frequent enough for a compiled program of their own; of the others
        the first function is compiled, which is that of most updates.
        """
        if not self.compile or len(names) == 1 or names in fused:
            return [self._program(names, self.compile)]
        return [self._program(names[:1], True), self._program(names[1:], False)]

    def _program(self, names: Occasion, compile: bool) -> Repeated:
        if names not in self._made:
            functions, shapes = (
                [getattr(self.method, name) for name in names],
                self.method.step_noise(self.problem),
            )

            def one(
                state: Any,
                noise: Halves,
                extra: Halves,
                x: Tensor,
                y: Tensor,
                now: Hyper,
                view: View,
                hyper: Hyper,
            ) -> Any:
                batches, normals = self._batches(extra, x, y, view), shaped(noise, shapes)
                for function in functions:
                    state = function(state, batches, {**hyper, **now}, normals, self.problem)
                return state

            self._made[names] = self._repeated(one, compile)
        return self._made[names]

    def _repeated(self, one: Callable[..., Any], compile: bool) -> Repeated:
        """Map a function of one trial over trials; what it returns is settled."""
        mapped = torch.func.vmap(one)
        return Repeated(lambda *args: settled(mapped(*args)), compile)

    def _batches(self, extra: Halves, x: Tensor, y: Tensor, view: View) -> Batch:
        """Standardise L minibatches, and change their inputs at random.

        Without the axis L where that is 1.
        """
        batches = view.batch(x[0], y[0]) if self._single else view.batch(x, y)
        if self.augment is None:
            return batches
        noise = shaped(extra, {"rows": (*batches.y.shape, self.augment_noise)})["rows"]
        augment = self.augment if self._single else torch.func.vmap(self.augment)
        return batches._replace(x=augment(batches.x, noise))

    def track(self) -> Repeated:
        """Return what moves the running statistics on, by the first minibatch under one sample of the posterior."""
        if () not in self._made:

            def one(
                state: Any,
                buffers: Any,
                noise: Halves,
                extra: Halves,
                x: Tensor,
                y: Tensor,
                view: View,
            ) -> Any:
                posterior = self.method.posterior(state)
                theta = posterior.sample(torch.cat(noise)[: posterior.noise_dim])
                inputs = self._batches(extra, x, y, view).x
                first = inputs if self._single else inputs[0]
                return self.problem.track(theta, first, buffers)

            self._made[()] = self._repeated(one, self.compile)
        return self._made[()]


programs = lru_cache(maxsize=64)(Programs)
"""Returns the programs of a kind of fit, made once."""


@lru_cache(maxsize=4)
def generator(dtype: torch.dtype, compile: bool) -> Callable[..., tuple[Tensor, Tensor]]:
    """Return the generator of normals, compiled or not."""
    normals = random_normals if dtype == torch.float32 else partial(random_normals, dtype=dtype)
    # Four rounds of the cipher are 28 operations. Told to keep the result of so many, the compiler
    # takes a quarter of the time; left to itself it repeats rounds within rounds.
    return compiled(normals, {"realize_opcount_threshold": 28}) if compile else normals


def longest(numbers: int) -> int:
    """Count the updates of a block, of so many numbers each."""
    return max(1, AHEAD // max(1, numbers))


class Normals:
    """The normals of R trials' updates, by generator keys of each stream, int32, (R, 2).

    Few of them are drawn for many updates at once: for small models it takes longer to prepare an
    update, or its random numbers, than to make it.
    """

    def __init__(self, keys: Mapping[str, Tensor], dtype: torch.dtype, compile: bool) -> None:
        self._keys, self._generator = keys, generator(dtype, compile)
        self._none = {
            stream: (own.new_empty(len(own), 0, dtype=dtype),) for stream, own in keys.items()
        }
        self._drawn: dict[str, tuple[int, list[Halves]]] = {}

    def of(self, stream: str, count: int, n_pairs: int) -> Halves:
        """Return a stream's normals of the update that `count` updates precede, two tensors (R, pairs)."""
        if n_pairs == 0:
            return self._none[stream]
        first, drawn = self._drawn.get(stream, (0, []))
        if not first <= count < first + len(drawn):
            keys = self._keys[stream]
            length = longest(len(keys) * n_pairs)
            first = (
                count // length * length
            )  # a fit that goes on after an interruption finds the same blocks
            counters = torch.arange(first, first + length, dtype=torch.int32, device=keys.device)
            steps = counters.repeat_interleave(len(keys)).unsqueeze(1)
            halves = self._generator(keys.repeat(length, 1), steps, n_pairs)
            drawn = list(
                zip(
                    *(half.view(length, len(keys), n_pairs).unbind() for half in halves),
                    strict=True,
                )
            )
            self._drawn[stream] = first, drawn
        return drawn[count - first]


def compiler_found() -> bool:
    """Return whether the C++ compiler that `torch.compile` needs on a CPU is installed."""
    return (
        shutil.which(os.environ.get("CXX", "g++")) is not None
        or shutil.which("clang++") is not None
    )


def update_seconds(numbers: int, compiled: bool = False) -> float:
    """Estimate the seconds of an update that goes through so many numbers: parameters of all its model-minibatches."""
    return (_LAUNCH + _PARAMETER * numbers) * (_COMPILED if compiled else 1)


def worthwhile(updates: int, width: int, dim: int) -> bool:
    """Return whether a program of so many updates of R x L = `width` models of D parameters repays its compilation."""
    return updates * update_seconds(width * dim) > 2 * COMPILATION and compiler_found()

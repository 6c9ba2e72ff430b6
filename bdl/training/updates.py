"""Functions that update trials, mapped over them and compiled if that pays, and their noise."""

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
from bdl.training.normals_kernel import compile_normals
from bdl.training.traced import TracedFunction, with_canonical_strides
from bdl.training.trials import View

log = logging.getLogger(__name__)

NormalPairs = tuple[Tensor, ...]
"""Two tensors of normals, as the generator returns them, or none."""
Augment = Callable[[Tensor, Tensor], Tensor]
UpdateKind = tuple[str, ...]
"""Names of the methods of a `MinibatchMethod` that make one update, called one after the other.

The first is `phase`, which descends, and the others are those of `due`.
"""

# Measured on one core (scripts/bench_single.py and bench_training.py): an update by its trace
# takes about 0.45 ms and 25 ns a parameter of each model-minibatch, a compiled one a third of
# that; compiling a program takes 10 s.
_LAUNCH_SECONDS, _PARAMETER_SECONDS, _COMPILED_SHARE = 0.45e-3, 25e-9, 1 / 3
COMPILATION_SECONDS = 10.0
"""Seconds that a program takes to compile."""

PREFETCH_NUMBERS = 2**15
"""Pairs of normals that one call draws, and numbers that one call gathers.

Larger blocks leave the processor's cache. An update that needs more is a block by itself.
"""

PREFETCH_NUMBERS_CUDA = 2**24
"""The same on a GPU, which is waited for between blocks: 128 MB of normals."""


def update_kind(method: MinibatchMethod, counters: StepCounters) -> UpdateKind:
    """Return the kind of the update that `counters` counts last."""
    return (method.phase(counters), *method.due(counters))


def count_pairs(shapes: Shapes) -> int:
    """Count the generator's pairs of normals that fill these shapes."""
    return (sum(map(prod, shapes.values())) + 1) // 2


def unflatten_normals(pairs: NormalPairs, shapes: Shapes) -> dict[str, Tensor]:
    """Cut one trial's normals, tensors of one axis end to end, into named tensors."""
    sizes = [prod(shape) for shape in shapes.values()]
    flat = torch.cat(pairs)[: sum(sizes)]
    pieces = zip(shapes.items(), torch.split(flat, sizes), strict=True)
    return {name: piece.view(shape) for (name, shape), piece in pieces}


class UpdateFunctions:
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
        self.method, self.problem, self.compile = method, problem, compile
        self.augment, self.augment_noise = augment, augment_noise
        self._single = method.batches_per_step == 1
        self._functions: dict[UpdateKind, TracedFunction] = {}

    def functions(
        self, kind: UpdateKind, fused_kinds: Iterable[UpdateKind]
    ) -> list[TracedFunction]:
        """Return the functions that make an update, one after the other.

        The arguments of each are the state; normals, those that change the inputs, x, y and the
        hyper-parameters of this update; and scalings and hyper-parameters of all updates. The
        kinds `fused_kinds` are frequent enough for a compiled program of their own; of the others
        the first function is compiled, which is that of most updates.
        """
        if not self.compile or len(kind) == 1 or kind in fused_kinds:
            return [self._update_function(kind, self.compile)]
        return [self._update_function(kind[:1], True), self._update_function(kind[1:], False)]

    def _update_function(self, kind: UpdateKind, compile: bool) -> TracedFunction:
        if kind in self._functions:
            return self._functions[kind]
        functions = [getattr(self.method, name) for name in kind]
        shapes = self.method.step_noise(self.problem)

        def update_trial(
            state: Any,
            noise: NormalPairs,
            augmentation: NormalPairs,
            x: Tensor,
            y: Tensor,
            scheduled: Hyper,
            view: View,
            hyper: Hyper,
        ) -> Any:
            # Here the method makes its update, by `step` and what is due after it. It is called once
            # to record its operations (`bdl.training.traced`), and before that in short fits; later
            # updates replay them.
            batches = self._batches(augmentation, x, y, view)
            normals = unflatten_normals(noise, shapes)
            for function in functions:
                state = function(state, batches, {**hyper, **scheduled}, normals, self.problem)
            return state

        self._functions[kind] = self._trace_over_trials(update_trial, compile)
        return self._functions[kind]

    def _trace_over_trials(self, function: Callable[..., Any], compile: bool) -> TracedFunction:
        """Map a function of one trial over trials; its results have canonical strides."""
        mapped = torch.func.vmap(function)
        return TracedFunction(lambda *args: with_canonical_strides(mapped(*args)), compile)

    def _batches(self, augmentation: NormalPairs, x: Tensor, y: Tensor, view: View) -> Batch:
        """Standardise L minibatches, and change their inputs at random.

        There is no axis L where that is 1.
        """
        batches = view.batch(x[0], y[0]) if self._single else view.batch(x, y)
        if self.augment is None:
            return batches
        noise = unflatten_normals(augmentation, {"rows": (*batches.y.shape, self.augment_noise)})[
            "rows"
        ]
        augment = self.augment if self._single else torch.func.vmap(self.augment)
        return batches._replace(x=augment(batches.x, noise))

    def tracking_function(self) -> TracedFunction:
        """Return the function that moves the running statistics on.

        It takes the first minibatch, and one sample of the posterior.
        """
        if () in self._functions:
            return self._functions[()]

        def track_trial(
            state: Any,
            buffers: Any,
            noise: NormalPairs,
            augmentation: NormalPairs,
            x: Tensor,
            y: Tensor,
            view: View,
        ) -> Any:
            posterior = self.method.posterior(state)
            theta = posterior.sample(torch.cat(noise)[: posterior.noise_dim])
            inputs = self._batches(augmentation, x, y, view).x
            first_batch = inputs if self._single else inputs[0]
            return self.problem.track(theta, first_batch, buffers)

        self._functions[()] = self._trace_over_trials(track_trial, self.compile)
        return self._functions[()]


cached_update_functions = lru_cache(maxsize=64)(UpdateFunctions)
"""Returns the functions of a kind of fit, which are made once."""


@lru_cache(maxsize=4)
def normal_generator(dtype: torch.dtype, compile: bool) -> Callable[..., tuple[Tensor, Tensor]]:
    """Return the generator of normals, compiled or not."""
    normals = random_normals if dtype == torch.float32 else partial(random_normals, dtype=dtype)
    return compile_normals(normals, dtype) if compile else normals


def updates_per_block(numbers: int, device: torch.device) -> int:
    """Return how many updates, of so many numbers each, a block has on a device."""
    limit = PREFETCH_NUMBERS_CUDA if device.type == "cuda" else PREFETCH_NUMBERS
    return max(1, limit // max(1, numbers))


class Normals:
    """The normals of R trials' updates, by generator keys of each stream, int32, (R, 2).

    One call draws the normals of a block of updates: for small models it takes longer to prepare
    an update, or its random numbers, than to make it.
    """

    def __init__(self, keys: Mapping[str, Tensor], dtype: torch.dtype, compile: bool) -> None:
        self._keys, self._generator = keys, normal_generator(dtype, compile)
        self._empty = {
            stream: (stream_keys.new_empty(len(stream_keys), 0, dtype=dtype),)
            for stream, stream_keys in keys.items()
        }
        self._blocks: dict[str, tuple[int, list[NormalPairs]]] = {}

    def of(self, stream: str, updates_done: int, n_pairs: int) -> NormalPairs:
        """Return the normals of the update after so many, two tensors (R, pairs), of a stream."""
        if n_pairs == 0:
            return self._empty[stream]
        block_start, block = self._blocks.get(stream, (0, []))
        if not block_start <= updates_done < block_start + len(block):
            keys = self._keys[stream]
            block_length = updates_per_block(len(keys) * n_pairs, keys.device)
            # a multiple, so that a fit that goes on after an interruption draws the same blocks
            block_start = updates_done // block_length * block_length
            counters = torch.arange(
                block_start, block_start + block_length, dtype=torch.int32, device=keys.device
            )
            steps = counters.repeat_interleave(len(keys)).unsqueeze(1)
            halves = self._generator(keys.repeat(block_length, 1), steps, n_pairs)
            by_update = [half.view(block_length, len(keys), n_pairs).unbind() for half in halves]
            block = list(zip(*by_update, strict=True))
            self._blocks[stream] = block_start, block
        return block[updates_done - block_start]


def is_compiler_installed() -> bool:
    """Return whether the C++ compiler that `torch.compile` needs on a CPU is installed."""
    return (
        shutil.which(os.environ.get("CXX", "g++")) is not None
        or shutil.which("clang++") is not None
    )


def estimate_update_seconds(numbers: int, compiled: bool = False) -> float:
    """Estimate the seconds of an update of so many numbers.

    They are the parameters of all its model-minibatches.
    """
    return (_LAUNCH_SECONDS + _PARAMETER_SECONDS * numbers) * (_COMPILED_SHARE if compiled else 1)


def compilation_pays(updates: int, width: int, dim: int) -> bool:
    """Return whether a program of so many updates repays its compilation.

    An update is of R x L = `width` models of D parameters.
    """
    return (
        updates * estimate_update_seconds(width * dim) > 2 * COMPILATION_SECONDS
        and is_compiler_installed()
    )

"""Trials with the same minibatches an epoch, trained as one program from the first update or from a checkpoint on."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten

from bdl.methods.base import Method
from bdl.methods.counters import StepCounters
from bdl.models.problem import Hyper
from bdl.posteriors.tensors import as_type
from bdl.rng import trial_keys
from bdl.training.batches import minibatches
from bdl.training.checkpoint import Checkpoint
from bdl.training.compiling import compiler_found
from bdl.training.fitting import EvaluationSchedule, Progress, Snapshot
from bdl.training.noise import pairs
from bdl.training.programs import Halves, Occasion, Programs, generators, occasion, programs
from bdl.training.schedule import Schedule, groups_of
from bdl.training.slots import Part
from bdl.training.states import finite, initial_state, settled, stacked_buffers
from bdl.training.trials import Trials

if TYPE_CHECKING:
    from bdl.training.program import Program


_SHARE = 1 / 8
"""Of the updates of a fit; rarer occasions are not worth the ten seconds that a compilation takes."""

_MANY = 500_000
"""Pairs of normals an update of one trial from which their generator is compiled in any case: for eleven million
parameters it takes 0.02 s so, and 0.5 s otherwise, twice as long as a gradient of ResNet-18 on small images."""


class TrainingState(NamedTuple):
    """What changes in the course of a fit."""

    state: Any
    buffers: dict[str, Tensor]
    diverged: Tensor
    updates: int
    epochs: int


@dataclass(frozen=True, eq=False)
class Together:
    """Trials that train as one program.

    Parameters
    ----------
    program, compile
        As for `bdl.training.engine.MinibatchFitting`.
    trials
        Those that stand at the places of the part.
    part
        Which of them are fitted, and the number that checkpoints have.
    """

    program: "Program"
    trials: Trials
    compile: bool
    part: Part

    def run(
        self, evaluations: EvaluationSchedule | None, progress: Progress, checkpoint: Checkpoint | None
    ) -> Iterator[Snapshot]:
        """Train, and yield where evaluations are due and in the end."""
        begun = stand = self._begin(checkpoint)
        width = len(self.part.fitted) * self.method.batches_per_step
        if begun.updates:
            progress(begun.updates * width)
        for epoch, updates in self._minibatches(begun.updates):
            for left, rows in zip(range(len(updates) - 1, -1, -1), updates, strict=True):
                counters = self._clock(stand.updates + 1, epoch if left == 0 else epoch - 1, left == 0)
                stand = self._update(stand, rows, counters)
                if (
                    evaluations
                    and evaluations.unit == "updates"
                    and counters.updates < self._total
                    and evaluations.due(counters)
                ):
                    yield self._snapshot(stand, counters)
                if left and checkpoint and checkpoint.due:
                    self._save(stand, checkpoint)
            if epoch <= begun.epochs:  # it had ended before the interruption
                continue
            stand = self._end_epoch(stand, epoch, bool(updates))
            progress(len(updates) * width)
            counters = self._clock(stand.updates, epoch, True)
            if (
                evaluations
                and evaluations.unit == "epochs"
                and epoch < self.schedule.epochs
                and evaluations.due(counters)
            ):
                yield self._snapshot(stand, counters)
            if checkpoint and checkpoint.due:
                self._save(stand, checkpoint)
        yield self._snapshot(stand, self._clock(stand.updates, self.schedule.epochs, True), last=True)

    @property
    def method(self) -> Method:
        """What trains."""
        return cast(Method, self.program.method)

    @property
    def schedule(self) -> Schedule:
        """For how long."""
        return cast(Schedule, self.program.schedule)

    @cached_property
    def _rows(self) -> int:
        return min(len(rows) for rows in self.trials.rows)

    @cached_property
    def _total(self) -> int:
        return self.schedule.updates(self._rows, self.method.batches_per_step)

    def _clock(self, updates: int, epochs: int, ended: bool) -> StepCounters:
        return StepCounters(updates, epochs, ended, self.schedule.batches(self._rows) / self.method.batches_per_step)

    @cached_property
    def _keys(self) -> dict[str, Tensor]:
        device, streams = self.program.pool.device, ("noise", "shuffle", "track", "augment")
        return {stream: trial_keys(self.trials.identities, stream).to(device) for stream in streams}

    @cached_property
    def _generators(self) -> tuple[Callable[..., Any], Callable[..., Any]]:
        many = self._pairs >= _MANY and compiler_found()
        return generators(self.program.pool.dtype, self.compile or many)

    @cached_property
    def _programs(self) -> Programs:
        data, pool = self.program.dataset, self.program.pool
        if self.compile:  # one program for data sets of any length
            torch._dynamo.maybe_mark_dynamic(pool.x, 0)
            torch._dynamo.maybe_mark_dynamic(pool.y, 0)
        return programs(self.method, self.program.problem, data.augment, data.augment_noise, self.compile)

    @cached_property
    def _fused(self) -> frozenset[Occasion]:
        """Occasions so frequent that a compiled program of their own pays where that of most updates does."""
        if not self.compile:
            return frozenset()
        per_epoch, per_step = self.schedule.batches(self._rows), self.method.batches_per_step
        ends = [epoch * per_epoch // per_step for epoch in range(self.schedule.epochs + 1)]
        count = Counter(
            occasion(self.method, self._clock(update, epoch + (update == end), update == end))
            for epoch, (begin, end) in enumerate(pairwise(ends))
            for update in range(begin + 1, end + 1)
        )
        return frozenset(names for names, often in count.items() if often >= _SHARE * count.total())

    def _minibatches(self, done: int) -> Iterator[tuple[int, tuple[Tensor, ...]]]:
        return minibatches(
            self.trials.rows,
            self._keys["shuffle"],
            self.schedule,
            batches_per_step=self.method.batches_per_step,
            done=done,
            bits=self._generators[1],
        )

    # ---- an update

    @cached_property
    def _pairs(self) -> int:
        return pairs(self.method.step_noise(self.program.problem))

    @cached_property
    def _track_pairs(self) -> int:
        state = self._initial(self.trials.take([0]))
        return (self.method.posterior(tree_map(lambda leaf: leaf[0], state)).noise_dim + 1) // 2

    def _update(self, stand: TrainingState, rows: Tensor, counters: StepCounters) -> TrainingState:
        """Make the update that `counters` counts last, whose rows are (R, L, M)."""
        pool, view, count = self.program.pool, self.trials.view, stand.updates
        extra = self._extra(rows, count)
        state, noise, hyper = stand.state, self._noise("noise", count, self._pairs), self._hyper(counters)
        for function in self._programs.parts(occasion(self.method, counters), self._fused):
            state = function(state, noise, extra, rows, pool.x, pool.y, view, hyper)
        state, buffers = settled(state), stand.buffers
        if buffers:
            drawn = self._noise("track", count, self._track_pairs)
            buffers = settled(self._programs.track()(state, buffers, drawn, extra, rows, pool.x, pool.y, view))
        return stand._replace(state=state, buffers=buffers, updates=count + 1)

    def _noise(self, stream: str, count: int, n_pairs: int) -> Halves:
        """Draw the normals of an update from a stream of the trials, two tensors (R, pairs)."""
        keys = self._keys[stream]
        if n_pairs == 0:
            return (keys.new_empty(len(keys), 0, dtype=self.program.pool.dtype),)
        normals: Callable[..., Halves] = self._generators[0]
        return normals(keys, torch.tensor(count, dtype=torch.int32, device=keys.device), n_pairs)

    def _extra(self, rows: Tensor, count: int) -> Halves:
        """Draw what changes the inputs of an update at random."""
        if self.program.dataset.augment is None:
            return ()
        return self._noise("augment", count, (rows[0].numel() * self.program.dataset.augment_noise + 1) // 2)

    @cached_property
    def _values(self) -> Hyper:
        """Hyper-parameters as they train, which is where float64 ends."""
        return as_type(dict(self.trials.hyper), self.program.pool.dtype)

    def _hyper(self, counters: StepCounters) -> Hyper:
        """Return the hyper-parameters of an update, the learning rate multiplied by the schedule's factors."""
        hyper = dict(self._values)
        if not self.schedule.constant:
            groups, rate = groups_of(self.method), hyper["learning_rate"]
            factors = self.schedule.factors(counters, groups)
            hyper["learning_rate"] = rate.unsqueeze(1) * rate.new_tensor(factors) if groups else rate * factors[0]
        return hyper

    def _end_epoch(self, stand: TrainingState, epoch: int, moved: bool) -> TrainingState:
        """Look for trials that diverged."""
        diverged = stand.diverged
        if moved:
            diverged = torch.where((diverged == 0) & ~finite(stand.state), epoch, diverged)
        return stand._replace(diverged=diverged, epochs=epoch)

    # ---- where it starts, and what is kept

    def _initial(self, trials: Trials) -> Any:
        pool = self.program.pool
        return initial_state(self.method, self.program.problem, trials, pool.device, pool.dtype)

    def _begin(self, checkpoint: Checkpoint | None) -> TrainingState:
        """Start, or go on from the checkpoint if it has something."""
        pool, count = self.program.pool, len(self.trials)
        state = tree_map(torch.clone, self._initial(self.trials))  # parts may be one tensor, and later ones are not
        buffers = stacked_buffers(self.program.problem, count, pool)
        start = state, buffers, torch.zeros(count, dtype=torch.int64, device=pool.device)
        kept = checkpoint.load(self.part.number) if checkpoint else None
        numbers = {"updates": 0, "epochs": 0}
        if kept:
            leaves, tree = tree_flatten(start)
            start = tree_unflatten([kept.tensors[str(i)].to(pool.device) for i in range(len(leaves))], tree)
            numbers = kept.numbers
        state, buffers, diverged = settled(start)
        return TrainingState(state, buffers, diverged, **numbers)

    def _save(self, stand: TrainingState, checkpoint: Checkpoint) -> None:
        leaves = tree_leaves((stand.state, stand.buffers, stand.diverged))
        numbers = {"updates": stand.updates, "epochs": stand.epochs}
        checkpoint.save(self.part.number, {str(i): leaf for i, leaf in enumerate(leaves)}, numbers)

    def _snapshot(self, stand: TrainingState, counters: StepCounters, last: bool = False) -> Snapshot:
        places = torch.as_tensor(self.part.places, device=stand.diverged.device)
        state, buffers, diverged = tree_map(lambda leaf: leaf[places], (stand.state, stand.buffers, stand.diverged))
        updates = torch.full_like(diverged, stand.updates)
        return Snapshot(counters, self.part.fitted, state, buffers, diverged, updates, last)

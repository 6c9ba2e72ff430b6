"""The engine: trains R trials as one program, by `vmap` of a method's single-model step."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from bdl.data import Dataset
from bdl.errors import InputError
from bdl.methods.base import MinibatchMethod
from bdl.methods.counters import StepCounters
from bdl.models.problem import Hyper, Problem
from bdl.posteriors.tensors import as_type
from bdl.rng import trial_keys
from bdl.runtime import keep_freed_memory, one_thread
from bdl.training.batches import minibatches
from bdl.training.checkpoint import Checkpoint
from bdl.training.fitting import (
    EvaluationSchedule,
    Fitting,
    Progress,
    Snapshot,
    TrainingState,
    finite,
    initial_state,
    silent,
)
from bdl.training.programs import (
    Halves,
    Normals,
    Occasion,
    Programs,
    compiler_found,
    longest,
    occasion,
    pairs,
    programs,
)
from bdl.training.schedule import Schedule
from bdl.training.slots import NUMBERS, Part, SlotBatch
from bdl.training.traced import Repeated, settled
from bdl.training.trials import Pool, Trials

Block = list[tuple[Tensor, StepCounters]]
"""Updates that are made at once: the rows of each, (R, L, M), and counters that count it last."""

_SHARE = 1 / 8
"""Of the updates of a fit; rarer occasions are not worth the ten seconds that a compilation
takes.
"""

_MANY = 500_000
"""Pairs of normals an update of one trial from which their generator is compiled in any case: for
eleven million parameters it takes 0.02 s so, and 0.5 s otherwise, twice as long as a gradient
of ResNet-18 on
small images."""


@dataclass(frozen=True, eq=False)
class MinibatchFitting(Fitting):
    """Train every trial.

    To the last bit, a trial's result depends on its slot batch, and not on its companions.

    A diverged trial has non-finite numbers in its state, and leaves the others alone. `compile`
    uses `torch.compile`; `bdl.training.programs.worthwhile` says when it pays. `slot_batch` says
    where the trials stand among those that may train beside them; None is for these trials alone,
    in their order.
    """

    dataset: Dataset
    pool: Pool
    problem: Problem
    method: MinibatchMethod
    schedule: Schedule
    trials: Trials
    compile: bool = False
    slot_batch: SlotBatch | None = None

    def run(
        self,
        evaluations: EvaluationSchedule | None = None,
        progress: Progress = silent,
        checkpoint: Checkpoint | None = None,
    ) -> Iterator[Snapshot]:
        """Train trials of as many minibatches together, and those of each other number after them (`Fitting.run`).

        An evaluation after an epoch finds the updates made by then. `InputError` if evaluations
        count observations, or the schedule does not suit the method.
        """
        if evaluations is not None and evaluations.unit == "observations":
            raise InputError(
                "evaluations: observations are those of streams; count updates or epochs"
            )
        self.schedule.check(self.method)
        if self.pool.device.type == "cpu":
            keep_freed_memory()
        slot_batch = self.slot_batch or SlotBatch.of(self.trials.rows)
        alone = self.slot_batch is None and len(self.trials) == 1
        with one_thread() if alone and not self._large else nullcontext():
            for part in slot_batch.parts(self.schedule):
                yield from Together(self, part).run(evaluations, progress, checkpoint)

    @property
    def _large(self) -> bool:
        """Whether an update of one trial goes through so many numbers that several threads pay."""
        count = self.method.batches_per_step * self.problem.dim
        return max(count, 2 * pairs(self.method.step_noise(self.problem))) > NUMBERS["cpu"]


class Together:
    """Trials with the same minibatches an epoch, which train as one program, from a checkpoint on if there is one."""

    def __init__(self, fitting: MinibatchFitting, part: Part) -> None:
        self.part, self.compile = part, fitting.compile
        self.dataset, self.pool = fitting.dataset, fitting.pool
        self.problem, self.method, self.schedule = (
            fitting.problem,
            fitting.method,
            fitting.schedule,
        )
        self.trials = fitting.trials.take(part.standing)

    def run(
        self,
        evaluations: EvaluationSchedule | None,
        progress: Progress,
        checkpoint: Checkpoint | None,
    ) -> Iterator[Snapshot]:
        """Train, and yield where evaluations are due and in the end."""
        begun = current = self._begin(checkpoint)
        width, total = len(self.part.fitted) * self.method.batches_per_step, self._total
        if begun.updates:
            progress(begun.updates * width)
        rows, keys, per_step = (
            self.trials.rows,
            self._keys["shuffle"],
            self.method.batches_per_step,
        )
        for epoch, updates in minibatches(
            rows, keys, self.schedule, batches_per_step=per_step, done=begun.updates
        ):
            for block in self._blocks(current.updates, updates, epoch, evaluations):
                current, (_, counters) = self._train(current, block), block[-1]
                if counters.updates < total and _due(evaluations, "updates", counters):
                    yield self._snapshot(current, counters)
                if not counters.ended and checkpoint and checkpoint.due:
                    current.save(checkpoint, self.part.number)
            if epoch <= begun.epochs:  # it had ended before the interruption
                continue
            diverged = current.diverged
            if updates:
                diverged = torch.where((diverged == 0) & ~finite(current.state), epoch, diverged)
            current = current._replace(diverged=diverged, epochs=epoch)
            progress(len(updates) * width)
            counters = self._counters(current.updates, epoch, True)
            if epoch < self.schedule.epochs and _due(evaluations, "epochs", counters):
                yield self._snapshot(current, counters)
            if checkpoint and checkpoint.due:
                current.save(checkpoint, self.part.number)
        yield self._snapshot(
            current, self._counters(current.updates, self.schedule.epochs, True), last=True
        )

    def _snapshot(
        self, current: TrainingState, counters: StepCounters, last: bool = False
    ) -> Snapshot:
        return current.snapshot(counters, self.part.fitted, self.part.places, last=last)

    @cached_property
    def _rows(self) -> int:
        return min(len(rows) for rows in self.trials.rows)

    @cached_property
    def _total(self) -> int:
        return self.schedule.updates(self._rows, self.method.batches_per_step)

    def _counters(self, updates: int, epochs: int, ended: bool) -> StepCounters:
        per_epoch = self.schedule.batches(self._rows) / self.method.batches_per_step
        return StepCounters(updates, epochs, ended, per_epoch, self._total)

    @cached_property
    def _keys(self) -> dict[str, Tensor]:
        device, streams = self.pool.device, ("noise", "shuffle", "track", "augment")
        return {
            stream: trial_keys(self.trials.identities, stream).to(device) for stream in streams
        }

    @cached_property
    def _normals(self) -> Normals:
        many = self._pairs >= _MANY and compiler_found()
        return Normals(self._keys, self.pool.dtype, self.compile or many)

    @cached_property
    def _programs(self) -> Programs:
        return programs(
            self.method,
            self.problem,
            self.dataset.augment,
            self.dataset.augment_noise,
            self.compile,
        )

    @cached_property
    def _fused(self) -> frozenset[Occasion]:
        """Occasions so frequent that a compiled program of their own pays where that of most updates does."""
        if not self.compile:
            return frozenset()
        per_epoch, per_step = self.schedule.batches(self._rows), self.method.batches_per_step
        ends = [epoch * per_epoch // per_step for epoch in range(self.schedule.epochs + 1)]
        count = Counter(
            occasion(self.method, self._counters(update, epoch + (update == end), update == end))
            for epoch, (begin, end) in enumerate(pairwise(ends))
            for update in range(begin + 1, end + 1)
        )
        return frozenset(
            names for names, often in count.items() if often >= _SHARE * count.total()
        )

    @cached_property
    def _pairs(self) -> int:
        return pairs(self.method.step_noise(self.problem))

    @cached_property
    def _track_pairs(self) -> int:
        state = self._initial(self.trials.take([0]))
        return (self.method.posterior(tree_map(lambda leaf: leaf[0], state)).noise_dim + 1) // 2

    def _blocks(
        self, done: int, rows: Sequence[Tensor], epoch: int, evaluations: EvaluationSchedule | None
    ) -> Iterator[Block]:
        """Part the updates of an epoch, whose rows are (R, L, M) each, into those that are made at once.

        A block is of one kind, not too long, and ends where an evaluation is due.
        """
        block, common, most = Block(), None, 0
        for place, own in enumerate(rows, 1):
            ended = place == len(rows)
            counters = self._counters(done + place, epoch if ended else epoch - 1, ended)
            kind = occasion(self.method, counters), own.shape
            if block and (kind != common or len(block) == most):
                yield block
                block = []
            if not block:
                single = bool(self.problem.buffers()) or len(self._functions(counters)) > 1
                numbers = max(own.numel() * self.pool.x.shape[1], len(self.trials) * self._pairs)
                common, most = kind, 1 if single else longest(numbers)
            block.append((own, counters))
            if _due(evaluations, "updates", counters):
                yield block
                block = []
        if block:
            yield block

    def _functions(self, counters: StepCounters) -> Sequence[Repeated]:
        return self._programs.parts(occasion(self.method, counters), self._fused)

    def _train(self, current: TrainingState, block: Block) -> TrainingState:
        """Make the updates of a block, one after the other."""
        rows, view, first = (
            torch.stack([own for own, _ in block]),
            self.trials.view,
            current.updates,
        )
        counters = [own for _, own in block]
        each = [
            (self._normals.of("noise", done, self._pairs), self._extra(done), x, y, self._now(own))
            for done, (own, x, y) in enumerate(
                zip(counters, self.pool.x[rows], self.pool.y[rows], strict=True), first
            )
        ]
        state, buffers = current.state, current.buffers
        for function in self._functions(counters[0]):
            state = function.chain(
                state, each, view, self._values, multiple=self._total / (first + 1)
            )
        if buffers:
            _, extra, x, y, _ = each[0]
            drawn = self._normals.of("track", first, self._track_pairs)
            buffers = self._programs.track()(state, buffers, drawn, extra, x, y, view)
        return current._replace(state=state, buffers=buffers, updates=first + len(block))

    def _extra(self, done: int) -> Halves:
        """Draw what changes the inputs of an update at random.

        Of an incomplete minibatch as of a whole one.
        """
        if self.dataset.augment is None:
            return ()
        rows = self.method.batches_per_step * self.schedule.batch_size
        return self._normals.of("augment", done, (rows * self.dataset.augment_noise + 1) // 2)

    @cached_property
    def _values(self) -> Hyper:
        """Hyper-parameters as they train, which is where float64 ends."""
        return as_type(dict(self.trials.hyper), self.pool.dtype)

    def _now(self, counters: StepCounters) -> Hyper:
        """Return the hyper-parameters that change: the learning rate, multiplied by the schedule's factors."""
        if self.schedule.constant:
            return {}
        groups, rate = self.method.groups, self._values["learning_rate"]
        factors = self.schedule.factors(counters, groups)
        return {
            "learning_rate": rate.unsqueeze(1) * rate.new_tensor(factors)
            if groups
            else rate * factors[0]
        }

    # ---- where it starts, and what is kept

    def _initial(self, trials: Trials) -> Any:
        return initial_state(self.method, self.problem, trials, self.pool.device, self.pool.dtype)

    def _begin(self, checkpoint: Checkpoint | None) -> TrainingState:
        """Start, or go on from the checkpoint if it has something."""
        state = tree_map(
            torch.clone, self._initial(self.trials)
        )  # parts may be one tensor, and later ones are not
        start = TrainingState.start(state, self.problem, len(self.trials), self.pool)
        found = start.restored(checkpoint, self.part.number)
        return TrainingState(*settled(found[:3]))._replace(
            updates=found.updates, epochs=found.epochs
        )


def _due(evaluations: EvaluationSchedule | None, unit: str, counters: StepCounters) -> bool:
    return (
        evaluations is not None
        and evaluations.unit == unit
        and evaluations.due(counters) is not None
    )

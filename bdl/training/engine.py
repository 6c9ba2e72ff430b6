"""The engine: trains R trials as one program, by `vmap` of a method's single-model step."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
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
from bdl.training.batches import iterate_minibatches
from bdl.training.checkpoint import Checkpoint
from bdl.training.fitting import (
    EvaluationSchedule,
    Fitting,
    Progress,
    Snapshot,
    TrainingState,
    find_finite_trials,
    ignore_progress,
    make_initial_state,
)
from bdl.training.schedule import Schedule
from bdl.training.slots import NUMBERS_PER_UPDATE, SlotBatch, SlotGroup
from bdl.training.traced import TracedFunction, with_canonical_strides
from bdl.training.trials import Pool, Trials
from bdl.training.updates import (
    NormalPairs,
    Normals,
    UpdateFunctions,
    UpdateKind,
    cached_update_functions,
    count_pairs,
    is_compiler_installed,
    update_kind,
    updates_per_block,
)

UpdateBlock = list[tuple[Tensor, StepCounters]]
"""Updates that are prepared together: rows of each, (R, L, M), and the counters after it."""

_MIN_FUSED_SHARE = 1 / 8
"""Share of the updates of a fit from which a kind of update has a compiled program of its own.

Rarer kinds are not worth the ten seconds that a compilation takes.
"""

_MANY_PAIRS = 500_000
"""Pairs of normals an update of one trial from which their generator is always compiled.

For eleven million parameters it takes 0.02 s compiled and 0.5 s otherwise, twice as long as a
gradient of ResNet-18 on small images.
"""


@dataclass(frozen=True, eq=False)
class MinibatchFitting(Fitting):
    """Train every trial.

    To the last bit, a trial's result depends on its slot batch, and not on the other trials in it.

    A diverged trial has non-finite numbers in its state, and does not affect the others. `compile`
    uses `torch.compile`; `bdl.training.updates.compilation_pays` says when it pays. `slot_batch`
    says which slots the trials have among those that may train in the same batch; None is for
    these trials alone, in their order.
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
        progress: Progress = ignore_progress,
        checkpoint: Checkpoint | None = None,
    ) -> Iterator[Snapshot]:
        """Train the trials, group by group (`Fitting.run`).

        Trials of as many minibatches are a group. An evaluation after an epoch finds the updates
        made by then. `InputError` if evaluations count observations, or the schedule does not suit
        the method.
        """
        if evaluations is not None and evaluations.unit == "observations":
            raise InputError(
                "evaluations: observations are those of streams; count updates or epochs"
            )
        self.schedule.check(self.method)
        if self.pool.device.type == "cpu":
            keep_freed_memory()
        slot_batch = self.slot_batch or SlotBatch.of(self.trials.rows)
        is_single = self.slot_batch is None and len(self.trials) == 1
        with one_thread() if is_single and not self._is_large else nullcontext():
            for group in slot_batch.groups(self.schedule):
                yield from BatchedRun(self, group).run(evaluations, progress, checkpoint)

    @property
    def _is_large(self) -> bool:
        """Whether an update of one trial goes through so many numbers that several threads pay."""
        count = self.method.batches_per_step * self.problem.dim
        return (
            max(count, 2 * count_pairs(self.method.step_noise(self.problem)))
            > NUMBERS_PER_UPDATE["cpu"]
        )


class BatchedRun:
    """Training of one slot group as one program, from a checkpoint on if there is one."""

    def __init__(self, fitting: MinibatchFitting, group: SlotGroup) -> None:
        self.group, self.compile = group, fitting.compile
        self.dataset, self.pool = fitting.dataset, fitting.pool
        self.problem, self.method = fitting.problem, fitting.method
        self.schedule = fitting.schedule
        self.trials = fitting.trials.take(group.slot_trials)

    def run(
        self,
        evaluations: EvaluationSchedule | None,
        progress: Progress,
        checkpoint: Checkpoint | None,
    ) -> Iterator[Snapshot]:
        """Train, and yield where evaluations are due and in the end."""
        start = current = self._start_or_resume(checkpoint)
        total = self._total_updates
        batches_per_update = len(self.group.fitted_trials) * self.method.batches_per_step
        if start.updates:
            progress(start.updates * batches_per_update)
        minibatches = iterate_minibatches(
            self.trials.rows,
            self._keys["shuffle"],
            self.schedule,
            batches_per_step=self.method.batches_per_step,
            updates_done=start.updates,
        )
        for epoch, updates in minibatches:
            for block in self._blocks(current.updates, updates, epoch, evaluations):
                current = self._train(current, block)
                _, counters = block[-1]
                if counters.updates < total and _is_due(evaluations, "updates", counters):
                    yield self._snapshot(current, counters)
                if not counters.ended and checkpoint and checkpoint.due:
                    current.save(checkpoint, self.group.number)
            if epoch <= start.epochs:  # it had ended before the interruption
                continue
            diverged = current.diverged
            if updates:
                newly_diverged = (diverged == 0) & ~find_finite_trials(current.state)
                diverged = torch.where(newly_diverged, epoch, diverged)
            current = current._replace(diverged=diverged, epochs=epoch)
            progress(len(updates) * batches_per_update)
            counters = self._counters(current.updates, epoch, True)
            if epoch < self.schedule.epochs and _is_due(evaluations, "epochs", counters):
                yield self._snapshot(current, counters)
            if checkpoint and checkpoint.due:
                current.save(checkpoint, self.group.number)
        counters = self._counters(current.updates, self.schedule.epochs, True)
        yield self._snapshot(current, counters, last=True)

    def _snapshot(
        self, current: TrainingState, counters: StepCounters, last: bool = False
    ) -> Snapshot:
        return current.snapshot(
            counters, self.group.fitted_trials, self.group.fitted_slots, last=last
        )

    @cached_property
    def _rows_per_trial(self) -> int:
        return min(len(rows) for rows in self.trials.rows)

    @cached_property
    def _total_updates(self) -> int:
        return self.schedule.updates(self._rows_per_trial, self.method.batches_per_step)

    def _counters(self, updates: int, epochs: int, ended: bool) -> StepCounters:
        return StepCounters(updates, epochs, ended, self._updates_per_epoch, self._total_updates)

    @cached_property
    def _updates_per_epoch(self) -> float:
        return self.schedule.batches(self._rows_per_trial) / self.method.batches_per_step

    @cached_property
    def _keys(self) -> dict[str, Tensor]:
        device, streams = self.pool.device, ("noise", "shuffle", "track", "augment")
        return {
            stream: trial_keys(self.trials.identities, stream).to(device) for stream in streams
        }

    @cached_property
    def _normals(self) -> Normals:
        compile = self._noise_pairs >= _MANY_PAIRS and is_compiler_installed()
        return Normals(self._keys, self.pool.dtype, self.compile or compile)

    @cached_property
    def _update_functions(self) -> UpdateFunctions:
        return cached_update_functions(
            self.method,
            self.problem,
            self.dataset.augment,
            self.dataset.augment_noise,
            self.compile,
        )

    @cached_property
    def _fused_kinds(self) -> frozenset[UpdateKind]:
        """Kinds of update that are frequent enough for a compiled program of their own."""
        if not self.compile:
            return frozenset()
        per_epoch = self.schedule.batches(self._rows_per_trial)
        counts: Counter[UpdateKind] = Counter()
        begin = 0
        for epoch in range(self.schedule.epochs):
            end = (epoch + 1) * per_epoch // self.method.batches_per_step
            for update in range(begin + 1, end + 1):
                ended = update == end
                counts[update_kind(self.method, self._counters(update, epoch + ended, ended))] += 1
            begin = end
        least = _MIN_FUSED_SHARE * counts.total()
        return frozenset(kind for kind, updates in counts.items() if updates >= least)

    @cached_property
    def _noise_pairs(self) -> int:
        return count_pairs(self.method.step_noise(self.problem))

    @cached_property
    def _track_pairs(self) -> int:
        state = self._initial_state(self.trials.take([0]))
        return (self.method.posterior(tree_map(lambda leaf: leaf[0], state)).noise_dim + 1) // 2

    def _blocks(
        self,
        updates_done: int,
        rows: Sequence[Tensor],
        epoch: int,
        evaluations: EvaluationSchedule | None,
    ) -> Iterator[UpdateBlock]:
        """Divide the updates of an epoch, whose rows are (R, L, M) each, into blocks.

        The updates of a block are of one kind, and it ends where an evaluation is due. It is short
        enough for the numbers of its updates to stay in the processor's cache.
        """
        block, block_kind, block_length = UpdateBlock(), None, 0
        for position, update_rows in enumerate(rows, 1):
            ended = position == len(rows)
            epochs_ended = epoch if ended else epoch - 1
            counters = self._counters(updates_done + position, epochs_ended, ended)
            kind = update_kind(self.method, counters), update_rows.shape
            if block and (kind != block_kind or len(block) == block_length):
                yield block
                block = []
            if not block:
                # running statistics move, and the next function is called, after each single
                # update
                single = bool(self.problem.buffers()) or len(self._functions(counters)) > 1
                gathered = update_rows.numel() * self.pool.x.shape[1]
                numbers = max(gathered, len(self.trials) * self._noise_pairs)
                block_kind = kind
                block_length = 1 if single else updates_per_block(numbers, self.pool.device)
            block.append((update_rows, counters))
            if _is_due(evaluations, "updates", counters):
                yield block
                block = []
        if block:
            yield block

    def _functions(self, counters: StepCounters) -> Sequence[TracedFunction]:
        return self._update_functions.functions(
            update_kind(self.method, counters), self._fused_kinds
        )

    def _train(self, current: TrainingState, block: UpdateBlock) -> TrainingState:
        """Make the updates of a block, one after the other, by the method's `step`.

        The functions are those that `bdl.training.updates` makes of it for all trials.
        """
        first, view = current.updates, self.trials.view
        rows = torch.stack([update_rows for update_rows, _ in block])
        counters = [update_counters for _, update_counters in block]
        examples = zip(self.pool.x[rows], self.pool.y[rows], strict=True)
        update_arguments = []
        for position, (x, y) in enumerate(examples):
            normals = self._normals.of("noise", first + position, self._noise_pairs)
            augmentation = self._augmentation_normals(first + position)
            scheduled = scheduled_hyper(
                self.schedule, self.method, self._hyper, counters[position]
            )
            update_arguments.append((normals, augmentation, x, y, scheduled))
        state, buffers = current.state, current.buffers
        for function in self._functions(counters[0]):
            state = function.chain(
                state,
                update_arguments,
                view,
                self._hyper,
                calls_factor=self._total_updates / (first + 1),
            )
        if buffers:
            # such models have blocks of one update (`_blocks`)
            _, augmentation, x, y, _ = update_arguments[0]
            normals = self._normals.of("track", first, self._track_pairs)
            track = self._update_functions.tracking_function()
            buffers = track(state, buffers, normals, augmentation, x, y, view)
        return current._replace(state=state, buffers=buffers, updates=first + len(block))

    def _augmentation_normals(self, updates_done: int) -> NormalPairs:
        """Draw the normals that change the inputs of an update at random.

        An incomplete minibatch draws as many as a whole one.
        """
        if self.dataset.augment is None:
            return ()
        rows = self.method.batches_per_step * self.schedule.batch_size
        return self._normals.of(
            "augment", updates_done, (rows * self.dataset.augment_noise + 1) // 2
        )

    @cached_property
    def _hyper(self) -> Hyper:
        """Hyper-parameters in the precision of the training, where float64 ends."""
        return as_type(dict(self.trials.hyper), self.pool.dtype)

    # ---- the initial state, and that of a checkpoint

    def _initial_state(self, trials: Trials) -> Any:
        return make_initial_state(
            self.method, self.problem, trials, self.pool.device, self.pool.dtype
        )

    def _start_or_resume(self, checkpoint: Checkpoint | None) -> TrainingState:
        """Make the initial state, or load the checkpoint if it has this group."""
        # two parts of an initial state may be one tensor, which those of later states never are
        state = tree_map(torch.clone, self._initial_state(self.trials))
        start = TrainingState.start(state, self.problem, len(self.trials), self.pool)
        resumed = start.restore(checkpoint, self.group.number)
        return TrainingState(*with_canonical_strides(resumed[:3]))._replace(
            updates=resumed.updates, epochs=resumed.epochs
        )


def scheduled_hyper(
    schedule: Schedule, method: MinibatchMethod, hyper: Hyper, counters: StepCounters
) -> Hyper:
    """Return the hyper-parameters of an update that a schedule changes, of R trials or one."""
    if schedule.constant:
        return {}
    groups, rate = method.groups, hyper["learning_rate"]
    factors = schedule.factors(counters, groups)
    if not groups:
        return {"learning_rate": rate * factors[0]}
    # from pinned memory, for which the processor does not wait for a GPU
    factors_tensor = torch.tensor(factors, dtype=rate.dtype, pin_memory=rate.is_cuda)
    return {
        "learning_rate": rate.unsqueeze(-1) * factors_tensor.to(rate.device, non_blocking=True)
    }


def _is_due(evaluations: EvaluationSchedule | None, unit: str, counters: StepCounters) -> bool:
    return (
        evaluations is not None
        and evaluations.unit == unit
        and evaluations.due(counters) is not None
    )

"""Groups that wait for one another, and the workers that are never idle while one of them is ready."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field

from bdl.execution import LostWorker, OverTime, Report, WorkerPool
from bdl.execution.details import hard
from bdl.execution.groups import Group, attempt, failed
from bdl.store import Outcome


@dataclass(eq=False)
class JobChain:
    """Stages that follow one another; the groups of a stage are ready when all before it are kept.

    Parameters
    ----------
    stages
        Groups of each stage; the next is asked for when the last is kept.
    keep
        What becomes of the outcomes of a group.
    """

    stages: Iterator[list[Group]]
    keep: Callable[[list[Outcome]], None]
    ready: deque[Group] = field(default_factory=deque)
    running: int = 0

    def advance(self) -> bool:
        """Declare the next stage if nothing is left of the last; tell whether a group is ready."""
        while not self.ready and not self.running:
            stage = next(self.stages, None)
            if stage is None:
                return False
            self.ready.extend(stage)
        return bool(self.ready)


def run_chains(chains: Sequence[JobChain], worker_pool: WorkerPool, report: Report, poll: float = 0.1) -> None:
    """Run all groups; a worker that is free takes the first that is ready, those of earlier chains before others.

    Parameters
    ----------
    chains
        What is to be done.
    worker pool
        Where it is done; a group whose worker is lost is begun once more.
    report
        Called with the work that is done.
    poll
        Seconds after which the reports of workers are looked at.
    """
    running: dict[Future[list[Outcome]], tuple[JobChain, Group]] = {}
    lost = set[Group]()
    while True:
        while len(running) < worker_pool.size and (chain := next((own for own in chains if own.advance()), None)):
            group = chain.ready.popleft()
            chain.running += 1
            limits = group.members[0][0].benchmark.limits
            running[worker_pool.submit(attempt, group, report, hard(limits, group.allowed))] = chain, group
        if not running:
            return
        done, _ = wait(running, timeout=poll, return_when=FIRST_COMPLETED)
        worker_pool.collect(report)
        for future in done:
            chain, group = running.pop(future)
            chain.running -= 1
            if (outcomes := _outcomes(worker_pool, future, group, again=group in lost)) is None:
                lost.add(group)
                chain.ready.appendleft(group)
                continue
            chain.keep(outcomes)
            if checkpoint := group.checkpoint():
                checkpoint.remove()


def _outcomes(
    worker_pool: WorkerPool, future: "Future[list[Outcome]]", group: Group, again: bool
) -> list[Outcome] | None:
    """Take what a group has made; None where its worker is lost for the first time, which is no fault of the fits."""
    try:
        found: list[Outcome] = worker_pool.result(future)
        return found
    except LostWorker as error:
        return failed(group, f"{error}, twice", {}) if again else None
    except OverTime:
        minutes, own = group.members[0][0].benchmark.limits.minutes, group.allowed
        limits = [] if minutes is None else [(60 * minutes, f"{minutes:g} minutes (limits.minutes)")]
        limits += [] if own is None else [(own, f"{own:g} seconds (method.seconds)")]
        return failed(group, f"over the limit of {min(limits)[1]}, and hung", {})

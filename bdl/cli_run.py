"""What `bdl-bench run` does: lay out, estimate, work, publish."""

import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import typer
from rich.console import Console

from bdl import cli_references
from bdl.errors import InputError

if TYPE_CHECKING:
    from bdl.plan.cell import Cell
    from bdl.publishing.taking import Published
    from bdl.spec import Variant
    from bdl.store.store import Store


class Ways(NamedTuple):
    """How a benchmark is run, whatever is run of it."""

    results: Path
    device: str
    compile: bool | None
    jobs: int
    """Processes; `AUTO` for as many as pay."""
    fresh: bool
    changed: bool
    published: bool
    """Take over what is published under today's hashes."""
    executor: str = ""
    """Where groups run if not here, as `bdl.execution.cluster.cluster` takes it."""


AUTO = 0


def count(given: str | int) -> int:
    """Take a number of processes, or ``auto``."""
    if given == "auto":
        return AUTO
    if not str(given).isdecimal() or int(given) == AUTO:
        raise InputError(f"--jobs {given}: give 1, a larger number, or auto")
    return int(given)


def run(asked: "Variant", ways: Ways, uri: str | None, console: Console) -> None:
    """Do what is missing of what is asked for, publish it, and mirror it to MLflow where there is an address."""
    from bdl.store.folder import opened

    start = time.perf_counter()
    cells = _plan(asked, ways, console)
    with opened(ways.results, asked) as store:
        _work(asked, cells, store, ways, console)
        _hand_over(asked, store, ways.results, time.perf_counter() - start, uri, console)
        finals = [row for cell in cells for row in store.rows("final", cell.key)]
    if n_failed := sum(row.status == "failed" for row in finals):
        why = asked.command("failures", ways.results)
        _say([f"{n_failed} of the final fits failed; to see why: {why}"], console)
        raise typer.Exit(1)


def forecast(asked: "Variant", ways: Ways, console: Console) -> None:
    """Describe what a run would take; nothing is started or written."""
    from bdl import announcing
    from bdl.execution.queue import check
    from bdl.execution.reuse import reusable
    from bdl.store.folder import empty, folder, looked_at, siblings

    if told := announcing.not_here(asked):
        _say(told, console)
        return
    cells = _plan(asked, ways, console, dry=True)
    with empty() if ways.fresh else looked_at(ways.results, asked) as store:
        check(cells, store)
        elsewhere = {} if ways.fresh else reusable(cells, store, siblings(folder(ways.results, asked)))
        for published in _published(asked, ways):
            for key, splits in published.reusable(cells, store).items():
                elsewhere[key] = elsewhere.get(key, set()) | splits
        found = announcing.forecast(asked, cells, store, ways.results, ways.jobs, elsewhere)
    _say([*announcing.lines(found, asked, ways.results), *announcing.references(cells)], console)


def _plan(asked: "Variant", ways: Ways, console: Console, *, dry: bool = False) -> "list[Cell]":
    """Lay out what is asked for, with references that are sampled; refuse what would only be found after training.

    Dry, nothing is sampled, and references are not looked at.
    """
    from bdl.plan.initial_check import check as check_start
    from bdl.plan.planning import plan
    from bdl.plan.truths import check, sampled
    from bdl.publishing.keeping import check_published
    from bdl.reports.papers import paper_values

    if ways.fresh and ways.published:
        raise InputError("--fresh --published: start anew with the first, or from what is published with the second")
    paper_values(asked.benchmark.papers)
    cells = plan(asked.chosen, splits=asked.numbers, device=ways.device, compile=ways.compile, jobs=ways.jobs or 1)
    check_published(asked, cells, ways.results)
    if not dry:
        cli_references.make(sampled(cells), console)
        check(cells)
    check_start(cells)
    return cells


def _work(asked: "Variant", cells: "list[Cell]", store: "Store", ways: Ways, console: Console) -> None:
    """Do what the store lacks, and what no other run of the benchmark has done already."""
    from bdl import announcing
    from bdl.execution.cluster import worker_pool_for
    from bdl.execution.queue import changed, prepare
    from bdl.execution.queue import run as run_cells
    from bdl.execution.reuse import reuse_fits
    from bdl.progress import Display
    from bdl.store.folder import siblings, start_afresh

    anew = cells if ways.fresh else changed(cells, store) if ways.changed else []
    if copy := start_afresh(store, [cell.key for cell in anew]):
        console.print(f"Starting {len(anew)} of {len(cells)} cells anew; the earlier rows are in {copy}")
    try:
        prepare(cells, store)
        store.remember(json.dumps(asked.dump()))
        if not ways.fresh and (count := reuse_fits(cells, store, siblings(store.path.parent))):
            console.print(f"final fits taken over from other runs of {asked.benchmark.name}: {count}")
        if count := sum(published.take(cells, store) for published in _published(asked, ways)):
            console.print(f"final fits taken over as published, without posteriors: {count}")
        found = announcing.forecast(asked, cells, store, ways.results, ways.jobs)
        if found.seconds > announcing.SHORT:
            _say(announcing.lines(found, asked, ways.results), console)
        with Display(console, cells, store) as display, worker_pool_for(cells, found.jobs, ways.executor) as workers:
            run_cells(cells, store, workers, display)
    except KeyboardInterrupt:
        Console(stderr=True).print("interrupted; the same command goes on from here")
        raise typer.Exit(130) from None


def _published(asked: "Variant", ways: Ways) -> "list[Published]":
    """Read what is published of a benchmark, by this command and by others, if it is to be taken over."""
    from bdl.publishing.taking import gather
    from bdl.store.folder import folder, siblings

    place = folder(ways.results, asked)
    return gather(place, siblings(place)) if ways.published else []


def _hand_over(
    asked: "Variant", store: "Store", results: Path, seconds: float, uri: str | None, console: Console
) -> None:
    """Publish what the store has, show its tables, and mirror it."""
    from bdl.publishing.outcome import mirror_run, publish, tables
    from bdl.spec.variant import there

    found, artifacts = publish(asked, store, results, seconds)
    console.print(tables(found, "rich"))
    if asked.name:
        again = asked.command("table", results)
        _say([f"kept apart from the protocol, in {store.path.parent}; see it with: {again}"], console)
    if uri:
        mirror_run(found, store, uri, results, artifacts)
        _say([f"mirrored to MLflow; look at it with: bdl-bench ui{there(results)}"], console)


def _say(lines: Iterable[str], console: Console) -> None:
    for line in lines:
        console.print(line, highlight=False, soft_wrap=True)

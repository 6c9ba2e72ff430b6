"""Run a benchmark: plan, estimate, work, publish."""

import json
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from typer import Exit

from bdl.api import forecast as forecasts
from bdl.api.progress import Display
from bdl.errors import InputError
from bdl.execution.cluster import worker_pool_for
from bdl.execution.queue import changed, check, prepare
from bdl.execution.queue import run as run_cells
from bdl.execution.reuse import reusable, reuse_fits
from bdl.plan import initial_check, planning, truths
from bdl.plan.cell import Cell
from bdl.plan.truths import Reference
from bdl.publishing.keeping import check_published
from bdl.publishing.outcome import mirror_run, publish, tables
from bdl.publishing.taking import Published, gather
from bdl.reports.papers import paper_values
from bdl.spec import Variant
from bdl.spec.variant import there
from bdl.store.folder import empty, folder, looked_at, opened, siblings, start_afresh
from bdl.store.store import Store


class RunSettings(NamedTuple):
    """Say how a benchmark is run, whichever part of it."""

    results: Path
    device: str
    compile: bool | None
    jobs: int
    """Processes; 0 for as many as pay."""
    fresh: bool
    changed: bool
    published: bool
    """Take over what is published under today's hashes."""
    executor: str = ""
    """Where groups run if not here, as `bdl.execution.cluster.cluster` takes it."""


def run(asked: Variant, settings: RunSettings, uri: str | None, console: Console) -> None:
    """Do what is missing of what is asked for, publish it, and mirror it to MLflow where there is an address."""
    start = time.perf_counter()
    cells = _plan(asked, settings, console)
    _say(forecasts.read(cells), console)
    with opened(settings.results, asked) as store:
        _work(asked, cells, store, settings, console)
        _hand_over(asked, store, settings.results, time.perf_counter() - start, uri, console)
        finals = [row for cell in cells for row in store.rows("final", cell.key)]
    if n_failed := sum(row.status == "failed" for row in finals):
        why = asked.command("failures", settings.results)
        _say([f"{n_failed} of the final fits failed; to see why: {why}"], console)
        raise Exit(1)


def forecast(asked: Variant, settings: RunSettings, console: Console) -> None:
    """Describe what a run would take; nothing is started or written."""
    if told := forecasts.not_here(asked):
        _say(told, console)
        return
    cells = _plan(asked, settings, console, dry=True)
    with empty() if settings.fresh else looked_at(settings.results, asked) as store:
        check(cells, store)
        elsewhere = {} if settings.fresh else reusable(cells, store, siblings(folder(settings.results, asked)))
        for published in _published(asked, settings):
            for key, splits in published.reusable(cells, store).items():
                elsewhere[key] = elsewhere.get(key, set()) | splits
        found = forecasts.forecast(asked, cells, store, settings.results, settings.jobs, elsewhere)
    _say(
        [*forecasts.read(cells), *forecasts.lines(found, asked, settings.results), *forecasts.references(cells)],
        console,
    )


def sample_references(references: Sequence[Reference], console: Console, *, again: bool = False) -> None:
    """Sample references, and print each with its certificate."""
    for reference, certificate in truths.build(references, again=again):
        rows, dim = reference.recipe.regression.x.shape
        if certificate is None:
            console.print(
                f"sampling the posterior of {reference.place}: {rows} rows, {dim} parameters", highlight=False
            )
        else:
            console.print(f"  {truths.summary(certificate)}", highlight=False)


def _plan(asked: Variant, settings: RunSettings, console: Console, *, dry: bool = False) -> list[Cell]:
    """Lay out what is asked for, with references that are sampled; refuse what would only be found after training.

    Dry, nothing is sampled, and references are not looked at.
    """
    if settings.fresh and settings.published:
        raise InputError("--fresh --published: start anew with the first, or from what is published with the second")
    paper_values(asked.benchmark.papers)
    cells = planning.plan(
        asked.chosen, splits=asked.numbers, device=settings.device, compile=settings.compile, jobs=settings.jobs or 1
    )
    check_published(asked, cells, settings.results)
    if not dry:
        sample_references(truths.sampled(cells), console)
        truths.check(cells)
    initial_check.check(cells)
    return cells


def _work(asked: Variant, cells: list[Cell], store: Store, settings: RunSettings, console: Console) -> None:
    """Do what the store lacks, and what no other run of the benchmark has done already."""
    anew = cells if settings.fresh else changed(cells, store) if settings.changed else []
    if copy := start_afresh(store, [cell.key for cell in anew]):
        console.print(f"Starting {len(anew)} of {len(cells)} cells anew; the earlier rows are in {copy}")
    try:
        prepare(cells, store)
        store.remember(json.dumps(asked.dump()))
        if not settings.fresh and (count := reuse_fits(cells, store, siblings(store.path.parent))):
            console.print(f"final fits taken over from other runs of {asked.benchmark.name}: {count}")
        if count := sum(published.take(cells, store) for published in _published(asked, settings)):
            console.print(f"final fits taken over as published, without posteriors: {count}")
        found = forecasts.forecast(asked, cells, store, settings.results, settings.jobs)
        if found.seconds > forecasts.SHORT:
            _say(forecasts.lines(found, asked, settings.results), console)
        with (
            Display(console, cells, store) as display,
            worker_pool_for(cells, found.jobs, settings.executor) as workers,
        ):
            run_cells(cells, store, workers, display)
    except KeyboardInterrupt:
        Console(stderr=True).print("interrupted; the same command goes on from here")
        raise Exit(130) from None


def _published(asked: Variant, settings: RunSettings) -> list[Published]:
    """Read what is published of a benchmark, by this command and by others, if it is to be taken over."""
    place = folder(settings.results, asked)
    return gather(place, siblings(place)) if settings.published else []


def _hand_over(asked: Variant, store: Store, results: Path, seconds: float, uri: str | None, console: Console) -> None:
    """Publish what the store has, show its tables, and mirror it."""
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

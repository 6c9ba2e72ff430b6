"""Run a benchmark: plan, estimate, work, publish."""

import json
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from typer import Exit

from bdl.api import forecast as forecasts
from bdl.api.progress import Bar, Display, Voice, aside
from bdl.archive.frames import empty, folder, looked_at, opened, siblings, start_afresh
from bdl.archive.loading import check_overwrite
from bdl.archive.reuse import PublishedFits, copy_fits, published_fits, reusable, stored_fits
from bdl.errors import InputError
from bdl.execution.cluster import worker_pool_for
from bdl.execution.queue import changed, check, forget_failed, prepare
from bdl.execution.queue import run as run_cells
from bdl.execution.rehearsal import explained, rehearse
from bdl.plan import Cell, initial_check, planning, truths
from bdl.plan.truths import Reference
from bdl.publishing.outcome import mirror_run, publish, tables
from bdl.reports.more_tables import bound_notes
from bdl.reports.papers import paper_values
from bdl.spec import Variant
from bdl.spec.variant import there
from bdl.store import CellKey, Row
from bdl.store.artefacts import Damaged
from bdl.store.store import Store


class RunSettings(NamedTuple):
    """Options of a run, whichever part of a benchmark runs."""

    results: Path
    device: str
    compile: bool | None
    jobs: int
    """Processes; 0 for as many as pay."""
    fresh: bool
    changed: bool
    published: bool
    """Import published fits of today's identities."""
    retry: bool = False
    """Make fits again that failed."""
    executor: str = ""
    """Where groups run if not here, as `bdl.execution.cluster.worker_pool_for` takes it."""
    bar: bool = False
    """Draw a bar and nothing else."""


def run(asked: Variant, settings: RunSettings, uri: str | None, console: Console) -> None:
    """Do what is missing of what is asked for, publish it, and mirror it to MLflow where there is an address."""
    start, results = time.perf_counter(), settings.results
    cells = _plan(asked, settings, console)
    _say(forecasts.read(cells), console)
    aside(console, f"planned in {time.perf_counter() - start:.1f} s")
    with opened(results, asked) as store:
        _work(asked, cells, store, settings, console)
        worked = time.perf_counter()
        try:
            found, compared, files = publish(asked, store, results, worked - start)
        except Damaged:  # a posterior that a figure was to show; its fit is made again
            _work(
                asked,
                cells,
                store,
                settings._replace(fresh=False, changed=False, retry=False),
                console,
            )
            worked = time.perf_counter()
            found, compared, files = publish(asked, store, results, worked - start)
        console.print(tables(found, "rich", cells=compared))
        bounds = bound_notes(found.benchmark, found.rows)
        _say((f"{note.dataset}/{note.entry}: {note.text}" for note in bounds), console)
        if asked.name:
            again = asked.command("table", results)
            _say(
                [f"kept apart from the protocol, in {store.path.parent}; see it with: {again}"],
                console,
            )
        if uri:
            mirror_run(found, store, uri, results, files)
            _say([f"mirrored to MLflow; look at it with: bdl-bench ui{there(results)}"], console)
        published = time.perf_counter() - worked
        aside(console, f"worked until {worked - start:.1f} s, and published in {published:.1f} s")
        finals = [row for cell in cells for row in store.rows("final", cell.key)]
    if told := _shortfall(asked, finals, results):
        _say(told, console)
        if isinstance(console, Voice) and console.quiet:
            _say(told, Console(stderr=True))
        raise Exit(1)


def _shortfall(asked: Variant, finals: list[Row], results: Path) -> list[str]:
    """Return how many fits lack scores and how many failed, why, and what to do.

    Nothing if all is well.
    """
    told = []
    lacking = [f"{metric}: {why}" for row in finals for metric, why in row.refused.items()]
    if lacking:
        again = asked.command("run", results)
        what = f"{forecasts.counted(len(lacking), 'score')} could not be computed ({_reasons(lacking)})"
        told.append(f"{what}; mend it, and compute them without training by: {again}")
    failed = [row.reason or "no reason" for row in finals if row.status == "failed"]
    if failed:
        why, again = (
            asked.command("failures", results, "--traceback"),
            asked.command("run", results, "--retry-failed"),
        )
        what = f"{forecasts.counted(len(failed), 'fit')} failed ({_reasons(failed)})"
        told.append(f"{what}; to see where: {why}; mend it, and make them again by: {again}")
    return told


def _reasons(found: list[str]) -> str:
    """Name the most frequent reason, and count the others."""
    counts = Counter(found)
    ((first, _),) = counts.most_common(1)
    return first + (
        f", and {forecasts.counted(len(counts) - 1, 'other reason')}" if len(counts) > 1 else ""
    )


def forecast(asked: Variant, settings: RunSettings, console: Console) -> None:
    """Describe what a run would take; nothing is started or written."""
    if told := forecasts.not_here(asked):
        _say(told, console)
        return
    cells = _plan(asked, settings, console, dry=True)
    with empty() if settings.fresh else looked_at(settings.results, asked) as store:
        check(cells, store)
        elsewhere = _elsewhere(asked, cells, store, settings)
        found = forecasts.forecast(asked, cells, store, settings.results, settings.jobs, elsewhere)
    _say(
        [
            *forecasts.read(cells),
            *forecasts.lines(found, asked, settings.results),
            *forecasts.references(cells),
        ],
        console,
    )


def sample_references(
    references: Sequence[Reference], console: Console, *, again: bool = False
) -> None:
    """Sample references, and print each with its certificate."""
    for reference, certificate in truths.build(references, again=again):
        about = reference.recipe.about()
        told = "sampling the posterior of {}: {rows} rows, {parameters} parameters".format(
            reference.place, **about
        )
        console.print(
            told if certificate is None else f"  {certificate.summary()}", highlight=False
        )


def _plan(
    asked: Variant, settings: RunSettings, console: Console, *, dry: bool = False
) -> list[Cell]:
    """Lay out what is asked for, with references that are sampled.

    Refuse what would only be found after training.

    Dry, nothing is sampled, and references are not looked at.
    """
    if settings.fresh and settings.published:
        raise InputError(
            "--fresh --published: start anew with the first, or from what is published with the second"
        )
    paper_values(asked.benchmark.papers)
    with explained():
        cells = planning.plan(
            asked.chosen,
            splits=asked.numbers,
            device=settings.device,
            compile=settings.compile,
            jobs=settings.jobs or 1,
        )
        cells = _within_reach(asked, cells, settings, console)
        check_overwrite(asked, cells, settings.results)
        if not dry:
            sample_references(truths.sampled(cells), console)
            truths.check(cells)
        initial_check.check(cells)
        if not dry:
            rehearse(cells)
    return cells


def _within_reach(
    asked: Variant, cells: list[Cell], settings: RunSettings, console: Console
) -> list[Cell]:
    """Leave out the fits that need a package that is not installed, unless they are done or published.

    `InputError` if an entry that needs one was asked for by name, or nothing is left.
    """
    lacking = [cell for cell in cells if cell.settings.method.build().missing]
    if not lacking:
        return cells
    with empty() if settings.fresh else looked_at(settings.results, asked) as store:
        ready = _elsewhere(asked, lacking, store, settings)
        for cell in lacking:
            ready[cell.key] |= {row.split for row in store.rows("final", cell.key)}
    narrowed = [
        replace(
            cell,
            splits=tuple(
                split for split in cell.splits if split in ready.get(cell.key, cell.splits)
            ),
        )
        for cell in cells
    ]
    fewer = (old for old, new in zip(cells, narrowed, strict=True) if old.splits != new.splits)
    short = {cell.entry: cell.settings.method.build().missing for cell in fewer}
    kept = [cell for cell in narrowed if cell.splits]
    if short and (asked.entries or not kept):
        raise InputError(next(f"entries.{entry}: {missing}" for entry, missing in short.items()))
    _say((f"{entry} is left out: {missing}" for entry, missing in short.items()), console)
    return kept


def _elsewhere(
    asked: Variant, cells: list[Cell], store: Store, settings: RunSettings
) -> dict[CellKey, set[int]]:
    """Return the splits of each cell that a run copies from other runs, or imports from published rows."""
    others = [] if settings.fresh else siblings(folder(settings.results, asked))
    found = reusable(cells, store, stored_fits(others))
    importing, published = _importing(asked, cells, settings)
    imported = reusable(importing, store, published)
    return {key: splits | imported.get(key, set()) for key, splits in found.items()}


def _importing(
    asked: Variant, cells: list[Cell], settings: RunSettings
) -> tuple[list[Cell], list[PublishedFits]]:
    """List the cells whose published fits are imported, all or those that cannot be made here.

    And what there is.
    """
    place = folder(settings.results, asked)
    found = (
        cells
        if settings.published
        else [cell for cell in cells if cell.settings.method.build().missing]
    )
    return found, published_fits(place, siblings(place)) if found else []


def _work(
    asked: Variant, cells: list[Cell], store: Store, settings: RunSettings, console: Console
) -> None:
    """Do what the store lacks, and what no other run of the benchmark has done already."""
    anew = cells if settings.fresh else changed(cells, store) if settings.changed else []
    if copy := start_afresh(store, [cell.key for cell in anew]):
        console.print(
            f"Starting {len(anew)} of {len(cells)} cells anew; the earlier rows are in {copy}"
        )
    try:
        _say(prepare(cells, store), console)
        if settings.retry and (count := forget_failed(cells, store)):
            console.print(f"fits that failed and are made again: {count}")
        store.remember(json.dumps(asked.dump()))
        if not settings.fresh and (
            count := copy_fits(cells, store, stored_fits(siblings(store.path.parent)))
        ):
            console.print(f"final fits reused from other runs of {asked.benchmark.name}: {count}")
        importing, published = _importing(asked, cells, settings)
        if count := copy_fits(importing, store, published):
            lacking = sum(
                row.imported and row.status == "ok" and not row.artefact
                for cell in cells
                for row in store.rows("final", cell.key)
            )
            without = f", {lacking} of them without posteriors" if lacking else ""
            console.print(
                f"final fits imported from published rows: {count}{without}", highlight=False
            )
        found = forecasts.forecast(asked, cells, store, settings.results, settings.jobs)
        if found.seconds > forecasts.SHORT:
            _say(forecasts.lines(found, asked, settings.results), console)
        with (
            Bar(cells[0].benchmark.name)
            if settings.bar
            else Display(console, cells, store) as display,
            worker_pool_for(cells, found.jobs, settings.executor) as workers,
        ):
            run_cells(cells, store, workers, display)
    except KeyboardInterrupt:
        Console(stderr=True).print("interrupted; the same command goes on from here")
        raise Exit(130) from None


def _say(lines: Iterable[str], console: Console) -> None:
    for line in lines:
        console.print(line, highlight=False, soft_wrap=True)

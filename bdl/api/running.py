"""Run a benchmark: plan, estimate, fit, publish."""

import json
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from rich.console import Console

from bdl.api import forecast
from bdl.api.progress import Bar, Display, LoggedConsole, print_detail
from bdl.api.run_summary import describe_end, summarise_run, write_report
from bdl.errors import InputError, with_plural
from bdl.execution.cluster import check_executor, open_worker_pool
from bdl.execution.rehearsal import rehearse, shorten_component_errors
from bdl.execution.scheduler import (
    changed_tasks,
    check_stored_fits,
    forget_failed,
    prepare_run_folder,
    run_tasks,
)
from bdl.plan import initial_check, planning, reference_posteriors
from bdl.plan.reference_posteriors import SampledReference
from bdl.plan.task import Task
from bdl.publishing.published_files import publish
from bdl.publishing.tracked_runs import export_to_mlflow
from bdl.records.row import CellKey, Row
from bdl.records.run_folder import RunFolder
from bdl.records.unusable_fits import DamagedPosterior
from bdl.reports.papers import paper_values
from bdl.spec import Request
from bdl.spec.request import format_ranges, results_option
from bdl.stored_results.folders import (
    back_up_and_clear,
    list_sibling_folders,
    locate_folder,
    open_for_writing,
    open_readonly,
)
from bdl.stored_results.loading import check_overwrite
from bdl.stored_results.reuse import (
    RecordedFits,
    copy_fits,
    describe_fits_made_anew,
    find_published_fits,
    iterate_stored_fits,
    list_reusable_splits,
)


class RunOptions(NamedTuple):
    """Options of a run that do not depend on which benchmark or part of it runs."""

    results: Path
    device: str
    compile: bool | None
    jobs: int
    """Processes; 0 for as many as shorten the run."""
    fresh: bool
    changed: bool
    imports_published: bool
    """Import published fits that today's spec, data and code made."""
    retry: bool = False
    """Make fits again that failed."""
    executor: str = ""
    """Where groups run if not here, as `bdl.execution.cluster.open_worker_pool` takes it."""
    bar: bool = False
    """Draw a bar and nothing else."""


def run_benchmark(
    request: Request, options: RunOptions, uri: str | None, console: Console
) -> bool:
    """Make the missing fits of a request and publish them, to MLflow as well if there is a URI.

    Return whether every fit succeeded and has all its scores.
    """
    start, results = time.perf_counter(), options.results
    tasks = _plan_tasks(request, options, console)
    _print_lines(forecast.describe_columns(tasks), console)
    print_detail(console, f"planned in {time.perf_counter() - start:.1f} s")
    with open_for_writing(results, request) as run_folder:
        _run_missing_fits(request, tasks, run_folder, options, console)
        fitted_at = time.perf_counter()
        try:
            published_run = publish(request, run_folder, results, fitted_at - start)
        except DamagedPosterior:
            # A figure needs a posterior whose file is damaged, and its fit counts as missing now.
            # Make it again, with options that leave all other fits alone.
            mending_options = options._replace(fresh=False, changed=False, retry=False)
            _run_missing_fits(request, tasks, run_folder, mending_options, console)
            fitted_at = time.perf_counter()
            published_run = publish(request, run_folder, results, fitted_at - start)
        loaded = published_run.loaded
        report = write_report(published_run, request, results)
        console.print(summarise_run(request, published_run, results))
        if request.folder_name:
            command = request.format_command("table", results)
            _print_lines(
                [
                    f"kept apart from the protocol, in {run_folder.path.parent}; see it with: {command}"
                ],
                console,
            )
        if uri:
            export_to_mlflow(loaded, run_folder, uri, results, published_run.files)
            _print_lines(
                [f"mirrored to MLflow; look at it with: bdl-bench ui{results_option(results)}"],
                console,
            )
        _print_lines(describe_end(request, published_run.table_entries, report, results), console)
        seconds = time.perf_counter() - fitted_at
        print_detail(
            console, f"worked until {fitted_at - start:.1f} s, and published in {seconds:.1f} s"
        )
        finals_by_task = [(task, run_folder.load_rows("final", task.key)) for task in tasks]
    shortfall = _explain_shortfall(request, finals_by_task, results)
    _print_lines(shortfall, console)
    if isinstance(console, LoggedConsole) and console.quiet:
        _print_lines(shortfall, Console(stderr=True))
    return not shortfall


def _explain_shortfall(
    request: Request, finals_by_task: list[tuple[Task, list[Row]]], results: Path
) -> list[str]:
    """Explain how many fits lack scores and how many failed, why, and what to do about it.

    Empty if there are none.
    """
    lines = []
    splits_by_refusal: dict[tuple[str, str], list[int]] = {}
    failures: list[str] = []
    for task, finals in finals_by_task:
        for row in finals:
            if row.status == "failed":
                failures.append(row.reason or "no reason")
            for metric, reason in task.select_refusals(row).items():
                splits_by_refusal.setdefault((metric, reason), []).append(row.split)
    refusals: list[str] = []
    for (metric, reason), splits in splits_by_refusal.items():
        numbers = set(splits)
        where = f"{'splits' if len(numbers) > 1 else 'split'} {format_ranges(numbers)}"
        text = f"{metric} on {where}: {reason.removeprefix(f'{metric}: ')}"
        refusals += [text] * len(splits)
    if refusals:
        scores = with_plural(len(refusals), "score")
        lines.append(
            f"{scores} could not be computed ({_summarise_reasons(refusals)}); mend it, "
            f"and compute them without training by: {request.format_command('run', results)}"
        )
    if failures:
        fits = with_plural(len(failures), "fit")
        show = request.format_command("failures", results, "--traceback")
        retry = request.format_command("run", results, "--retry-failed")
        lines.append(
            f"{fits} failed ({_summarise_reasons(failures)}); to see where: {show}; "
            f"mend it, and make them again, after a change of settings by --changed in place of "
            f"--retry-failed, by: {retry}"
        )
    return lines


def _summarise_reasons(reasons: list[str]) -> str:
    """Name the most frequent reason, and count the others."""
    counts = Counter(reasons)
    ((most_frequent, _),) = counts.most_common(1)
    if len(counts) == 1:
        return most_frequent
    return f"{most_frequent}, and {with_plural(len(counts) - 1, 'other reason')}"


def print_forecast(request: Request, options: RunOptions, console: Console) -> None:
    """Print how long a run would take; nothing is started or written."""
    if missing_files := forecast.describe_missing_files(request):
        _check_published_rows(request, options)
        published_fits = (
            find_published_fits(request, options.results) if options.imports_published else []
        )
        _print_lines(forecast.describe_fits_without_data(request, published_fits), console)
        _print_lines(missing_files, console)
        return
    tasks = _plan_tasks(request, options, console, dry=True)
    with (
        nullcontext(RunFolder(None))
        if options.fresh
        else open_readonly(options.results, request) as run_folder
    ):
        check_stored_fits(tasks, run_folder)
        copied_splits = _list_reusable_splits(request, tasks, run_folder, options)
        estimate = forecast.estimate_run(
            request, tasks, run_folder, options.results, options.jobs, copied_splits
        )
        fits_made_anew: list[str] = []
        if options.imports_published:
            _, published_fits = _list_importable_fits(request, tasks, options)
            fits_made_anew = describe_fits_made_anew(
                tasks, run_folder, published_fits, copied_splits
            )
    _print_lines(
        [
            *forecast.describe_columns(tasks),
            *fits_made_anew,
            *forecast.describe_estimate(estimate, request, options.results),
            *forecast.describe_missing_references(tasks),
        ],
        console,
    )


def print_reference_sampling(
    references: Sequence[SampledReference], console: Console, *, fresh: bool = False
) -> None:
    """Sample references, and print each with its certificate."""
    for reference, certificate in reference_posteriors.build_references(
        references, overwrite=fresh
    ):
        if certificate is None:  # it is about to be sampled
            line = "sampling the posterior of {}: {rows} rows, {parameters} parameters".format(
                reference.label, **reference.recipe.describe()
            )
        else:
            line = f"  {certificate.summary()}"
        console.print(line, highlight=False)


def _plan_tasks(
    request: Request, options: RunOptions, console: Console, *, dry: bool = False
) -> list[Task]:
    """Plan the tasks of a request, and sample the references that they need.

    Refuse here whatever would otherwise fail after hours of training. With `dry`, sample nothing
    and check no references.
    """
    if options.fresh and options.imports_published:
        raise InputError(
            "--fresh --published: start anew with the first, "
            "or from what is published with the second"
        )
    if options.executor:
        check_executor(options.executor)
    _check_published_rows(request, options)
    paper_values(request.benchmark.papers)
    with shorten_component_errors():
        tasks = planning.plan_tasks(
            request.selected_benchmark,
            splits=request.split_numbers,
            device=options.device,
            compile=options.compile,
            jobs=options.jobs or 1,
        )
        tasks = _select_runnable_tasks(request, tasks, options, console)
        check_overwrite(request, tasks, options.results)
        if not dry:
            print_reference_sampling(reference_posteriors.list_sampled_references(tasks), console)
            reference_posteriors.check_references(tasks)
        initial_check.check_initial_likelihood(tasks)
        if not dry:
            rehearse(tasks, _list_unfinished_tasks(request, tasks, options))
    return tasks


def _list_unfinished_tasks(request: Request, tasks: list[Task], options: RunOptions) -> list[Task]:
    """List the tasks of guests of which a run makes a final fit; with ``--changed`` all of them."""
    guest_tasks = [task for task in tasks if task.settings.limited]
    if options.fresh or options.changed or not guest_tasks:
        return guest_tasks
    unfinished_tasks: list[Task] = []
    with open_readonly(options.results, request) as run_folder:
        copied_splits = _list_reusable_splits(request, guest_tasks, run_folder, options)
        for task in guest_tasks:
            rows = run_folder.load_rows("final", task.key)
            splits = {row.split for row in rows if row.status == "ok" or not options.retry}
            if not (splits | copied_splits[task.key]).issuperset(task.splits):
                unfinished_tasks.append(task)
    return unfinished_tasks


def _select_runnable_tasks(
    request: Request, tasks: list[Task], options: RunOptions, console: Console
) -> list[Task]:
    """Leave out the fits whose package is not installed, unless they are done or published.

    `InputError` if an entry that needs one was requested by name, or nothing is left.
    """
    uninstalled_tasks = [task for task in tasks if task.settings.method.build().missing]
    if not uninstalled_tasks:
        return tasks
    with (
        nullcontext(RunFolder(None))
        if options.fresh
        else open_readonly(options.results, request) as run_folder
    ):
        available_splits = _list_reusable_splits(request, uninstalled_tasks, run_folder, options)
        for task in uninstalled_tasks:
            available_splits[task.key] |= {
                row.split for row in run_folder.load_rows("final", task.key)
            }
    runnable_tasks: list[Task] = []
    message_by_entry: dict[str, str] = {}
    for task in tasks:
        splits = task.splits
        if task.key in available_splits:
            splits = tuple(split for split in splits if split in available_splits[task.key])
        if splits != task.splits:
            message_by_entry[task.entry] = task.settings.method.build().missing
        if splits:
            runnable_tasks.append(replace(task, splits=splits))
    if message_by_entry and (request.entries or not runnable_tasks):
        entry, message = next(iter(message_by_entry.items()))
        raise InputError(f"entries.{entry}: {message}")
    _print_lines(
        (f"{entry} is left out: {message}" for entry, message in message_by_entry.items()), console
    )
    return runnable_tasks


def _list_reusable_splits(
    request: Request, tasks: list[Task], run_folder: RunFolder, options: RunOptions
) -> dict[CellKey, set[int]]:
    """Return the splits of each task that a run copies from other runs or from published rows."""
    other_runs = (
        [] if options.fresh else list_sibling_folders(locate_folder(options.results, request))
    )
    copied_splits = list_reusable_splits(tasks, run_folder, iterate_stored_fits(other_runs))
    importing_tasks, published_fits = _list_importable_fits(request, tasks, options)
    imported_splits = list_reusable_splits(importing_tasks, run_folder, published_fits)
    return {key: splits | imported_splits.get(key, set()) for key, splits in copied_splits.items()}


def _list_importable_fits(
    request: Request, tasks: list[Task], options: RunOptions
) -> tuple[list[Task], list[RecordedFits]]:
    """List the tasks whose published fits are imported, and these fits.

    With ``--published`` these are all tasks, otherwise those that cannot be fitted here.
    """
    if options.imports_published:
        importing_tasks = tasks
    else:
        importing_tasks = [task for task in tasks if task.settings.method.build().missing]
    if not importing_tasks:
        return [], []
    # failed fits that are to be made again are not imported
    published_fits = find_published_fits(request, options.results, with_failed=not options.retry)
    return importing_tasks, published_fits


def _check_published_rows(request: Request, options: RunOptions) -> None:
    """Refuse ``--published`` where nothing is published: the run would make every fit anew.

    A run that has begun goes on with the fits that it imported when it began.
    """
    if not options.imports_published:
        return
    if any(fits.has_rows for fits in find_published_fits(request, options.results)):
        return
    with open_readonly(options.results, request) as run_folder:
        for cell in run_folder.list_cells():
            if any(row.imported for row in run_folder.load_rows("final", cell)):
                return
    base = locate_folder(options.results, request.full_request)
    raise InputError(
        f"--published: no published rows in {base}; run it in a clone of the repository, or "
        "name the folder that holds them by --results; without --published, all is trained here"
    )


def _run_missing_fits(
    request: Request,
    tasks: list[Task],
    run_folder: RunFolder,
    options: RunOptions,
    console: Console,
) -> None:
    """Make the fits that the store lacks; copy those that another run of the benchmark has."""
    restarted_tasks: Sequence[Task] = []
    if options.fresh:
        restarted_tasks = tasks
    elif options.changed:
        restarted_tasks = changed_tasks(tasks, run_folder)
    if copy := back_up_and_clear(run_folder, [task.key for task in restarted_tasks]):
        console.print(
            f"Starting {len(restarted_tasks)} of {len(tasks)} cells anew; "
            f"the earlier rows are in {copy}"
        )
    try:
        notes = prepare_run_folder(tasks, run_folder)
        _print_lines(notes, console)
        if options.retry and (count := forget_failed(tasks, run_folder)):
            console.print(f"fits that failed and are made again: {count}")
        run_folder.record_request(json.dumps(request.dump()))
        reused_count = 0
        if not options.fresh:
            siblings = list_sibling_folders(run_folder.path.parent)
            reused_count = copy_fits(tasks, run_folder, iterate_stored_fits(siblings))
        if reused_count:
            name = request.benchmark.name
            console.print(f"final fits reused from other runs of {name}: {reused_count}")
        importing_tasks, published_fits = _list_importable_fits(request, tasks, options)
        imported_count = copy_fits(importing_tasks, run_folder, published_fits)
        if imported_count:
            finals = [row for task in tasks for row in run_folder.load_rows("final", task.key)]
            without_posterior = sum(
                row.imported and row.status == "ok" and not row.artefact for row in finals
            )
            line = f"final fits imported from published rows: {imported_count}"
            if without_posterior:
                line += f", {without_posterior} of them without posteriors"
            console.print(line, highlight=False)
        if options.imports_published:
            _print_lines(describe_fits_made_anew(tasks, run_folder, published_fits), console)
        if reused_count or imported_count:
            # fits that were copied may lack scores
            further_notes = prepare_run_folder(tasks, run_folder)
            _print_lines([note for note in further_notes if note not in notes], console)
        estimate = forecast.estimate_run(request, tasks, run_folder, options.results, options.jobs)
        if estimate.seconds > forecast.SHORT_RUN_SECONDS:
            _print_lines(forecast.describe_estimate(estimate, request, options.results), console)
        listener = (
            Bar(tasks[0].benchmark.name) if options.bar else Display(console, tasks, run_folder)
        )
        with listener, open_worker_pool(tasks, estimate.jobs, options.executor) as workers:
            run_tasks(tasks, run_folder, workers, listener)
    except KeyboardInterrupt:
        # the same command would start anew once more
        command = "the same command without --fresh" if options.fresh else "the same command"
        raise KeyboardInterrupt(f"interrupted; {command} goes on from here") from None


def _print_lines(lines: Iterable[str], console: Console) -> None:
    for line in lines:
        console.print(line, highlight=False, soft_wrap=True)

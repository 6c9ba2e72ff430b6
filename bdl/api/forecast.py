"""The forecast of a run: how much it is, how long it takes here, and how to narrow it."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from bdl import runtime
from bdl.data import file_states
from bdl.errors import escape_unprintable, with_plural
from bdl.execution.estimate import (
    RemainingWork,
    RunEstimate,
    count_remaining,
    estimate_remaining,
)
from bdl.execution.timing import time_updates
from bdl.plan.cost import count_possible_jobs
from bdl.plan.planning import list_first_splits
from bdl.plan.reference_posteriors import list_sampled_references
from bdl.plan.task import Task
from bdl.plan.workload import count_fits
from bdl.records.row import STAGES, CellKey
from bdl.records.run_folder import RunFolder
from bdl.references.base import check_files
from bdl.runtime import format_bytes
from bdl.spec import Request, list_profiles
from bdl.spec.request import results_option
from bdl.stored_results.loading import load_timings
from bdl.stored_results.reuse import RecordedFits

SHORT_RUN_SECONDS, LONG_RUN_SECONDS = 60.0, 30 * 60.0
"""Seconds below which a run needs no forecast, and above which it names narrower commands."""
ONE_PROCESS_SECONDS = 15.0
"""Seconds below which a run needs no second process, which takes some to start."""
_TIMING_SECONDS = 2.0
"""Seconds that are spent on timing updates of tasks without earlier fits."""

_COLUMNS_SHOWN = 12
"""Columns of a data set that are described; the others are counted."""


def estimate_run(
    request: Request,
    tasks: Sequence[Task],
    run_folder: RunFolder,
    results: Path,
    jobs: int,
    copied_splits: Mapping[CellKey, Collection[int]] | None = None,
) -> RunEstimate:
    """Estimate the time, memory and disk that a run of a plan needs.

    Fits that the store has are left out, and so are `copied_splits`, which a run copies from other
    runs or imports. The times rest on the runs of the benchmark in the folder of results.
    Processes (`jobs`) are, for 0, as many as memory, cores and the slot batches of the splits
    allow, but one where that is soon done.
    """
    copied_splits = copied_splits or {}
    remaining_work = [
        count_remaining(task, run_folder, copied_splits.get(task.key, ())) for task in tasks
    ]
    unfinished = [work for work in remaining_work if work.splits]
    measured = load_timings(request, results) if unfinished else []
    measured += time_updates(unfinished, measured, _TIMING_SECONDS)
    if jobs:
        return estimate_remaining(remaining_work, jobs, measured)
    one_job = estimate_remaining(remaining_work, 1, measured)
    possible_jobs = count_possible_jobs([(work.task, work.splits) for work in remaining_work])
    useful_jobs = min(possible_jobs, sum(_count_simultaneous_groups(work) for work in unfinished))
    if one_job.seconds < ONE_PROCESS_SECONDS or useful_jobs == 1:
        return one_job
    return estimate_remaining(remaining_work, useful_jobs, measured)


def _count_simultaneous_groups(work: RemainingWork) -> int:
    """Count the groups of a task that can run at the same time."""
    return max(work.slot_batches(stage) for stage in STAGES)


def describe_missing_files(request: Request) -> list[str]:
    """Describe the data sets whose files are not on this machine, and how to get them.

    Empty if none is missing.
    """
    missing: dict[str, str] = {}
    gaps = any(
        request.selected_benchmark.at(point).preparation.split == "gap"
        for point in request.selected_benchmark.points
    )
    for label in request.selected_benchmark.datasets:
        states = [state for _, state in file_states(label, gaps=gaps)]
        if count := states.count("missing"):
            missing[label.name] = f"{label} ({count} of {len(states)} files)"
    if not missing:
        return []
    return [
        "not on this machine, and needed to estimate how long it takes: "
        + ", ".join(missing.values()),
        f"download {'them' if len(missing) > 1 else 'it'} with: "
        f"bdl-bench data fetch {' '.join(missing)} (run without --dry-run does so by itself)",
    ]


def describe_fits_without_data(request: Request, published: Sequence[RecordedFits]) -> list[str]:
    """Describe how many fits a run has, those of the search as well, before its data are there.

    Published fits are counted as such where they have an identity; whether it is that of today
    depends on the data.
    """
    splits, search_fits, final_fits, published_fits = request.split_numbers, 0, 0, 0
    tasks = list_first_splits(request.selected_benchmark, splits)
    for task, count in tasks:
        identified: set[int] = set()
        for source in published:
            identified |= source.list_identified_splits(task).intersection(splits)
        published_fits += len(identified)
        final_fits += count
        search_fits += count * count_fits(task, "search")
    fits = f"fits: {search_fits:,} of the search and {final_fits:,} final"
    lines = [f"{with_plural(len(tasks), 'cell')}, {fits}"]
    if published_fits:
        lines.append(
            f"published: {published_fits:,} of the final fits; they are imported, search included, "
            "if they were made with the same data"
        )
    return lines


def describe_missing_references(tasks: Sequence[Task]) -> list[str]:
    """Describe how many references the run samples first, if there are any."""
    count = sum(
        check_files(reference.recipe) == "missing" for reference in list_sampled_references(tasks)
    )
    return [f"references to sample first, which is not in the time: {count}"] if count else []


def describe_columns(tasks: Sequence[Task]) -> list[str]:
    """Describe how the columns of the user's own files were read, a line a data set.

    Columns that are not numbers come first.
    """
    descriptions = dict[str, None]()  # entries of one data set repeat a line
    for task in tasks:
        if task.settings.streams or not task.data.read_as:
            continue
        target, *features = task.data.read_as
        features.sort(key=lambda column: column.endswith(": numbers"))
        columns = [target, *features[:_COLUMNS_SHOWN]]
        if len(features) > _COLUMNS_SHOWN:
            columns.append(f"and {len(features) - _COLUMNS_SHOWN} more")
        line = f"{task.dataset}: {len(task.data.y):,} rows; {'; '.join(columns)}"
        descriptions[escape_unprintable(line)] = None  # with names and classes of the file
    return list(descriptions)


def describe_estimate(estimate: RunEstimate, request: Request, results: Path) -> list[str]:
    """Describe an estimate: fits, time and its basis, memory and disk, how to narrow a long run.

    The free disk is that of the folder of results.
    """
    search_fits, final_fits = estimate.count("search"), estimate.count("final")
    search_fits_before, final_fits_before = estimate.done("search"), estimate.done("final")
    fits = f"fits: {search_fits:,} of the search and {final_fits:,} final"
    if search_fits_before or final_fits_before:
        fits += f"; done already and left out: {search_fits_before:,} and {final_fits_before:,}"
    lines = [f"{with_plural(len(estimate.remaining), 'cell')}, {fits}"]
    if not final_fits:
        return [*lines, "everything is done: there is nothing left to train"]
    lines += [
        f"time: {_describe_time(estimate)}",
        f"memory: about {format_bytes(estimate.memory)} at the peak, "
        f"of {format_bytes(runtime.available_memory())} available; "
        f"disk: about {format_bytes(estimate.disk)}, "
        f"of {format_bytes(runtime.free_disk(results))} free",
    ]
    commands = (
        suggest_narrower_commands(request, results) if estimate.seconds > LONG_RUN_SECONDS else ""
    )
    if commands:
        lines.append(f"shorter: {commands}")
    return lines


def format_duration(seconds: float) -> str:
    """Write a rough time in words."""
    minutes = seconds / 60
    if minutes < 1:
        return "less than a minute"
    if minutes < 120:
        return f"about {with_plural(round(minutes), 'minute')}"
    hours = minutes / 60
    return f"about {hours:.0f} hours" if hours < 72 else f"about {hours / 24:.0f} days"


def suggest_narrower_commands(request: Request, results: Path) -> str:
    """Write the commands that run a smaller part; empty if there is none."""
    benchmark, source = request.selected_benchmark, request.source or request.benchmark.name
    commands = []
    if request.benchmark.profile == "paper" and "quick" in list_profiles(source):
        commands.append(f"bdl-bench run {source} --profile quick{results_option(results)}")
    if len(benchmark.datasets) > 1:
        commands.append(
            replace(request, datasets=(str(benchmark.datasets[0]),)).format_command("run", results)
        )
    if len(request.split_numbers) > 1:
        commands.append(
            replace(request, splits=(request.split_numbers[0],)).format_command("run", results)
        )
    return ", or ".join(commands)


def _describe_time(estimate: RunEstimate) -> str:
    """Describe the time and the measurements it rests on, by the number of fits, most first."""
    total, unknown = sum(estimate.basis.values()), estimate.basis["nothing"]
    if unknown == total:
        return (
            "unknown; there are no earlier fits of these cells, "
            "and their methods make no updates that can be timed"
        )
    jobs = f"{with_plural(estimate.jobs, 'job')} on {runtime.available_cores()} cores"
    bases = "; ".join(
        f"{basis} ({count / total:.0%} of the fits)"
        for basis, count in estimate.basis.most_common()
        if basis != "nothing"
    )
    duration = f"{format_duration(estimate.seconds)} here, with {jobs}"
    if unknown:
        known_share = f"{(total - unknown) / total:.0%} of the fits"
        duration += f", for {known_share}; that of the others is unknown"
    return f"{duration}; this rests on what was measured of {bases}"

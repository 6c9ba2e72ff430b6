"""Progress of a run: a bar with the time left and a live table, or plain lines."""

import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn, Self

from rich.console import Console, Group, NewLine
from rich.control import Control
from rich.live import Live
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table
from tqdm import tqdm

from bdl.api.forecast import format_duration
from bdl.errors import InputError, with_plural
from bdl.plan.task import Task
from bdl.records.row import STAGES, Row
from bdl.records.run_folder import RunFolder


class LoggedConsole(Console):
    """A console that copies its output to a log file, if there is one, each line with its time.

    A verbose one prints the details that otherwise go to the file alone. Options are those of
    `rich.console.Console`. `InputError` if the file cannot be written.
    """

    def __init__(self, log: Path | None = None, verbose: bool = False, **options: Any) -> None:
        super().__init__(**options)
        self.verbose = verbose
        try:
            file = None if log is None else log.open("a", encoding="utf-8", buffering=1)
        except OSError as error:
            raise InputError(f"cannot write {log}: {error.strerror}; give another --log") from None
        self._log_console = file and Console(file=file, width=120, markup=False, emoji=False)

    def print(self, *objects: Any, **options: Any) -> None:
        """Print, and write to the file; not the control codes that redraw a bar."""
        super().print(*objects, **options)
        if not all(isinstance(item, (Control, NewLine)) for item in objects):
            self.write_log(*objects, **options)

    def write_log(self, *objects: Any, **options: Any) -> None:
        """Write to the file alone."""
        if self._log_console:
            time_stamp = f"{datetime.now():%Y-%m-%d %H:%M:%S}"
            self._log_console.print(time_stamp, end=" ", highlight=False)
            self._log_console.print(*objects, **options)


def print_detail(console: Console, line: str, *, always: bool = False) -> None:
    """Print a line on a verbose `LoggedConsole`, or `always`; a log file has it in any case."""
    if always or (isinstance(console, LoggedConsole) and console.verbose):
        console.print(line, highlight=False, soft_wrap=True)
    elif isinstance(console, LoggedConsole):
        console.write_log(line, soft_wrap=True)


_PLAIN_LINE_SECONDS = 15.0
"""Seconds between plain lines with the progress of the run."""


class Bar:
    """A `bdl.execution.scheduler.Listener` that draws tqdm's bar.

    It draws in a notebook or on a terminal, and nothing elsewhere.
    """

    def __init__(self, name: str) -> None:
        console = Console(stderr=True)
        layout = "{desc} {percentage:3.0f}% |{bar:30}| {elapsed}, left {remaining} {postfix}"
        hidden = not (console.is_jupyter or console.is_terminal)
        self._bar: tqdm[NoReturn] = tqdm(
            desc=name, total=1, bar_format=layout, disable=hidden, leave=False
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.close()

    def begin(self, work: int) -> None:
        """Start a run of so much work, in the units of `advance`."""
        self._bar.reset(max(work, 1))

    def advance(self, work: int) -> None:
        """Count finished work."""
        self._bar.update(work)

    def note_stored(self, task: Task, rows: Sequence[Row]) -> None:
        """Name the task that has new rows."""
        if rows:
            self._bar.set_postfix_str(task.label)


class Display:
    """A `bdl.execution.scheduler.Listener` for a terminal, or for a log file where there is none.

    The live table has a line for each task of the plan; fits that the store has are shown as done.
    """

    def __init__(self, console: Console, tasks: Sequence[Task], run_folder: RunFolder) -> None:
        self._console = console
        self._is_live = console.is_terminal and not console.is_dumb_terminal
        self._rows = {
            task: {
                stage: [
                    row
                    for row in run_folder.load_rows(stage, task.key)
                    if row.split in task.splits
                ]
                for stage in STAGES
            }
            for task in tasks
        }
        self._bar = Progress(
            TextColumn("[bold]training"),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("time left"),
            TimeRemainingColumn(),
            console=console,
            # over the whole run: compilations make the speed of a minute misleading
            speed_estimate_period=3600,
        )
        self._task = self._bar.add_task("", total=None)
        self._live = Live(self._render(), console=console, refresh_per_second=4, transient=True)
        self._last_printed = time.monotonic()

    def __enter__(self) -> Self:
        if self._is_live:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def begin(self, work: int) -> None:
        """Start a run of so much work, in the units of `advance`."""
        self._bar.update(self._task, total=max(work, 1))
        finals = [(task, row) for task, stages in self._rows.items() for row in stages["final"]]
        if len(finals) < sum(len(task.splits) for task in self._rows):
            return
        if n_failed := sum(row.status == "failed" for _, row in finals):
            self._console.print(
                f"Nothing is left to do, but {n_failed} of {len(finals)} final fits failed."
            )
        elif n_refused := sum(bool(task.select_refusals(row)) for task, row in finals):
            self._console.print(
                f"Nothing is left to train, but {n_refused} of {len(finals)} final fits "
                "lack scores."
            )
        else:
            self._console.print("Everything is in the store already.")

    def advance(self, work: int) -> None:
        """Count finished work."""
        self._bar.advance(self._task, work)
        now = time.monotonic()
        if not self._is_live and now - self._last_printed > _PLAIN_LINE_SECONDS:
            self._last_printed = now
            (task,) = self._bar.tasks
            line = f"{task.percentage:3.0f}% done"
            if task.time_remaining is not None:
                seconds = task.time_remaining
                duration = f"about {seconds:.0f} s" if seconds < 120 else format_duration(seconds)
                line += f", {duration} left"
            self._console.print(line)

    def note_stored(self, task: Task, rows: Sequence[Row]) -> None:
        """Update the table with rows that the store has taken."""
        for row in rows:
            self._rows[task][row.stage].append(row)
        if self._is_live:
            self._live.update(self._render())
        if rows:
            n_failed = sum(row.status == "failed" for row in rows)
            stage = "search" if rows[0].stage == "search" else "final fits"
            numbers = sorted({row.split for row in rows})
            splits = f"split {numbers[0]}" if len(numbers) == 1 else f"{len(numbers)} splits"
            seconds = sum(row.seconds for row in rows)
            line = (
                f"{task.dataset:>10} {task.entry:<10} {stage}, {splits}: "
                f"{with_plural(len(rows), 'trial')} in {seconds:.1f} s"
            )
            if n_failed:
                line += f", {n_failed} failed"
            print_detail(self._console, line, always=not self._is_live)

    def _render(self) -> Group:
        metrics: list[str] = []
        if self._rows:
            benchmark = next(iter(self._rows)).benchmark  # all tasks are of one benchmark
            metrics = [name for name in benchmark.metrics if name != "runtime"]
        table = Table(
            "dataset", "entry", "searched", "finished", "failed trials", *metrics, box=None
        )
        for task, stages in self._rows.items():
            final = stages["final"]
            values = [
                [value for row in final if (value := row.metrics.get(name)) is not None]
                for name in metrics
            ]
            means = [f"{sum(scores) / len(scores):.3f}" if scores else "" for scores in values]
            n_failed = sum(row.status == "failed" for rows in stages.values() for row in rows)
            search = task.settings.search
            # a split is searched once its last trial is in, also if an earlier run made some
            last_trial = search.trials - 1 if search else None
            n_searched = len({row.split for row in stages["search"] if row.trial == last_trial})
            table.add_row(
                task.dataset, task.entry, str(n_searched), str(len(final)), str(n_failed), *means
            )
        return Group(table, self._bar)

"""How a run looks while it goes: a bar with the time left and a live table, or plain lines."""

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

from bdl.errors import InputError
from bdl.plan import Cell
from bdl.store import STAGES, Row
from bdl.store.store import Store


class Voice(Console):
    """A console of which a file, if there is one, keeps what is printed, line by line with its time.

    A verbose one prints what is otherwise for the file alone. Options are those of
    `rich.console.Console`. `InputError` if the file cannot be written.
    """

    def __init__(self, log: Path | None = None, verbose: bool = False, **options: Any) -> None:
        super().__init__(**options)
        self.verbose = verbose
        try:
            file = None if log is None else log.open("a", encoding="utf-8", buffering=1)
        except OSError as error:
            raise InputError(f"cannot write {log}: {error.strerror}; give another --log") from None
        self._log = file and Console(file=file, width=120, markup=False, emoji=False)

    def print(self, *objects: Any, **options: Any) -> None:
        """Print, and keep it; not what moves a bar."""
        super().print(*objects, **options)
        if not all(isinstance(each, (Control, NewLine)) for each in objects):
            self.keep(*objects, **options)

    def keep(self, *objects: Any, **options: Any) -> None:
        """Write to the file alone."""
        if self._log:
            self._log.print(f"{datetime.now():%Y-%m-%d %H:%M:%S}", end=" ", highlight=False)
            self._log.print(*objects, **options)


def aside(console: Console, line: str, *, shown: bool = False) -> None:
    """Print a line if it is to be `shown`, or if the console is a verbose `Voice`.

    Its file has it anyway.
    """
    if shown or (isinstance(console, Voice) and console.verbose):
        console.print(line, highlight=False, soft_wrap=True)
    elif isinstance(console, Voice):
        console.keep(line, soft_wrap=True)


_PLAIN_EVERY = 15.0
"""Seconds between plain lines that say how far the run is."""


class Bar:
    """A `bdl.execution.queue.Listener` that draws tqdm's bar in a notebook or on a terminal, and nothing elsewhere."""

    def __init__(self, name: str) -> None:
        console = Console(stderr=True)
        form = "{desc} {percentage:3.0f}% |{bar:30}| {elapsed}, left {remaining} {postfix}"
        hidden = not (console.is_jupyter or console.is_terminal)
        self._bar: tqdm[NoReturn] = tqdm(
            desc=name, total=1, bar_format=form, disable=hidden, leave=False
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.close()

    def begin(self, work: int) -> None:
        """Start; so much work is to be done, in the units of `advance`."""
        self._bar.reset(max(work, 1))

    def advance(self, work: int) -> None:
        """Count work that is done."""
        self._bar.update(work)

    def stored(self, cell: Cell, rows: Sequence[Row]) -> None:
        """Name the cell that has new rows."""
        if rows:
            self._bar.set_postfix_str(cell.label)


class Display:
    """A `bdl.execution.queue.Listener` for a terminal, or for a log file where there is none.

    The live table has a line a cell of the plan; what the store has already is shown as done.
    """

    def __init__(self, console: Console, cells: Sequence[Cell], store: Store) -> None:
        self._console = console
        self._drawn = console.is_terminal and not console.is_dumb_terminal
        self._rows = {
            cell: {
                stage: [row for row in store.rows(stage, cell.key) if row.split in cell.splits]
                for stage in STAGES
            }
            for cell in cells
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
        self._said = time.monotonic()

    def __enter__(self) -> Self:
        if self._drawn:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def begin(self, work: int) -> None:
        """Start; so much work is to be done, in the units of `advance`."""
        self._bar.update(self._task, total=max(work, 1))
        finals = [row for stages in self._rows.values() for row in stages["final"]]
        if len(finals) < sum(len(cell.splits) for cell in self._rows):
            return
        if failed := sum(row.status == "failed" for row in finals):
            self._console.print(
                f"Nothing is left to do, but {failed} of {len(finals)} final fits failed."
            )
        elif refused := sum(bool(row.refused) for row in finals):
            self._console.print(
                f"Nothing is left to train, but {refused} of {len(finals)} final fits lack scores."
            )
        else:
            self._console.print("Everything is in the store already.")

    def advance(self, work: int) -> None:
        """Count work that is done."""
        self._bar.advance(self._task, work)
        now = time.monotonic()
        if not self._drawn and now - self._said > _PLAIN_EVERY:
            self._said = now
            (task,) = self._bar.tasks
            eta = (
                "" if task.time_remaining is None else f", about {task.time_remaining:.0f} s left"
            )
            self._console.print(f"{task.percentage:3.0f}% done{eta}")

    def stored(self, cell: Cell, rows: Sequence[Row]) -> None:
        """Take note of rows that are safe in the store."""
        for row in rows:
            self._rows[cell][row.stage].append(row)
        if self._drawn:
            self._live.update(self._render())
        if rows:
            failed = sum(row.status == "failed" for row in rows)
            what = "search" if rows[0].stage == "search" else "final fits"
            splits = sorted({row.split for row in rows})
            where = f"split {splits[0]}" if len(splits) == 1 else f"{len(splits)} splits"
            seconds = sum(row.seconds for row in rows)
            line = f"{cell.dataset:>10} {cell.entry:<10} {what}, {where}: {len(rows)} trials in {seconds:.1f} s"
            aside(
                self._console,
                line + (f", {failed} failed" if failed else ""),
                shown=not self._drawn,
            )

    def _render(self) -> Group:
        metrics = [
            name
            for cell in [*self._rows][:1]
            for name in cell.benchmark.metrics
            if name != "runtime"
        ]
        table = Table(
            "dataset", "entry", "searched", "finished", "failed trials", *metrics, box=None
        )
        for cell, stages in self._rows.items():
            final = stages["final"]
            values = [
                [value for row in final if (value := row.metrics.get(name)) is not None]
                for name in metrics
            ]
            means = [f"{sum(own) / len(own):.3f}" if own else "" for own in values]
            failed = sum(row.status == "failed" for rows in stages.values() for row in rows)
            search = cell.settings.search
            last = search.trials - 1 if search else None
            searched = len({row.split for row in stages["search"] if row.trial == last})
            table.add_row(
                cell.dataset, cell.entry, str(searched), str(len(final)), str(failed), *means
            )
        return Group(table, self._bar)

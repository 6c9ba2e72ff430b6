"""How a run looks while it goes: a bar with the time left and a live table, or plain lines."""

import time
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table

from bdl.plan.cell import Cell
from bdl.store.rows import Row, Stage
from bdl.store.store import Store

_STAGES: tuple[Stage, ...] = ("search", "final")
_PLAIN_EVERY = 15.0
"""Seconds between plain lines that say how far the run is."""


class Display:
    """A `bdl.execution.queue.Listener` for a terminal, or for a log file where there is none.

    Parameters
    ----------
    console
        Where to write.
    cells
        The plan, one line of the live table each.
    store
        What it has already is shown as done.
    """

    def __init__(self, console: Console, cells: Sequence[Cell], store: Store) -> None:
        self._console = console
        self._drawn = console.is_terminal and not console.is_dumb_terminal
        self._rows = {cell: {stage: _kept(cell, stage, store) for stage in _STAGES} for cell in cells}
        self._bar = Progress(
            TextColumn("[bold]training"),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("time left"),
            TimeRemainingColumn(),
            console=console,
            speed_estimate_period=3600,  # over the whole run: compilations make the speed of a minute misleading
        )
        self._task = self._bar.add_task("", total=None)
        self._live = Live(self._render(), console=console, refresh_per_second=4, transient=True)
        self._total, self._done, self._said = 0, 0, time.monotonic()

    def __enter__(self) -> Self:
        if self._drawn:
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: object, trace: TracebackType | None) -> None:
        self._live.stop()

    def begin(self, work: int) -> None:
        """Start; so much work is to be done, in the units of `advance`."""
        self._total = work
        self._bar.update(self._task, total=max(work, 1))
        finals = [row for stages in self._rows.values() for row in stages["final"]]
        if len(finals) < sum(len(cell.splits) for cell in self._rows):
            return
        if failed := sum(row.status == "failed" for row in finals):
            self._console.print(f"Nothing is left to do, but {failed} of {len(finals)} final fits failed.")
        elif refused := sum(bool(row.refused) for row in finals):
            self._console.print(f"Nothing is left to train, but {refused} of {len(finals)} final fits lack scores.")
        else:
            self._console.print("Everything is in the store already.")

    def advance(self, work: int) -> None:
        """Count work that is done."""
        self._done += work
        self._bar.update(self._task, completed=self._done)
        now = time.monotonic()
        if not self._drawn and now - self._said > _PLAIN_EVERY:
            self._said = now
            left = self._bar.tasks[self._task].time_remaining
            eta = "" if left is None else f", about {left:.0f} s left"
            self._console.print(f"{min(self._done / max(self._total, 1), 1):4.0%} done{eta}")

    def stored(self, cell: Cell, rows: Sequence[Row]) -> None:
        """Take note of rows that are safe in the store."""
        for row in rows:
            self._rows[cell][row.stage].append(row)
        if self._drawn:
            self._live.update(self._render())
        elif rows:
            failed = sum(row.status == "failed" for row in rows)
            what = "search" if rows[0].stage == "search" else "final fits"
            splits = sorted({row.split for row in rows})
            where = f"split {splits[0]}" if len(splits) == 1 else f"{len(splits)} splits"
            seconds = sum(row.seconds for row in rows)
            self._console.print(
                f"{cell.dataset:>10} {cell.entry:<10} {what}, {where}: {len(rows)} trials in {seconds:.1f} s"
                + (f", {failed} failed" if failed else "")
            )

    def _render(self) -> Group:
        table = Table("dataset", "entry", "searched", "finished", "failed trials", *self._metrics(), box=None)
        for cell, stages in self._rows.items():
            final = stages["final"]
            means = [self._mean(final, name) for name in self._metrics()]
            failed = sum(row.status == "failed" for rows in stages.values() for row in rows)
            search = cell.settings.search
            last = search.trials - 1 if search else None
            searched = len({row.split for row in stages["search"] if row.trial == last})
            table.add_row(cell.dataset, cell.entry, str(searched), str(len(final)), str(failed), *means)
        return Group(table, self._bar)

    def _metrics(self) -> list[str]:
        cell = next(iter(self._rows), None)
        return [] if cell is None else [name for name in cell.benchmark.metrics if name != "runtime"]

    @staticmethod
    def _mean(rows: Sequence[Row], metric: str) -> str:
        values = [value for row in rows if (value := row.metrics.get(metric)) is not None]
        return f"{sum(values) / len(values):.3f}" if values else ""


def _kept(cell: Cell, stage: Stage, store: Store) -> list[Row]:
    return [row for row in store.rows(stage, cell.key) if row.split in cell.splits]

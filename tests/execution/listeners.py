"""What the tests of this package run with: a listener that remembers, and how rows are compared."""

from collections.abc import Sequence

from bdl.execution.scheduler import prepare_run_folder, run_tasks
from bdl.execution.worker_pool import open_local_pool
from bdl.plan.task import Task
from bdl.records.row import Row
from bdl.records.run_folder import RunFolder


class Ear:
    """A listener that remembers."""

    def __init__(self) -> None:
        self.total, self.done = 0, 0
        self.stored_rows: list[list[Row]] = []

    def begin(self, work: int) -> None:
        self.total = work

    def advance(self, work: int) -> None:
        self.done += work

    def note_stored(self, cell: Task, rows: Sequence[Row]) -> None:
        self.stored_rows += [list(rows)] if rows else []

    @property
    def groups(self) -> list[tuple[str, list[int]]]:
        """Stage and splits of the rows that came together."""
        return [(rows[0].stage, sorted({row.split for row in rows})) for rows in self.stored_rows]

    @property
    def rounds(self) -> list[tuple[str, list[list[int]]]]:
        """Stage and, split by split, the trials of the rows that came together."""
        return [
            (
                rows[0].stage,
                [[row.trial for row in rows if row.split == split] for split in splits],
            )
            for rows, (_, splits) in zip(self.stored_rows, self.groups, strict=True)
        ]


def run_here(cells: Sequence[Task], store: RunFolder) -> Ear:
    """Do what the store lacks, in this process."""
    ear = Ear()
    with open_local_pool(1) as here:
        prepare_run_folder(cells, store)
        run_tasks(cells, store, here, ear)
    return ear


def outcome(row: Row) -> dict[str, object]:
    """All of a row but the times, and details of a failure; with its posterior by its digest."""
    metrics = {name: value for name, value in row.metrics.items() if name != "runtime"}
    names = (
        "dataset",
        "entry",
        "point",
        "stage",
        "split",
        "trial",
        "fold",
        "status",
        "reason",
        "hyper",
        "artefact",
    )
    return {name: getattr(row, name) for name in names} | {
        "metrics": metrics,
        "updates": row.details.get("updates"),
    }


def outcomes(store: RunFolder, cells: Sequence[Task]) -> list[dict[str, object]]:
    """Every row of the cells, search folds first."""
    return [
        outcome(row)
        for cell in cells
        for stage in ("search", "final")
        for row in store.load_rows(stage, cell.key)
    ]

"""What a person sees first in MLflow: the columns of the table of runs, what a run is, and its data set."""

import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bdl.plan.cell import Cell
from bdl.publishing.names import mirrored
from bdl.publishing.numbers import Measurement
from bdl.reports.layout import heading, quantity
from bdl.spec.labels import DatasetName

if TYPE_CHECKING:
    from mlflow import MlflowClient

    from bdl.spec import Benchmark

_VIEW = "scores"
"""Key of the view with the means of all scores."""
_VIEWS = "mlflow.sharedViewState."
_NOTE = "mlflow.note.content"


def looks(client: "MlflowClient", experiment: str, benchmark: "Benchmark") -> None:
    """Describe an experiment, and save a view of its table with a column a metric, which MLflow's own view lacks."""
    found = client.get_experiment(experiment)
    columns = ["attributes.`Dataset`", *(f"metrics.`{mirrored(name)}`" for name in benchmark.metrics)]
    view = {"name": "Scores", "createdAt": found.creation_time, "updatedAt": found.creation_time}
    tags = {
        _NOTE: f"{benchmark.title}\n\nA run is a method on a data set, with means over the splits; below it is a run "
        "for each split. The view **Scores** (Views, above the table) has a column for each score.",
        f"{_VIEWS}{_VIEW}": json.dumps(view | {"state": json.dumps({"selectedColumns": columns})}),
    }
    for name, text in tags.items():
        if found.tags.get(name) != text:
            client.set_experiment_tag(experiment, name, text)


def views(database: Path, address: str) -> list[str]:
    """Write the addresses of the views of a database's experiments, each behind its name."""
    query = (
        "SELECT name, experiment_id FROM experiments JOIN experiment_tags USING (experiment_id) "
        "WHERE key = ? AND lifecycle_stage = 'active' ORDER BY name"
    )
    with closing(sqlite3.connect(database)) as db:
        found = db.execute(query, (f"{_VIEWS}{_VIEW}",)).fetchall()
    return [f"{name}: {address}/#/experiments/{number}/runs?viewStateShareKey={_VIEW}" for name, number in found]


def described(cell: Cell, measured: Sequence[Measurement], fits: int, remark: str) -> str:
    """Describe a run in Markdown: what was fitted to what, its means and standard errors, and what it is not."""
    values = {name: value for name, value, _ in measured}
    about = [f"**{cell.entry}** on **{cell.dataset}**{f' at {cell.point.text}' if cell.point else ''}, {fits} splits"]
    for metric in cell.benchmark.metrics:
        name = mirrored(metric)
        if name in values:
            error = f" ± {values[f'{name}_se']:.2g}" if f"{name}_se" in values else ""
            about.append(f"- {heading(metric)}: {quantity(values[name])}{error}")
    return "\n".join([*about, *(["", remark] if remark not in ("", "Yes.") else [])])


def logged_dataset(dataset: DatasetName) -> Any:
    """Return a data set as MLflow takes it as a run's input: its name and settings, whose digest it has."""
    from mlflow.data.code_dataset_source import CodeDatasetSource
    from mlflow.data.meta_dataset import MetaDataset
    from mlflow.entities import Dataset, DatasetInput, InputTag

    settings = {name: json.dumps(value) for name, value in dataset.settings.items()}
    found = MetaDataset(CodeDatasetSource({"dataset": dataset.name, **settings}), str(dataset))  # type: ignore[abstract]  # not at run time
    entity: Any = Dataset.from_dictionary(found.to_dict())
    return DatasetInput(entity, [InputTag("mlflow.data.context", "training")])

"""Names, numbers and descriptions of a run in MLflow."""

import json
import re
from collections import Counter
from collections.abc import Sequence
from math import isfinite
from typing import TYPE_CHECKING, Any

import numpy as np

from bdl.errors import InputError
from bdl.plan.task import Task
from bdl.records.row import CurvePoint, Row
from bdl.reports.comparison import summarise_values
from bdl.reports.layout import format_number, metric_heading
from bdl.spec.fields import sha256
from bdl.spec.labels import DatasetName

if TYPE_CHECKING:
    from mlflow import MlflowClient

    from bdl.spec import Benchmark

_MAX_CHARACTERS = 200
"""Characters, which leaves room for what goes before and after."""
_DIGEST_DIGITS = 8
"""Digits of the digest that tells apart names which would otherwise be the same."""

Measurement = tuple[str, float, int]
"""Name, value, step."""

SCORES_VIEW = "scores"
"""Key of the view with the means of all scores."""
VIEW_TAG_PREFIX = "mlflow.sharedViewState."
"""Beginning of the tags of an experiment that hold its views."""
_NOTE_TAG = "mlflow.note.content"


def to_mlflow_name(name: str) -> str:
    """Convert the name of a metric or parameter to one that MLflow takes.

    A name that MLflow takes stays. Two names are never the same there. A ``/`` between two parts
    stays.
    """
    segments = [re.sub(r"[^\w. -]", "_", segment) for segment in name.split("/")]
    # MLflow makes folders of the segments of a name: these two are no folders of their own
    segments = ["_" * len(segment) if segment in (".", "..") else segment for segment in segments]
    plain = "/".join(filter(None, segments))
    if plain == name and len(name) <= _MAX_CHARACTERS:
        return name
    return f"{plain[: _MAX_CHARACTERS - _DIGEST_DIGITS - 1]}-{sha256(name)[:_DIGEST_DIGITS]}"


def check_mlflow_names(metrics: Sequence[str]) -> None:
    """Refuse metrics whose name in MLflow is that of a count, or of a statistic of another one."""
    statistics: list[str] = []
    for name in map(to_mlflow_name, metrics):
        statistics += [name, f"{name}_median", f"{name}_se"]
    numbers = Counter(["trials", "trials_failed", *statistics])
    for name in metrics:
        if numbers[to_mlflow_name(name)] > 1:
            raise InputError(
                f"metrics: in MLflow '{name}' is the name of another number; "
                "give it another label, or --tracking none"
            )


def list_measurements(
    rows: Sequence[Row],
    metrics: Sequence[str],
    curve_points: Sequence[tuple[int, CurvePoint]] = (),
) -> list[Measurement]:
    """List every finite number of a cell as name, value and step.

    For each metric its mean over the finite values under its own name, ``_median`` and, from two
    values on, ``_se`` = sd / sqrt(n) with n - 1 degrees of freedom; for each axis of recorded
    counts (`curve_points`, each with its split) the series ``<name>_by_<axis>`` of means over the
    splits; ``trials``; ``trials_failed``, which failed or lack a finite value. MLflow compares by
    what comes first.
    """
    scores = [
        {name: value for name, value, _ in list_split_measurements(row, metrics)} for row in rows
    ]
    numbers: list[Measurement] = []
    for name in map(to_mlflow_name, metrics):
        values = np.array(
            [finite_scores[name] for finite_scores in scores if name in finite_scores]
        )
        mean, error = summarise_values("mean", values)
        median, _ = summarise_values("median", values)
        summaries = {name: mean, f"{name}_median": median, f"{name}_se": error}
        numbers += [(key, value, 0) for key, value in summaries.items() if value is not None]
    # a failed row has no finite score
    n_failed = sum(len(finite_scores) < len(metrics) for finite_scores in scores)
    numbers += [("trials", float(len(rows)), 0), ("trials_failed", float(n_failed), 0)]
    series: dict[tuple[str, int], list[float]] = {}
    for _, point in curve_points:
        if isfinite(point.value):
            series.setdefault(
                (f"{to_mlflow_name(point.metric)}_by_{point.axis}", point.at), []
            ).append(point.value)
    return [
        *numbers,
        *((name, float(np.mean(values)), at) for (name, at), values in series.items()),
    ]


def list_split_measurements(row: Row, metrics: Sequence[str]) -> list[Measurement]:
    """List the finite scores of one final fit, under the metrics' own names; none if it failed."""
    values = [
        (to_mlflow_name(name), row.metrics.get(name)) for name in metrics if row.status == "ok"
    ]
    return [(name, value, 0) for name, value in values if value is not None and isfinite(value)]


def describe_experiment(client: "MlflowClient", experiment: str, benchmark: "Benchmark") -> None:
    """Describe an experiment, and save a view of its table with a column for each metric.

    MLflow's own view lacks these columns.
    """
    recorded = client.get_experiment(experiment)
    columns = [
        "attributes.`Dataset`",
        *(f"metrics.`{to_mlflow_name(name)}`" for name in benchmark.metrics),
    ]
    view = {
        "name": "Scores",
        "createdAt": recorded.creation_time,
        "updatedAt": recorded.creation_time,
    }
    tags = {
        _NOTE_TAG: f"{benchmark.title}\n\nA run is a method on a data set, with means over the "
        "splits; below it is a run for each split. The view **Scores** (Views, above the table) "
        "has a column for each score.",
        f"{VIEW_TAG_PREFIX}{SCORES_VIEW}": json.dumps(
            view | {"state": json.dumps({"selectedColumns": columns})}
        ),
    }
    for name, text in tags.items():
        if recorded.tags.get(name) != text:
            client.set_experiment_tag(experiment, name, text)


def describe_run(task: Task, measurements: Sequence[Measurement], fits: int, remark: str) -> str:
    """Describe a run in Markdown: entry, data set, means, standard errors and the remark."""
    values = {name: value for name, value, _ in measurements}
    lines = [
        f"**{task.entry}** on **{task.dataset}**"
        f"{f' at {task.point.text}' if task.point else ''}, {fits} splits"
    ]
    for metric in task.benchmark.metrics:
        name = to_mlflow_name(metric)
        if name in values:
            error = f" ± {values[f'{name}_se']:.2g}" if f"{name}_se" in values else ""
            lines.append(f"- {metric_heading(metric)}: {format_number(values[name])}{error}")
    return "\n".join([*lines, *(["", remark] if remark not in ("", "Yes.") else [])])


def make_mlflow_dataset(dataset: DatasetName) -> Any:
    """Make the MLflow input of a run: the name and settings of a data set, and their digest."""
    from mlflow.data.code_dataset_source import CodeDatasetSource
    from mlflow.data.meta_dataset import MetaDataset
    from mlflow.entities import Dataset, DatasetInput, InputTag

    settings = {name: json.dumps(value) for name, value in dataset.settings.items()}
    # the class is abstract to the type checker alone
    origin = CodeDatasetSource({"dataset": dataset.name, **settings})
    source = MetaDataset(origin, str(dataset))  # type: ignore[abstract]
    entity: Any = Dataset.from_dictionary(source.to_dict())
    return DatasetInput(entity, [InputTag("mlflow.data.context", "training")])

"""Export to MLflow: an experiment for a benchmark, a run for a cell, one for each split below."""

import hashlib
import json
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from bdl.errors import InputError
from bdl.files import refuse_failed_writes
from bdl.plan.task import Task
from bdl.publishing.mlflow_names import (
    Measurement,
    describe_experiment,
    describe_run,
    list_measurements,
    list_split_measurements,
    make_mlflow_dataset,
    to_mlflow_name,
)
from bdl.publishing.tracking import (
    CONTENT_TAG,
    connect,
    find_completed_runs,
    relocate_artifacts,
    with_tracking_hint,
)
from bdl.records.run_folder import RunFolder
from bdl.spec.labels import DatasetName
from bdl.spec.request import format_ranges
from bdl.spec.values import iterate_leaves

if TYPE_CHECKING:
    from mlflow import MlflowClient

    from bdl.spec import Benchmark

_EXPERIMENT_TAGS = {"mlflow.experimentKind": "custom_model_development"}
"""Tags that open the experiment in the view for trained models, not for language models."""

_PARENT_TAG = "mlflow.parentRunId"
"""Tag of a run with the identifier of the run that it is shown below."""

_MAX_CHARACTERS = 5000
"""Characters that MLflow takes in a tag or a parameter."""


class _SplitRecord(NamedTuple):
    """Content of the run of one split, below that of its cell."""

    number: int
    failed: bool
    params: dict[str, str]
    measurements: list[Measurement]


class _RunRecord(NamedTuple):
    """Content of the run of a cell; `identity` is set when it is created, the rest afterwards."""

    identity: dict[str, str]
    failed: bool
    """Whether every fit failed."""
    params: dict[str, str]
    measurements: list[Measurement]
    tags: Mapping[str, str]
    artifacts: Sequence[Path]
    dataset: DatasetName
    splits: Sequence[_SplitRecord]

    @property
    def name(self) -> str:
        return "/".join(value for key, value in self.identity.items() if key != "bdl.fit_hash")

    @property
    def status(self) -> str:
        return "FAILED" if self.failed else "FINISHED"

    @property
    def digest(self) -> str:
        files = [
            (path.name, hashlib.sha256(path.read_bytes()).hexdigest()) for path in self.artifacts
        ]
        below = [split._asdict() for split in self.splits]
        # all that a run shows, so that equal digests are equal runs
        content = [
            self.identity,
            self.failed,
            self.params,
            self.measurements,
            dict(self.tags),
            files,
            below,
        ]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def export_run(
    benchmark: "Benchmark",
    run_folder: RunFolder,
    tasks: Iterable[Task],
    *,
    variant: str = "",
    tracking_uri: str,
    artifact_root: Path,
    tags: Mapping[str, str],
    artifacts: Sequence[Path],
) -> list[str]:
    """Export cells of a store to MLflow, each as one run of the benchmark's experiment.

    Return the identifiers of the runs. A `variant`, which is not the protocol, has an experiment
    of its own. `artifact_root` is the folder of a new experiment's artifacts; an experiment that
    exists keeps its own, but for one of a database beside the folder, whose artifacts are where
    both are now. Tags and files (`artifacts`) go to every run. `InputError` if a cell has no rows,
    a file is missing, or the database, server or folder cannot be used.

    Notes
    -----
    A run of the same fit hash with the same content, by the tag ``bdl.content``, stays. Another is
    replaced, since MLflow's parameters never change and its series only grow: the new one is
    completed first, then the old one is deleted (``mlflow gc`` purges it). A run of another
    fit hash stays, as history. A run is FINISHED only when complete and when a fit of it
    succeeded. The tag ``bdl.failures`` counts the reasons of failed fits.
    """
    contents = [_describe_cell(benchmark, run_folder, task, tags, artifacts) for task in tasks]
    for path in artifacts:
        if not path.is_file():
            raise InputError(
                f"no file {path} to export; make it again with: bdl-bench run {benchmark.name}"
            )
    relocate_artifacts(tracking_uri, artifact_root)
    suffixes = [suffix for suffix in (benchmark.profile, variant) if suffix not in ("paper", "")]
    name = f"{benchmark.name} ({', '.join(suffixes)})" if suffixes else benchmark.name
    if exported := find_completed_runs(
        tracking_uri,
        name,
        [(content.digest, content.status) for content in contents],
    ):
        return exported
    with connect(tracking_uri) as client, with_tracking_hint(tracking_uri):
        experiment = _get_or_create_experiment(client, name, artifact_root)
        describe_experiment(client, experiment, benchmark)
        return [_replace_run(client, experiment, content) for content in contents]


def _describe_cell(
    benchmark: "Benchmark",
    run_folder: RunFolder,
    task: Task,
    tags: Mapping[str, str],
    artifacts: Sequence[Path],
) -> _RunRecord:
    fit_hash = run_folder.find_fit_hash(task.key)
    if fit_hash is None:
        raise InputError(f"{run_folder.path} has no rows of {task.label}; run the benchmark first")
    swept = {"bdl.point": task.point.text} if task.point else {}
    rows = run_folder.load_rows("final", task.key)
    reasons = Counter(row.reason for row in rows if row.status == "failed")
    failures = "; ".join(f"{count} x {reason}" for reason, count in reasons.most_common())
    measurements = list_measurements(
        rows, benchmark.metrics, run_folder.load_curve_points(task.key)
    )
    description = describe_run(task, measurements, len(rows), tags.get("bdl.protocol", ""))
    splits: list[_SplitRecord] = []
    for row in rows:
        params: dict[str, str] = {}
        for name, value in row.hyper.items():
            params[to_mlflow_name(f"hyper.{name}")] = f"{value:.6g}"
        split_measurements = list_split_measurements(row, benchmark.metrics)
        splits.append(_SplitRecord(row.split, row.status == "failed", params, split_measurements))
    return _RunRecord(
        identity={
            "bdl.dataset": str(task.dataset),
            "bdl.entry": task.entry,
            **swept,
            "bdl.fit_hash": fit_hash,
        },
        failed=reasons.total() == len(rows) > 0,
        params=list_parameters(task),
        measurements=measurements,
        tags={
            **tags,
            **({"bdl.failures": failures[:_MAX_CHARACTERS]} if reasons else {}),
            "mlflow.note.content": description[:_MAX_CHARACTERS],
        },
        artifacts=artifacts,
        dataset=task.dataset,
        splits=splits,
    )


def list_parameters(task: Task) -> dict[str, str]:
    """List the settings of a cell, by dotted names: those of its entry and those of all cells."""
    benchmark, dataset = task.benchmark, task.dataset
    settings = {
        "dataset": str(dataset),
        "entry": task.entry,
        "seed": benchmark.seed,
        "splits": len(task.splits),
        "split_numbers": format_ranges(task.splits),
        **({"dataset_settings": dataset.settings} if dataset.settings else {}),
        **benchmark.entries[task.entry].dump_on(dataset),
        "preparation": benchmark.preparation.dump_on(dataset),
        "evaluation": benchmark.evaluation_of(task.entry).model_dump(mode="json"),
    }
    params: dict[str, str] = {}
    for name, value in iterate_leaves(settings):
        text = value if isinstance(value, str) else json.dumps(value)
        params[to_mlflow_name(name)] = text[:_MAX_CHARACTERS]
    return params


def _get_or_create_experiment(client: "MlflowClient", name: str, artifact_root: Path) -> str:
    experiment = client.get_experiment_by_name(name)
    if experiment is None:
        folder = (artifact_root / name).resolve()
        with refuse_failed_writes(folder):
            folder.mkdir(parents=True, exist_ok=True)
        identifier: str = client.create_experiment(
            name, artifact_location=folder.as_uri(), tags=_EXPERIMENT_TAGS
        )
        return identifier
    if experiment.lifecycle_stage != "active":
        raise InputError(
            f"the MLflow experiment '{name}' was deleted; bring it back with: "
            f"mlflow experiments restore -x {experiment.experiment_id}"
        )
    return str(experiment.experiment_id)


def _replace_run(client: "MlflowClient", experiment: str, content: _RunRecord) -> str:
    """Write a run, then delete the runs that it replaces.

    A complete one with the same content stays instead.
    """
    candidates = client.search_runs(
        [experiment], f"tags.`bdl.fit_hash` = '{content.identity['bdl.fit_hash']}'"
    )
    replaced = [run for run in candidates if content.identity.items() <= run.data.tags.items()]
    digest = content.digest
    for run in replaced:
        if (run.data.tags.get(CONTENT_TAG), run.info.status) == (digest, content.status):
            return str(run.info.run_id)
    run_id: str = client.create_run(
        experiment, tags=content.identity, run_name=content.name
    ).info.run_id
    try:
        _log_record(client, run_id, content, content.tags)
        client.log_inputs(run_id, [make_mlflow_dataset(content.dataset)])
        for path in content.artifacts:
            client.log_artifact(run_id, str(path))
        for split in content.splits:
            tags = {_PARENT_TAG: run_id, "bdl.split": f"{split.number}"}
            below = client.create_run(
                experiment, tags=tags, run_name=f"{content.name}/{split.number}"
            ).info.run_id
            _log_record(client, below, split, {})
            client.set_terminated(below, "FAILED" if split.failed else "FINISHED")
        # last: a run that was interrupted has no digest, and is replaced by the next export
        client.set_tag(run_id, CONTENT_TAG, digest)
        client.set_terminated(run_id, content.status)
    except BaseException:
        # the first error is the one to be reported, also where the server is gone
        with suppress(Exception):
            client.set_terminated(run_id, "FAILED")
        raise
    for run in replaced:
        for child in client.search_runs(
            [experiment], f"tags.`{_PARENT_TAG}` = '{run.info.run_id}'"
        ):
            client.delete_run(child.info.run_id)
        client.delete_run(run.info.run_id)
    return run_id


def _log_record(
    client: "MlflowClient", run_id: str, record: _RunRecord | _SplitRecord, tags: Mapping[str, str]
) -> None:
    """Log the numbers, parameters and tags of a run, in as few calls as MLflow allows."""
    from mlflow.entities import Metric, Param, RunTag

    milliseconds = int(time.time() * 1000)
    metrics = [
        Metric(name, value, milliseconds, step) for name, value, step in record.measurements
    ]
    params = [Param(*item) for item in record.params.items()]
    client.log_batch(run_id, metrics, params, [RunTag(*item) for item in tags.items()])

"""Reference posteriors of tasks: those that are computed when needed, and sampled ones.

Sampled references take long. A plan lists the missing ones, and they are made before it runs.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bdl.plan.task import Task
from bdl.references.base import (
    Recipe,
    Truth,
    check_files,
    load_draws,
    locate_files,
    sample_and_store,
)
from bdl.references.certificate import DrawQuality
from bdl.runtime import one_thread
from bdl.training.direct import TrainingData


@one_thread()
def compute_truth(task: Task, split: int) -> Truth | None:
    """Return the reference posterior of a split, None if the entry has none.

    Hyper-parameters are in original units. The truth of a stream is the distribution that it is
    drawn from.
    """
    if task.settings.streams:
        model = task.stream.model(split)
        return Truth(model.mean().double(), model.covariance().double(), {})
    if task.settings.reference is None:
        return None
    truth: Truth = task.settings.reference.build().fit(*_reference_arguments(task, split))
    unit = load_training_data(task, split).y_unit
    return truth._replace(hyper=task.problem.likelihood.to_original_units(truth.hyper, unit))


def find_recipe(task: Task, split: int) -> Recipe | None:
    """Return the recipe by which the reference of a split samples.

    None if it does not sample, or there is no reference.
    """
    if task.settings.reference is None:
        return None
    reference = task.settings.reference.build()
    recipe: Recipe | None = reference.recipe(*_reference_arguments(task, split))
    return recipe


def knows_functions_only(task: Task) -> bool:
    """Return whether the reference knows functions only: its parameters mean nothing alone."""
    return task.settings.reference is not None and task.settings.reference.build().of_functions


def describe_evidence(task: Task, split: int) -> list[str]:
    """Describe the numbers that show the reference of a split to be right, one a line.

    There are no lines for a reference without such numbers, or without a reference.
    """
    if not task.settings.reference:
        return []
    reference = task.settings.reference.build()
    lines: list[str] = reference.evidence(*_reference_arguments(task, split))
    return lines


def load_training_data(task: Task, split: int) -> TrainingData:
    """Return the rows that the final fit of a split trains on, as a model sees them, float64."""
    return TrainingData.of(task.data, task.rows(split).train)


def _reference_arguments(task: Task, split: int) -> tuple[Any, ...]:
    """Return the arguments of the reference's methods.

    They are the problem, training inputs and targets, and hyper-parameters; of a reference that
    knows functions only also test inputs and targets, or the training rows again where the split
    has no test rows.
    """
    data, split_rows = load_training_data(task, split), task.rows(split)
    arguments = task.problem, data.x, data.y, data.hyper(task.settings.hyper, task.problem)
    if not knows_functions_only(task):
        return arguments
    test_rows = split_rows.test if len(split_rows.test) else split_rows.train
    test_data = TrainingData.of(task.data, split_rows.train, test_rows)
    return *arguments, test_data.x, test_data.y


class SampledReference(NamedTuple):
    """A sampled reference, with the benchmark, data set and split that use it first."""

    benchmark: str
    dataset: str
    split: int
    recipe: Recipe

    @property
    def label(self) -> str:
        """Name for people: the data set, with the split where it is not the first."""
        return self.dataset if self.split == 0 else f"{self.dataset}, split {self.split}"


def list_sampled_references(tasks: Iterable[Task]) -> list[SampledReference]:
    """List the different sampled references of a plan."""
    references: dict[str, SampledReference] = {}
    for task in tasks:
        for split in task.splits:
            recipe = find_recipe(task, split)
            if recipe is None:  # no split of the task has one then
                break
            reference = SampledReference(task.benchmark.name, task.dataset, split, recipe)
            references.setdefault(recipe.key, reference)
    return list(references.values())


def describe_computed_references(tasks: Iterable[Task]) -> list[tuple[str, list[str]]]:
    """List the references that are computed when needed: a label, and the evidence for each.

    Those of the first split stand for the others, which have to keep the same limits.
    """
    descriptions: dict[tuple[str, ...], None] = {}  # an ordered set
    for task in tasks:
        reference, split = task.settings.reference, task.splits[0]
        assert reference is not None, "callers select tasks with a reference"
        if find_recipe(task, split) is None:
            label = f"{task.dataset}, split {split} of {len(task.splits)}: {reference.name}"
            lines = describe_evidence(task, split) or ["computed when it is needed"]
            descriptions[label, *lines] = None
    return [(label, lines) for label, *lines in descriptions]


def build_references(
    references: Sequence[SampledReference], *, overwrite: bool = False
) -> Iterator[tuple[SampledReference, DrawQuality | None]]:
    """Sample the references that are missing, or all of them with `overwrite`.

    Yield each with None before, and with its certificate after.

    `InputError` if one is refused, or a sampler is not installed.
    """
    for reference in references:
        file_state = check_files(reference.recipe)
        if file_state == "corrupt" and not overwrite:
            load_draws(reference.recipe)  # raises, and says how to mend it
        if overwrite or file_state == "missing":
            # before and after: sampling takes minutes, and the caller says what is under way
            yield reference, None
            yield reference, sample_and_store(reference.recipe)


def check_references(tasks: Iterable[Task]) -> None:
    """Compute or read the truth of each task's first split.

    Bad input then stops a run before it trains. A reference that knows functions only stops none
    by a broken rule: the scores report it.
    """
    for task in tasks:
        recipe = find_recipe(task, task.splits[0])
        # read, and not admitted: `fit` would refuse draws that break a rule
        if recipe is not None and knows_functions_only(task):
            load_draws(recipe)
        else:
            compute_truth(task, task.splits[0])


def describe_reference(reference: SampledReference) -> list[str]:
    """Describe a sampled reference that exists.

    Lines have the problem, every rule with its worst value, errors, versions and files.
    """
    certificate, problem = load_draws(reference.recipe).certificate, reference.recipe.describe()
    lines = []
    for name, value in problem.items():
        if name != "settings" and value is not None:
            lines.append(f"{name.replace('_', ' ')}: {_format_value(value)}")
    lines.append(
        f"sampled: {certificate.summary()}; warm-up {certificate.origin.tune}, "
        f"seed {certificate.origin.seed}"
    )
    lines += [*certificate.worst(), certificate.errors()]
    versions = [f"{name} {version}" for name, version in certificate.origin.versions.items()]
    lines.append("versions: " + ", ".join(versions))
    lines += [f"file: {path}" for path in locate_files(reference.recipe)]
    return lines


def copy_certificates(references: Iterable[SampledReference], folder: Path) -> list[Path]:
    """Copy the info file of each reference, without its draws, to ``references`` of a folder.

    Further references of a split, such as those of another prior, are numbered from 2 on.
    """
    target = folder / "references"
    paths: list[Path] = []
    names: Counter[str] = Counter()
    for reference in references:
        target.mkdir(parents=True, exist_ok=True)
        name = reference.dataset + ("" if reference.split == 0 else f"-{reference.split}")
        names[name] += 1
        number = "" if names[name] == 1 else f"~{names[name]}"
        path = target / f"{name}{number}.json"
        path.write_bytes(locate_files(reference.recipe)[1].read_bytes())
        paths.append(path)
    return paths


def _format_value(value: object) -> str:
    return ", ".join(f"{number:g}" for number in value) if isinstance(value, list) else str(value)

"""The truths that posteriors are held against: that of a cell, and the sampled ones that a plan needs made first."""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bdl.errors import InputError
from bdl.plan import Cell
from bdl.references.base import Recipe, Truth, files, read, state, write
from bdl.references.certificate import Certificate, Judged
from bdl.references.function_certificate import FunctionCertificate
from bdl.runtime import one_thread
from bdl.training.direct import TrainingData


@one_thread()
def truth(cell: Cell, split: int) -> Truth | None:
    """Find the reference posterior of a split, None if the entry has none.

    Hyper-parameters in original units.

    The truth of a stream is the distribution that it is drawn from.
    """
    if cell.settings.streams:
        model = cell.stream.model(split)
        return Truth(model.mean().double(), model.covariance().double(), {})
    if cell.settings.reference is None:
        return None
    found: Truth = cell.settings.reference.build().fit(*_given(cell, split))
    unit = training_data(cell, split).y_unit
    return found._replace(hyper=cell.problem.likelihood.to_original_units(found.hyper, unit))


def recipe(cell: Cell, split: int) -> Recipe | None:
    """Describe what the reference of a split samples.

    None if it does not sample, or there is none.
    """
    if cell.settings.reference is None:
        return None
    found: Recipe | None = cell.settings.reference.build().recipe(*_given(cell, split))
    return found


def known_as_functions(cell: Cell) -> bool:
    """Return whether the reference knows functions only, since parameters mean nothing by themselves."""
    return cell.settings.reference is not None and cell.settings.reference.build().of_functions


def evidence(cell: Cell, split: int) -> list[str]:
    """Describe by which numbers the reference of a split is known to be right, one a line.

    None where it tells none.
    """
    found: list[str] = (
        cell.settings.reference.build().evidence(*_given(cell, split))
        if cell.settings.reference
        else []
    )
    return found


def training_data(cell: Cell, split: int) -> TrainingData:
    """Return the training rows of a split as a model sees them, float64."""
    return TrainingData.of(cell.data, cell.data.split(split).train)


def _given(cell: Cell, split: int) -> tuple[Any, ...]:
    """Return what the reference is the posterior of: problem, training data, hyper-parameters.

    Test rows if it asks.

    The training rows stand for them where there are none.
    """
    data, rows = training_data(cell, split), cell.data.split(split)
    given = cell.problem, data.x, data.y, data.hyper(cell.settings.hyper, cell.problem)
    if not known_as_functions(cell):
        return given
    judged = TrainingData.of(cell.data, rows.train, rows.test if len(rows.test) else rows.train)
    return *given, judged.x, judged.y


class Reference(NamedTuple):
    """A sampled reference, and where the plan uses it first."""

    benchmark: str
    dataset: str
    split: int
    recipe: Recipe

    @property
    def place(self) -> str:
        """Name for people: the data set, with the split where it is not the first."""
        return self.dataset if self.split == 0 else f"{self.dataset}, split {self.split}"


def sampled(cells: Iterable[Cell]) -> list[Reference]:
    """List the different sampled references of a plan."""
    found: dict[str, Reference] = {}
    for cell in cells:
        for split in cell.splits:
            own = recipe(cell, split)
            if own is None:
                break
            found.setdefault(own.key, Reference(cell.benchmark.name, cell.dataset, split, own))
    return list(found.values())


def computed(cells: Iterable[Cell]) -> list[tuple[str, list[str]]]:
    """Describe the references that are computed when they are needed: the place of each, and what is known of it.

    Those of the first split stand for the others, which have to keep the same limits.
    """
    found: dict[tuple[str, ...], None] = {}
    for cell in cells:
        reference, split = cell.settings.reference, cell.splits[0]
        assert reference is not None, "cells that have one"
        if recipe(cell, split) is None:
            place = f"{cell.dataset}, split {split} of {len(cell.splits)}: {reference.name}"
            found[place, *(evidence(cell, split) or ["computed when it is needed"])] = None
    return [(place, lines) for place, *lines in found]


def build(
    references: Sequence[Reference], *, again: bool = False
) -> Iterator[tuple[Reference, Judged | None]]:
    """Sample those that are missing, or all of them again.

    Yield each with None before, and with its certificate after.

    `InputError` if one is refused, or a sampler is not installed.
    """
    for reference in references:
        found = state(reference.recipe)
        if found == "corrupt" and not again:
            read(reference.recipe)  # raises, and says how to mend it
        if again or found == "missing":
            yield reference, None
            yield reference, write(reference.recipe)


def check(cells: Iterable[Cell]) -> None:
    """Find the truth of each cell's first split, so that bad input stops a run before it trains.

    One known as functions, which broke a rule, stops none: the scores say so.
    """
    for cell in cells:
        own = recipe(cell, cell.splits[0])
        if own is not None and known_as_functions(cell):
            read(own)
        else:
            truth(cell, cell.splits[0])


def details(reference: Reference) -> list[str]:
    """Describe a reference that is there: the problem, every rule with its worst value, errors and versions."""
    certificate, about = read(reference.recipe).certificate, reference.recipe.about()
    told = {
        name: value for name, value in about.items() if name != "settings" and value is not None
    }
    lines = [f"{name.replace('_', ' ')}: {_text(value)}" for name, value in told.items()]
    lines.append(
        f"sampled: {certificate.summary()}; warm-up {certificate.origin.tune}, seed {certificate.origin.seed}"
    )
    lines += [*certificate.worst(), certificate.errors()]
    lines.append(
        "versions: "
        + ", ".join(f"{name} {found}" for name, found in certificate.origin.versions.items())
    )
    lines += [f"file: {path}" for path in files(reference.recipe)]
    return lines


def publish_info(references: Iterable[Reference], folder: Path) -> list[Path]:
    """Copy what is known of each reference, without its draws, to ``references`` of a folder."""
    target = folder / "references"
    paths = []
    for reference in references:
        target.mkdir(parents=True, exist_ok=True)
        suffix = "" if reference.split == 0 else f"-{reference.split}"
        paths.append(target / f"{reference.dataset}{suffix}.json")
        paths[-1].write_bytes(files(reference.recipe)[1].read_bytes())
    return paths


def published_info(folder: Path) -> list[tuple[str, int, Judged]]:
    """Read what `publish_info` has left in a folder: data sets, splits and certificates, in alphabetical order."""
    found = []
    for path in (folder / "references").glob("*.json"):
        dataset, split = re.fullmatch(r"(.+?)(?:-(\d+))?", path.stem).groups()  # type: ignore[union-attr]
        try:
            content = dict(json.loads(path.read_text("utf-8"))["certificate"])
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise InputError(
                f"{path} tells of no reference ({type(error).__name__}): publish the run again"
            ) from None
        kind = FunctionCertificate if "agreement" in content else Certificate
        found.append((dataset, int(split or 0), kind.read(content)))
    return sorted(found, key=lambda own: own[:2])


def _text(value: object) -> str:
    return ", ".join(f"{item:g}" for item in value) if isinstance(value, list) else str(value)

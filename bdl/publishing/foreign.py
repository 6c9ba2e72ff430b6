"""The spec of a bundle, read without importing anything that it names: files and modules of others stay unopened."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from bdl.archive import SHOWN
from bdl.errors import InputError, short
from bdl.methods import METHODS
from bdl.methods.base import ExternalMethod
from bdl.models import MODELS, PRIORS
from bdl.models.problem import Hyper, Problem
from bdl.plan import Cell
from bdl.plan.planning import cells_of
from bdl.posteriors.base import Posterior
from bdl.spec import Variant

_OURS = {"method": METHODS, "model": MODELS, "prior": PRIORS}
"""Parts of an entry that nothing is computed with, where its predictions are there."""
_KEPT = ("likelihood", "hyper", "search", "reference", "from_reference", "evaluation", "datasets")
"""Fields of an entry with other parts than ours that say how it is scored, and by which rows it
was chosen.
"""
_FACTORIES = "bdl.models."
"""Beginning of the names that settings may import from."""
_LOCAL = ("csv", "parquet")
"""Data sets that are files of the user."""


@dataclass(frozen=True)
class Foreign(ExternalMethod):
    """A method that is not here, in the place of one from outside."""

    hyper: tuple[str, ...] = ()
    """Names of its hyper-parameters."""

    course = False
    self_tuned = True

    def fits(
        self, problem: Problem, x: Tensor, y: Tensor, hyper: Hyper, seed: int
    ) -> Iterator[tuple[int, Posterior]]:
        """Raise `InputError`."""
        raise InputError("this method is not here")


def readable(made: Mapping[str, Any]) -> tuple[Variant, frozenset[str]]:
    """Read what the rows of a bundle were made with, as `Variant.dump` gave it: the run, and its entries from outside.

    These have what their predictions are scored by. `InputError` if it is not that, or data,
    scores or likelihoods are not of this package, or are files of the user.
    """
    try:
        spec = {name: value for name, value in made["spec"].items() if name not in SHOWN}
        entries: dict[str, dict[str, Any]] = dict(spec["entries"])
        foreign = frozenset(name for name, entry in entries.items() if _is_foreign(entry))
        spec["entries"] = {
            name: _scored(entry) if name in foreign else entry for name, entry in entries.items()
        }
        for text in _texts(spec):
            if ":" in text and not text.startswith(_FACTORIES):
                raise InputError(
                    f"'{short(text)}' is not a part of bdl-bench, so that nobody can check it"
                )
        for dataset in spec["datasets"]:
            if isinstance(dataset, Mapping) and dataset["name"] in _LOCAL:
                raise InputError(
                    f"data set '{short(str(dataset['label']))}' is a file that others do not have"
                )
        for name in foreign:
            spec["entries"][name]["method"] = _stand_in(spec["entries"][name])
        text = json.dumps({**made, "spec": {**spec, "title": spec["name"]}})
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise InputError(f"what its rows were made with is damaged ({error!r})") from None
    return Variant.parse(text, "the bundle"), foreign


def part(variant: Variant) -> list[Cell]:
    """List the cells of what was run, with the splits that were.

    Raise `InputError` if there is none.
    """
    wanted = set(variant.splits)
    cells = cells_of(variant.chosen)
    found = [
        cell.with_splits([split for split in cell.splits if not wanted or split in wanted])
        for cell in cells
    ]
    if not (kept := [cell for cell in found if cell.splits]):
        raise InputError("no data set has the splits that were run")
    return kept


def _is_foreign(entry: Mapping[str, Any]) -> bool:
    named = {
        kind: (entry.get(kind) or {}).get("name") for kind in _OURS
    }  # a prior without a name is ours
    return any(name and name not in _OURS[kind].builtin for kind, name in named.items())


def _scored(entry: Mapping[str, Any]) -> dict[str, Any]:
    kept = {name: entry[name] for name in _KEPT if name in entry}
    by_dataset = {
        dataset: {name: value for name, value in changes.items() if name in _KEPT}
        for dataset, changes in entry.get("by_dataset", {}).items()
    }
    return {**kept, "by_dataset": by_dataset}


def _stand_in(entry: Mapping[str, Any]) -> dict[str, Any]:
    search = entry.get("search") or {}
    names = [*entry.get("hyper", ()), *entry.get("from_reference", ())]
    names += [name for kind in ("space", "grid") for name in search.get(kind, ())]
    return {"name": f"{__name__}:{Foreign.__name__}", "hyper": names}


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for own in value.values():
            yield from _texts(own)
    elif isinstance(value, list):
        for own in value:
            yield from _texts(own)

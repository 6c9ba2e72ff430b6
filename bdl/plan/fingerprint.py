"""What identifies a fit, and what identifies a score, as two hashes.

A fit is identified by its part of the spec, by the data, and by the versions of what makes it: the engine, preparation,
data set, method, model, likelihood, prior and schedule; where hyper-parameters are searched, also the search and the
score that steers it. A score is identified by its own settings and version, and by those of how posteriors are
evaluated. No source is hashed: golden trials see to it that numbers do not move under one version.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, get_args, get_type_hints

from bdl.methods.base import Direct, Method, MinibatchMethod, StreamMethod
from bdl.metrics import METRICS
from bdl.plan.cell import Cell
from bdl.registry import outside_file
from bdl.spec import sha256
from bdl.spec.labels import MetricName
from bdl.versions import ENGINE_VERSION, PREPARATION_VERSION, SCORING_VERSION, SEARCH_VERSION, version_of


def fit_hash(cell: Cell, versions: Mapping[str, Any] | None = None) -> str:
    """Hash what identifies the cell's fits: spec, data and versions, SHA-256 (hex); today's versions by default."""
    spec = cell.benchmark.fit_part(cell.dataset, cell.entry)
    return sha256([spec, data_checksum(cell), fit_versions(cell) if versions is None else versions])


def fit_versions(cell: Cell) -> dict[str, Any]:
    """Return the version of everything that the cell's fits rest on, by kind."""
    entry = cell.settings
    versions: dict[str, Any] = {
        "engine": ENGINE_VERSION,
        "preparation": PREPARATION_VERSION,
        "dataset": version_of(cell.dataset.build()),
        "method": version_of(entry.method.build()),
    }
    if entry.model and entry.likelihood:
        versions |= {name: version_of(getattr(entry, name).build()) for name in ("model", "likelihood", "prior")}
    if entry.training:
        rates = entry.training.build().rates
        versions["rates"] = {name: version_of(rate) for name, rate in rates.items()}
    if entry.reference and entry.from_reference:
        versions["reference"] = version_of(entry.reference.build())
    if entry.search:
        versions |= {"search": SEARCH_VERSION, "steered_by": _score_version(entry.search.metric)}
    return versions


def score_hash(cell: Cell, metric: MetricName) -> str:
    """Hash what identifies a score but for the fit, SHA-256 (hex)."""
    spec = cell.benchmark.score_part(cell.dataset, cell.entry)
    outside = outside_file(METRICS.get(metric.name))  # a score is soon computed again: its file decides as well
    digest = list(outside[1:]) if outside else []
    return sha256([spec, metric.name, metric.given, score_versions(cell, metric), *digest])


def score_versions(cell: Cell, metric: MetricName) -> dict[str, Any]:
    """Return the version of everything that a score rests on but for the fit, by kind."""
    reference = cell.settings.reference
    return {
        "scoring": SCORING_VERSION,
        "preparation": PREPARATION_VERSION,
        "score": _score_version(metric),
        "reference": version_of(reference.build()) if reference else None,
        "posterior": {family.__name__: version_of(family) for family in _families(cell.settings.method.build())},
    }


def outside_files(cell: Cell) -> dict[str, str]:
    """Return the files of the cell's components that live outside the package, and decide its fits: name to digest.

    They are recorded with the fits, whose hash they are no part of: a change of such a file is noticed and told.
    """
    entry = cell.settings
    reference = entry.reference if entry.from_reference else None
    parts = (entry.method, entry.model, entry.likelihood, entry.prior, reference)
    components: list[object] = [part.build() for part in parts if part is not None]
    components += [source for own in list(components) for source in getattr(own, "sources", ())]
    components += [METRICS.get(entry.search.metric.name)] if entry.search else []
    return dict(filter(None, map(outside_file, components)))


def joint_hash(hashes: Iterable[str]) -> str:
    """Hash a set of hashes, SHA-256 (hex)."""
    return sha256(sorted(set(hashes)))


def data_checksum(cell: Cell) -> str:
    """Return the checksum of the data; of simulated ones, which their settings and version identify, the word."""
    return "simulated" if cell.settings.streams or cell.data.simulated else cell.data.checksum


def _score_version(metric: MetricName) -> int:
    return version_of(METRICS.get(metric.name))


def _families(method: Method) -> list[type]:
    """List the families of posteriors that a method says it gives, by the annotation of what returns them."""
    if isinstance(method, Direct):
        maker: Callable[..., Any] = type(method).fit
    elif isinstance(method, MinibatchMethod | StreamMethod):
        maker = type(method).posterior
    else:
        return []
    returned = get_type_hints(maker).get("return")
    found = get_args(returned) or (returned,)
    return sorted((kind for kind in found if isinstance(kind, type)), key=lambda kind: kind.__name__)

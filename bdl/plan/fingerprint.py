"""What decides a fit, and what decides a score, as two hashes.

A fit depends on its part of the spec, on the data, and on the code of its method, model, likelihood, prior and
engine; where hyper-parameters are searched, also on the score that steers the search. A score depends on its own
code and settings. Changing one score therefore leaves every fit, and every other score, what it is.
"""

import hashlib
from collections.abc import Iterable
from functools import lru_cache

from bdl.metrics import METRICS
from bdl.plan.cell import Cell
from bdl.plan.closure import code_hash
from bdl.spec import canonical
from bdl.spec.labels import MetricName

_DATA = ("bdl.data.preparation", "bdl.data.scaling")
_FITTINGS = {"streams": "bdl.training.streaming", "direct": "bdl.training.direct", "minibatches": "bdl.training.engine"}
_SEARCH = ("bdl.search.crossval", "bdl.search.study")
_SCORING = ("bdl.metrics.evaluation", "bdl.execution.scoring", *_DATA)


def fit_hash(cell: Cell) -> str:
    """Hash what decides the cell's fits: its spec, the data and the code, SHA-256 (hex)."""
    entry = cell.settings
    reference = entry.reference if entry.from_reference else None
    parts = (entry.method, entry.model, entry.likelihood, entry.prior, reference)
    kind = "streams" if entry.streams else "direct" if entry.direct else "minibatches"
    roots = [*_DATA, _FITTINGS[kind], *(root for part in parts if part is not None for root in _modules(part.build()))]
    if entry.search:
        roots += [*_SEARCH, _score_module(entry.search.metric)]
    checksum = (cell.stream if entry.streams else cell.data).checksum
    spec = cell.benchmark.fit_part(cell.dataset, cell.entry)
    return _sha256(canonical(spec), checksum, _code(tuple(roots)))


def score_hash(cell: Cell, metric: MetricName) -> str:
    """Hash what decides a score but for the fit, SHA-256 (hex)."""
    reference = cell.settings.reference
    roots = [*_SCORING, _score_module(metric), *(_modules(reference.build()) if reference else ())]
    spec = cell.benchmark.score_part(cell.dataset, cell.entry)
    return _sha256(canonical([spec, metric.name, metric.settings]), _code(tuple(roots)))


def joint_hash(hashes: Iterable[str]) -> str:
    """Hash a set of hashes, SHA-256 (hex)."""
    return _sha256(*sorted(set(hashes)))


@lru_cache(maxsize=256)
def _code(roots: tuple[str, ...]) -> str:
    return code_hash(roots)


def _score_module(metric: MetricName) -> str:
    found: str = METRICS.get(metric.name).__module__
    return found


def _modules(component: object) -> tuple[str, ...]:
    """Name the module of a component's class, and those of code that the component is given, such as a factory."""
    return type(component).__module__, *getattr(component, "sources", ())


def _sha256(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()

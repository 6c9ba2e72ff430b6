"""All golden cases by kind: one for each branch that a shipped benchmark takes, and for each registered name."""

from collections.abc import Callable, Iterator, Mapping

from bdl.data import DATASETS
from goldens import methods, parts, scores, shared
from goldens.case import REGISTRIES, Case
from goldens.shipped_settings import Settings, branches, default, used

MAKE: dict[str, Callable[[Settings], Case]] = {
    "method": methods.case,
    "metric": scores.case,
    "model": parts.model,
    "likelihood": parts.likelihood,
    "prior": parts.prior,
    "rate": parts.rate,
    "posterior": parts.family,
    "reference": parts.reference,
    "dataset": parts.dataset,
    "preparation": shared.prepared,
    "search": shared.search,
}
"""Kinds whose cases have settings, and what makes one of them."""
FIXED: dict[str, Callable[[], list[Case]]] = {
    "engine": lambda: list(shared.engine()),
    "preparation": lambda: list(shared.preparation()),
    "scoring": lambda: [scores.predictions()],
    "search": lambda: [shared.crossval()],
}
"""Kinds with cases that no settings choose."""
KINDS = tuple(dict.fromkeys((*MAKE, *FIXED)))
_NO_FILES = "it is made of files, whose rows have a checksum"
_OTHER_PACKAGE = "its weights come in a package of the extra vision; it has tests of its own"
SKIPPED = {
    **{f"metric:{name}": reason for name, reason in scores.SKIPPED.items()},
    **{
        f"dataset:{name}": _NO_FILES
        for name in DATASETS.names()
        if getattr(DATASETS.get(name), "files", ())
    },
    "dataset:aptos2019": _NO_FILES,
    "dataset:openml": _NO_FILES,
    "bdl.models.efficientnet:efficientnet_lite0": _OTHER_PACKAGE,
    "bdl.models.efficientnet:last_stage": _OTHER_PACKAGE,
    "bdl.models.resnet:torchvision": "it downloads its weights; `resnet18` is the same network",
}
"""Registered names, and factories of the model ``module``, without a case, and why."""


def cases(kind: str, stored: Mapping[str, Mapping[str, object]]) -> list[Case]:
    """Make the cases of a kind.

    Parameters
    ----------
    kind
        One of `KINDS`.
    stored
        Stored cases by name: of several settings of the same branches, those that are stored are
        taken.
    """
    chosen: dict[str, Settings] = {}
    for settings in (*_stored(stored), *_wanted(kind)):
        chosen.setdefault(branches(settings), settings)
    wanted = {branches(settings) for settings in _wanted(kind)}
    made = [MAKE[kind](settings) for key, settings in chosen.items() if key in wanted]
    return sorted(made + FIXED.get(kind, list)(), key=lambda case: case.name)


def _stored(stored: Mapping[str, Mapping[str, object]]) -> Iterator[Settings]:
    for kept in stored.values():
        if isinstance(settings := kept.get("settings"), dict):
            yield settings


def _wanted(kind: str) -> Iterator[Settings]:
    """Yield all settings that need a case; of each name that no benchmark uses, the defaults."""
    given = [settings for settings in used().get(kind, []) if not _skipped(kind, settings)]
    yield from given
    if kind not in REGISTRIES:
        return
    names = {(settings["method"] if kind == "method" else settings)["name"] for settings in given}
    for name in REGISTRIES[kind].names():
        if name not in names and f"{kind}:{name}" not in SKIPPED:
            settings = default(kind, name) or {"name": name}
            yield {"method": settings} if kind == "method" else settings


def _skipped(kind: str, settings: Settings) -> bool:
    return f"{kind}:{settings.get('name')}" in SKIPPED or settings.get("factory") in SKIPPED

"""Names as MLflow takes them: letters, digits, ``_``, ``-``, ``.``, spaces and ``/``, 250 characters at most."""

import re
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from bdl.errors import InputError
from bdl.spec.canonical import sha256

if TYPE_CHECKING:
    from bdl.spec import Benchmark

COUNTS = ("trials", "trials_failed")
STATISTICS = ("", "_median", "_se")
"""What follows the name of a metric, for the mean and others."""

_LONGEST = 200
"""Characters, which leaves package for what goes before and after."""
_DIGITS = 8
"""Of the digest that tells apart names which would otherwise read the same."""


def mirrored(name: str) -> str:
    """Return the name that a metric or parameter has in MLflow: its own where MLflow takes it, else one like it.

    Two names are never the same there. A ``/`` between two parts stays.
    """
    parts = [re.sub(r"[^\w. -]", "_", part) for part in name.split("/")]
    plain = "/".join("_" * len(part) if part in (".", "..") else part for part in parts if part)
    if plain == name and len(name) <= _LONGEST:
        return name
    return f"{plain[: _LONGEST - _DIGITS - 1]}-{sha256(name)[:_DIGITS]}"


def check_names(metrics: Sequence[str]) -> None:
    """Refuse metrics whose numbers would have one name in MLflow, before anything is run.

    Raises
    ------
    InputError
        If one is called as a statistic of another is, or as a count.
    """
    numbers = Counter([*COUNTS, *(mirrored(name) + statistic for name in metrics for statistic in STATISTICS)])
    for name in metrics:
        if numbers[mirrored(name)] > 1:
            raise InputError(
                f"metrics: in MLflow '{name}' is the name of another number; give it another label, or --tracking none"
            )


def experiment_name(benchmark: "Benchmark", variant: str) -> str:
    """Name the experiment of a benchmark, under its profile, or of a variant of it."""
    told = [part for part in (benchmark.profile, variant) if part not in ("paper", "")]
    return f"{benchmark.name} ({', '.join(told)})" if told else benchmark.name

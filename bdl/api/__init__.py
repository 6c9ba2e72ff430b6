"""For programs: run a benchmark, read results, load a posterior, fit arrays of one's own."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bdl.api.arrays import fit
    from bdl.api.benchmarks import Benchmark, Results, benchmark, posterior, results
    from bdl.api.calibrated import Calibration, calibration
    from bdl.api.estimators import Classifier, Regressor
    from bdl.api.exporting import export
    from bdl.api.fitted import Fitted, load

__all__ = [
    "Benchmark",
    "Calibration",
    "Classifier",
    "Fitted",
    "Regressor",
    "Results",
    "benchmark",
    "calibration",
    "export",
    "fit",
    "load",
    "posterior",
    "results",
]

_MODULES = {
    "arrays": ["fit"],
    "benchmarks": ["Benchmark", "Results", "benchmark", "posterior", "results"],
    "calibrated": ["Calibration", "calibration"],
    "estimators": ["Classifier", "Regressor"],
    "exporting": ["export"],
    "fitted": ["Fitted", "load"],
}
"""Where the names are: the command line needs no estimators, and these take a second to import."""


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"bdl.api.{module}"), name)
    raise AttributeError(f"module 'bdl.api' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted(__all__)

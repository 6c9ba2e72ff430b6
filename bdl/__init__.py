"""bdl-bench: benchmarks for Bayesian deep learning.

Notes
-----
The Python API is in `bdl.api`, which is imported when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bdl.api import (
        Classifier,
        Fitted,
        Regressor,
        benchmark,
        calibration,
        export,
        fit,
        load,
        posterior,
        results,
    )

__version__: str

__all__ = [
    "Classifier",
    "Fitted",
    "Regressor",
    "__version__",
    "benchmark",
    "calibration",
    "export",
    "fit",
    "load",
    "posterior",
    "results",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("bdl-bench")
    if name not in __all__:
        raise AttributeError(f"module 'bdl' has no attribute '{name}'")
    return getattr(import_module("bdl.api"), name)


def __dir__() -> list[str]:
    return sorted(__all__)

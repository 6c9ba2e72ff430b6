"""bdl-bench: benchmarks for Bayesian deep learning.

Notes
-----
What it offers to programs is in `bdl.api`, which is imported when it is first asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bdl.api import Classifier, Regressor, benchmark, export, fit, load, posterior, results

__version__ = "0.1.0"

__all__ = ["Classifier", "Regressor", "__version__", "benchmark", "export", "fit", "load", "posterior", "results"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'bdl' has no attribute '{name}'")
    return getattr(import_module("bdl.api"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

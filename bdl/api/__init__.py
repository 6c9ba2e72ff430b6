"""For programs: run a benchmark, read results, load a posterior, fit arrays of one's own."""

from bdl.api.arrays import fit
from bdl.api.benchmarks import Benchmark, benchmark
from bdl.api.estimators import Classifier, Regressor
from bdl.api.exporting import export
from bdl.api.fitted import Fitted, load
from bdl.api.reading import Results, posterior, results

__all__ = [
    "Benchmark",
    "Classifier",
    "Fitted",
    "Regressor",
    "Results",
    "benchmark",
    "export",
    "fit",
    "load",
    "posterior",
    "results",
]

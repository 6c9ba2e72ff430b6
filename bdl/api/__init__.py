"""For programs: run a benchmark, read results, load a posterior, fit arrays of one's own."""

from bdl.api.arrays import fit
from bdl.api.benchmarks import Benchmark, benchmark
from bdl.api.calibration import Calibration, calibration
from bdl.api.estimators import Classifier, Regressor
from bdl.api.fitted import Fitted, load
from bdl.api.reading import Results, posterior, results

__all__ = [
    "Benchmark",
    "Calibration",
    "Classifier",
    "Fitted",
    "Regressor",
    "Results",
    "benchmark",
    "calibration",
    "fit",
    "load",
    "posterior",
    "results",
]

"""For programs: run a benchmark, read results, load a posterior, fit arrays of one's own."""

from bdl.api.arrays import fit
from bdl.api.benchmarks import Benchmark, benchmark
from bdl.api.fitted import Fitted
from bdl.api.reading import Results, posterior, results
from bdl.api.regressor import Regressor

__all__ = ["Benchmark", "Fitted", "Regressor", "Results", "benchmark", "fit", "posterior", "results"]

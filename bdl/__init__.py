"""bdl-bench: benchmarks for Bayesian deep learning."""

__version__ = "0.1.0"

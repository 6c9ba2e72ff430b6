"""Posterior families over a flat parameter vector: pure tensor mathematics, no training."""

from bdl.posteriors.base import GaussianPosterior, Posterior, kl_divergence
from bdl.posteriors.empirical import Dropout, Empirical, Point, Weighted
from bdl.posteriors.full import (
    FullGaussian,
    FullPrecision,
    LastLayer,
    Linearised,
    Traced,
    cholesky_or_nan,
)
from bdl.posteriors.independent import DiagonalGaussian, Scaled, StudentT
from bdl.posteriors.kronecker import KroneckerGaussian
from bdl.posteriors.low_rank import FactorAnalysis, LowRankPrecision, Mixture
from bdl.posteriors.tensors import FAMILIES, from_tensors, to_tensors

Gaussian = GaussianPosterior  # alias until 0.3

__all__ = [
    "FAMILIES",
    "DiagonalGaussian",
    "Dropout",
    "Empirical",
    "FactorAnalysis",
    "FullGaussian",
    "FullPrecision",
    "Gaussian",
    "GaussianPosterior",
    "KroneckerGaussian",
    "LastLayer",
    "Linearised",
    "LowRankPrecision",
    "Mixture",
    "Point",
    "Posterior",
    "Scaled",
    "StudentT",
    "Traced",
    "Weighted",
    "cholesky_or_nan",
    "from_tensors",
    "kl_divergence",
    "to_tensors",
]

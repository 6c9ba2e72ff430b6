"""Posterior families over a flat parameter vector: pure tensor mathematics, no training."""

from bdl.posteriors.base import Gaussian, Posterior
from bdl.posteriors.diagonal import DiagonalGaussian
from bdl.posteriors.dropout import Dropout
from bdl.posteriors.empirical import Empirical, Weighted
from bdl.posteriors.full import FullGaussian, FullPrecision, Linearised, Traced
from bdl.posteriors.kl import kl_divergence
from bdl.posteriors.kronecker import KroneckerGaussian
from bdl.posteriors.last_layer import LastLayer
from bdl.posteriors.low_rank import FactorAnalysis, LowRankPrecision
from bdl.posteriors.mixture import Mixture
from bdl.posteriors.point import Point
from bdl.posteriors.scaled import Scaled
from bdl.posteriors.student_t import StudentT
from bdl.posteriors.tensors import FAMILIES, from_tensors, to_tensors

__all__ = [
    "FAMILIES",
    "DiagonalGaussian",
    "Dropout",
    "Empirical",
    "FactorAnalysis",
    "FullGaussian",
    "FullPrecision",
    "Gaussian",
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
    "from_tensors",
    "kl_divergence",
    "to_tensors",
]

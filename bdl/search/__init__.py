"""Hyper-parameter search by cross-validation."""

from bdl.search.crossval import FoldScore, best_setting, cross_validate
from bdl.search.study import SAMPLERS, Range, Study

__all__ = ["SAMPLERS", "FoldScore", "Range", "Study", "best_setting", "cross_validate"]

"""Hyper-parameter search by cross-validation: proposals, scores, choice."""

from bdl.search.crossval import FoldScore, best_setting, cross_validate, told
from bdl.search.study import Range, SearchSettings, per_round, propose

__all__ = ["FoldScore", "Range", "SearchSettings", "best_setting", "cross_validate", "per_round", "propose", "told"]

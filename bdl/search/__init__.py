"""Hyper-parameter search by cross-validation: proposals, scores, choice."""

from bdl.search.crossval import FoldScore, best_setting, cross_validate, told
from bdl.search.study import Plan, Range, per_round, propose

__all__ = ["FoldScore", "Plan", "Range", "best_setting", "cross_validate", "per_round", "propose", "told"]

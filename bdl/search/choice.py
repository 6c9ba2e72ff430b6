"""Choice of the best setting of a search from the scores of its folds."""

from collections.abc import Sequence
from math import inf, nan
from statistics import fmean

from bdl.search.crossval import FoldScore
from bdl.search.proposals import Setting


def choose_best_setting(scores: Sequence[FoldScore]) -> Setting | None:
    """Choose the setting of one split with the lowest mean score.

    None if none finished all its folds.
    """
    best: Setting | None = None
    lowest = inf
    for fold_scores in _group_by_trial(scores).values():
        # a trial that lost folds has its mean over others than the rest: they do not compare
        if any(score.reason for score in fold_scores):
            continue
        mean = fmean(score.score for score in fold_scores)
        # of equal means the earlier trial wins
        if best is None or mean < lowest:
            best, lowest = fold_scores[0].hyper, mean
    return best


def summarise_trials(
    scores: Sequence[FoldScore], penalty: float | None
) -> list[tuple[Setting, float]]:
    """Return the settings of one split with their mean scores over the folds, for `propose`.

    `penalty` is the score of a failed fold; None stands for the worst score of a finished one, NaN
    if there is none.
    """
    if penalty is None:
        # a Gaussian process is fitted to finite scores only
        penalty = max((score.score for score in scores if not score.reason), default=nan)
    scored = []
    for fold_scores in _group_by_trial(scores).values():
        mean = fmean(penalty if score.reason else score.score for score in fold_scores)
        scored.append((fold_scores[0].hyper, mean))
    return scored


def _group_by_trial(scores: Sequence[FoldScore]) -> dict[int, list[FoldScore]]:
    by_trial: dict[int, list[FoldScore]] = {}
    for score in scores:
        by_trial.setdefault(score.trial, []).append(score)
    return by_trial

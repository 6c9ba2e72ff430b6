"""Proposing hyper-parameters: optuna samplers through ask-and-tell."""

from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from typing import Literal, Protocol

import optuna
from optuna.distributions import BaseDistribution, FloatDistribution
from optuna.samplers import BaseSampler, RandomSampler
from optuna.trial import TrialState

Setting = dict[str, float]


class Range(Protocol):
    """Where a hyper-parameter is searched."""

    @property
    def low(self) -> float:
        """Lower end."""

    @property
    def high(self) -> float:
        """Upper end."""

    @property
    def scale(self) -> Literal["log", "linear"]:
        """Uniform in the logarithm, or in the value."""


SAMPLERS: dict[str, Callable[[int], BaseSampler]] = {
    "random": lambda seed: RandomSampler(seed=seed),
}
"""Samplers by name, each made from a seed."""


class Study:
    """The search of one split: asks for settings, is told their scores (lower is better).

    Parameters
    ----------
    space
        Ranges by name; settings are drawn in this order.
    sampler
        A name in `SAMPLERS`.
    seed
        Of the sampler.
    """

    def __init__(self, space: Mapping[str, Range], sampler: str, seed: int) -> None:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._space: dict[str, BaseDistribution] = {
            name: FloatDistribution(found.low, found.high, log=found.scale == "log") for name, found in space.items()
        }
        self._study = optuna.create_study(direction="minimize", sampler=SAMPLERS[sampler](seed))
        self._asked: list[optuna.Trial] = []

    def ask(self, n: int) -> list[Setting]:
        """Propose n settings at once."""
        self._asked = [self._study.ask(self._space) for _ in range(n)]
        return [dict(trial.params) for trial in self._asked]

    def tell(self, scores: Sequence[float]) -> None:
        """Report the scores of the settings asked for last; a non-finite score is a failure."""
        for trial, score in zip(self._asked, scores, strict=True):
            failed = not isfinite(score)
            self._study.tell(trial, None if failed else score, state=TrialState.FAIL if failed else TrialState.COMPLETE)

"""Hyper-parameter search by cross-validation: a study is told what was scored, and asked what to try next.

A study keeps no state between its rounds. Each round makes it anew from its seed and from what it
is told, so that an interrupted search goes on as it would have gone, and studies that advance
together propose what each would alone.
"""

from collections.abc import Sequence
from itertools import product
from math import isnan
from typing import TYPE_CHECKING

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, FloatDistribution
from optuna.samplers import BaseSampler, GPSampler, RandomSampler
from optuna.trial import TrialState, create_trial

if TYPE_CHECKING:
    from bdl.spec import Search

Setting = dict[str, float]
Told = Sequence[tuple[Setting, float]]
"""Settings and their scores, in the order in which they were proposed; NaN where there is no
score.
"""


def per_round(search: "Search") -> int:
    """Count the settings of a round: all that do not follow the scores, one of a Bayesian search, which does."""
    return 1 if search.sampler == "bayesian" else search.trials


def propose(search: "Search", seed: int, told: Told) -> list[Setting]:
    """Propose the settings of a study's next round: the same for the same arguments.

    `told` is what the rounds so far proposed, and how it scored (lower is better); of a setting
    only what the space names is heeded. The random settings of a Bayesian search are the first
    ones of a random search. Its guided settings maximise the expected improvement under a Gaussian
    process (Matern 5/2, a length scale for each hyper-parameter) on the unit cube, to which log
    ranges are mapped by the logarithm (`optuna.samplers.GPSampler`). A grid is gone through with
    the value of its last name changing fastest.
    """
    if search.sampler == "grid":
        points = [
            dict(zip(search.grid, point, strict=True)) for point in product(*search.grid.values())
        ]
        return points[len(told) :]
    first = search.trials if search.sampler == "random" else search.startup
    if len(told) < first:
        drawn = _asked(search, RandomSampler(seed=seed), (), first)
        return drawn[len(told) : len(told) + per_round(search)]
    fresh = int(np.random.SeedSequence([seed, len(told)]).generate_state(1)[0])
    return _asked(search, GPSampler(seed=fresh, n_startup_trials=1), told, 1)


def _asked(search: "Search", sampler: BaseSampler, told: Told, n: int) -> list[Setting]:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    space: dict[str, BaseDistribution] = {
        name: FloatDistribution(found.low, found.high, log=found.scale == "log")
        for name, found in search.space.items()
    }
    study = optuna.create_study(direction="minimize", sampler=sampler)
    for setting, score in told:
        params = {name: setting[name] for name in space}
        state, value = (TrialState.FAIL, None) if isnan(score) else (TrialState.COMPLETE, score)
        study.add_trial(create_trial(params=params, distributions=space, state=state, value=value))
    return [dict(study.ask(space).params) for _ in range(n)]

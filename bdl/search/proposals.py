"""Proposals of a search: settings to try next, from those that were scored.

A study keeps no state between its rounds. Each round makes it anew from its seed and from the
settings scored so far, so that an interrupted search goes on as it would have gone, and studies
that advance together propose the same settings as each would alone.
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
ScoredSettings = Sequence[tuple[Setting, float]]
"""Settings and their scores, in the order in which they were proposed; NaN where there is no
score.
"""


def count_settings_per_round(search: "Search") -> int:
    """Count the settings of a round.

    One in a Bayesian search, which follows the scores; all in any other.
    """
    return 1 if search.sampler == "bayesian" else search.trials


def propose(search: "Search", seed: int, scored: ScoredSettings) -> list[Setting]:
    """Propose the settings of a study's next round: the same for the same arguments.

    `scored` has the settings of the rounds so far, and their scores (lower is better); of a
    setting only the names of the space are heeded. The random settings of a Bayesian search are
    the first ones of a random search. Its guided settings maximise the expected improvement under
    a Gaussian process (Matern 5/2, a length scale for each hyper-parameter) on the unit cube, to
    which log ranges are mapped by the logarithm (`optuna.samplers.GPSampler`). A grid is gone
    through with the value of its last name changing fastest.
    """
    if search.sampler == "grid":
        points = [
            dict(zip(search.grid, point, strict=True)) for point in product(*search.grid.values())
        ]
        return points[len(scored) :]
    first = search.trials if search.sampler == "random" else search.startup
    if len(scored) < first:
        # All are drawn in every round, so that an interrupted search goes on with the same ones.
        random_settings = _ask_sampler(search, RandomSampler(seed=seed), (), first)
        return random_settings[len(scored) : len(scored) + count_settings_per_round(search)]
    # A sampler of its own for each guided setting, seeded by how many came before.
    round_seed = int(np.random.SeedSequence([seed, len(scored)]).generate_state(1)[0])
    return _ask_sampler(search, GPSampler(seed=round_seed, n_startup_trials=1), scored, 1)


def _ask_sampler(
    search: "Search", sampler: BaseSampler, scored: ScoredSettings, n: int
) -> list[Setting]:
    """Ask a sampler for n settings in a study that has the scored ones."""
    # its lines on each trial would run through the progress of the run
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    space: dict[str, BaseDistribution] = {
        name: FloatDistribution(bounds.low, bounds.high, log=bounds.scale == "log")
        for name, bounds in search.space.items()
    }
    study = optuna.create_study(direction="minimize", sampler=sampler)
    for setting, score in scored:
        # fixed hyper-parameters, which a setting has as well, are no parameters of the study
        params = {name: setting[name] for name in space}
        # a sampler fits its model to complete trials, and leaves out those that failed
        state, value = (TrialState.FAIL, None) if isnan(score) else (TrialState.COMPLETE, score)
        study.add_trial(create_trial(params=params, distributions=space, state=state, value=value))
    return [dict(study.ask(space).params) for _ in range(n)]

"""Versions of the mathematics: numbers that were made under one version are those that it gives today.

A component has a version of its own, an integer that changes with what it computes and with nothing else. Golden trials
hold it to that: digits that move while the version stays fail a test (``python scripts/golden.py --help``).
"""

ENGINE_VERSION = 1
"""Of training: random numbers, minibatches, schedules, batches of trials, streams, direct fits."""

PREPARATION_VERSION = 1
"""Of splits and standardisation."""

SCORING_VERSION = 1
"""Of how a posterior is evaluated: samples, predictions, the way back to original units."""

SEARCH_VERSION = 1
"""Of proposals of hyper-parameters, folds, and the choice of the best."""


def version_of(component: object) -> int:
    """Return the version of a component or of its class; 1 for one that does not say."""
    return int(getattr(component, "version", 1))

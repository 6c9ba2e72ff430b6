"""Versions of the code that every result rests on.

A version is a whole number. It goes up by one when the digits of a fit or of a score change; what
does not change them, a renamed function or a new message, leaves it alone. ``scripts/golden.py``
holds the digits against the versions.
"""

ENGINE_VERSION = 1
"""Version of the training of batches: random numbers, minibatches, schedules, the batched engine
and streams.
"""

PREPARATION_VERSION = 1
"""Version of the preparation of data: splits and standardisation."""

SCORING_VERSION = 1
"""Version of how a posterior is evaluated: predictions and restoring units."""

SEARCH_VERSION = 1
"""Version of searches: proposals and folds."""


def version_of(component: object) -> int:
    """Return the version of a component, a class or a function.

    That is its attribute ``version``, 1 where it has none.
    """
    return getattr(component, "version", 1)

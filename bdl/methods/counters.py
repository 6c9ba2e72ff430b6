"""Counters of a fit's updates and epochs on the host.

Methods, rates and evaluations branch on them, and never on the value of a tensor.
"""

from typing import NamedTuple


class StepCounters(NamedTuple):
    """Updates and epochs made, the update in question included."""

    updates: int  # Updates made; the observations seen, for a stream
    epochs: int = 0  # Whole passes over the rows whose updates are all made
    ended: bool = True  # Whether this update is the last of an epoch
    per_epoch: float = 0.0
    """Updates of an epoch; not a whole number where an update takes minibatches of two epochs. 0
    without epochs.
    """
    total: int = 0  # Updates of the whole fit; 0 where nothing counts them

    @property
    def epoch(self) -> int:
        """Number of the epoch that this update belongs to, from 0."""
        return self.epochs - self.ended

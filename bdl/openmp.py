"""How threads of OpenMP wait for each other."""

import os

SPINS = "2000"
"""Turns that a thread waits awake, some ten microseconds."""


def wait_briefly() -> None:
    """Let threads fall asleep soon where the environment says nothing; for before torch is imported.

    By itself libgomp waits awake for milliseconds. Where something else needs a core, the thread that is waited for
    does not get it, and a run may take five times as long. On a quiet machine brief waits cost a tenth at most.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", SPINS)

"""Threads of numerical libraries: how they wait for each other, and where there is to be one alone.

Libraries split sums of linear algebra that is not batched among threads, and round accordingly.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager

SPINS = "2000"
"""Turns that a thread waits awake, some ten microseconds."""


def wait_briefly() -> None:
    """Let threads of OpenMP fall asleep soon where the environment says nothing; for before torch is imported.

    By itself libgomp waits awake for milliseconds. Where something else needs a core, the thread that is waited for
    does not get it, and a run may take five times as long. On a quiet machine brief waits cost a tenth at most.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", SPINS)


@contextmanager
def one_thread() -> Iterator[None]:
    """Do a block, or as a decorator a function, on one thread: its bits are then those of any number of threads."""
    import scipy.linalg  # noqa: F401  whose threads can be limited only once it is there
    import torch
    from threadpoolctl import threadpool_limits

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1):
            yield
    finally:
        torch.set_num_threads(before)

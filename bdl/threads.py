"""One thread for linear algebra that is not batched: libraries split its sums among threads, and round accordingly."""

from collections.abc import Iterator
from contextlib import contextmanager


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

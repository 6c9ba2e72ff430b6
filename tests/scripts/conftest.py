"""The scripts are not part of the package: put their folder on the import path, as running one does."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))


@pytest.fixture(autouse=True, scope="module")
def _machine() -> Iterator[None]:
    """Return the process its cores, its threads and its compiler's cache, which benchmarks change."""
    cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None
    threads = torch.get_num_threads()
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
        yield
    if cores is not None:
        os.sched_setaffinity(0, cores)
    torch.set_num_threads(threads)

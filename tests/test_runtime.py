"""How threads wait, and one thread where it decides the bits."""

import gc
import os
import subprocess
import sys
import time
from contextlib import suppress

import pytest
import torch

from bdl.runtime import SPINS, importing, in_time, one_thread, wait_briefly


@pytest.mark.parametrize(
    ("said", "spins"),
    [({}, SPINS), ({"GOMP_SPINCOUNT": "7"}, "7"), ({"OMP_WAIT_POLICY": "ACTIVE"}, None)],
)
def test_threads_wait_briefly_unless_told_otherwise(monkeypatch, said, spins):
    monkeypatch.setattr(os, "environ", dict(said))
    wait_briefly()
    assert os.environ.get("GOMP_SPINCOUNT") == spins


def test_commands_say_so_before_torch_is_there():
    """libgomp reads its environment when it is loaded."""
    script = (
        "import os, sys\n"
        "from bdl import cli\n"
        "sys.argv = ['bdl-bench', '--version']\n"
        "assert 'torch' not in sys.modules\n"
        "try: cli.main()\n"
        "finally: print(os.environ['GOMP_SPINCOUNT'])\n"
    )
    quiet = {name: value for name, value in os.environ.items() if name not in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")}
    done = subprocess.run([sys.executable, "-c", script], env=quiet, capture_output=True, text=True, check=True)
    assert done.stdout.split()[-1] == SPINS


def test_imports_are_not_searched_for_garbage():
    """Nothing is collected in the block, nor is what it made looked at later; what comes after is."""
    with importing():
        kept = [[] for _ in range(10)]
        assert not gc.isenabled()
    assert gc.isenabled()
    assert not {*map(id, gc.get_objects())} & {*map(id, kept)}
    gc.unfreeze()


def test_one_thread_is_one_for_a_while():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with one_thread():
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_time_that_is_over_is_told_again():
    """A library that takes the first alarm for an error of its own goes on for a second."""

    def deaf():
        with suppress(TimeoutError):
            time.sleep(0.5)
        time.sleep(5)

    with in_time(0.01, TimeoutError("over")), pytest.raises(TimeoutError, match="over"):
        deaf()

"""Memory of large tensors, how threads wait, one thread where it decides the bits, and limits of time."""

import gc
import os
import subprocess
import sys
import time
from contextlib import suppress

import pytest
import torch

from bdl import runtime
from bdl.runtime import SPINS, frozen_imports, one_thread, time_limit, wait_briefly

SMALL_PAGES = "import ctypes\nctypes.CDLL(None).prctl(41, 1, 0, 0, 0)\n"
"""Of 4 kB (PR_SET_THP_DISABLE), whatever the system does of itself; what it starts has them, too.
"""
TENSORS = (
    "import resource, torch\n"
    "def faults(): return resource.getrusage(resource.RUSAGE_SELF).ru_minflt\n"
    "for _ in range(3): torch.ones(11_000_000).add(1)\n"
    "before = faults()\n"
    "for _ in range(6): torch.ones(11_000_000).add(1)\n"
    "print(faults() - before)\n"
)
"""Pages fetched for 12 tensors of 44 MB, after others like them: fresh ones are 12 times 11,000
of 4 kB.
"""
COMMAND = (
    "import os, sys\nfrom bdl import cli\nsys.argv = ['bdl-bench', '--version']\n"
    "assert 'torch' not in sys.modules\ntry: cli.main()\nexcept SystemExit: pass\n"
    # libgomp reads its environment when it is loaded
    f"assert os.environ['GOMP_SPINCOUNT'] == {SPINS!r}\n"
)
CHILD = f"import subprocess\nsys.exit(subprocess.run([sys.executable, '-c', {TENSORS!r}]).returncode)\n"
SAID = ("MALLOC_", "THP_", "GLIBC_TUNABLES", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
QUIET = {name: value for name, value in os.environ.items() if not name.startswith(SAID)}


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc is that of Linux")
@pytest.mark.parametrize(
    ("script", "fresh"),
    [
        pytest.param(TENSORS, True, id="without a command"),
        pytest.param(COMMAND + TENSORS, False, id="command"),
        pytest.param(COMMAND + CHILD, False, id="its processes"),
    ],
)
def test_commands_and_their_processes_keep_pages(script, fresh):
    command = [sys.executable, "-c", SMALL_PAGES + script]
    done = subprocess.run(command, env=QUIET, capture_output=True, text=True, check=True)
    pages = int(done.stdout.split()[-1])
    assert pages > 100_000 if fresh else pages < 1000


@pytest.mark.parametrize(
    "said", [{}, {"MALLOC_ARENA_MAX": "1"}, {"GLIBC_TUNABLES": "glibc.malloc.arena_max=1"}]
)
def test_an_environment_that_says_something_of_memory_is_left_alone(monkeypatch, said):
    set_options = []
    monkeypatch.setattr(runtime, "_mallopt", set_options.append)
    monkeypatch.setattr(os, "environ", dict(said))
    monkeypatch.setattr(os, "getenv", lambda name, other=None: said.get(name, other))
    runtime.keep_pages()
    assert bool(set_options) == (not said)
    assert said or "MALLOC_MMAP_MAX_" in os.environ


@pytest.mark.parametrize(
    ("said", "spins"),
    [({}, SPINS), ({"GOMP_SPINCOUNT": "7"}, "7"), ({"OMP_WAIT_POLICY": "ACTIVE"}, None)],
)
def test_threads_wait_briefly_unless_told_otherwise(monkeypatch, said, spins):
    monkeypatch.setattr(os, "environ", dict(said))
    wait_briefly()
    assert os.environ.get("GOMP_SPINCOUNT") == spins


def test_imports_are_not_searched_for_garbage():
    """Nothing is collected in the block, nor is what it made looked at later.

    What comes after is.
    """
    with frozen_imports():
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

    with time_limit(0.01, TimeoutError("over")), pytest.raises(TimeoutError, match="over"):
        deaf()

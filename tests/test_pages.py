"""Memory of large tensors: taken from the system once, and not again for the next."""

import os
import subprocess
import sys

import pytest

SMALL_PAGES = "import ctypes\nctypes.CDLL(None).prctl(41, 1, 0, 0, 0)\n"
"""Of 4 kB (PR_SET_THP_DISABLE), whatever the system does of itself; what it starts has them, too."""
TENSORS = (
    "import resource, torch\n"
    "def faults(): return resource.getrusage(resource.RUSAGE_SELF).ru_minflt\n"
    "for _ in range(3): torch.ones(11_000_000).add(1)\n"
    "before = faults()\n"
    "for _ in range(6): torch.ones(11_000_000).add(1)\n"
    "print(faults() - before)\n"
)
"""Pages fetched for 12 tensors of 44 MB, after others like them."""
COMMAND = (
    "import sys\nfrom bdl import cli\nsys.argv = ['bdl-bench', '--version']\ntry: cli.main()\nexcept SystemExit: pass\n"
)
CHILD = "import subprocess\nsys.exit(subprocess.run([sys.executable, '-c', 'TENSORS']).returncode)\n"
SAID = ("MALLOC_", "THP_", "GLIBC_TUNABLES")
QUIET = {name: value for name, value in os.environ.items() if not name.startswith(SAID)}

glibc = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc is that of Linux")


def _printed(script: str, **environment: str) -> int:
    done = subprocess.run(
        [sys.executable, "-c", SMALL_PAGES + script],
        env=QUIET | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return int(done.stdout.split()[-1])


@glibc
def test_without_it_every_large_tensor_has_fresh_pages():
    assert _printed(TENSORS) > 100_000  # 12 times 11,000 of 4 kB


@glibc
@pytest.mark.parametrize("script", [COMMAND + TENSORS, COMMAND + CHILD.replace("'TENSORS'", repr(TENSORS))])
def test_commands_and_their_processes_keep_pages(script):
    assert _printed(script) < 1000


@glibc
@pytest.mark.parametrize(
    "environment", [{"MALLOC_ARENA_MAX": "1"}, {"GLIBC_TUNABLES": "glibc.rtld.nns=4:glibc.malloc.arena_max=1"}]
)
def test_an_environment_that_says_otherwise_is_left_alone(environment):
    assert _printed(COMMAND + TENSORS, **environment) > 100_000

"""The command line, called in this process; one thread for each process where several run tests."""

import os
import sys

import pytest
import torch

from bdl import cli

if "PYTEST_XDIST_WORKER" in os.environ:
    torch.set_num_threads(1)
    os.environ["OMP_NUM_THREADS"] = "1"  # of the processes that tests start


@pytest.fixture
def invoke(monkeypatch, capsys):
    """Run the command line in this process; give exit code, stdout and stderr."""

    def call(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["bdl-bench", *map(str, words)])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        output = capsys.readouterr()
        return stop.value.code or 0, output.out, output.err

    return call

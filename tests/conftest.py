"""The command line, called in this process."""

import sys

import pytest

from bdl import cli


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

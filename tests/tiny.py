"""A benchmark of one entry on one small data set, and how tests look at what a command did with it."""

from pathlib import Path

TINY = """
name: tiny
title: A tiny benchmark
datasets: [diabetes]
splits: 2
entries:
  fixed:
    model: {name: linear}
    likelihood: {name: gaussian}
    method: {name: vifa, gradients_per_update: 2}
    training: {epochs: 1, batch_size: 10}
    hyper: {learning_rate: 0.01, prior_precision: 1, noise_precision: 0.001}
evaluation: {samples: 5}
metrics: [nmll]
profiles:
  quick: {splits: 1}
"""


def refusal(result: tuple[int, str, str], expected: int = 2) -> str:
    """Return the one line on stderr that a command ended with."""
    code, out, err = result
    assert (code, out) == (expected, ""), out + err
    assert err.startswith("bdl-bench: ")
    assert err.count("\n") == 1
    return err


def contents(folder: Path) -> dict[Path, bytes | None]:
    """Files and folders below a folder."""
    return {path: path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def raising(error: BaseException):
    """Make a function that raises an error."""

    def raise_it(*args, **kwargs):
        raise error

    return raise_it

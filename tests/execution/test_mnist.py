"""MNIST in a network of 478,410 parameters through an ordinary benchmark file, within 4 GB."""

import os
import subprocess
import sys

import pandas as pd
import pytest

SPEC = """
name: digits
title: A network on MNIST
datasets: [mnist]
splits: 1
preparation: {standardise: inputs, rows: 12000}
entries:
  bbb:
    model: &network {name: mlp, hidden: [400, 400]}
    likelihood: &labels {name: categorical}
    method: {name: bbb, samples: 1, initial_scale: null, initial_rho: -4.0}
    training: &once {epochs: 1, batch_size: 200}
    hyper: &hyper {learning_rate: 0.001, prior_precision: 10}
  vifa:
    model: *network
    likelihood: *labels
    method: {name: vifa, gradients_per_update: 1, initial_scale: null, initial_std: 0.02}
    training: *once
    hyper: *hyper
evaluation: {samples: 5}
metrics: [error, nll, ece]
"""
# Not by getrusage, whose peak counts that of the process which started this one.
COMMAND = """
from pathlib import Path
from bdl.cli import main
try:
    main()
finally:
    print("peak", Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])
"""


@pytest.mark.data
@pytest.mark.slow  # 60 updates each, and 5 samples on 10,000 images twice
def test_bbb_and_vifa_learn_digits(tmp_path):
    (tmp_path / "digits.yaml").write_text(SPEC, "utf-8")
    words = ["run", str(tmp_path / "digits.yaml"), "--no-compile", "--tracking", "none", "--results", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-c", COMMAND, *words], capture_output=True, text=True, timeout=600, env=dict(os.environ)
    )
    assert done.returncode == 0, done.stderr
    peak = int(done.stdout.rpartition("peak ")[2])
    assert peak < 4 * 2**20, "kilobytes"
    rows = pd.read_parquet(tmp_path / "digits/trials.parquet").set_index("entry")
    assert list(rows.updates) == [60, 60]
    assert (rows.error < 0.3).all(), "guessing errs in nine of ten"
    assert (rows.nll < 1).all()
    assert rows.ece.between(0, 0.5).all()

"""Published rows that no run has made."""

import pandas as pd
import pytest
from run_folders import write_frame

from bdl.records.run_folder import RunFolder

SPEC = """
name: small
title: "<script>alert(1)</script> & [/x]"
datasets: [diabetes]
splits: 4
baseline: one
entries:
  one: &entry
    model: {name: linear}
    likelihood: {name: gaussian}
    method: {name: vifa}
    training: {epochs: 1, batch_size: 10}
    hyper: {learning_rate: 0.01, prior_precision: 1, noise_precision: 1}
  two: *entry
metrics: [nmll, rmse]
notes:
  - {entry: two, text: "Read <b>this</b>."}
"""


def write(folder, scores, spec=SPEC, **columns):
    """Write a benchmark file and rows: entry to its score on each split, None where it failed.

    Gives the file.
    """
    path = folder / "small.yaml"
    path.write_text(spec, encoding="utf-8")
    rows = [
        {
            **{
                "dataset": "diabetes",
                "entry": entry,
                "stage": "final",
                "split": split,
                "trial": 0,
                "fold": 0,
            },
            **{
                "status": "failed" if score is None else "ok",
                "reason": "<i>blew</i> up" if score is None else None,
            },
            **{
                "seconds": 1.0,
                "hyper_learning_rate": 0.01 * (split + 1),
                "nmll": score,
                "rmse": score,
            },
        }
        for entry, values in scores.items()
        for split, score in enumerate(values)
    ]
    write_frame(folder / "results" / "small", pd.DataFrame(rows).assign(**columns))
    return path


@pytest.fixture(scope="session")
def published():
    return write


@pytest.fixture
def store(tmp_path):
    with RunFolder(tmp_path / "store") as opened:
        yield opened

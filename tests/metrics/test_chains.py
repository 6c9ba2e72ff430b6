"""Monte-Carlo errors of scores by chains: known answers, and what has none."""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest

from bdl.metrics.chains import score_chains
from bdl.references.certificate import CERTIFIED
from bdl.references.jackknife import jackknife_error
from bdl.reports.certificates import score_certificate_notes


class Chains(NamedTuple):
    """Numbers in chains, in place of networks."""

    values: tuple[tuple[float, ...], ...]

    @property
    def chain_count(self) -> int:
        return len(self.values)

    def leave_out(self, chain: int) -> "Chains":
        return Chains(self.values[:chain] + self.values[chain + 1 :])


@dataclass(frozen=True)
class Evaluated:
    posterior: Any
    predicted: None = None


def mean_of(evaluation: Any) -> float:
    return float(np.mean(evaluation.posterior.values))


def test_the_error_of_a_mean_is_that_of_the_means_of_chains():
    """The jackknife of a mean is the standard error of a mean, exactly."""
    values = np.random.default_rng(0).normal(size=(5, 8))
    scores = score_chains(mean_of, Evaluated(Chains(tuple(map(tuple, values)))))
    means = values.mean(1)
    assert scores[""] == pytest.approx(values.mean())
    assert scores["mcse"] == pytest.approx(means.std(ddof=1) / math.sqrt(5))


def test_equal_chains_have_no_error_and_one_chain_is_none():
    equal = score_chains(mean_of, Evaluated(Chains(((1.0, 2.0),) * 4)))
    assert equal == {"": 1.5, "mcse": 0.0}
    assert score_chains(mean_of, Evaluated(Chains(((1.0, 2.0),)))) == 1.5


def test_the_error_has_the_spread_of_repeated_runs():
    """Of 400 runs of eight chains, the root mean squared error is the spread of their means."""
    generator = np.random.default_rng(1)
    means = generator.normal(size=(400, 8))
    leave_one_out = (means.sum(1, keepdims=True) - means) / 7
    errors = np.array([jackknife_error(row) for row in leave_one_out])
    assert math.sqrt((errors**2).mean()) == pytest.approx(means.mean(1).std(), rel=0.1)


@pytest.mark.parametrize(
    ("metric", "errors", "note"),
    [
        ("nmll", [0.009, 0.011, float("nan")], "Score certified on 1 of 2 splits, not on 1: "),
        ("rmse", [0.019, 0.02, 0.01], "Score certified on 3 of 3 splits: "),
    ],
)
def test_a_table_counts_certified_scores(metric, errors, note):
    """Margins are 0.05 nats and a tenth of the score: of 1 the limit is 0.02."""
    rows = pd.DataFrame(
        {"split": [0, 1, 2], metric: 1.0, f"{metric}_mcse": errors, "certificate": [CERTIFIED] * 3}
    )
    (text,) = score_certificate_notes(rows, metric)
    assert text.startswith(note)
    assert score_certificate_notes(rows.drop(columns=f"{metric}_mcse"), metric) == []

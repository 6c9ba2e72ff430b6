"""Rank correlations of scores and distances, by known answers."""

import numpy as np
import pytest
import score_and_truth


@pytest.mark.parametrize(("sign", "correlation"), [(1, 1.0), (-1, -1.0)])
def test_scores_in_the_order_of_the_distances(sign, correlation, monkeypatch):
    monkeypatch.setattr(score_and_truth, "DRAWS", 50)
    distances = [np.arange(5.0) + np.zeros((3, 1)) for _ in score_and_truth.DATASETS]
    scores = [sign * table**3 for table in distances]
    compared = score_and_truth.compare("NMLL", tuple("abcde"), distances, scores)
    assert compared.correlation == pytest.approx((correlation,) * 3)
    np.testing.assert_allclose(compared.distance_ranks, [1, 2, 3, 4, 5])


def test_it_is_drawn(monkeypatch):
    monkeypatch.setattr(score_and_truth, "DRAWS", 50)
    tables = [np.random.default_rng(i).normal(size=(3, 4)) for i in range(4)]
    entries = ("vifa-1", "sghmc", "map", "swag")
    compared = score_and_truth.compare("NMLL", entries, tables, tables)
    figure = score_and_truth.draw([compared])
    assert figure.axes[0].get_title(loc="left").startswith("NMLL\n1.00 (")

"""Densities of the priors against closed forms, as they are drawn, and their integrals.

And the end of a curve.
"""

import math
import re

import numpy as np
import paper_figures
import pytest
from scipy import integrate, stats

from bdl.records.run_folder import RunFolder


def horseshoe(theta, kappa):
    """Mix normals over a product of two half-Cauchy variables: its logarithm v has the density 2 v / (pi^2 sinh v)."""

    def mixed(v, size):
        scale = kappa * math.exp(v)
        return 2 / math.pi**2 * (v / math.sinh(v) if v else 1) * stats.norm.pdf(size, scale=scale)

    return [
        integrate.quad(mixed, -40, 40, (abs(value),), epsrel=1e-10, limit=400, points=[0])[0]
        for value in theta
    ]


def mixture(theta):
    return 0.5 * stats.norm.pdf(theta, scale=4) + 0.5 * stats.norm.pdf(theta, scale=0.1)


EXPECTED = {
    "Gaussian": {
        "precision 4": stats.norm(scale=0.5).pdf,
        "precision 1": stats.norm.pdf,
        "precision 1/4": stats.norm(scale=2).pdf,
    },
    "Student's t of scale 1": {
        "Gaussian": stats.norm.pdf,
        "6 degrees": stats.t(6).pdf,
        "3 degrees": stats.t(3).pdf,
        "1 degree": stats.cauchy.pdf,
    },
    "Horseshoe of global scale κ": {
        "κ = 1": lambda theta: horseshoe(theta, 1),
        "κ = 0.1": lambda theta: horseshoe(theta, 0.1),
        "Cauchy": stats.cauchy.pdf,
        "Gaussian": stats.norm.pdf,
    },
    "Tails": {
        "horseshoe, κ = 1": lambda theta: horseshoe(theta, 1),
        "Cauchy": stats.cauchy.pdf,
        "Student's t, 6 degrees": stats.t(6).pdf,
        "spike of 0.1, slab of 4": mixture,
        "Gaussian": stats.norm.pdf,
    },
    "Scale of a unit, horseshoe": {
        "root of a": stats.halfnorm(scale=0.5**0.5).pdf,
        "root of b": lambda scale: stats.halfnorm.pdf(1 / scale, scale=0.5**0.5) / scale**2,
        "root of a b (half-Cauchy)": stats.halfcauchy.pdf,
    },
    "Shrinkage by it": {"horseshoe": stats.beta(0.5, 0.5).pdf},
}


@pytest.fixture(scope="module")
def panels():
    return {panel.get_title(loc="left"): panel for panel in paper_figures.densities().axes}


@pytest.mark.parametrize("heading", EXPECTED)
def test_lines_are_the_closed_forms(panels, heading):
    panel, expected = panels[heading], EXPECTED[heading]
    assert [line.get_label() for line in panel.get_lines()] == list(expected)
    for line, density in zip(panel.get_lines(), expected.values(), strict=True):
        x, y = line.get_data()
        (low, high), (_, top) = panel.get_xlim(), panel.get_ylim()
        shown = np.flatnonzero((low < x) & (x < high) & (y > 1e-12) & (y < top))
        assert len(shown) > 50
        some = shown[:: len(shown) // 20]
        np.testing.assert_allclose(y[some], density(x[some]), rtol=1e-7)


def test_stars_are_where_the_elbo_of_slang_is_least():
    whole, last = paper_figures.last_updates().axes
    assert last.get_xlim() == (8000, 10_000)
    curves = {
        line.get_label(): line.get_xydata() for line in whole.lines if line.get_marker() != "*"
    }
    stars = {
        line.get_label().split(",")[0]: line.get_xydata()[0]
        for line in whole.lines
        if line.get_marker() == "*"
    }
    assert stars.keys() == {"slang-1", "slang-5"}
    for entry, star in stars.items():
        np.testing.assert_array_equal(
            star, min(curves[entry].tolist(), key=lambda point: point[1])
        )
        assert len(curves[entry]) == 10_000


def test_few_draws_from_the_prior_count():
    """Those of other random numbers have 1030 on twenty rows (posterior-methods-weights)."""
    few, many = (panel.get_title(loc="left") for panel in paper_figures.prior_draws().axes)
    rows = RunFolder(paper_figures.ROOT / "results/posterior-methods-weights").tabulate()
    prior = rows[(rows.stage == "final") & (rows.entry == "prior")]
    ess = prior.groupby("dataset").ess.mean()
    counts = [
        float(
            re.fullmatch(r"[\d,]+ rows: effective sample size ([\d,]+)", title)[1].replace(",", "")
        )
        for title in (few, many)
    ]
    assert counts[0] == pytest.approx(ess["few_rows"], rel=0.1)
    assert 1 <= counts[1] < 30

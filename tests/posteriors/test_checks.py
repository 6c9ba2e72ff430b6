"""Invalid posteriors are refused in one line that says how to mend them."""

import pytest
import torch

from bdl.errors import InputError
from bdl.posteriors import (
    DiagonalGaussian,
    Dropout,
    Empirical,
    FactorAnalysis,
    FullGaussian,
    FullPrecision,
    KroneckerGaussian,
    LastLayer,
    LowRankPrecision,
    Mixture,
    Point,
    Scaled,
    StudentT,
    Weighted,
    kl_divergence,
)

ONE, TWO, THREE = torch.ones(1), torch.ones(2), torch.ones(3)
BAD, UNITS = torch.tensor([1.0, 0.0]), torch.tensor([0, 1])


@pytest.mark.parametrize(
    ("posterior", "message"),
    [
        (DiagonalGaussian(torch.ones(2, 2), TWO), r"loc has shape \(2, 2\): give one vector"),
        (DiagonalGaussian(torch.ones(0), torch.ones(0)), r"loc has shape \(0,\): give one vector"),
        (DiagonalGaussian(TWO, ONE), r"var has shape \(1,\): give it shape \(2,\)"),
        (DiagonalGaussian(TWO, BAD), "var must be positive and finite: it ranges from 0 to 1"),
        (DiagonalGaussian(TWO, TWO * torch.nan), "var must be positive and finite"),
        (FactorAnalysis(TWO, torch.ones(2, 3), TWO), "3 factors for 2 parameters: use at most 2 factors"),
        (FactorAnalysis(TWO, TWO, TWO), r"factors has shape \(2,\): give it shape \(2, K\)"),
        (FactorAnalysis(TWO, torch.ones(3, 1), TWO), r"factors has shape \(3, 1\): give it shape \(2, K\)"),
        (FactorAnalysis(TWO, torch.ones(2, 1), THREE), r"diag has shape \(3,\): give it shape \(2,\)"),
        (FactorAnalysis(TWO, torch.ones(2, 1), BAD), "diag must be positive and finite"),
        (LowRankPrecision(TWO, torch.ones(2, 3), TWO), "3 factors for 2 parameters: use at most 2 factors"),
        (LowRankPrecision(TWO, torch.ones(3, 1), TWO), r"factors has shape \(3, 1\): give it shape \(2, L\)"),
        (LowRankPrecision(TWO, TWO, TWO), r"factors has shape \(2,\): give it shape \(2, L\)"),
        (LowRankPrecision(TWO, torch.ones(2, 1), THREE), r"diag has shape \(3,\): give it shape \(2,\)"),
        (LowRankPrecision(TWO, torch.ones(2, 1), BAD), "diag must be positive and finite"),
        (KroneckerGaussian(TWO, ONE, ONE, ONE), r"widths has shape \(1,\): give it shape \(0, inputs, ..., outputs\)"),
        (KroneckerGaussian(THREE, ONE, ONE, torch.zeros(0, 1, 1)), r"loc has 3 entries: layers of \(1, 1\) units have"),
        (KroneckerGaussian(ONE, TWO, ONE, torch.zeros(0, 1, 1)), r"inner has shape \(2,\): give it shape \(1,\)"),
        (
            KroneckerGaussian(TWO, torch.ones(4), TWO, torch.zeros(0, 1, 1)),
            r"outer has shape \(2,\): give it shape \(1,\)",
        ),
        (KroneckerGaussian(ONE, -ONE, ONE, torch.zeros(0, 1, 1)), "the diagonal of inner must be positive"),
        (KroneckerGaussian(TWO, torch.ones(4), ONE, torch.zeros(0, 1, 1)), "inner is not lower triangular"),
        (FullGaussian(TWO, torch.eye(3)), r"scale_tril has shape \(3, 3\): give it shape \(2, 2\)"),
        (FullGaussian(TWO, -torch.eye(2)), "the diagonal of scale_tril must be positive"),
        (FullGaussian(TWO, torch.ones(2, 2)), "scale_tril is not lower triangular"),
        (FullPrecision(TWO, torch.ones(2, 2)), "precision_tril is not lower triangular"),
        (Dropout(TWO, UNITS, BAD), r"rate must be in \[0, 1\): it ranges from 0 to 1"),
        (Dropout(TWO, UNITS, -ONE), r"rate must be in \[0, 1\): it ranges from -1 to -1"),
        (Dropout(TWO, UNITS, ONE * torch.nan), r"rate must be in \[0, 1\)"),
        (Dropout(TWO, UNITS, torch.tensor(0.5)), r"rate has shape \(\): give one vector"),
        (Dropout(THREE, UNITS, 0 * ONE), r"source has shape \(2,\): give it shape \(3,\)"),
        (Dropout(TWO, UNITS + 1, 0 * ONE), "source must be in 0 to 1, the number of units"),
        (Dropout(TWO, UNITS - 1, 0 * ONE), "source must be in 0 to 1, the number of units"),
        (Empirical(THREE), r"draws has shape \(3,\): give it shape \(S, D\)"),
        (Empirical(torch.ones(0, 3)), r"draws has shape \(0, 3\)"),
        (Empirical(ONE.unsqueeze(0) * torch.nan), "draws has values that are not finite"),
        (Mixture(TWO, TWO, TWO), r"locs has shape \(2,\): give \(C, D\)"),
        (Mixture(torch.ones(2, 1), torch.ones(1, 1, 1), torch.ones(2, 1)), "with C factors and C diags"),
        (Mixture(torch.ones(1, 1), torch.ones(1, 1, 1), -torch.ones(1, 1)), "diag must be positive"),
        (Point(torch.ones(1, 1)), r"loc has shape \(1, 1\): give one vector"),
        (Point(ONE * torch.inf), "loc has values that are not finite"),
        (LastLayer(ONE, torch.eye(2)), "precision_root must be a Cholesky factor"),
        (LastLayer(TWO, -torch.eye(2)), "precision_root must be a Cholesky factor"),
        (LastLayer(TWO, torch.zeros(1, 1)), "precision_root must be a Cholesky factor"),
        (Scaled(TWO, TWO, ONE, ONE, UNITS.unsqueeze(0) + 1), "source must be in 0 to 1, the number of scales"),
        (Scaled(TWO, TWO, ONE, -ONE, UNITS.unsqueeze(0)), "log_var must be positive"),
        (Scaled(TWO, TWO, ONE, ONE, UNITS), r"source has shape \(2,\): give it shape \(2, 2\)"),
        (StudentT(TWO, TWO, torch.tensor(0.0)), "degrees must be positive"),
        (StudentT(TWO, -TWO, torch.tensor(3.0)), "scale must be positive"),
        (StudentT(TWO, ONE, torch.tensor(3.0)), r"scale has shape \(1,\): give it shape \(2,\)"),
        (Weighted(torch.ones(0, 3), torch.ones(0)), r"draws has shape \(0, 3\)"),
        (Weighted(torch.ones(1, 1) * torch.nan, ONE), "draws has values that are not finite"),
        (Weighted(torch.ones(2, 3), THREE), r"log_weights has shape \(3,\): give it shape \(2,\)"),
        (Weighted(torch.ones(2, 3), TWO * torch.nan), "log_weights has values that are not finite"),
        (Weighted(torch.ones(2, 3), -TWO * torch.inf), "log_weights has values that are not finite"),
    ],
)
def test_invalid_posteriors_are_refused(posterior, message):
    with pytest.raises(InputError, match=message) as error:
        posterior.check()
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("covariance", "message"),
    [
        (torch.eye(3), r"covariance has shape \(3, 3\): give it shape \(2, 2\)"),
        (torch.tensor([[1.0, 0.5], [0.0, 1.0]]), "covariance is not symmetric"),
        (torch.tensor([[1.0, 2.0], [2.0, 1.0]]), "covariance is not positive definite"),
        (torch.eye(2) * torch.nan, "covariance is not positive definite"),
    ],
)
def test_from_covariance_refuses(covariance, message):
    with pytest.raises(InputError, match=message):
        FullGaussian.from_covariance(TWO, covariance)


def test_kl_refuses_different_dimensions():
    with pytest.raises(InputError, match="KL of 2 against 1 parameters"):
        kl_divergence(DiagonalGaussian(TWO, TWO), DiagonalGaussian(ONE, ONE))

"""Invalid posteriors are refused in one line that says how to mend them."""

import pytest
import torch

from bdl.errors import InputError
from bdl.posteriors import FAMILIES, DiagonalGaussian, FullGaussian, kl_divergence

ONE, TWO, THREE, EYE = torch.ones(1), torch.ones(2), torch.ones(3), torch.eye(2)
BAD, UNITS, LAYER = torch.tensor([1.0, 0.0]), torch.tensor([0, 1]), torch.zeros(0, 1, 1)


@pytest.mark.parametrize(
    ("family", "fields", "message"),
    [
        ("diagonal", (EYE, TWO), r"loc has shape \(2, 2\): give one vector"),
        ("diagonal", (ONE[:0], ONE[:0]), r"loc has shape \(0,\): give one vector"),
        ("diagonal", (TWO, ONE), r"var has shape \(1,\): give it shape \(2,\)"),
        ("diagonal", (TWO, BAD), "var must be positive and finite: it ranges from 0 to 1"),
        ("diagonal", (TWO, TWO * torch.nan), "var must be positive and finite"),
        (
            "factor-analysis",
            (TWO, torch.ones(2, 3), TWO),
            "3 factors for 2 parameters: use at most 2 factors",
        ),
        (
            "factor-analysis",
            (TWO, torch.ones(3, 1), TWO),
            r"factors has shape \(3, 1\): give it shape \(2, K\)",
        ),
        ("factor-analysis", (TWO, EYE, THREE), r"diag has shape \(3,\): give it shape \(2,\)"),
        (
            "low-rank-precision",
            (TWO, TWO, TWO),
            r"factors has shape \(2,\): give it shape \(2, L\)",
        ),
        ("low-rank-precision", (TWO, EYE, BAD), "diag must be positive and finite"),
        (
            "kronecker",
            (TWO, ONE, ONE, ONE),
            r"widths has shape \(1,\): give it shape \(0, inputs, ..., outputs\)",
        ),
        (
            "kronecker",
            (THREE, ONE, ONE, LAYER),
            r"loc has 3 entries: layers of \(1, 1\) units have",
        ),
        ("kronecker", (ONE, TWO, ONE, LAYER), r"inner has shape \(2,\): give it shape \(1,\)"),
        (
            "kronecker",
            (TWO, torch.ones(4), TWO, LAYER),
            r"outer has shape \(2,\): give it shape \(1,\)",
        ),
        ("kronecker", (TWO, torch.ones(4), ONE, LAYER), "inner is not lower triangular"),
        ("kronecker", (ONE, ONE, -ONE, LAYER), "the diagonal of outer must be positive"),
        ("full", (TWO, torch.eye(3)), r"scale_tril has shape \(3, 3\): give it shape \(2, 2\)"),
        ("full", (TWO, -EYE), "the diagonal of scale_tril must be positive"),
        ("full-precision", (TWO, torch.ones(2, 2)), "precision_tril is not lower triangular"),
        (
            "traced",
            (TWO, EYE, TWO, torch.ones(4, 3)),
            r"path has shape \(4, 3\): give it shape \(4, 2\)",
        ),
        ("dropout", (TWO, UNITS, BAD), r"rate must be in \[0, 1\): it ranges from 0 to 1"),
        ("dropout", (TWO, UNITS, -ONE), r"rate must be in \[0, 1\): it ranges from -1 to -1"),
        ("dropout", (TWO, UNITS, torch.tensor(0.5)), r"rate has shape \(\): give one vector"),
        ("dropout", (THREE, UNITS, 0 * ONE), r"source has shape \(2,\): give it shape \(3,\)"),
        ("dropout", (TWO, UNITS + 1, 0 * ONE), "source must be in 0 to 1, the number of units"),
        ("dropout", (TWO, UNITS - 1, 0 * ONE), "source must be in 0 to 1, the number of units"),
        ("empirical", (THREE,), r"draws has shape \(3,\): give it shape \(S, D\)"),
        ("empirical", (torch.ones(0, 3),), r"draws has shape \(0, 3\)"),
        ("empirical", (EYE * torch.nan,), "draws has values that are not finite"),
        ("mixture", (TWO, TWO, TWO), r"locs has shape \(2,\): give \(C, D\)"),
        (
            "mixture",
            (torch.ones(2, 1), torch.ones(1, 1, 1), torch.ones(2, 1)),
            "with C factors and C diags",
        ),
        (
            "mixture",
            (torch.ones(1, 1), torch.ones(1, 1, 1), -torch.ones(1, 1)),
            "diag must be positive",
        ),
        ("point", (EYE,), r"loc has shape \(2, 2\): give one vector"),
        ("point", (ONE * torch.inf,), "loc has values that are not finite"),
        ("last-layer", (ONE, EYE), "precision_root must be a Cholesky factor"),
        ("last-layer", (TWO, -EYE), "the diagonal of precision_root must be positive"),
        (
            "scaled",
            (TWO, TWO, ONE, ONE, UNITS.unsqueeze(0) + 1),
            "source must be in 0 to 1, the number of scales",
        ),
        ("scaled", (TWO, TWO, ONE, -ONE, UNITS.unsqueeze(0)), "log_var must be positive"),
        (
            "scaled",
            (TWO, TWO, ONE, ONE, UNITS),
            r"source has shape \(2,\): give it shape \(2, 2\)",
        ),
        ("student-t", (TWO, TWO, torch.tensor(0.0)), "degrees must be positive"),
        (
            "student-t",
            (TWO, ONE, torch.tensor(3.0)),
            r"scale has shape \(1,\): give it shape \(2,\)",
        ),
        ("weighted", (EYE, THREE), r"log_weights has shape \(3,\): give it shape \(2,\)"),
        ("weighted", (EYE, -TWO * torch.inf), "log_weights has values that are not finite"),
    ],
)
def test_invalid_posteriors(family, fields, message):
    with pytest.raises(InputError, match=message) as error:
        FAMILIES.get(family)(*fields).check()
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("covariance", "message"),
    [
        (torch.eye(3), r"covariance has shape \(3, 3\): give it shape \(2, 2\)"),
        (torch.tensor([[1.0, 0.5], [0.0, 1.0]]), "covariance is not symmetric"),
        (torch.tensor([[1.0, 2.0], [2.0, 1.0]]), "covariance is not positive definite"),
        (EYE * torch.nan, "covariance is not positive definite"),
    ],
)
def test_invalid_covariances(covariance, message):
    with pytest.raises(InputError, match=message):
        FullGaussian.from_covariance(TWO, covariance)


def test_kl_of_different_dimensions():
    with pytest.raises(InputError, match="KL of 2 against 1 parameters"):
        kl_divergence(DiagonalGaussian(TWO, TWO), DiagonalGaussian(ONE, ONE))

"""What provenance says of the machine that decides the bits."""

import pytest
import torch

from bdl.publishing import provenance

MKL = "PyTorch built with:\n  - GCC 13.3\n  - Intel(R) oneAPI Math Kernel Library Version 2024.2 for Intel(R) 64\n"
OPEN = "PyTorch built with:\n  - GCC 13.3\n  - Build settings: BLAS_INFO=open, BUILD_TYPE=Release\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (MKL, "Intel(R) oneAPI Math Kernel Library Version 2024.2 for Intel(R) 64"),
        (OPEN, "open"),
        ("PyTorch built with:", "unknown"),
    ],
)
def test_the_library_of_linear_algebra_is_named(monkeypatch, text, expected):
    monkeypatch.setattr(torch.__config__, "show", lambda: text)
    assert provenance._linear_algebra() == expected

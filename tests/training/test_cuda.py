"""On a GPU methods end where they end on the CPU."""

import pytest
import torch

from bdl.training import traced
from bdl.training.programs import programs

from .test_devices import STEPPED, methods, trials

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
]


@pytest.fixture
def early(monkeypatch):
    """Trace from the second call on; programs are made anew for it."""
    monkeypatch.setattr(traced, "AFTER", 2)
    programs.cache_clear()
    yield
    programs.cache_clear()


@pytest.fixture
def same_signs(monkeypatch):
    """Make the largest part of an eigenvector positive: libraries differ in signs, which noisy K-FAC's noise has."""
    decomposed = torch.linalg.eigh

    def eigh(matrix):
        values, vectors = decomposed(matrix)
        largest = vectors.gather(-2, vectors.abs().argmax(-2, keepdim=True))
        return torch.return_types.linalg_eigh((values, vectors * largest.sign()))

    monkeypatch.setattr(torch.linalg, "eigh", eigh)


@pytest.mark.parametrize("method", STEPPED)
def test_methods_end_where_they_end_on_the_cpu(method, early, same_signs):
    for settings in trials(method):
        expected = methods.fitted(settings, "float64")
        programs.cache_clear()
        for name, value in methods.fitted(settings, "float64", "cuda").items():
            scale = expected[name].double().abs()
            near = 1e-7 * float(scale[scale.isfinite()].max()) if scale.isfinite().any() else 0.0
            torch.testing.assert_close(value.double().cpu(), expected[name].double(), rtol=0, atol=near)

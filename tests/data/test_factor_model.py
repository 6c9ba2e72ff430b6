"""Random factor models: what is drawn in which order, and the observations' law."""

from dataclasses import replace

import pytest
import torch

from bdl.data import Stream, draw_blocks
from bdl.data.teachers import draw_factor_model, draw_observations
from bdl.errors import InputError


def test_model_is_drawn_in_the_published_order():
    """Location, matrix, variances, noise from one generator.

    Rows of the leading eigenvectors scaled.
    """
    generator = torch.Generator().manual_seed(3)
    loc, square = torch.randn(20, generator=generator), torch.randn(20, 20, generator=generator)
    variances = 2 + 5 * torch.rand(20, generator=generator)
    diag = torch.rand(20, generator=generator) * variances.max()
    model = draw_factor_model(3, 20, 4, (2, 7)).check()
    torch.testing.assert_close(model.loc, loc, rtol=0, atol=0)
    torch.testing.assert_close(model.diag, diag)
    vectors = model.factors / variances.sqrt()[:, None]
    torch.testing.assert_close(vectors.T @ vectors, torch.eye(4), rtol=0, atol=2e-6)
    moment = square @ square.T
    leading = torch.linalg.eigvalsh(moment).flip(0)[:4]
    torch.testing.assert_close(vectors.T @ moment @ vectors, leading.diag(), rtol=1e-4, atol=1e-4)


def test_columns_have_the_variances_as_squared_lengths():
    generator = torch.Generator().manual_seed(3)
    torch.randn(20, generator=generator), torch.randn(20, 20, generator=generator)
    variances = 2 + 5 * torch.rand(4, generator=generator)
    model = draw_factor_model(3, 20, 4, (2, 7), "columns")
    torch.testing.assert_close(
        model.factors.T @ model.factors, variances.diag(), rtol=1e-5, atol=1e-5
    )
    assert float(model.diag.max()) <= float(variances.max())


def test_observations_are_drawn_in_the_published_order():
    """All h first, then all z, from a generator seeded anew."""
    model = draw_factor_model(3, 20, 4, (1, 10))
    generator = torch.Generator().manual_seed(3)
    h, z = torch.randn(160, 4, generator=generator), torch.randn(160, 20, generator=generator)
    expected = model.loc + h @ model.factors.T + model.diag.sqrt() * z
    (drawn,) = torch.cat(list(draw_observations([model], 3, 160, 160)), 1)
    torch.testing.assert_close(drawn, expected)


def test_blocks_do_not_change_the_observations():
    """Nor does another model beside: it shares h and z."""
    models = [draw_factor_model(3, 20, 4, spectrum) for spectrum in ((1, 10), (1, 1000))]
    (whole,) = draw_observations(models[:1], 5, 200, 200)
    blocks = list(draw_observations(models, 5, 200, 48))
    assert [block.shape for block in blocks] == [(2, 48, 20)] * 4 + [(2, 8, 20)]
    torch.testing.assert_close(torch.cat(blocks, 1)[:1], whole, rtol=0, atol=0)
    torch.testing.assert_close(
        torch.cat(blocks, 1)[1:], torch.cat(list(draw_observations(models[1:], 5, 200, 48)), 1)
    )


STREAM = Stream(20, 10, length=150, splits=2)


def test_a_stream_has_the_model_of_its_settings_and_its_seed():
    expected = draw_factor_model(1, 20, 10, (1, 10))
    torch.testing.assert_close(STREAM.model(1).factors, expected.factors, rtol=0, atol=0)
    assert (STREAM(), STREAM.name, Stream(20, 2.5, "columns").name) == (
        STREAM,
        "fa_20_10",
        "fa_20_2.5_columns",
    )
    with pytest.raises(InputError, match="dataset 'fa_20_10' has no split 2; choose 0 to 1"):
        STREAM.model(2)


def test_a_stream_ends_after_its_length():
    """What comes before does not depend on it."""
    assert [block.shape for block in STREAM.blocks(0, 64)] == [(64, 20), (64, 20), (22, 20)]
    ours, theirs = (torch.cat(list(replace(STREAM, length=n).blocks(0, 64))) for n in (100, 150))
    torch.testing.assert_close(ours, theirs[:100], rtol=0, atol=0)
    (alone,) = STREAM.blocks(0, 160)
    (both,) = draw_blocks([STREAM, replace(STREAM, top=1000)], 0, 160)
    torch.testing.assert_close(both[0], alone, rtol=0, atol=0)

"""SLANG-OnlineEig: its update against dense algebra, and the matching of columns."""

from itertools import permutations, product

import pytest
import torch

from bdl.errors import InputError
from bdl.methods.slang import SlangOnlineEig, matched

from .test_slang import CLOSE, Run

SEED = 3


def test_columns_are_matched_with_their_sign():
    """Nearly orthogonal columns, shuffled and turned in every way, come back as they were."""
    reference = torch.tensor([[3.0, 0.1, 0.0], [0.0, 2.0, 0.2], [0.1, 0.0, 1.0], [0.0, 0.1, 0.1]])
    for order, signs in product(permutations(range(3)), product((-1.0, 1.0), repeat=3)):
        assert torch.equal(matched(reference[:, order] * torch.tensor(signs), reference), reference)


def test_the_largest_product_is_matched_first():
    """Both columns are most like the first of the reference; the second, which is more so, gets it."""
    reference = torch.eye(2)
    columns = torch.tensor([[2.0, -3.0], [1.0, 0.5]])
    assert matched(columns, reference).tolist() == [[3.0, 2.0], [-0.5, 1.0]]


def test_equal_products_still_give_every_column_once(draw):
    """As at the start, where U = 0: the columns then keep their order and sign."""
    columns = draw(5, 3)
    assert torch.equal(matched(columns, torch.zeros(5, 3, dtype=torch.float64)), columns)


def test_vmap_equals_the_loop(draw):
    columns, references = draw(6, 5, 3), draw(6, 5, 3)
    expected = torch.stack([matched(*pair) for pair in zip(columns, references, strict=True)])
    assert torch.equal(torch.func.vmap(matched)(columns, references), expected)


@pytest.mark.parametrize("rank", [1, 2])
def test_update_is_that_of_the_paper(rank):
    """Here with dense eigenvectors; each column may have either sign, and takes that of its inner product with U."""
    run = Run(SlangOnlineEig(rank=rank, samples=1), "mlp-bernoulli")
    U, d = run.state.U, run.state.d
    for _ in range(8):
        G, scale = run.step()
        fisher = scale * G.T @ G
        values, vectors = torch.linalg.eigh(fisher)
        fresh = matched(vectors[:, -rank:] * values[-rank:].sqrt(), U)
        # the start, where U = 0, has no sign to go by
        fresh = fresh if U.any() else 5 * run.state.U
        U = 0.8 * U + 0.2 * fresh
        rest = fisher.diagonal() - fresh.square().sum(1)
        d = 0.8 * d + 0.2 * (rest + run.prior)
        torch.testing.assert_close(run.state.U, U, **CLOSE)
        torch.testing.assert_close(run.state.d, d, **CLOSE)


def test_the_first_columns_are_eigenvectors():
    run = Run(SlangOnlineEig(rank=2, samples=1), "mlp-bernoulli")
    G, scale = run.step()
    values = torch.linalg.eigvalsh(scale * G.T @ G)[-2:]
    fresh = run.state.U / 0.2
    torch.testing.assert_close(scale * G.T @ (G @ fresh), fresh * values, **CLOSE)
    torch.testing.assert_close(fresh.T @ fresh, values.diag(), **CLOSE)


def test_more_columns_than_gradients_are_refused():
    with pytest.raises(InputError, match=r"rank 5 exceeds the 4 gradients of a minibatch .*; lower it"):
        Run(SlangOnlineEig(rank=5, samples=1), "mlp-bernoulli").step()

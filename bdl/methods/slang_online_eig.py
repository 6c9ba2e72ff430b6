"""SLANG-OnlineEig: averages eigenvectors of minibatches instead of refactoring (Mishkin et al. 2018, appendix B).

With Ghat = (N / n) G^T G the empirical Fisher matrix of one minibatch, and Q Lambda Q^T its best approximation of
rank L,

    U <- (1 - beta) U + beta Q Lambda^1/2
    d <- (1 - beta) d + beta (diag(Ghat) - diag(Q Lambda Q^T) + lambda)

and the mean moves as in SLANG; a parenthesis of equation 19 is misplaced in print. Eigenvectors have no sign and no
order, which the paper leaves open: here the columns of Q Lambda^1/2 are matched to those of U by their inner products,
the largest in absolute value first, and take the sign that makes theirs positive.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from bdl.errors import InputError
from bdl.methods.slang import Slang, top_eigenvectors
from bdl.models.gradients import ExampleGradients


@dataclass(frozen=True)
class SlangOnlineEig(Slang):
    """Settings of SLANG-OnlineEig: those of SLANG.

    U U^T is no running mean of the approximations, since a mean of factors is not the factor of a mean; the
    diagonal of the precision is therefore not that of the empirical Fisher matrix, as it is in SLANG.
    """

    def precision(
        self, U: Tensor, d: Tensor, G: ExampleGradients, scale: Tensor, beta: Tensor
    ) -> tuple[Tensor, Tensor]:
        rank, matrix = self.rank, G.outer() if len(U) <= G.rows else G.gram()
        if rank > len(matrix):
            raise InputError(
                f"rank {rank} exceeds the {G.rows} gradients of a minibatch (samples x batch_size); lower it"
            )
        Q = top_eigenvectors(matrix, rank)
        if len(U) <= G.rows:
            fresh = Q * (scale * (Q * (matrix @ Q)).sum(0).clamp(min=0)).sqrt()
        else:
            fresh = scale.sqrt() * G.combine(Q)
        rest = (scale * G.squares() - fresh.square().sum(1)).clamp(min=0)
        return torch.lerp(U, matched(fresh, U), beta), (1 - beta) * d + beta * rest


def matched(columns: Tensor, reference: Tensor) -> Tensor:
    """Reorder columns (D, L) and choose their signs so that they are like those of a reference (D, L).

    The pair with the largest absolute inner product is matched first, then the largest of the other columns, and so on.
    """
    products = reference.T @ columns
    sizes, assignment = products.abs(), torch.zeros_like(products)
    for _ in range(len(products)):
        # one pair as a 0-1 matrix: `argmax` alone chooses one of several equal products
        best = torch.nn.functional.one_hot(sizes.argmax(), sizes.numel()).view_as(sizes)
        assignment = assignment + best
        taken = (best.sum(0, keepdim=True) + best.sum(1, keepdim=True)) > 0
        sizes = torch.where(taken, -1.0, sizes)
    signs = torch.where(products < 0, -1.0, 1.0)
    return columns @ (assignment * signs).T

"""The Kullback-Leibler divergence between any two Gaussian families."""

from torch import Tensor

from bdl.errors import InputError
from bdl.posteriors.base import Gaussian


def kl_divergence(q: Gaussian, p: Gaussian) -> Tensor:
    """KL(q || p) = E_q[log q - log p] in nats, summed over parameters, a scalar.

    One closed form serves every pair of families, (tr(S_p^{-1} S_q) + |p.whiten(mean_q - mean_p)|^2 - D
    + log |S_p| - log |S_q|) / 2, so it costs what the two families' verbs cost: O(D K^2) among diagonal
    and factor-analysis posteriors.

    Parameters
    ----------
    q, p
        Posteriors over the same D parameters. When they are close the terms cancel, to about D times the
        precision of the dtype: pass float64 tensors.

    Raises
    ------
    InputError
        If the dimensions differ.
    """
    if q.dim != p.dim:
        raise InputError(f"KL of {q.dim} against {p.dim} parameters: both posteriors must have the same number")
    shift = p.whiten(q.mean() - p.mean()).square().sum(-1)
    return 0.5 * (q.trace_solve(p) + shift - q.dim + p.log_det() - q.log_det())

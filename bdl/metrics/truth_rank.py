"""Calibration by simulation: where parameters that data were drawn with stand among draws of the posterior."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch
from annotated_types import Ge
from torch import Tensor

from bdl.errors import InputError
from bdl.metrics.base import MetricInfo
from bdl.metrics.evaluation import Draws, Evaluation
from bdl.metrics.predictions import sampled
from bdl.posteriors.empirical import Point
from bdl.posteriors.tensors import as_type

_STEP = 5
"""First counter word of its draws; those of other scores and of figures have others."""


@dataclass(frozen=True)
class TruthRank:
    """Number of posterior draws below the true value, where the true parameters are drawn from the prior.

    Over data sets drawn from the model, ranks of the exact posterior are uniform on 0 to `draws` (Cook, Gelman & Rubin
    2006; Talts, Betancourt, Simpson, Vehtari & Gelman 2018). Too narrow a posterior has too many at both ends, and a
    shifted one at one end (Yao, Vehtari, Simpson & Gelman 2018, section 3).

    Parameters
    ----------
    of
        ``"parameter"``, or ``"function"``: the first output of the model for a test row, without noise.
    index
        Number of the parameter, or of the test row.
    draws
        Independent draws from the posterior.
    """

    info: ClassVar = MetricInfo("Rank of the truth", "draws below it", "none", "posterior")

    of: Literal["parameter", "function"] = "parameter"
    index: Annotated[int, Ge(0)] = 0
    draws: Annotated[int, Ge(1)] = 99

    def __call__(self, evaluation: Evaluation) -> float:
        """Score a fit.

        Raises
        ------
        InputError
            If the parameters that the data were drawn with are not known or not the model's, the index is too large,
            or the posterior has fewer vectors than `draws`.
        """
        truth, draws = _truth(evaluation), Draws(self.draws, evaluation.key, _STEP)
        atoms: Tensor | None = getattr(evaluation.posterior, "atoms", None)
        if atoms is not None and len(atoms) < self.draws:
            raise InputError(f"truth_rank: the posterior has {len(atoms)} vectors: set draws to {len(atoms)} or less")
        known = len(truth) if self.of == "parameter" else len(evaluation.tested.y)
        if self.index >= known:
            raise InputError(f"truth_rank: there is no {self.of} {self.index}: choose an index below {known}")
        if self.of == "parameter":
            posterior = as_type(evaluation.posterior, torch.float64)
            drawn = torch.cat(list(sampled(posterior, draws)))[:, self.index].cpu()
            return float((drawn < truth[self.index]).sum())
        row = evaluation.tested.take(torch.arange(len(evaluation.tested.y)) == self.index)
        drawn, exact = (evaluation.outputs(row, draws, own)[:, 0, 0] for own in (None, Point(truth)))
        return float((drawn < exact[0]).sum())


def _truth(evaluation: Evaluation) -> Tensor:
    truth, dim = evaluation.generating, evaluation.model.dim
    if truth is None:
        raise InputError(
            "truth_rank: it is not known which parameters the data were drawn with: use the data set prior_draws, with "
            "its own splits and standardise: none"
        )
    if len(truth) != dim:
        raise InputError(
            f"truth_rank: the data were drawn with {len(truth)} parameters, and the model has {dim}: give it the units "
            "and biases of the data set"
        )
    return truth

"""Log-likelihood of several targets together, in batches that show whether predictions of rows belong together."""

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from annotated_types import Ge
from torch import Tensor

from bdl.metrics.base import MetricInfo
from bdl.metrics.evaluation import Evaluation
from bdl.metrics.targets import row_order


@dataclass(frozen=True)
class DyadicNll:
    """Negative joint log-likelihood of small batches of test rows, nats per row.

    A batch has two rows of the test set, each repeated: `rows` times one of the two is drawn (dyadic sampling; Osband
    et al. 2022, "The Neural Testbed: Evaluating Joint Predictions", section 3). With counts k and m of rows a and b the
    score is the mean over batches of -log (1/S) sum_s p(y_a | theta_s)^k p(y_b | theta_s)^m / `rows`. Random batches of
    distinct rows hardly tell it from the marginal score, since few of them are related. A repeated row keeps its one
    target. The batches of a split are the same for all fits.

    Parameters
    ----------
    rows
        Rows of a batch, repetitions counted.
    batches
        Number of batches.
    """

    rows: Annotated[int, Ge(1)] = 10
    batches: Annotated[int, Ge(1)] = 1000

    info: ClassVar = MetricInfo("Dyadic joint NLL", "nats per row", "lower", "predictive", margin=0.05)

    def __call__(self, evaluation: Evaluation) -> float:
        """Score a fit."""
        rows = evaluation.tested
        densities = evaluation.components.log_prob(rows.y.double().unsqueeze(-1)).T[:, row_order(rows)]
        first, second, count = self._drawn(len(rows.y))
        joint = densities[:, first] * count + densities[:, second] * (self.rows - count)
        return float(math.log(len(joint)) - joint.logsumexp(0).mean()) / self.rows

    def _drawn(self, n: int) -> tuple[Tensor, Tensor, Tensor]:
        """Draw two rows of n for each batch, different ones if there are two, and how often the first is in it."""
        generator = torch.Generator().manual_seed(0)
        first = torch.randint(n, (self.batches,), generator=generator)
        step = torch.randint(max(1, n - 1), (self.batches,), generator=generator) + 1
        count = torch.randint(2, (self.batches, self.rows), generator=generator).sum(1)
        return first, (first + step) % n, count

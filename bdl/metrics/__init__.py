"""Numbers from a posterior or its predictions: every metric is a function of one `Evaluation`.

What they mean.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, Protocol

from bdl.errors import InputError, unknown_name_error
from bdl.registry import Label, Registry

if TYPE_CHECKING:
    from bdl.data import Task
    from bdl.metrics.evaluation import Evaluation

METRICS = Registry(
    "metric",
    {
        "nmll": "bdl.metrics.likelihoods:Nmll",
        "joint_nll": "bdl.metrics.likelihoods:JointNll",
        "nll": "bdl.metrics.likelihoods:Nll",
        "rmse": "bdl.metrics.regression:Rmse",
        "mse_at_mean": "bdl.metrics.regression:MseAtMean",
        "crps": "bdl.metrics.regression:Crps",
        "coverage": "bdl.metrics.regression:Coverage",
        "interval_width": "bdl.metrics.regression:IntervalWidth",
        "pit_distance": "bdl.metrics.regression:PitDistance",
        "dyadic_nll": "bdl.metrics.likelihoods:DyadicNll",
        "calibrated_nll": "bdl.metrics.likelihoods:CalibratedNll",
        "spread": "bdl.metrics.regression:Spread",
        "error": "bdl.metrics.classification:Error",
        "accuracy": "bdl.metrics.selective:Accuracy",
        "precision": "bdl.metrics.selective:Precision",
        "recall": "bdl.metrics.selective:Recall",
        "f1": "bdl.metrics.selective:F1",
        "auroc": "bdl.metrics.selective:Auroc",
        "aurc": "bdl.metrics.selective:Aurc",
        "disagreement": "bdl.metrics.selective:Disagreement",
        "test_error_pct": "bdl.metrics.classification:ErrorPercent",
        "training_error_pct": "bdl.metrics.training_rows:TrainingErrorPercent",
        "training_nll": "bdl.metrics.training_rows:TrainingNll",
        "training_nmll": "bdl.metrics.training_rows:TrainingNmll",
        "ece": "bdl.metrics.classification:Ece",
        "brier": "bdl.metrics.classification:Brier",
        "rps": "bdl.metrics.classification:Rps",
        "entropy": "bdl.metrics.classification:Entropy",
        "test_nll": "bdl.metrics.elbo:NllByQuadrature",
        "test_nll_printed": "bdl.metrics.elbo:NllPrinted",
        "neg_elbo": "bdl.metrics.elbo:NegElbo",
        "prior_kl": "bdl.metrics.elbo:PriorKl",
        "neg_log_joint": "bdl.metrics.weights:NegLogJoint",
        "neg_elbo_printed": "bdl.metrics.elbo:NegElboPrinted",
        "bias_mean": "bdl.metrics.parameters:BiasMean",
        "bias_variance": "bdl.metrics.parameters:BiasVariance",
        "ess": "bdl.metrics.weights:Ess",
        "log_evidence": "bdl.metrics.weights:LogEvidence",
        "k_hat": "bdl.metrics.weights:KHat",
        "truth_rank": "bdl.metrics.parameters:TruthRank",
        "weights_below": "bdl.metrics.parameters:WeightsBelow",
        "weights_from": "bdl.metrics.parameters:WeightsFrom",
        "rel_mean_dist": "bdl.metrics.parameters:RelMeanDist",
        "rel_cov_dist": "bdl.metrics.parameters:RelCovDist",
        "scaled_w2": "bdl.metrics.parameters:ScaledW2",
        "sym_kl": "bdl.metrics.parameters:SymKl",
        "function_w2": "bdl.metrics.functions:FunctionW2",
        "function_mean_error": "bdl.metrics.functions:FunctionMeanError",
        "function_sd_error": "bdl.metrics.functions:FunctionSdError",
        "function_sd_ratio": "bdl.metrics.functions:FunctionSdRatio",
        "function_sliced_w2": "bdl.metrics.functions:FunctionSlicedW2",
        "function_joint_kl": "bdl.metrics.functions:FunctionJointKl",
        "function_tv": "bdl.metrics.functions:FunctionTv",
        "function_agreement": "bdl.metrics.functions:FunctionAgreement",
        "runtime": "bdl.metrics:Runtime",
    },
    contract="bdl.metrics:Score",
)
"""Scores by name."""


FIRST_MEMBERS = "first"
"""Suffix of the score of an ensemble's first members, followed by their number."""

RELATIVE_MARGIN = 0.1
"""Share of the printed number by which errors, distances and counts may differ and still match
it.
"""


@dataclass(frozen=True)
class MetricInfo:
    """How a metric is shown and compared.

    Attributes
    ----------
    label
        Heading in tables and figures.
    unit
        Unit of the values.
    direction
        ``"lower"`` or ``"higher"`` is better; ``"none"`` if neither is; ``"ratio"`` marks a
        duration, compared as paper / ours.
    kind
        What it is computed from: predictions, the posterior, posterior and reference posterior, or
        the counters.
    task
        What the data set must ask for; None if anything will do.
    ordered
        Whether it rests on the order of classes, where there are more than two.
    binary
        Whether it is of positives and negatives, so that there must be two classes.
    margin
        Largest difference from a printed number that does not matter, in the unit; None if it is
        the share `RELATIVE_MARGIN` of the printed number. ``docs/verdicts.md`` has the reasons.
    by_samples
        Whether a distance compares samples, whose number then decides what exact ones score.
    judges_predictions
        Whether a better value is a better prediction of new rows. It is not where training rows
        are scored, or labels are not looked at.
    """

    label: str
    unit: str
    direction: Literal["lower", "higher", "none", "ratio"]
    kind: Literal["predictive", "posterior", "distance", "time"]
    task: "Task | None" = None
    margin: float | None = None
    ordered: bool = False
    binary: bool = False
    by_samples: bool = False
    judges_predictions: bool = True

    @property
    def ranks_methods(self) -> bool:
        """Whether methods are ranked by it, and compared as better or worse."""
        has_order = self.direction in ("lower", "higher")
        return has_order and self.kind == "predictive" and self.judges_predictions

    def margin_of(self, printed: float) -> float:
        """Return the margin about a printed number, in the unit."""
        return RELATIVE_MARGIN * abs(printed) if self.margin is None else self.margin


class Score(Protocol):
    """What a metric must say about itself.

    A frozen dataclass whose fields are its YAML settings.
    """

    @property
    def info(self) -> MetricInfo:
        """What its numbers mean; a class attribute, since it does not depend on settings."""
        ...

    def __call__(self, evaluation: "Evaluation") -> float | Mapping[str, float]:
        """Score a fit: the score, or a mapping of suffixes that the metric's name gets to numbers.

        The score has the suffix ``""``, its Monte-Carlo standard error ``"mcse"``.
        """
        ...


@dataclass(frozen=True)
class Runtime:
    """Wall time of a split, search included, in minutes.

    A share where splits are fitted together.
    """

    info = MetricInfo("Runtime", "minutes per split", "ratio", "time")

    def __call__(self, evaluation: "Evaluation") -> float:
        """Raise `InputError`: a fit that is over cannot be timed."""
        raise InputError("runtime is measured while a fit runs: leave it out here")


def read_metric_info(name: str) -> MetricInfo:
    """Return what a registered metric says of itself; `InputError` if there is none."""
    declaration = METRICS.declaration(name)
    if declaration is not None:
        return MetricInfo(**declaration.facts["info"])
    metric_info: MetricInfo = METRICS.get(name).info
    return metric_info


def get_metric_info(label: str) -> MetricInfo:
    """Describe what the numbers of a result column mean; `InputError` if no metric is called so.

    `label` is what a benchmark calls a metric, which knows its name; or plain text: a name, or a
    registered name followed by ``_`` and settings or a suffix, such as ``ece_20`` or
    ``scaled_w2_mcse``. The longest name that fits counts.
    """
    metric_info = read_metric_info(_match_metric_name(label))
    if "standardised" in split_settings(label):
        return replace(metric_info, unit="standard deviations of the target")
    return metric_info


def split_settings(label: str) -> list[str]:
    """List what a label says behind the metric's name: ``["20"]`` for ``ece_20``.

    Arguments and errors as in `get_metric_info`.
    """
    name = _match_metric_name(label)
    return label[len(name) + 1 :].split("_") if label.startswith(f"{name}_") else []


def _match_metric_name(label: str) -> str:
    if isinstance(label, Label):
        return label.name
    name = max(
        (name for name in METRICS.names() if f"{label}_".startswith(f"{name}_")),
        key=len,
        default="",
    )
    if not name and ":" not in label:
        raise unknown_name_error("metric", label, METRICS.names())
    return name or label

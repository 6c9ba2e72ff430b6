"""One entry of a benchmark file: model, likelihood, prior, method, training, hyper-parameters and their search."""

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, Literal, Self

from pydantic import Field, PrivateAttr, model_validator

from bdl.errors import unknown
from bdl.spec.components import LikelihoodComponent, MethodComponent, ModelComponent, ReferenceComponent
from bdl.spec.explain import unknown_field, within
from bdl.spec.fields import Count, DatasetName, Items, NonEmpty, NonNegative, ScoreName, Settings, Text
from bdl.spec.merging import overlay


class Prior(Settings):
    """Gaussian prior N(0, 1 / prior_precision) on every parameter."""

    bias_precision: float | None = Field(None, gt=0)
    """Prior precision of the biases; null gives them that of the weights."""


class Training(Settings):
    """How long one fit trains."""

    epochs: Count
    """Passes over the training rows."""
    batch_size: Count
    """Rows of a minibatch."""


class Range(Settings):
    """Where a hyper-parameter is searched."""

    low: NonNegative
    """Smallest value; above 0 if `scale` is log."""
    high: NonNegative
    """Largest value."""
    scale: Literal["linear", "log"] = "linear"
    """Uniform in the value, or in its logarithm."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.low >= self.high:
            word = "empty" if self.low == self.high else "reversed"
            raise ValueError(f"range {word}: low {self.low:g} must be below high {self.high:g}")
        if self.scale == "log" and self.low == 0:
            raise ValueError("a log range needs low above 0")
        return self


class Search(Settings):
    """Choice of hyper-parameters by cross-validation on the training rows."""

    sampler: Literal["random", "bayesian", "grid"] = "random"
    """How configurations come: drawn uniformly from `space`; drawn where a Gaussian process expects the best score; or
    all those of `grid`."""
    trials: Count = 30
    """Configurations scored; a grid has as many as it has."""
    startup: Count = 5
    """How many of them a Bayesian search draws uniformly before it follows the scores."""
    penalty: float | None = Field(None, allow_inf_nan=False)
    """What a Bayesian search counts for a failed fold; null stands for the worst score of the split so far."""
    folds: int = Field(ge=2)
    """Folds of the cross-validation."""
    metric: ScoreName
    """Validation metric; the trial with the best mean over the folds wins."""
    space: Mapping[str, Range] = {}
    """Hyper-parameter to its range. The order matters: values are drawn in this order."""
    grid: Mapping[str, NonEmpty[NonNegative]] = {}
    """Hyper-parameter to its values."""

    @property
    def names(self) -> tuple[str, ...]:
        """Hyper-parameters that are searched."""
        return (*self.space, *self.grid)

    @property
    def idle(self) -> set[str]:
        """Fields that the sampler does not heed."""
        idle = {"random": {"startup", "penalty", "grid"}, "bayesian": {"grid"}, "grid": {"startup", "penalty"}}
        return idle[self.sampler]

    @model_validator(mode="before")
    @classmethod
    def _count_grid(cls, raw: Any) -> Any:
        """A grid has as many trials as the product of its sizes."""
        grid = raw.get("grid") if isinstance(raw, Mapping) and raw.get("sampler") == "grid" else None
        if isinstance(grid, Mapping) and all(isinstance(values, Sequence) and values for values in grid.values()):
            return {**raw, "trials": prod(map(len, grid.values()))}
        return raw

    @model_validator(mode="after")
    def _either_space_or_grid(self) -> Self:
        wanted, other = ("grid", "space") if self.sampler == "grid" else ("space", "grid")
        if not getattr(self, wanted):
            raise ValueError(f"{wanted}: should not be empty, a {self.sampler} search needs it")
        if getattr(self, other):
            raise ValueError(f"{other}: a {self.sampler} search does not use it; remove it")
        return self

    @model_validator(mode="after")
    def _startup_within_trials(self) -> Self:
        if "startup" not in self.idle and self.startup > self.trials:
            raise ValueError(
                f"startup: {self.startup} evaluations at random are more than the {self.trials} trials; "
                "lower startup or raise trials"
            )
        return self


class Evaluation(Settings):
    """How a posterior is scored."""

    samples: Count = 100
    """Posterior samples of a predictive distribution."""


_OF_A_MODEL = ("model", "likelihood", "training", "hyper", "reference", "from_reference", "search", "evaluation")
"""Fields that mean nothing where there is no model."""


class Entry(Settings):
    """One row of the tables: a model, a likelihood, a prior, a method and how it is trained."""

    model: ModelComponent | None = None
    """Model and its settings; null for a method that learns from a stream."""
    likelihood: LikelihoodComponent | None = None
    """Likelihood and its settings; null for a method that learns from a stream."""
    prior: Prior = Prior()
    """Prior over the parameters."""
    method: MethodComponent
    """Method and its settings."""
    training: Training | None = None
    """How long one fit trains; null for a method without minibatches."""
    hyper: Mapping[str, NonNegative] = {}
    """Fixed hyper-parameters."""
    reference: ReferenceComponent | None = None
    """Reference posterior that distances are measured to."""
    from_reference: Items[Text] = ()
    """Hyper-parameters whose values the reference estimates."""
    by_dataset: Mapping[DatasetName, Mapping[str, Any]] = {}
    """Data set to the fields of the entry that are different there, merged deeply over the others."""
    search: Search | None = None
    """Search for the other hyper-parameters; null if all are fixed."""
    evaluation: Evaluation | None = None
    """How the posterior is scored; null for what the benchmark says."""
    datasets: Items[DatasetName] = ()
    """Data sets of the benchmark that the entry runs on; empty for all."""
    _on: dict[str, "Entry"] = PrivateAttr(default_factory=dict)
    """The entry as it is on each data set of `by_dataset`."""

    @property
    def hyper_names(self) -> tuple[str, ...]:
        """Every hyper-parameter that must be fixed or searched."""
        if self.likelihood is None:
            return ()
        return (*self.method.build().hyper, "prior_precision", *self.likelihood.build().hyper)

    @property
    def streams(self) -> bool:
        """Whether the method learns from a stream of parameter vectors, and needs no model."""
        return hasattr(self.method.build(), "update_block")

    @property
    def direct(self) -> bool:
        """Whether the method works without minibatches."""
        return hasattr(self.method.build(), "fit")

    def on(self, dataset: str) -> "Entry":
        """Give the entry as it is on one data set."""
        return self._on.get(dataset, self)

    def dump(self) -> dict[str, Any]:
        """List every setting as JSON values, without what is different on some data sets."""
        return self.model_dump(mode="json", exclude={"by_dataset", "datasets", "evaluation"})

    def dump_on(self, dataset: str) -> dict[str, Any]:
        """List every setting on one data set as JSON values, without what concerns other data sets
        or has no effect."""
        entry = self.on(dataset)
        settings = entry.dump() | {"by_dataset": {}}  # which old hashes have
        for name in entry.search.idle if entry.search else ():
            del settings["search"][name]
        return settings

    def runs_on(self, dataset: str) -> bool:
        """Tell whether the entry runs on a data set of the benchmark."""
        return not self.datasets or dataset in self.datasets

    @model_validator(mode="after")
    def _streams_alone(self) -> Self:
        given = [name for name in _OF_A_MODEL if getattr(self, name)]
        if self.streams and given:
            raise ValueError(f"method '{self.method.name}' learns from a stream: remove {' and '.join(given)}")
        if not self.streams and not (self.model and self.likelihood):
            raise ValueError(f"{'likelihood' if self.model else 'model'} is missing")
        return self

    @model_validator(mode="after")
    def _training_fits_method(self) -> Self:
        if self.direct and (self.training or self.search):
            raise ValueError(f"method '{self.method.name}' works without minibatches: remove training and search")
        if not self.direct and not self.streams and self.training is None:
            raise ValueError("training is missing: give epochs and batch_size")
        return self

    @model_validator(mode="after")
    def _reference_estimates(self) -> Self:
        known = self.reference.build().estimates if self.reference else ()
        for name in self.from_reference:
            if name not in known:
                raise ValueError(f"from_reference: {unknown('estimate of the reference', name, known)}")
        return self

    @model_validator(mode="after")
    def _hyper_complete(self) -> Self:
        space = self.search.names if self.search else ()
        names = self.hyper_names
        for name in (*self.hyper, *space):
            if name not in names:
                raise ValueError(str(unknown("hyper-parameter", name, names)))
            if sum(name in given for given in (self.hyper, space, self.from_reference)) > 1:
                raise ValueError(
                    f"hyper-parameter '{name}' is given twice (hyper, search.space, from_reference): keep one"
                )
        missing = [name for name in names if name not in {*self.hyper, *space, *self.from_reference}]
        if missing:
            raise ValueError(f"no value for {', '.join(missing)}: add to hyper or to search.space")
        return self

    @model_validator(mode="after")
    def _valid_on_data_sets(self) -> Self:
        for dataset, changes in self.by_dataset.items():
            try:
                self._on[dataset] = self._merged(changes)
            except ValueError as error:
                raise within(("by_dataset", dataset), error) from None
        return self

    def _merged(self, changes: Mapping[str, Any]) -> "Entry":
        settings = self.dump()
        for key in changes:
            if key not in settings:
                raise ValueError(unknown_field(key, settings))
        return Entry.model_validate(overlay(settings, changes, settings))

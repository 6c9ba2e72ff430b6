"""One entry of a benchmark file: model, likelihood, prior, method, training and search."""

from collections.abc import Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any, Literal, Self, cast

from pydantic import Field, PrivateAttr, ValidationInfo, model_validator

from bdl.errors import InputError, unknown_name_error
from bdl.spec.components import (
    LikelihoodComponent,
    MethodComponent,
    ModelComponent,
    PriorComponent,
    ReferenceComponent,
)
from bdl.spec.fields import (
    CHECKED_CONTEXT,
    Count,
    Items,
    NonEmpty,
    NonNegative,
    Real,
    SpecSection,
    Text,
    describe_unknown_field,
    is_checked,
)
from bdl.spec.labels import DatasetLabel, ScoreName
from bdl.spec.sections import Record, Training
from bdl.spec.values import overlay, select_applicable

if TYPE_CHECKING:
    from bdl.methods.base import ExternalMethod, MinibatchMethod


class Range(SpecSection):
    """Range in which a hyper-parameter is searched."""

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


class Search(SpecSection):
    """Choice of hyper-parameters by cross-validation on the training rows."""

    sampler: Literal["random", "bayesian", "grid"] = "random"
    """Choice of the configurations."""
    trials: Count = 30
    """Number of configurations, except for a grid."""
    startup: Count = 5
    """Random configurations at the start of a Bayesian search."""
    penalty: Real | None = None
    """Score of a failed fold in a Bayesian search; null for the worst of the split so far."""
    folds: Count
    """Folds of the cross-validation on training rows; 1 uses the data set's validation rows, or
    all training rows for
    a score of the posterior."""
    refit: bool = False
    """With `folds: 1`, whether the final fit trains on the validation rows as well."""
    metric: ScoreName
    """Score whose lowest mean over the folds wins: of predictions, or of the posterior on the
    rows of the fit, such as
    `neg_elbo`."""
    space: Mapping[str, Range] = {}
    """Range by hyper-parameter, except for a grid. Values are drawn in this order."""
    grid: Mapping[str, NonEmpty[NonNegative]] = {}
    """Values by hyper-parameter; a grid scores every combination."""

    @property
    def names(self) -> tuple[str, ...]:
        """Hyper-parameters that are searched."""
        return (*self.space, *self.grid)

    @property
    def idle(self) -> set[str]:
        """Fields that the sampler does not heed."""
        idle = {
            "random": {"startup", "penalty", "grid"},
            "bayesian": {"grid"},
            "grid": {"startup", "penalty"},
        }
        return idle[self.sampler] | (set() if self.folds == 1 else {"refit"})

    @property
    def refits(self) -> bool:
        """Whether final fits train on validation rows."""
        return self.refit and self.folds == 1

    def training_rows(self, rows: int) -> int:
        """Count the rows that a fold trains on, of so many training rows."""
        return rows if self.folds == 1 else rows - -(-rows // self.folds)

    @model_validator(mode="before")
    @classmethod
    def _count_grid(cls, raw: Any) -> Any:
        # a grid says by itself how many trials there are
        is_grid = isinstance(raw, Mapping) and raw.get("sampler") == "grid"
        grid = raw.get("grid") if is_grid else None
        if isinstance(grid, Mapping) and all(
            isinstance(values, Sequence) and values for values in grid.values()
        ):
            return {**raw, "trials": prod(map(len, grid.values()))}
        return raw

    @model_validator(mode="after")
    def _suits_the_sampler(self) -> Self:
        required, unused = ("grid", "space") if self.sampler == "grid" else ("space", "grid")
        if not getattr(self, required):
            raise ValueError(f"{required}: should not be empty, a {self.sampler} search needs it")
        if getattr(self, unused):
            raise ValueError(f"{unused}: a {self.sampler} search does not use it; remove it")
        if "startup" not in self.idle and self.startup > self.trials:
            raise ValueError(
                f"startup: {self.startup} evaluations at random are more than the {self.trials} "
                "trials; lower startup or raise trials"
            )
        return self


class EvaluationSettings(SpecSection):
    """Settings by which a posterior is scored."""

    samples: Count = 100
    """Posterior samples of a predictive distribution."""


_MODEL_FIELDS = (
    "model",
    "likelihood",
    "training",
    "hyper",
    "reference",
    "from_reference",
    "search",
    "evaluation",
)
"""Fields of an entry that are for methods with a model."""


class Entry(SpecSection):
    """One row of the tables: a model, a likelihood, a prior, a method and how it is trained."""

    model: ModelComponent | None = None
    """Component; null for a method that learns from a stream or has its own."""
    likelihood: LikelihoodComponent | None = None
    """Component; null for a method that learns from a stream or has its own."""
    prior: PriorComponent = Field(
        default_factory=lambda: PriorComponent.model_validate(
            {"name": "gaussian"}, context=CHECKED_CONTEXT
        )
    )
    """Component; a mapping without a name has settings of `gaussian`."""
    method: MethodComponent
    """Component that approximates the posterior."""
    training: Training | None = None
    """Length of a fit; required for methods with minibatches."""
    hyper: Mapping[str, NonNegative] = {}
    """Fixed hyper-parameters by name."""
    reference: ReferenceComponent | None = None
    """Reference posterior; required by distances."""
    from_reference: Items[Text] = ()
    """Hyper-parameters that the reference estimates."""
    by_dataset: Mapping[DatasetLabel, Mapping[str, Any]] = {}
    """Changes of the entry on one data set."""
    search: Search | None = None
    """Search for the other hyper-parameters; null if all are fixed."""
    evaluation: EvaluationSettings | None = None
    """Replaces that of the benchmark."""
    record: Record | None = None
    """Replaces that of the benchmark."""
    datasets: Items[DatasetLabel] = ()
    """Data sets on which the entry runs; all if none is listed."""
    _on: dict[str, "Entry"] = PrivateAttr(default_factory=dict)
    """The entry as it is on each data set of `by_dataset`."""

    @property
    def hyper_names(self) -> tuple[str, ...]:
        """Every hyper-parameter that must be fixed or searched."""
        if self.streams or self.self_tuned:
            return () if self.streams else tuple(self.method.build().hyper)
        assert self.likelihood is not None, "methods of these kinds have one"
        return (
            *self.method.build().hyper,
            *self.prior.build().hyper,
            *self.likelihood.build().hyper,
        )

    @property
    def streams(self) -> bool:
        """Whether the method learns from a stream of parameter vectors, and needs no model."""
        return self.method.source == "observations"

    @property
    def direct(self) -> bool:
        """Whether the method works without minibatches."""
        return self.method.source == "rows"

    @property
    def self_tuned(self) -> bool:
        """Whether the method finds prior and noise itself, and may bring a model of its own."""
        return self.method.build().self_tuned

    @property
    def limited(self) -> bool:
        """Whether each fit has a limit of time.

        It is then alone in its group, in a process that can be ended.
        """
        return self.direct and cast("ExternalMethod", self.method.build()).limit is not None

    @property
    def course(self) -> bool:
        """Whether the method has estimates that can be evaluated before the last one."""
        return self.method.course

    def on(self, dataset: str) -> "Entry":
        """Return the entry with the changes that concern one data set."""
        return self._on.get(dataset, self)

    def apply_changes_on(
        self, dataset: str, shared: Mapping[str, Any], *, checked: bool = False
    ) -> None:
        """Apply changes to the entry for one data set; `on` returns the result.

        The `shared` changes come before those of the entry's own `by_dataset`; those of fields
        that the entry does not have are left out. The result is checked like any entry, unless it
        was before.
        `ValueError` if a field does not exist, or the result is not allowed.
        """
        settings = self.dump()
        entry_changes = self.by_dataset.get(dataset, {})
        for key in entry_changes:
            if key not in settings:
                raise ValueError(describe_unknown_field(key, settings))
        for changes in (select_applicable(shared, settings), entry_changes):
            settings = overlay(settings, changes)
        context = CHECKED_CONTEXT if checked else None
        self._on[dataset] = Entry.model_validate(settings, context=context)

    def dump(self, *, defaults: bool = True) -> dict[str, Any]:
        """Return the settings as JSON values, with or without defaults.

        Fields about single data sets are left out.
        """
        excluded = {"by_dataset", "datasets", "evaluation"}
        return self.model_dump(mode="json", exclude=excluded, exclude_defaults=not defaults)

    def dump_on(self, dataset: str, *, defaults: bool = True) -> dict[str, Any]:
        """Return the settings on one data set as `dump` does, without those of no effect."""
        entry = self.on(dataset)
        settings = entry.dump(defaults=defaults)
        for name in entry.search.idle if entry.search else ():
            settings["search"].pop(name, None)
        return settings

    def runs_on(self, dataset: str) -> bool:
        """Return whether the entry runs on a data set of the benchmark."""
        return not self.datasets or dataset in self.datasets

    @model_validator(mode="after")
    def _suits_the_method(self, info: ValidationInfo) -> Self:
        if is_checked(info):
            return self
        name, method = self.method.name, self.method.build()
        model_fields = [field for field in _MODEL_FIELDS if getattr(self, field)]
        if self.streams and model_fields:
            raise ValueError(
                f"method '{name}' learns from a stream: remove {' and '.join(model_fields)}"
            )
        if not (self.streams or self.self_tuned or (self.model and self.likelihood)):
            raise ValueError(f"{'likelihood' if self.model else 'model'} is missing")
        if self.direct and self.training:
            raise ValueError(f"method '{name}' works without minibatches: remove training")
        if not self.direct and not self.streams and self.training is None:
            raise ValueError("training is missing: give epochs and batch_size")
        if self.training is not None:
            try:
                self.training.build().check(cast("MinibatchMethod", method))
            except InputError as error:
                raise ValueError(f"training: {error}") from None
        if self.record and self.streams != (self.record.unit == "observations"):
            units = "observations" if self.streams else "epochs or updates"
            raise ValueError(
                f"record.unit: method '{name}' counts {units}, not {self.record.unit}"
            )
        if self.record and not method.course:
            raise ValueError(f"method '{name}' has no course to look at: remove record")
        return self

    @model_validator(mode="after")
    def _hyper_complete(self, info: ValidationInfo) -> Self:
        if is_checked(info):
            return self
        estimates = self.reference.build().estimates if self.reference else ()
        if self.from_reference and self.search and self.search.refits:
            raise ValueError(
                "search.refit: the reference of from_reference has the validation rows as well, "
                "which the search is to judge by: leave one of them out"
            )
        for name in self.from_reference:
            if name not in estimates:
                problem = unknown_name_error("estimate of the reference", name, estimates)
                raise ValueError(f"from_reference: {problem}")
        space = self.search.names if self.search else ()
        names = self.hyper_names
        for name in (*self.hyper, *space):
            if name not in names:
                raise ValueError(str(unknown_name_error("hyper-parameter", name, names)))
            if sum(name in source for source in (self.hyper, space, self.from_reference)) > 1:
                raise ValueError(
                    f"hyper-parameter '{name}' is given twice (hyper, search.space, "
                    "from_reference): keep one"
                )
        if self.reference:
            # a reference is computed under one value of each, not for every one that a search
            # tries
            learned = (*self.method.build().hyper, *estimates)
            searched = [name for name in space if name not in learned]
            if searched:
                raise ValueError(
                    f"reference '{self.reference.name}' is the posterior under given values of "
                    f"{', '.join(searched)}, which the search chooses: move them to hyper"
                )
        with_values = {*self.hyper, *space, *self.from_reference}
        missing = [name for name in names if name not in with_values]
        if missing:
            raise ValueError(f"no value for {', '.join(missing)}: add to hyper or to search.space")
        return self

"""How data are split and standardised, as a benchmark file describes it."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, WrapValidator

from bdl.spec.fields import Count, Settings
from bdl.spec.labels import DatasetLabel

_ALL: TypeAdapter[Any] = TypeAdapter(Count)
_EACH: TypeAdapter[Any] = TypeAdapter(Mapping[DatasetLabel, Count])


def _all_or_each(raw: Any, handler: object) -> Any:
    """Read one number or a mapping; problems are those of the form that is meant."""
    return (_EACH if isinstance(raw, Mapping) else _ALL).validate_python(raw, strict=True)


class Preparation(Settings):
    """How data are split and standardised."""

    split: Literal["published", "first", "other-first", "half", "other-half", "gap", "tail"] = "published"
    """The data set's own splits; or replicates of the first of them, of the rows that it tests, or of one of two fixed
    halves of the rows; or, for each input, what is tested lies between what trains, or beyond it."""
    standardise: Literal["both", "inputs", "none"] = "both"
    """What is scaled by the training rows: inputs and targets (but not labels), inputs alone, or nothing."""
    rows: Annotated[Count | Mapping[DatasetLabel, Count], WrapValidator(_all_or_each)] = Field(default_factory=dict)
    """Training rows that are kept, the first of each split: one number for all data sets, or data set to number; those
    without a number keep all."""

    splits: Mapping[DatasetLabel, Count] = {}
    """Data set to the number of its splits that run, where it has fewer than the benchmark runs of the others."""

    @property
    def repeats(self) -> bool:
        """Whether all splits are the same one."""
        return self.split in ("first", "other-first", "half", "other-half")

    def rows_of(self, dataset: str) -> int | None:
        """Return the number of training rows that are kept of a data set; None for all."""
        return self.rows if isinstance(self.rows, int) else self.rows.get(dataset)

    def dump_on(self, dataset: str, *, defaults: bool = True) -> dict[str, Any]:
        """List the settings for one data set as JSON values; rows only where some are left out.

        Parameters
        ----------
        dataset
            Its label.
        defaults
            Whether settings that have their default value are listed, too.
        """
        rows = self.rows_of(dataset)
        settings = self.model_dump(mode="json", exclude={"rows", "splits"}, exclude_defaults=not defaults)
        return settings | ({} if rows is None else {"rows": rows})

"""What a group of fits may take."""

from typing import Annotated

from annotated_types import Gt, Le

from bdl.spec.fields import MOST, Settings


class Limits(Settings):
    """Limits of each group; one that goes beyond them is failed rows with the reason, and the rest goes on."""

    minutes: Annotated[float, Gt(0), Le(MOST)] | None = None
    """Wall time; null for as long as it takes."""
    gigabytes: Annotated[float, Gt(0), Le(MOST)] | None = None
    """Memory of the process that it runs in, in GiB, where the system can limit it; null for all that there is."""

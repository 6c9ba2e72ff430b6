"""What tables and figures call data sets: a file's function without the path of the file."""

from collections import Counter
from collections.abc import Iterable


def shown(names: Iterable[str]) -> dict[str, str]:
    """Write ``wave`` for ``sub/wave.py:wave``, unless two data sets would be called so.

    Parameters
    ----------
    names
        Data sets as a benchmark calls them.
    """
    short = {name: name.rpartition(":")[2] for name in names}
    counts = Counter(short.values())
    return {name: stem if counts[stem] == 1 else name for name, stem in short.items()}

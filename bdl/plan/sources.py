"""The code that decides a trial's numbers, as a hash."""

import ast
import hashlib
from functools import lru_cache
from inspect import getfile
from pathlib import Path

import bdl

_SOURCES = (
    "data/preparation.py",
    "data/scaling.py",
    "data/splits.py",
    "methods/conjugate.py",
    "methods/optim.py",
    "methods/spectrum.py",
    "metrics",
    "models",
    "posteriors",
    "references",
    "execution/scoring.py",
    "search",
    "training",
)
"""Parts of the package that decide a trial's numbers, beside the method's own file."""


@lru_cache(maxsize=32)
def source_hash(method: type) -> str:
    """Hash the sources that matter for a method, SHA-256 (hex); comments and layout do not count.

    Parameters
    ----------
    method
        Its class; its file and those of the classes that it builds on are among the sources.
    """
    root = Path(bdl.__file__).parent
    found = [
        path
        for part in _SOURCES
        for path in ([root / part] if part.endswith(".py") else sorted((root / part).glob("*.py")))
    ]
    own = dict.fromkeys(Path(getfile(part)) for part in method.__mro__ if part is not object)
    code = [ast.unparse(ast.parse(path.read_text("utf-8"))) for path in (*found, *own)]
    return hashlib.sha256("\n".join(code).encode()).hexdigest()

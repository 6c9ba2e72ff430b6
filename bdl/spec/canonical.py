"""One text for one content, and its hash."""

import hashlib
import json
from typing import Any


def canonical(content: Any) -> str:
    """Write JSON values without spaces, the keys of mappings sorted.

    Raises
    ------
    ValueError
        If a number is not finite.
    """
    return json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)


def sha256(content: Any) -> str:
    """Hash the canonical JSON of a content, SHA-256 (hex)."""
    return hashlib.sha256(canonical(content).encode()).hexdigest()

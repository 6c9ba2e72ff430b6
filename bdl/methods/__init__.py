"""Approximate inference methods, one file each."""

from bdl.registry import Registry

METHODS = Registry(
    "method",
    {
        "vifa": "bdl.methods.vifa:Vifa",
    },
    contract="bdl.methods.base:Method",
)

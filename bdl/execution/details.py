"""What rows tell of how fits were made and kept, and how long fits may take."""

from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from bdl.methods.base import ExternalMethod
from bdl.methods.guest import Guest
from bdl.plan.cell import Cell, outside_files
from bdl.posteriors.base import Posterior
from bdl.posteriors.predictive import Answer, is_predictive
from bdl.store.rows import CERTIFICATE, KEPT


def details_of(cell: Cell, at_once: int, compile: bool) -> dict[str, Any]:
    """Describe how fits are made: how many side by side, on what, with which outside files and guests' packages."""
    details: dict[str, Any] = {"width": at_once, "device": cell.device, "compiled": compile}
    method = cell.settings.method.build()
    if isinstance(method, Guest) and (packages := method.packages):
        details["packages"] = packages
    return details | ({"files": files} if (files := outside_files(cell)) else {})


def kept(posterior: Posterior) -> dict[str, str]:
    """Return what is kept of a fit, where that is no distribution of parameters, and its certificate if it has one."""
    if not is_predictive(posterior):
        return {}
    certificate: str | None = getattr(posterior, "certificate", None)
    what = {KEPT: "predictions at the test rows" if isinstance(posterior, Answer) else "a predictive"}
    return what | ({CERTIFICATE: certificate} if certificate else {})


def allowed(cell: Cell, fits: int) -> float | None:
    """Return the seconds that so many fits may take by the limit of their method; None if it has none."""
    method = cell.settings.method.build()
    limit = method.limit if isinstance(method, ExternalMethod) else None
    return None if limit is None else fits * limit


def is_finite(posterior: Posterior) -> bool:
    """Return whether all numbers of a posterior are."""
    return all(bool(torch.isfinite(leaf).all()) for leaf in tree_leaves(posterior))

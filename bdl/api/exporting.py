"""Posteriors and references as files in the layout of posteriordb."""

import json
import zipfile
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

from torch import Tensor

import bdl
from bdl.api.fitted import Count, Fitted, Seed, about, drawn, sample
from bdl.errors import InputError
from bdl.execution.scoring import computed, scores
from bdl.plan import truths
from bdl.posteriors import FullGaussian
from bdl.references import base
from bdl.spec.fields import checked


@checked
def export(
    fitted: object,
    folder: str | Path,
    what: Literal["posterior", "reference"] = "posterior",
    draws: Count = 1000,
    seed: Seed = 0,
) -> Path:
    """Write a posterior, or the reference of its entry, in the layout of posteriordb.

    Parameters
    ----------
    fitted
        What was fitted, a `bdl.Fitted`.
    folder
        Where to write, made if missing: ``posteriors/NAME.json`` says what it is a posterior of,
        ``reference_posteriors/draws/draws/NAME.json.zip`` has the draws, a list of chains of
        ``theta[1]`` and so on, ``.../info/NAME.info.json`` how they were made, and
        ``quality/NAME.json`` what is known of their quality: the scores of a posterior, the
        certificate of a reference.
    what
        Which of the two.
    draws
        Draws of a posterior, or of a reference in closed form; those of a sampled reference, of an
        ensemble and of a sampler are written as they are.
    seed
        Of these draws.

    Returns
    -------
    Path
        The file of the draws.

    Raises
    ------
    InputError
        If there is no reference, or no distribution of parameters, or a file cannot be written.
    """
    if not isinstance(fitted, Fitted):
        raise InputError(
            f"export: fitted is {type(fitted).__name__}: give what bdl.posterior returns"
        )
    chains, info, quality = (
        _posterior(fitted, draws, seed) if what == "posterior" else _reference(fitted, draws, seed)
    )
    cell = fitted.cell
    name = "-".join([str(cell.dataset), cell.entry, str(fitted.split), what])
    top = Path(folder)
    place = top / "reference_posteriors/draws"
    described = {
        "name": name,
        "model_name": cell.entry,
        "data_name": str(cell.dataset),
        "reference_posterior_name": name,
        "dimensions": {"theta": chains.shape[-1]},
        "added_by": f"bdl-bench {bdl.__version__}",
    }
    texts = [
        {f"theta[{number + 1}]": chain[:, number].tolist() for number in range(chain.shape[1])}
        for chain in chains
    ]
    try:
        for path, content in (
            (top / f"posteriors/{name}.json", described),
            (place / f"info/{name}.info.json", {"name": name, **info}),
            (top / f"quality/{name}.json", quality),
        ):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(content, indent=1) + "\n", "utf-8")
        (place / "draws").mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(place / f"draws/{name}.json.zip", "w", zipfile.ZIP_DEFLATED) as file:
            file.writestr(zipfile.ZipInfo(f"{name}.json"), json.dumps(texts))
    except OSError as error:
        raise InputError(
            f"cannot write {error.filename}: {error.strerror}; choose another folder"
        ) from None
    return place / f"draws/{name}.json.zip"


Written = tuple[Tensor, dict[str, Any], dict[str, Any]]
"""Chains (C, S, D), how they were made, and what is known of their quality."""


def _posterior(fitted: Fitted, draws: int, seed: int) -> Written:
    theta = drawn(fitted, draws, seed)
    scored = scores(fitted.evaluation, computed(fitted.cell)).stored
    made = {
        "method": fitted.cell.settings.method.name,
        "method_arguments": fitted.cell.settings.method.settings,
    }
    return theta[None], {"inference": made, **about(fitted)}, {"scores": scored}


def _reference(fitted: Fitted, draws: int, seed: int) -> Written:
    cell, split = fitted.cell, fitted.split
    truth = truths.truth(cell, split)
    if truth is None or cell.settings.reference is None:
        raise InputError(f"entry {cell.entry} has no reference: export the posterior")
    own = cell.settings.reference
    info = {"inference": {"method": own.name, "method_arguments": own.settings}, **about(fitted)}
    recipe = truths.recipe(cell, split)
    quality: dict[str, Any]
    if recipe is None:
        quality = {"evidence": truths.evidence(cell, split)}
    else:
        quality = {"certificate": asdict(base.obtain(recipe).certificate)}
    if truth.chains is not None:
        return truth.chains, info, quality
    if len(truth.covariance) < len(truth.mean):
        raise InputError(
            "the reference knows the covariance of some parameters only: it has no draws to export"
        )
    return (
        sample(FullGaussian.from_covariance(truth.mean, truth.covariance), draws, seed)[None],
        info,
        quality,
    )

"""Posteriors and references as files in the layout of posteriordb."""

import json
import zipfile
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

from torch import Tensor

import bdl
from bdl.api.fitted import Count, Fitted, Seed, describe_fit, draw_parameters, sample_parameters
from bdl.errors import InputError
from bdl.execution.scoring import compute_scores
from bdl.plan import reference_posteriors
from bdl.posteriors import FullGaussian
from bdl.references import base
from bdl.spec.fields import validate_arguments


@validate_arguments
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
        A fit, `bdl.api.Fitted`.
    folder
        Folder to write to, created if missing: ``posteriors/NAME.json`` names the model and the
        data, ``reference_posteriors/draws/draws/NAME.json.zip`` has the draws, a list of chains of
        ``theta[1]`` and so on, ``.../info/NAME.info.json`` how they were made, and
        ``quality/NAME.json`` their quality: the scores of a posterior, the certificate of a
        reference.
    what
        Whether to write the posterior or the reference.
    draws
        Draws of a posterior, or of a reference in closed form; those of a sampled reference, of an
        ensemble and of a sampler are written as they are.
    seed
        Seed of these draws.

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
    if what == "posterior":
        chains, info, quality = _posterior_draws(fitted, draws, seed)
    else:
        chains, info, quality = _reference_draws(fitted, draws, seed)
    task = fitted.cell
    name = "-".join([str(task.dataset), task.entry, str(fitted.split), what])
    top = Path(folder)
    draws_folder = top / "reference_posteriors/draws"
    posterior_record = {
        "name": name,
        "model_name": task.entry,
        "data_name": str(task.dataset),
        "reference_posterior_name": name,
        "dimensions": {"theta": chains.shape[-1]},
        "added_by": f"bdl-bench {bdl.__version__}",
    }
    chain_records = [
        {f"theta[{number + 1}]": chain[:, number].tolist() for number in range(chain.shape[1])}
        for chain in chains
    ]
    try:
        for path, content in (
            (top / f"posteriors/{name}.json", posterior_record),
            (draws_folder / f"info/{name}.info.json", {"name": name, **info}),
            (top / f"quality/{name}.json", quality),
        ):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(content, indent=1) + "\n", "utf-8")
        (draws_folder / "draws").mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(
            draws_folder / f"draws/{name}.json.zip", "w", zipfile.ZIP_DEFLATED
        ) as file:
            file.writestr(zipfile.ZipInfo(f"{name}.json"), json.dumps(chain_records))
    except OSError as error:
        raise InputError(
            f"cannot write {error.filename}: {error.strerror}; choose another folder"
        ) from None
    return draws_folder / f"draws/{name}.json.zip"


ExportedDraws = tuple[Tensor, dict[str, Any], dict[str, Any]]
"""Chains (C, S, D), how they were made, and their quality."""


def _posterior_draws(fitted: Fitted, draws: int, seed: int) -> ExportedDraws:
    theta = draw_parameters(fitted, draws, seed)
    stored_scores = compute_scores(fitted.evaluation, fitted.cell.fit_metrics).stored
    inference = {
        "method": fitted.cell.settings.method.name,
        "method_arguments": fitted.cell.settings.method.settings,
    }
    return theta[None], {"inference": inference, **describe_fit(fitted)}, {"scores": stored_scores}


def _reference_draws(fitted: Fitted, draws: int, seed: int) -> ExportedDraws:
    task, split = fitted.cell, fitted.split
    truth = reference_posteriors.compute_truth(task, split)
    if truth is None or task.settings.reference is None:
        raise InputError(f"entry {task.entry} has no reference: export the posterior")
    reference = task.settings.reference
    inference = {"method": reference.name, "method_arguments": reference.settings}
    info = {"inference": inference, **describe_fit(fitted)}
    recipe = reference_posteriors.find_recipe(task, split)
    quality: dict[str, Any]
    if recipe is None:
        quality = {"evidence": reference_posteriors.describe_evidence(task, split)}
    else:
        quality = {"certificate": asdict(base.load_or_sample(recipe).certificate)}
    if truth.chains is not None:
        return truth.chains, info, quality
    if len(truth.covariance) < len(truth.mean):
        raise InputError(
            "the reference knows the covariance of some parameters only: it has no draws to export"
        )
    exact = FullGaussian.from_covariance(truth.mean, truth.covariance)
    return sample_parameters(exact, draws, seed)[None], info, quality

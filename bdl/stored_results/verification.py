"""Scores of a folder of results, computed again from the posteriors that are published in it."""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from bdl.errors import InputError, parse_json
from bdl.execution.scoring import compute_scores, make_evaluation
from bdl.plan.planning import list_tasks
from bdl.plan.reference_posteriors import find_recipe
from bdl.plan.task import Task
from bdl.records import posterior_files
from bdl.records.row import FitResult, Row
from bdl.records.segments import ROWS
from bdl.records.tables import list_cell_keys
from bdl.references.base import Recipe, check_files, locate_files
from bdl.spec.labels import MetricName
from bdl.stored_results.results_folder import ResultsFolder
from bdl.stored_results.reuse import open_published_fits

RELATIVE_TOLERANCE = 1e-4
"""Relative difference within which two scores agree.

Processors round float32 numbers differently, by 6e-8, and a distance is the small difference of
two such numbers.
"""
ABSOLUTE_TOLERANCE = 1e-12
"""Difference within which two scores agree whatever their size: a divergence of zero is a difference
of equal numbers of size one, which float64 rounds by 1e-15.
"""

NO_POSTERIOR = "have no posterior in the folder"
FAILED = "failed, and have no scores"
NOT_CURRENT = (
    "were made of other data, by an earlier version of the package or of the benchmark file, "
    "or lack what it records"
)
NO_REFERENCE = "are distances to a sampled reference that is not on this machine"
EARLIER_SCORE = "were computed by an earlier version of the package"
NOT_PUBLISHED = "are not in the published rows"


class ScoreDifference(NamedTuple):
    """A published score that does not follow from the published posterior."""

    cell: str
    """Label of the cell."""
    split: int
    metric: str
    published_score: float | None
    """None where it could not be computed."""
    recomputed: float | None


@dataclass
class Verification:
    """Outcome of a verification: every final fit is counted once."""

    fits: int = 0
    """Fits whose scores were computed again."""
    equal_scores: int = 0
    """Scores that are equal to the last bit."""
    close_scores: int = 0
    """Scores that agree within `RELATIVE_TOLERANCE`."""
    differences: list[ScoreDifference] = field(default_factory=list)
    unverified_fits: Counter[str] = field(default_factory=Counter)
    """Fits that could not be verified, by the reason."""
    unverified_scores: Counter[str] = field(default_factory=Counter)
    """Scores of verified fits that could not be, by the reason."""


def verify_folder(folder: Path) -> Verification:
    """Compute the scores of published final fits again, from their published posteriors.

    Components are those of this package alone.

    Raises
    ------
    InputError
        If the folder has no published rows, names code of others, is too large, or is damaged, or
        if data are missing.
    """
    results_folder = ResultsFolder(folder)
    if not results_folder.reads_published_rows:
        raise InputError(
            f"{folder} has no published rows: give a folder that has a {ROWS}, "
            "such as results/uci-regression"
        )
    benchmark = results_folder.recorded_request.benchmark
    final_rows = results_folder.final_rows
    final_fits = Counter(list_cell_keys(final_rows))
    failed_fits = Counter(list_cell_keys(final_rows[final_rows.status == "failed"]))
    published_fits = open_published_fits(folder)
    published_draws = _read_draw_digests(folder)
    verification = Verification()
    for task in list_tasks(benchmark):
        # a part of the benchmark may be published
        if not final_fits[task.key]:
            continue
        if not published_fits.has_posteriors(task):  # no data are needed to say so
            n_failed = failed_fits[task.key]
            counts = {FAILED: n_failed, NO_POSTERIOR: final_fits[task.key] - n_failed}
            verification.unverified_fits += Counter(counts)  # which leaves out zeros
            continue
        splits = published_fits.list_splits(task)
        if missing := final_fits[task.key] - len(splits):
            verification.unverified_fits[NOT_CURRENT] += missing
        for split in sorted(splits):
            fit = published_fits.load_fit(task, split)[-1]
            _verify_fit(verification, task, fit, published_draws)
    return verification


def _read_draw_digests(folder: Path) -> dict[str, str]:
    """Read the digests of the draws that distances were measured to, by the key of their recipe."""
    digests: dict[str, str] = {}
    for path in (folder / "references").glob("*.json"):
        try:
            content = parse_json(path.read_text("utf-8"))
            digests[content["key"]] = content["draws_sha256"]
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise InputError(f"{path} tells of no reference ({type(error).__name__})") from None
    return digests


def _verify_fit(
    verification: Verification,
    task: Task,
    published_fit: FitResult,
    published_draws: Mapping[str, str],
) -> None:
    """Compute the scores of a final fit again, and count what comes of it."""
    row = published_fit.row
    if row.status == "failed":
        verification.unverified_fits[FAILED] += 1
        return
    if published_fit.posterior is None:
        verification.unverified_fits[NO_POSTERIOR] += 1
        return
    posterior, buffers = posterior_files.decode_posterior(published_fit.posterior)
    evaluation = make_evaluation(task, row.split, posterior, buffers, row.hyper)
    metrics: list[MetricName] = []
    for metric in task.fit_metrics:
        reason = _find_obstacle(task, metric, row, published_draws)
        if reason:
            verification.unverified_scores[reason] += 1
        else:
            metrics.append(metric)
    scores = compute_scores(evaluation, metrics).stored
    verification.fits += 1
    for name, recomputed in scores.items():
        score = row.metrics.get(name)
        if name not in row.metrics:  # a further value that a score has had since
            verification.unverified_scores[NOT_PUBLISHED] += 1
        elif score == recomputed:
            verification.equal_scores += 1
        elif _agree(score, recomputed):
            verification.close_scores += 1
        else:
            difference = ScoreDifference(task.label, row.split, name, score, recomputed)
            verification.differences.append(difference)


def _find_obstacle(
    task: Task, metric: MetricName, row: Row, published_draws: Mapping[str, str]
) -> str | None:
    """Return why a score cannot be computed again; None if it can."""
    if row.score_hashes.get(str(metric)) != task.score_hash(metric):
        return EARLIER_SCORE
    if metric.info.kind == "distance":
        recipe = find_recipe(task, row.split)
        if recipe is not None and not _has_published_draws(recipe, published_draws):
            return NO_REFERENCE
    return None


def _has_published_draws(recipe: Recipe, published_draws: Mapping[str, str]) -> bool:
    """Return whether the draws on this machine are those that were published.

    Another processor draws others by the same recipe. Where nothing was published of them, any do.
    """
    if check_files(recipe) != "ready":
        return False
    _, info_path = locate_files(recipe)
    digest = parse_json(info_path.read_text("utf-8"))["draws_sha256"]
    return bool(published_draws.get(recipe.key, digest) == digest)


def _agree(score: float | None, recomputed: float | None) -> bool:
    if score is None or recomputed is None:
        return False
    return math.isclose(score, recomputed, rel_tol=RELATIVE_TOLERANCE, abs_tol=ABSOLUTE_TOLERANCE)

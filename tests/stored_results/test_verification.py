"""Published scores are computed again from published posteriors, and disagreement is found."""

import json
import re
import shutil
from pathlib import Path

import pandas as pd
import pytest
from run_folders import rewrite
from tiny import EXACT, STEPPED, benchmark_text

import bdl
from bdl.errors import InputError
from bdl.records.run_folder import RunFolder
from bdl.stored_results.verification import (
    ABSOLUTE_TOLERANCE,
    EARLIER_SCORE,
    NO_POSTERIOR,
    NOT_CURRENT,
    NOT_PUBLISHED,
    RELATIVE_TOLERANCE,
    verify_folder,
)

REFERENCE = {"reference": {"name": "conjugate"}}
SPEC = benchmark_text(
    {"exact": EXACT | REFERENCE, "stepped": STEPPED | REFERENCE},
    metrics=["nmll", "rmse", "rel_mean_dist", "dyadic_nll", "runtime"],
)
SCORES = 4 * 5
"""Of two entries on two splits; one of them has a further value, its Monte-Carlo error."""


@pytest.fixture(scope="module")
def original(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("original")
    (folder / "small.yaml").write_text(SPEC, "utf-8")
    bdl.benchmark(folder / "small.yaml").run(compile=False, results=folder / "results")
    return folder / "results" / "small"


@pytest.fixture
def folder(original, tmp_path) -> Path:
    """A folder of published results, which may be changed."""
    unpublished = shutil.ignore_patterns("store*", "posteriors")
    return Path(shutil.copytree(original, tmp_path / "small", ignore=unpublished))


def test_published_scores_follow_from_their_posteriors(folder):
    verification = verify_folder(folder)
    assert verification.fits == 4
    # The exact posterior is stored by rows, and was scored by columns: float32 may round otherwise.
    assert verification.equal_scores + verification.close_scores == SCORES
    assert verification.equal_scores >= SCORES / 2
    assert not verification.differences
    assert not verification.unverified_fits


@pytest.mark.parametrize("metric", ["nmll", "rmse", "rel_mean_dist"])
@pytest.mark.parametrize("factor", [1 + 2 * RELATIVE_TOLERANCE, 0.5])
def test_a_score_that_does_not_follow_is_found(folder, metric, factor):
    def change(rows: pd.DataFrame) -> pd.DataFrame:
        rows.loc[(rows.entry == "stepped") & (rows.split == 1), metric] *= factor
        return rows

    rewrite(folder, change)
    (difference,) = verify_folder(folder).differences
    assert (difference.cell, difference.split, difference.metric) == (
        "diabetes/stepped",
        1,
        metric,
    )
    assert difference.published_score != difference.recomputed


def test_rounding_of_another_processor_is_none(folder):
    def change(rows: pd.DataFrame) -> pd.DataFrame:
        rows.loc[rows.entry == "stepped", "nmll"] *= 1 + 0.5 * RELATIVE_TOLERANCE
        return rows

    rewrite(folder, change)
    verification = verify_folder(folder)
    assert verification.equal_scores + verification.close_scores == SCORES
    assert verification.close_scores >= 2


def test_rounding_of_a_distance_of_zero_is_none(folder):
    """It is a difference of equal numbers, so that any change is large relative to it."""

    def change(rows: pd.DataFrame) -> pd.DataFrame:
        assert (
            rows.loc[rows.entry == "exact", "rel_mean_dist"].abs().max() < ABSOLUTE_TOLERANCE / 10
        )
        rows.loc[rows.entry == "exact", "rel_mean_dist"] += ABSOLUTE_TOLERANCE / 2
        return rows

    rewrite(folder, change)
    assert not verify_folder(folder).differences


def test_what_cannot_be_verified_is_counted(folder):
    rewrite(
        folder,
        fit_hashes={("diabetes", "exact", "{}"): "of an earlier version"},
        change_hashes=lambda row: dict.fromkeys(row.score_hashes, "of an earlier version"),
    )
    verification = verify_folder(folder)
    assert verification.unverified_fits == {NOT_CURRENT: 2}
    assert verification.unverified_scores == {EARLIER_SCORE: 2 * 4}
    assert not verification.equal_scores


def test_a_value_that_a_score_did_not_have_is_counted(folder):
    rewrite(folder, lambda rows: rows.drop(columns="dyadic_nll_mcse"))
    verification = verify_folder(folder)
    assert verification.unverified_scores == {NOT_PUBLISHED: 4}
    assert not verification.differences


def test_fits_without_a_posterior_are_counted(folder):
    (folder / "posteriors.zip").unlink()
    assert verify_folder(folder).unverified_fits == {NO_POSTERIOR: 4}


def test_code_of_others_is_refused(folder):
    """A recorded request that names a file of Python is read by nobody."""
    recorded = json.loads(RunFolder(folder).request_text)
    recorded["spec"]["entries"]["exact"]["method"] = {"name": "evil.py:Method"}
    rewrite(folder, request=json.dumps(recorded))
    with pytest.raises(InputError, match=r"evil\.py:Method"):
        verify_folder(folder)


def test_damaged_files_are_refused(folder):
    content = (folder / "posteriors.zip").read_bytes()
    (folder / "posteriors.zip").write_bytes(content[:-1])
    with pytest.raises(InputError, match=r"posteriors\.zip is damaged"):
        verify_folder(folder)


def test_a_folder_without_rows_is_refused(tmp_path):
    with pytest.raises(InputError, match="has no published rows: give a folder"):
        verify_folder(tmp_path)


def test_the_command_says_what_it_shows(folder, invoke):
    code, out, _ = invoke("verify", folder)
    assert code == 0
    words = f"{SCORES} scores of 4 fits follow from their posteriors, "
    assert words in out.replace("\n", " ")
    assert "does not show that training leads to these posteriors" in out.replace("\n", " ")
    assert all(len(line) <= 80 for line in out.splitlines())

    def change(rows: pd.DataFrame) -> pd.DataFrame:
        return rows.assign(nmll=rows.nmll + 1)

    rewrite(folder, change)
    code, out, _ = invoke("verify", folder)
    assert code == 1
    pattern = r"- diabetes/exact, split 0, nmll: published [\d.]+, computed [\d.]+"
    assert re.search(pattern, " ".join(out.split()))


def test_posteriors_beside_the_pack_are_not_read(folder, original):
    """Those of the pack are checked for code of others; files of a folder that came along are not."""
    shutil.copytree(original / "posteriors", folder / "posteriors")
    (folder / "posteriors.zip").unlink()
    assert verify_folder(folder).unverified_fits == {NO_POSTERIOR: 4}

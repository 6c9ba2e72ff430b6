"""Posteriors travel with published rows: a score that is added later is computed in a clone without training."""

import json
import shutil
from hashlib import sha256
from pathlib import Path

import bdl.archive.posteriors as travelling
import pandas as pd
import pytest
import torch
from bdl.archive.posteriors import POSTERIORS, read_posteriors, write_posteriors

import bdl
from bdl.archive import ResultsFolder
from bdl.errors import InputError
from bdl.execution import groups
from bdl.posteriors import DiagonalGaussian, Empirical
from bdl.publishing.provenance import write_provenance
from bdl.records import posterior_files
from bdl.records.run_folder import RunFolder

SPEC = """
name: small
title: Small
datasets: [diabetes]
splits: 3
entries:
  exact:
    model: &model {name: linear}
    likelihood: &numbers {name: gaussian}
    method: {name: conjugate}
    hyper: {prior_precision: 1, noise_precision: 0.0003}
  stepped:
    model: *model
    likelihood: *numbers
    method: {name: vifa, gradients_per_update: 2}
    training: {epochs: 2, batch_size: 50}
    hyper: {learning_rate: 0.01, prior_precision: 1, noise_precision: 0.001}
evaluation: {samples: 5}
metrics: [nmll, rmse, runtime]
"""
MORE = SPEC.replace("rmse", "rmse, crps, calibrated_nll, mse_at_mean")
FITS = 6
PLACE = Path("results/small")


@pytest.fixture(scope="module")
def original(tmp_path_factory) -> Path:
    """A folder with a benchmark that was run."""
    folder = tmp_path_factory.mktemp("original")
    (folder / "small.yaml").write_text(SPEC, "utf-8")
    bdl.benchmark(folder / "small.yaml").run(compile=False, results=folder / "results")
    return folder


@pytest.fixture
def clone(original, tmp_path, monkeypatch) -> Path:
    """What is published of it."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(
        original,
        tmp_path,
        dirs_exist_ok=True,
        ignore=shutil.ignore_patterns("store.*", "posteriors"),
    )
    return tmp_path / "small.yaml"


@pytest.fixture
def fits(monkeypatch) -> list[object]:
    """Every fit from now on."""
    made = list[object]()
    real = groups.build_final_fitting
    monkeypatch.setattr(
        groups, "build_final_fitting", lambda *words: made.append(words) or real(*words)
    )
    return made


@pytest.fixture
def run(clone, invoke):
    return lambda *words: invoke("run", clone, "--no-compile", "--tracking", "none", *words)


def finals(place: Path = PLACE) -> pd.DataFrame:
    rows = RunFolder(place).tabulate()
    return rows[rows.stage == "final"].set_index(["entry", "split"]).sort_index()


def told(place: Path) -> dict:
    return json.loads((place / "run.json").read_text("utf-8"))


def test_a_score_that_is_added_needs_no_fit_in_a_clone(original, clone, run, fits, invoke):
    before, digest = finals(), told(PLACE)["posteriors"]
    assert digest == {"sha256": sha256((PLACE / POSTERIORS).read_bytes()).hexdigest()}
    clone.write_text(MORE, "utf-8")
    assert "fits: 0 of the search and 0 final" in run("--published", "--dry-run")[1]
    code, out, err = run("--published")
    assert (code, fits) == (0, []), err
    assert f"final fits imported from published rows: {FITS}\n" in out
    assert told(PLACE)["posteriors"] == digest, "what is imported travels on"
    assert bdl.benchmark(clone).results().posterior("diabetes", "exact", split=2)
    after = finals()
    assert after.nmll.tolist() == before.nmll.tolist()
    # the same scores from the posteriors of the store, of which a copy is rescored
    there = clone.parent / "there"
    shutil.copytree(original / "results", there)
    assert invoke("run", clone, "--no-compile", "--tracking", "none", "--results", there)[0] == 0
    assert fits == []
    added = ["crps", "calibrated_nll", "mse_at_mean"]
    pd.testing.assert_frame_equal(after[added], finals(there / "small")[added])
    hashes = [told(place)["score_hashes"]["diabetes/exact"] for place in (PLACE, there / "small")]
    assert (
        hashes[0]
        == hashes[1]
        != told(original / "results/small")["score_hashes"]["diabetes/exact"]
    )
    shutil.rmtree(PLACE)
    assert run()[0] == 0
    assert len(fits) >= 2, "the counter works"


def test_a_damaged_file_is_one_line(run):
    path = PLACE / POSTERIORS
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))
    for words in ((), ("--dry-run",)):
        code, _, err = run("--published", *words)
        assert (code, err.count("\n")) == (2, 1)
        assert f"{path} is damaged or of other rows" in err
        assert err.endswith("restore it, or remove it and its fits are made again\n")
    path.unlink()
    assert "6 of them without posteriors" in run("--published")[1]


def test_a_file_that_is_gone_is_written_again(original, clone, run):
    shutil.copytree(original / "results", "results", dirs_exist_ok=True)
    known = (PLACE / POSTERIORS).read_bytes()
    (PLACE / POSTERIORS).unlink()
    assert run()[0] == 0
    assert (PLACE / POSTERIORS).read_bytes() == known


def test_scores_of_other_code_are_computed_again(clone, run, fits, monkeypatch):
    """A wrong number under a hash that is not today's is put right, and one under today's is kept."""
    rows = RunFolder(PLACE).tabulate()
    attrs = dict(rows.attrs)
    rows["rmse"] = -1.0
    rows.attrs = attrs
    rows.to_parquet(PLACE / "rows.parquet")
    known = told(PLACE)
    known["score_hashes"]["diabetes/exact"] = "other"
    write_provenance(known, PLACE)
    assert run("--published")[0] == 0
    assert fits == []
    after = finals().rmse
    assert (after["exact"] > 0).all()
    assert (after["stepped"] == -1).all()


def test_posteriors_alone_name_the_command(clone):
    here = ResultsFolder(PLACE)
    with pytest.raises(
        InputError, match=r"published rows alone.*: bdl-bench run small --published$"
    ):
        here.load_posterior(None, 0)


def artefact(posterior) -> bytes:
    return posterior_files.encode_posterior(posterior, {"count": torch.tensor(3)})


def test_equal_posteriors_are_one_and_large_ones_stay(tmp_path, monkeypatch):
    draws = torch.randn(400, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    content = {"a/b": dict.fromkeys(range(50), artefact(Empirical(draws)))}
    known = write_posteriors(content, tmp_path)
    assert (tmp_path / POSTERIORS).stat().st_size < 2 * draws.nbytes
    assert read_posteriors(tmp_path, {"posteriors": known}) == content

    monkeypatch.setattr(travelling, "MAX_BYTES", 12_000)
    assert write_posteriors(content, tmp_path) is None
    assert not (tmp_path / POSTERIORS).exists()
    assert read_posteriors(tmp_path, {"posteriors": None}) == {}


def test_a_large_posterior_stays_in_the_store(original, clone, run, monkeypatch):
    """Those of one method are left out: a score that is added needs their fits, and no other."""
    shutil.copytree(original / "results", "results", dirs_exist_ok=True)
    sizes = {
        label: {len(content) for content in by_split.values()}
        for label, by_split in read_posteriors(PLACE, told(PLACE)).items()
    }
    (large,), (small,) = sizes["diabetes/exact"], sizes["diabetes/stepped"]
    assert small < large
    (PLACE / POSTERIORS).unlink()
    monkeypatch.setattr(travelling, "MAX_POSTERIOR_BYTES", large - 1)
    assert run()[0] == 0
    assert [*read_posteriors(PLACE, told(PLACE))] == ["diabetes/stepped"]
    for name in ("store", "posteriors"):
        path = PLACE / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    clone.write_text(MORE, "utf-8")
    assert "fits: 0 of the search and 3 final" in run("--published", "--dry-run")[1]


def test_a_split_without_its_posterior_is_fitted_for_a_new_score(clone, run):
    contents = dict(read_posteriors(PLACE, told(PLACE)))
    exact = contents["diabetes/exact"]
    contents["diabetes/exact"] = {split: exact[split] for split in (0, 2)}
    write_provenance(told(PLACE) | {"posteriors": write_posteriors(contents, PLACE)}, PLACE)
    assert "fits: 0 of the search and 0 final" in run("--published", "--dry-run")[1]
    clone.write_text(MORE, "utf-8")
    assert "fits: 0 of the search and 1 final" in run("--published", "--dry-run")[1]
    code, out, err = run("--published")
    assert code == 0, err
    assert "final fits imported from published rows: 5\n" in out
    assert finals().crps.notna().all()


class Foreign(DiagonalGaussian):
    """A family outside the package."""


def test_families_of_others_do_not_travel(tmp_path, monkeypatch):
    own, foreign = (
        artefact(kind(torch.zeros(2), torch.ones(2))) for kind in (DiagonalGaussian, Foreign)
    )
    known = write_posteriors({"a/b": {0: own, 1: foreign}}, tmp_path)
    assert read_posteriors(tmp_path, {"posteriors": known}) == {"a/b": {0: own}}
    with monkeypatch.context() as patch:
        patch.setattr(travelling, "_is_shipped_family", lambda family: True)
        known = write_posteriors({"a/b": {1: foreign}}, tmp_path)
    with pytest.raises(
        InputError,
        match=r"posteriors of a family that is not of this package, .*Foreign: remove it",
    ):
        read_posteriors(tmp_path, {"posteriors": known})

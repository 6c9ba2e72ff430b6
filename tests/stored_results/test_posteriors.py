"""Posteriors travel with published rows: a score that is added later is computed in a clone without training."""

import json
import shutil
from hashlib import sha256
from pathlib import Path
from zipfile import ZipFile

import pandas as pd
import pytest
import torch
from run_folders import rewrite
from tiny import EXACT, STEPPED, benchmark_text

import bdl
from bdl.errors import InputError
from bdl.execution import groups
from bdl.posteriors import DiagonalGaussian, Empirical
from bdl.records import posterior_files
from bdl.records.posterior_files import PosteriorFiles
from bdl.records.row import Row
from bdl.records.run_folder import RunFolder
from bdl.stored_results.results_folder import ResultsFolder

ENTRIES = {"exact": EXACT, "stepped": STEPPED}
SPEC = benchmark_text(ENTRIES, splits=3)
MORE = benchmark_text(
    ENTRIES,
    splits=3,
    metrics=["nmll", "rmse", "crps", "calibrated_nll", "mse_at_mean", "runtime"],
)
FITS = 6
PLACE = Path("results/small")
PACK = "posteriors.zip"


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
        ignore=shutil.ignore_patterns("store*", "posteriors"),
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


def load_finals(place: Path) -> list[Row]:
    records = RunFolder(place)
    return [row for cell in records.list_cells() for row in records.load_rows("final", cell)]


def told(place: Path) -> dict:
    return json.loads((place / "run.json").read_text("utf-8"))


def test_a_score_that_is_added_needs_no_fit_in_a_clone(original, clone, run, fits, invoke):
    before, digest = finals(), told(PLACE)["files"][PACK]
    assert digest == sha256((PLACE / PACK).read_bytes()).hexdigest()
    clone.write_text(MORE, "utf-8")
    assert "fits: 0 of the search and 0 final" in run("--published", "--dry-run")[1]
    code, out, err = run("--published")
    assert (code, fits) == (0, []), err
    assert f"final fits imported from published rows: {FITS}\n" in out
    assert told(PLACE)["files"][PACK] == digest, "what is imported travels on"
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
    path = PLACE / PACK
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))
    for words in ((), ("--dry-run",)):
        code, _, err = run("--published", *words)
        assert (code, err.count("\n")) == (2, 1)
        assert f"{path} is damaged" in err
        assert err.endswith("restore it, or remove it and its fits are made again\n")
    path.unlink()
    assert "6 of them without posteriors" in run("--published")[1]


def test_a_file_that_is_gone_is_written_again(original, clone, run):
    shutil.copytree(original / "results", "results", dirs_exist_ok=True)
    known = (PLACE / PACK).read_bytes()
    (PLACE / PACK).unlink()
    assert run()[0] == 0
    assert (PLACE / PACK).read_bytes() == known


def test_scores_of_other_code_are_computed_again(clone, run, fits, monkeypatch):
    """A wrong number under a hash that is not today's is put right, and one under today's is kept."""
    rewrite(
        PLACE,
        lambda rows: rows.assign(rmse=-1.0),
        change_hashes=lambda row: {
            name: "other" if row.entry == "exact" else hash
            for name, hash in row.score_hashes.items()
        },
    )
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
    files = PosteriorFiles(tmp_path / "posteriors")
    shas = [files.write(artefact(Empirical(draws))) for _ in range(50)]
    files.write_pack(files.choose_packable(shas))
    shutil.rmtree(files.folder)
    assert files.pack.stat().st_size < 2 * draws.nbytes
    assert files.is_whole(shas[0])
    assert files.read_bytes(shas[0]) == artefact(Empirical(draws))

    monkeypatch.setattr(posterior_files, "MAX_PACK_BYTES", 12_000)
    files.write_pack(files.choose_packable(shas))
    assert not files.pack.exists()
    assert not files.is_whole(shas[0])


def test_a_large_posterior_stays_in_the_store(original, clone, run, monkeypatch):
    """Those of one method are left out: a score that is added needs their fits, and no other."""
    shutil.copytree(original / "results", "results", dirs_exist_ok=True)
    rows = load_finals(PLACE)
    posteriors = RunFolder(PLACE).posteriors
    sizes = {row.entry: len(posteriors.read_bytes(row.artefact)) for row in rows}
    assert sizes["stepped"] < sizes["exact"]
    (PLACE / PACK).unlink()
    monkeypatch.setattr(posterior_files, "MAX_POSTERIOR_BYTES", sizes["exact"] - 1)
    assert run()[0] == 0
    for name in ("store", "posteriors"):
        shutil.rmtree(PLACE / name)
    posteriors = RunFolder(PLACE).posteriors
    assert {row.entry for row in rows if posteriors.is_whole(row.artefact)} == {"stepped"}
    clone.write_text(MORE, "utf-8")
    assert "fits: 0 of the search and 3 final" in run("--published", "--dry-run")[1]


def test_a_split_without_its_posterior_is_fitted_for_a_new_score(clone, run):
    posteriors = RunFolder(PLACE).posteriors
    contents = {
        row.artefact: posteriors.read_bytes(row.artefact)
        for row in load_finals(PLACE)
        if (row.entry, row.split) != ("exact", 1)
    }
    posteriors.write_pack(contents)
    assert "fits: 0 of the search and 0 final" in run("--published", "--dry-run")[1]
    clone.write_text(MORE, "utf-8")
    assert "fits: 0 of the search and 1 final" in run("--published", "--dry-run")[1]
    code, out, err = run("--published")
    assert code == 0, err
    assert "final fits imported from published rows: 5\n" in out
    assert finals().crps.notna().all()


class Foreign(DiagonalGaussian):
    """A family outside the package."""


def test_families_of_others_do_not_travel(tmp_path):
    files = PosteriorFiles(tmp_path / "posteriors")
    own, foreign = (
        artefact(kind(torch.zeros(2), torch.ones(2))) for kind in (DiagonalGaussian, Foreign)
    )
    shas = [files.write(content) for content in (own, foreign)]
    assert files.choose_packable(shas) == {shas[0]: own}
    files.write_pack({shas[1]: foreign})
    with pytest.raises(
        InputError,
        match=r"posteriors of a family that is not of this package, .*Foreign: remove it",
    ):
        files.check_pack()


@pytest.mark.parametrize("name", ["x" * 64 + ".safetensors", "index.py"])
def test_a_pack_with_other_content_is_damaged(tmp_path, name):
    files = PosteriorFiles(tmp_path / "posteriors")
    with ZipFile(files.pack, "w") as file:
        file.writestr(name, artefact(DiagonalGaussian(torch.zeros(2), torch.ones(2))))
    with pytest.raises(InputError, match=r"posteriors\.zip is damaged .* is not what was written"):
        files.check_pack()

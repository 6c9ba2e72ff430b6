"""Where published rows came from: the machine that decides the bits, the commit, and what splits have in common."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from bdl.plan.planning import list_tasks
from bdl.plan.task import joint_hash
from bdl.publishing import provenance
from bdl.publishing.overlaps import compute_overlaps
from bdl.records.row import FitResult, Row
from bdl.spec import load_benchmark, load_request

MKL = "PyTorch built with:\n  - GCC 13.3\n  - Intel(R) oneAPI Math Kernel Library Version 2024.2 for Intel(R) 64\n"
OPEN = (
    "PyTorch built with:\n  - GCC 13.3\n  - Build settings: BLAS_INFO=open, BUILD_TYPE=Release\n"
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (MKL, "Intel(R) oneAPI Math Kernel Library Version 2024.2 for Intel(R) 64"),
        (OPEN, "open"),
        ("PyTorch built with:", "unknown"),
    ],
)
def test_the_library_of_linear_algebra_is_named(monkeypatch, text, expected):
    monkeypatch.setattr(torch.__config__, "show", lambda: text)
    assert provenance._name_linear_algebra() == expected


@pytest.fixture
def call(tmp_path):
    """Run a program in the folder of the test; give what it printed."""

    def make(*words):
        return subprocess.run(
            words, cwd=tmp_path, check=True, capture_output=True, text=True
        ).stdout.strip()

    return make


GIT = "git", "-c", "user.name=someone", "-c", "user.email=someone@example.org"


def test_the_commit_is_that_of_the_package_and_says_if_it_has_changed(call, tmp_path, monkeypatch):
    """Installed below another repository, or outside of any, it has none."""
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    package, installed = tmp_path / "package", tmp_path / "venv"
    for folder in (package, installed):
        folder.mkdir()
        (folder / "__init__.py").write_text("one = 1\n")
    assert provenance._find_git_commit(package) is None
    call(*GIT, "init")
    call(*GIT, "add", "package")
    call(*GIT, "commit", "-m", "one")
    commit = call(*GIT, "rev-parse", "HEAD")
    assert (provenance._find_git_commit(package), provenance._find_git_commit(installed)) == (
        commit,
        None,
    )
    for other in (tmp_path / "notes.txt", package / "notes.txt"):
        other.write_text("mine\n")
    call(*GIT, "add", "notes.txt")
    assert provenance._find_git_commit(package) == commit, (
        "what is outside of it, or not tracked, is no change of it"
    )
    (package / "__init__.py").write_text("one = 2\n")
    assert provenance._find_git_commit(package) == f"{commit}+changes"


@pytest.mark.parametrize(
    ("version", "commit"),
    [
        ("0.1.1.dev3+gec5613738", "ec5613738"),
        ("0.1.1.dev0+gec5613738.d20261125", "ec5613738+changes"),
        ("0.1.0", None),
    ],
)
def test_an_installation_has_its_commit_in_its_version(version, commit):
    assert provenance._parse_installed_commit(version) == commit


def test_the_version_comes_from_git(call, tmp_path):
    """Of a clone with or without a tag the commit is in the version.

    Of an archive without history it is fixed.
    """
    pytest.importorskip("hatch_vcs")
    root = Path(__file__).parents[2]
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        (tmp_path / name).write_text((root / name).read_text("utf-8"), "utf-8")
    built = sys.executable, "-m", "hatchling", "metadata", "version"
    assert call(*built) == "0.2.0"
    call(*GIT, "init")
    call(*GIT, "add", ".")
    for begins, tag in (("0.2.1.dev1+", ""), ("0.3.1.dev1+", "v0.3.0")):
        if tag:
            call(*GIT, "tag", tag)
            assert call(*built) == "0.3.0"
        call(*GIT, "commit", "-m", "a step", "--allow-empty")
        version = call(*built)
        assert version.startswith(begins)
        commit = provenance._parse_installed_commit(version)
        assert commit
        assert call(*GIT, "rev-parse", "HEAD").startswith(commit)


def test_a_provenance_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    def broken(*_):
        raise OSError("no more")

    path = provenance.write_provenance({"machine": "first"}, tmp_path)
    before = path.read_bytes()
    monkeypatch.setattr(Path, "replace", broken)
    with pytest.raises(OSError, match="no more"):
        provenance.write_provenance({"machine": "second"}, tmp_path)
    assert [(found.name, found.read_bytes()) for found in tmp_path.iterdir()] == [
        ("run.json", before)
    ]


@pytest.mark.parametrize(
    ("metrics", "codes", "expected"),
    [
        (["rmse", "runtime"], [{"rmse": "a", "retired": "b"}], "a"),
        (["rmse", "nmll"], [{"rmse": "a", "nmll": "b", "nmll_part": "b"}], "ab"),
        (["rmse", "nmll"], [{"rmse": "a"}], None),
        (["rmse"], [{"rmse": "a"}, {"rmse": "b"}], None),
        (["rmse"], [{"rmse": "a", "retired": "b"}, {"rmse": "a"}], "a"),
        (["rmse"], [], None),
        (["runtime"], [{"retired": "b"}], None),
    ],
)
def test_the_hash_of_scores_is_of_those_that_the_benchmark_asks_for(
    store, metrics, codes, expected
):
    (cell,) = list_tasks(
        load_benchmark("uci-regression", "check", [f"metrics={metrics}"]).select(
            entries=["vifa-lr"]
        )
    )
    for split, own in enumerate(codes):
        values = dict.fromkeys(own, 1.0)
        store.append(
            [FitResult(Row(*cell.key, "final", split, 0, 0, "ok", None, {}, values, 1.0, {}, own))]
        )
    assert provenance._compute_score_hash(cell, store) == (expected and joint_hash(expected))


def test_minutes_of_work_are_those_of_failed_fits_as_well(store):
    (cell,) = list_tasks(load_benchmark("uci-regression", "check").select(entries=["vifa-lr"]))
    place = (*cell.key, "final")
    store.append(
        [
            FitResult(Row(*place, 0, 0, 0, "ok", None, {}, {"runtime": 2.0}, 60.0, {})),
            FitResult(Row(*place, 1, 0, 0, "failed", "diverged", {}, {}, 180.0, {})),
        ]
    )
    found = provenance.describe_provenance(
        load_request("uci-regression", "check"), [cell], store, 0.0
    )
    assert found["work_minutes"] == 2 + 3


@pytest.mark.parametrize(
    ("splits", "split", "expected"),
    [
        pytest.param(3, "published", 44 / 398, id="ten test rows to ninety for training"),
        pytest.param(3, "tail", 294 / 148, id="the tails test, and train between them"),
        pytest.param(1, "published", None, id="one split"),
        pytest.param(3, "first", None, id="replicates of one split"),
    ],
)
def test_splits_share_training_rows(splits, split, expected):
    quick = load_benchmark("uci-regression", "check")
    own = {"splits": splits, "preparation": quick.preparation.model_copy(update={"split": split})}
    found = compute_overlaps(quick.model_copy(update=own))
    assert found == ({"diabetes": pytest.approx(expected)} if expected else {})


def test_splits_of_one_point_of_a_sweep_share_training_rows():
    changes = ["splits=3", "preparation.split=first", "sweep.preparation.split=[first, published]"]
    swept = load_request("uci-regression", "check", changes).benchmark
    assert compute_overlaps(swept) == {"diabetes": pytest.approx(44 / 398)}

"""Golden digits: what is computed today is what was computed when the versions were set."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "scripts"))

import golden  # noqa: E402
from goldens import book, case, catalogue, shipped_settings  # noqa: E402
from goldens.bump import bump, raised  # noqa: E402

from bdl import versions  # noqa: E402

FOLDER = ROOT / "tests/golden"


METHOD = pytest.param("method", marks=pytest.mark.slow)  # some two hundred fits


@pytest.mark.parametrize("kind", [METHOD, *(kind for kind in book.KINDS if kind != "method")])
def test_digits_are_those_of_the_versions(kind):
    if lines := golden.check(FOLDER, kinds=[kind]):
        pytest.fail("\n".join(lines), pytrace=False)


def test_every_registered_name_has_a_case_or_a_reason():
    for kind, registry in case.REGISTRIES.items():
        owners = {f"{kind}:{name}" for name in registry.builtin} - set(catalogue.SKIPPED)
        stored = book.read(FOLDER, kind)
        missing = owners - {next(iter(kept["versions"])) for kept in stored.values()}
        assert missing == set(), "no golden digits: python scripts/golden.py --record"


def test_files_stay_small():
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < 500_000


def test_reasons_are_of_names_that_exist():
    names = [name for name in catalogue.SKIPPED if not name.startswith("bdl.")]
    assert all(book.full(name) == [name] for name in names)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ({"rate": 0.1}, {"rate": 0.2}, True),
        ({"rank": 2}, {"rank": 30}, True),
        ({"rank": 1}, {"rank": 2}, False),
        ({"scale": 0.0}, {"scale": 0.3}, False),
        ({"scale": None}, {"scale": 0.3}, False),
        ({"solver": "exact"}, {"solver": "ppca"}, False),
        ({"bias": True}, {"bias": False}, False),
        ({"hidden": [50]}, {"hidden": [50, 50]}, False),
        ({"factors": [1.0, 0.5]}, {"factors": [0.5, 1.0]}, False),
    ],
)
def test_settings_that_select_branches_are_told_apart(one, other, same):
    assert (shipped_settings.branches(one) == shipped_settings.branches(other)) is same


@pytest.fixture
def one_case(tmp_path):
    """Store a case of the rate 'constant', changed as a test wants it; give the folder."""

    def call(**changes) -> Path:
        kept = {name: stored | changes for name, stored in book.read(FOLDER, "rate").items()}
        (tmp_path / "rate.json").write_text(json.dumps(kept))
        return tmp_path

    return call


def test_moved_digits_say_which_case_and_what_to_do(one_case):
    folder = one_case()
    kept = book.read(folder, "rate")
    kept["constant"]["digits"]["factors"][0] += 1e-6
    (folder / "rate.json").write_text(json.dumps(kept))
    assert golden.check(folder, kinds=["rate"]) == [
        "golden digits moved: constant; if that is meant, run `python scripts/golden.py --bump constant`, "
        "else restore what was computed"
    ]
    assert golden.check(folder, ["engine"], ["rate"])  # is part of every case
    book.record(folder, "rate")
    assert book.read(folder, "rate") == kept  # digits of the same version are never stored anew


def test_digits_of_another_version_are_stale_and_recorded(one_case):
    folder = one_case(versions={"rate:constant": 7})
    (line,) = golden.check(folder, kinds=["rate"])
    assert "of another version: run `python scripts/golden.py --record`" in line
    assert book.record(folder, "rate") == []
    assert golden.check(folder, kinds=["rate"]) == []


def test_missing_and_unused_cases_are_told_and_recorded(one_case):
    folder = one_case()
    kept = book.read(folder, "rate")
    kept["gone"] = {**kept.pop("linear"), "settings": {"name": "gone"}}
    (folder / "rate.json").write_text(json.dumps(kept))
    missing, unused = golden.check(folder, kinds=["rate"])
    assert missing == "linear has no golden digits: run `python scripts/golden.py --record`"
    assert unused.startswith("gone has golden digits, and nothing uses it")
    book.record(folder, "rate")
    assert golden.check(folder, kinds=["rate"]) == []


def test_what_all_moved_cases_share_is_blamed():
    found = {}
    for kind in book.KINDS:
        kept = book.read(FOLDER, kind)
        cases = [one for one in catalogue.cases(kind, kept) if "engine" in one.versions]
        found[kind] = [book.Finding(one, {}, "mean") for one in cases]
    (line,) = book.lines(found, FOLDER)
    assert line.endswith("--bump engine`, else restore what was computed")
    found = {
        "method": [finding for finding in found["method"] if finding.case.owner == "method:vifa"]
    }
    (line,) = book.lines(found, FOLDER)
    assert "--bump vifa`" in line


def test_names_that_stand_for_nothing_or_for_several_are_refused(capsys):
    assert golden.main(["--check", "conjugate"]) == 2
    assert "is one of method:conjugate, reference:conjugate: say which" in capsys.readouterr().err
    assert golden.main(["--bump", "vfia"]) == 2
    assert "'vfia' is no component" in capsys.readouterr().err


@pytest.fixture
def copy(tmp_path):
    """Copy what golden trials need, to be changed."""
    for name in ("bdl", "scripts", "benchmarks", "tests/golden"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def run(folder, *words):
    return subprocess.run(
        [sys.executable, folder / "scripts/golden.py", *words],
        env=os.environ | {"PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )


def edit(path, before, after):
    text = path.read_text("utf-8")
    assert text.count(before) == 1
    path.write_text(text.replace(before, after), "utf-8")


SCORE = "return %sfloat(evaluation.at(self.at).predictions.log_likelihood.mean())"
MUTANTS = {
    "vifa": ("methods/vifa.py", '"c": G.mean', '"c": -G.mean'),
    "online-em": ("methods/online_em.py", "square - (new", "square + (new"),
    "nmll": ("metrics/likelihoods.py", SCORE % "-", SCORE % ""),
}


@pytest.mark.slow  # a process that computes all cases of three components
def test_a_changed_sign_moves_digits(copy):
    for file, before, after in MUTANTS.values():
        edit(copy / "bdl" / file, before, after)
    done = run(copy, "--check", *MUTANTS)
    assert done.returncode == 1, done.stdout + done.stderr
    moved = re.findall(r"^golden digits moved: .*--bump (\S+)`", done.stdout, re.MULTILINE)
    assert sorted(moved) == sorted(MUTANTS)


@pytest.mark.slow  # processes that compute all cases
def test_a_raised_version_is_written_and_stored_again_beside_what_is_new_and_what_changes_no_digits_stays(
    copy, monkeypatch
):
    """Of what rests on the engine, whose version goes up, too, digits stay, but for rounding.

    Of four kinds alone.
    """
    kinds = ("engine", "method", "prior", "rate")
    edit(
        copy / "scripts/goldens/catalogue.py",
        "KINDS = tuple(dict.fromkeys((*MAKE, *FIXED)))",
        f"KINDS = {kinds}",
    )
    few = [f"method:{name}" for name in ("conjugate", "slang-online-eig", "vifa", "vogn")]
    stored = book.read(FOLDER, "method").items()
    kept = {name: one for name, one in stored if next(iter(one["versions"])) in few}
    (copy / "tests/golden/method.json").write_text(json.dumps(kept), "utf-8")
    sorting = "return sorted(made + FIXED.get(kind, list)(), key=lambda case: case.name)"
    chosen = f"made = [one for one in made if kind != 'method' or one.owner in {few}]"
    edit(copy / "scripts/goldens/catalogue.py", sorting, f"{chosen}\n    {sorting}")
    stored = {kind: book.read(copy / "tests/golden", kind) for kind in kinds}
    edit(
        copy / "bdl/training/schedule.py",
        '"linear": "bdl',
        '"again": "bdl.training.schedule:LinearDecay",\n        "linear": "bdl',
    )
    edit(copy / "bdl/methods/base.py", "parameters of the model; lower it", "parameters: lower it")
    slang = copy / "bdl/methods/slang.py"
    slang.write_text(slang.read_text("utf-8").replace("_doubling", "_twice"), "utf-8")
    with (copy / "bdl/methods/vadam.py").open("a", encoding="utf-8") as file:
        file.write("\n\ndef unused() -> int:\n    return 3\n")
    monkeypatch.setattr(versions, "__file__", str(copy / "bdl/versions.py"))
    assert bump("engine") == (copy / "bdl/versions.py", 2)
    edit(copy / "bdl" / MUTANTS["vifa"][0], *MUTANTS["vifa"][1:])
    done = run(copy, "--bump", "vifa")
    assert (done.returncode, done.stdout) == (0, "vifa has version 2 now (vifa.py)\n"), (
        done.stdout + done.stderr
    )
    changed = 0
    for kind in kinds:
        before, after = stored[kind], book.read(copy / "tests/golden", kind)
        new = {"again": {"rate:again": 1}} if kind == "rate" else {}
        assert {name: after[name]["versions"] for name in after if name not in before} == new
        assert [name for name in after if name not in new] == list(before)
        for name, one in before.items():
            own = {owner: 2 for owner in ("method:vifa", "engine") if owner in one["versions"]}
            assert after[name]["versions"] == one["versions"] | own
            assert own or after[name] == one
            if "method:vifa" in own:
                changed += after[name]["digits"] != one["digits"]
    assert changed > 5


@pytest.mark.parametrize(
    ("owner", "file", "line"),
    [
        ("posterior:full", "posteriors/full.py", "    version: ClassVar[int] = 2"),
        (
            "dataset:synthetic",
            "data/simulations.py",
            "synthetic.version = 2  # type: ignore[attr-defined]",
        ),
        ("method:slang", "methods/slang.py", "    version: ClassVar[int] = 2"),
        ("model:mlp", "models/networks.py", "    version: ClassVar[int] = 2"),
    ],
)
def test_a_version_is_written_into_the_source(owner, file, line):
    attribute = (
        case.REGISTRIES[owner.partition(":")[0]]
        .targets[owner.partition(":")[2]]
        .rpartition(":")[2]
    )
    source = raised((ROOT / "bdl" / file).read_text("utf-8"), owner, attribute, 2)
    assert source.splitlines().count(line) == 1
    assert raised(source, owner, attribute, 3).splitlines().count(line.replace("2", "3", 1)) == 1
    compile(source, file, "exec")
    assert "ClassVar" not in line or "ClassVar," in source or "import ClassVar" in source

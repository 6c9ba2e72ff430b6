"""The import closure: what it follows, what it leaves alone, and what changes its hash."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import bdl
from bdl.plan.closure import closure, code_hash

BASE = """'''Text.'''
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import bdl_toy.unused

VALUE = 1
"""
PACKAGE = {
    "__init__.py": "",
    "passing.py": "from bdl_toy.families import Wide\n",
    "families/__init__.py": "from bdl_toy.families.narrow import Narrow\nfrom bdl_toy.families.wide import Wide\n",
    "families/narrow.py": "class Narrow: ...\n",
    "families/wide.py": "import bdl_toy.base\n\nclass Wide: ...\n",
    "base.py": BASE,
    "unused.py": "",
    "late.py": "def f():\n    from bdl_toy import base\n    return base.VALUE\n",
    "looped.py": "import bdl_toy.ring\n",
    "ring.py": "import bdl_toy.looped\n",
}


@pytest.fixture
def toy(tmp_path, monkeypatch):
    root = tmp_path / "bdl_toy"
    for name, text in PACKAGE.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    from bdl.plan import closure as module

    caches = [getattr(module, name) for name in ("_module", "_imports", "_code")]
    for cache in caches:
        cache.cache_clear()
    yield root
    for cache in caches:
        cache.cache_clear()
    for name in [name for name in sys.modules if name.startswith("bdl_toy")]:
        del sys.modules[name]


def names(root: str) -> set[str]:
    return {name.removeprefix("bdl_toy.") for name in closure([f"bdl_toy.{root}"])}


def test_a_name_that_a_package_passes_on_leads_to_its_module(toy):
    assert names("passing") == {"passing", "families.wide", "base"}


def test_imports_inside_functions_count_and_those_for_type_checkers_do_not(toy):
    assert names("late") == {"late", "base"}
    assert names("base") == {"base"}


def test_circles_end(toy):
    assert names("looped") == {"looped", "ring"}


def hash_after(toy: Path, root: str, name: str, text: str) -> tuple[str, str]:
    from bdl.plan import closure as module

    before = code_hash([f"bdl_toy.{root}"])
    (toy / name).write_text(text, "utf-8")
    for cache in (module._module, module._imports, module._code):
        cache.cache_clear()
    return before, code_hash([f"bdl_toy.{root}"])


@pytest.mark.parametrize(
    ("name", "text", "same"),
    [
        ("base.py", PACKAGE["base.py"].replace("VALUE = 1", "VALUE = 2"), False),
        ("base.py", PACKAGE["base.py"].replace("Text.", "Other text.") + "# a comment\n", True),
        ("families/narrow.py", "class Narrow:\n    x = 1\n", True),
    ],
)
def test_the_hash_follows_the_code_of_the_closure_alone(toy, name, text, same):
    before, after = hash_after(toy, "passing", name, text)
    assert (before == after) is same


PROBE = """
import sys
from bdl.plan.fingerprint import fit_hash, score_hash
from bdl.plan.planning import cells_of
from bdl.spec import load_benchmark

benchmark = load_benchmark("uci-regression", "quick", ["metrics=[nmll, rmse]"])
for cell in cells_of(benchmark):
    if cell.entry in ("vifa-nn", "online-fa-em-nn"):
        hashes = [score_hash(cell, metric) for metric in benchmark.metrics]
        print(cell.entry, fit_hash(cell), *hashes)
"""


def probe(root: Path) -> dict[str, list[str]]:
    done = subprocess.run(
        [sys.executable, "-c", PROBE],
        cwd=root,
        capture_output=True,
        text=True,
        timeout=120,
        env={"PYTHONPATH": str(root)},
    )
    assert done.returncode == 0, done.stderr
    return {line.split()[0]: line.split()[1:] for line in done.stdout.splitlines()}


@pytest.mark.slow  # starts Python several times, each of which imports torch
def test_a_module_of_the_closure_changes_the_fit_hash_and_a_score_does_not(tmp_path):
    package = Path(bdl.__file__).parent
    shutil.copytree(package, tmp_path / "bdl", ignore=shutil.ignore_patterns("__pycache__"))
    if not (package / "benchmarks").is_dir():
        shutil.copytree(package.parent / "benchmarks", tmp_path / "benchmarks")
    before = probe(tmp_path)

    (tmp_path / "bdl/methods/online_em.py").open("a").write("\nCHANGED = 1\n")
    after = probe(tmp_path)
    assert after["online-fa-em-nn"][0] != before["online-fa-em-nn"][0]
    assert after["vifa-nn"] == before["vifa-nn"]

    (tmp_path / "bdl/metrics/regression.py").open("a").write("\nCHANGED = 1\n")
    third = probe(tmp_path)
    assert {entry: hashes[0] for entry, hashes in third.items()} == {
        entry: hashes[0] for entry, hashes in after.items()
    }
    assert third["vifa-nn"][1] == after["vifa-nn"][1], "nmll is another score"
    assert third["vifa-nn"][2] != after["vifa-nn"][2], "rmse has changed"

    (tmp_path / "bdl/training/engine.py").open("a").write("\nCHANGED = 1\n")
    fourth = probe(tmp_path)
    assert all(fourth[entry][0] != third[entry][0] for entry in third)

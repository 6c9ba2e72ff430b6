"""The order of the packages, the size of files, and what is documented."""

import ast
import os
import pkgutil
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import bdl

ROOT = Path(__file__).parents[1]
CONFIG = ROOT / "pyproject.toml"


@pytest.fixture
def copy(tmp_path):
    """The package, to be changed."""
    pytest.importorskip("importlinter", reason="comes with the extra dev")
    shutil.copytree(ROOT / "bdl", tmp_path / "bdl", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(CONFIG, tmp_path)
    return tmp_path


def lint_imports(folder):
    return subprocess.run(
        [
            sys.executable,
            "-c",
            "from importlinter.cli import lint_imports_command as main; main()",
            "--no-cache",
        ],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(folder), "NO_COLOR": "1", "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=120,
    )


FAULTS = {
    "none": ("errors.py", "", ""),
    "higher package": (
        "models/base.py",
        "\n\nfrom bdl.methods import METHODS\n",
        "bdl.models.base -> bdl.methods",
    ),
    "circle": (
        "models/priors.py",
        "\n\nimport bdl.models.problem\n",
        "No cycles are allowed in bdl.models.",
    ),
    "no place": ("whatever.py", '"""Whatever."""\n', "bdl.whatever"),
}


@pytest.mark.parametrize(("path", "text", "told"), FAULTS.values(), ids=FAULTS)
def test_packages_import_lower_packages_only_and_what_does_not_is_found(copy, path, text, told):
    with (copy / "bdl" / path).open("a", encoding="utf-8") as file:
        file.write(text)
    done = lint_imports(copy)
    assert done.returncode == bool(told), done.stdout + done.stderr
    assert told in done.stdout + done.stderr


def test_architecture_page_has_the_order_that_is_checked():
    page = (
        (ROOT / "docs/architecture.md")
        .read_text("utf-8")
        .partition("## Packages")[2]
        .partition("## ")[0]
    )
    printed = re.findall(
        r"`(\w+)(?:/|\.py)`", "\n".join(re.findall(r"^\| (`.*?) \|", page, re.MULTILINE))
    )
    packages, _ = tomllib.loads(CONFIG.read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    layers = [package for layer in packages["layers"] for package in layer.split(" | ")]
    assert printed == layers[:0:-1]  # from low to high, without __main__


def test_the_package_says_where_things_happen():
    """Each name in its docstring is there: if it moved, write the new one into bdl/__init__.py."""
    names = re.findall(r"`(bdl[\w.]*)`", bdl.__doc__)
    assert len(names) > 10
    for name in names:
        assert pkgutil.resolve_name(name)


def test_no_file_has_more_than_450_lines():
    lengths = {
        path: len(path.read_text("utf-8").splitlines()) for path in (ROOT / "bdl").rglob("*.py")
    }
    assert {
        str(path.relative_to(ROOT)): length for path, length in lengths.items() if length > 450
    } == {}


@pytest.mark.parametrize("package", ["data", "metrics", "models", "references"])
def test_what_no_protocol_documents_is_documented(package):
    trees = [ast.parse(path.read_text("utf-8")) for path in (ROOT / "bdl" / package).glob("*.py")]
    classes = [node for tree in trees for node in tree.body if isinstance(node, ast.ClassDef)]
    public = [
        (own, member)
        for own in classes
        for member in own.body
        if isinstance(member, ast.FunctionDef)
        and not (own.name.startswith("_") or member.name.startswith("_"))
    ]
    protocols = {
        own.name
        for own in classes
        if any(ast.unparse(base) in ("ABC", "Protocol") for base in own.bases)
    }
    contract = {member.name for own, member in public if own.name in protocols}
    bare = [(own.name, member.name) for own, member in public if not ast.get_docstring(member)]
    assert [found for found in bare if found[1] not in contract] == []

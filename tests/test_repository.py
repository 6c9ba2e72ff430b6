"""The repository stays small enough to be cloned, and to be sent to another machine."""

import re
import subprocess
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
MAX_MEBIBYTES = 40


def list_tracked_files():
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
    paths = [ROOT / name for name in listing.stdout.decode().split("\0") if name]
    return [path for path in paths if path.exists()]


def test_tracked_files_are_small_together():
    sizes = {path: path.stat().st_size for path in list_tracked_files()}
    largest = sorted(sizes, key=sizes.__getitem__, reverse=True)[:5]
    assert sum(sizes.values()) <= MAX_MEBIBYTES * 2**20, [
        f"{path.relative_to(ROOT)}: {sizes[path]:,} bytes" for path in largest
    ]


def test_a_document_shows_every_tracked_figure():
    documents = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]
    text = "".join(path.read_text("utf-8") for path in documents)
    figures = [path for path in list_tracked_files() if path.suffix == ".png"]
    unshown = [str(path.relative_to(ROOT)) for path in figures if path.name not in text]
    assert unshown == [], f"a command draws them again: git rm --cached {' '.join(unshown)}"


def test_the_changelog_has_releases_of_at_most_ten_highlights():
    """Its last release has the version of the package, as has what is cited."""
    _, *releases = (ROOT / "CHANGELOG.md").read_text("utf-8").split("\n## ")
    counts = {
        re.match(r"\[.*?\]", release)[0]: len(re.findall(r"^- ", release, re.M))
        for release in releases
    }
    assert max(counts.values()) <= 10, counts
    counts.pop("[Unreleased]", None)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    version = project["tool"]["hatch"]["version"]["fallback-version"]
    assert next(iter(counts)) == f"[{version}]"
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text("utf-8")


def test_the_table_of_scripts_has_a_line_for_each():
    contributing = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    listed = re.findall(r"^\| `(\w+\.py)[^|]*\|", contributing, re.MULTILINE)
    assert listed == sorted(path.name for path in ROOT.glob("scripts/*.py"))

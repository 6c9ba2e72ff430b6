"""The README, and what the pages of `docs/` say that can be checked."""

import json
import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        ROOT / "data/README.md",
        *ROOT.glob("docs/*.md"),
    ]
)
README = (ROOT / "README.md").read_text("utf-8")


def anchors(page):
    """Names by which headings are linked to."""
    headings = re.findall(r"^#+ (.*)$", page.read_text("utf-8"), re.MULTILINE)
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings
    }


def test_readme_is_at_most_150_lines():
    assert len(README.splitlines()) <= 150


def test_two_commands_are_enough():
    first, second = re.findall(r"```sh\n(.*)\n```", README)[:2]
    assert (
        first == "pip install -c constraints.txt . && bdl-bench run uci-regression --profile quick"
    )
    assert (
        second == 'pip install -c constraints.txt ".[test]" && pytest -n logical --dist loadfile'
    )


def test_every_page_is_named():
    pages = [*ROOT.glob("docs/*.md"), *ROOT.glob("docs/*.ipynb")]
    assert [page.name for page in pages if f"](docs/{page.name})" not in README] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    links = [
        link for link in re.findall(r"\]\(([^)]+)\)", page.read_text("utf-8")) if "://" not in link
    ]
    for path, _, anchor in (link.partition("#") for link in links):
        target = page.parent / path if path else page
        assert target.exists(), path
        assert not anchor or anchor in anchors(target), f"{path}#{anchor}"


def test_verdicts_are_counted_by_source():
    """A row for each source: values, match, better, worse, differs, print in error, open.

    Durations are left out.
    """
    words = (
        "match",
        "better",
        "worse",
        "differs",
        "print in error",
        "no difference shown",
        "undecided",
    )
    counts: dict[str, Counter[str]] = {}
    for path in ROOT.glob("results/*/table.json"):
        for row in json.loads(path.read_text("utf-8")):
            if row["paper"] is not None and row["verdict"] in words:
                counts.setdefault(row["paper_source"].split()[0], Counter())[row["verdict"]] += 1
    columns = ([count.total(), *(count[word] for word in words)] for count in counts.values())
    rows = re.findall(r"^\|.*?((?: \| \d+){7}) \|$", README, re.MULTILINE)
    counted = sorted([int(number) for number in row.split(" | ")[1:]] for row in rows)
    assert counted == sorted([*numbers[:-2], sum(numbers[-2:])] for numbers in columns)

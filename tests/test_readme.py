"""The README, and what the pages of `docs/` say that can be checked."""

import json
import re
from collections import Counter
from pathlib import Path

import pytest

from bdl.reports.papers import PAPERS, cite_sources, load_paper
from bdl.spec import load_benchmark

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


def test_readme_is_at_most_150_lines_and_500_words():
    """Blocks of code and the addresses of links are not read as words, nor are numbers."""
    assert len(README.splitlines()) <= 150
    prose = re.sub(r"```.*?```|\]\([^)]*\)", " ", README, flags=re.DOTALL)
    assert len(re.findall(r"[A-Za-z][\w.'/-]*", prose)) <= 500


def test_readme_cites_all_works():
    """By author, title and year; CITATION.cff has them as well."""
    citation = (ROOT / "CITATION.cff").read_text("utf-8")
    for name in ("uci-regression", "slang-logistic", "sgd-posterior", "noisy-wine"):
        entry = cite_sources(load_benchmark(name)).split("\n\n")[1]
        title = re.search(r"title = \{(.*)\},", entry)[1].replace("{", "").replace("}", "")
        assert title in " ".join(citation.split())
        assert title in " ".join(README.split())


def test_the_output_in_the_readme_is_that_of_the_command():
    """Every line of a table has the numbers of the published protocol's form: ours, printed, sign."""
    (output,) = re.findall(r"```text\n(.*?)```", README, re.DOTALL)
    printed = {
        (row["method"].replace("_", "-"), row["value"])
        for row in load_paper("vifa2023")
        if row["dataset"] == "yacht" and row["metric"] == "nmll" and row["table"] == "Table 1"
    }
    rows = re.findall(r"(vifa-\w+) .* (\S+) ± \S+  [=+~?!]$", output, re.MULTILINE)
    assert len(rows) == 2
    assert {*rows} <= printed


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


def test_every_page_links_to_the_glossary_of_ten_words():
    glossary = ROOT / "docs" / "glossary.md"
    assert len(re.findall(r"^\| \*\*", glossary.read_text("utf-8"), re.MULTILINE)) == 10
    pages = [page for page in ROOT.glob("docs/*.md") if page != glossary]
    assert [page for page in pages if "](glossary.md)" not in page.read_text("utf-8")] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    links = [
        link for link in re.findall(r"\]\(([^)]+)\)", page.read_text("utf-8")) if "://" not in link
    ]
    for path, _, anchor in (link.partition("#") for link in links):
        target = page.parent / path if path else page
        assert target.exists(), path
        assert not anchor or anchor in anchors(target), f"{path}#{anchor}"


WORDS = [
    "same digits",
    "equivalent",
    "consistent",
    "unsettled",
    "differs",
    "print in error",
    "given",
]


def count_verdicts():
    """Count the verdicts, and causes of differences, of each source; each printed number once."""
    counts: dict[str, Counter[str]] = {}
    for path in ROOT.glob("results/*/table.json"):
        for row in json.loads(path.read_text("utf-8")):
            verdict, _, cause = row["verdict"].partition(", ")
            if row["counted"] and verdict in WORDS:
                counter = counts.setdefault(row["paper_source"].split()[0], Counter())
                counter[verdict] += 1
                counter[cause] += bool(cause)
    return counts


def test_verdicts_are_counted_by_source():
    """A row for each source: numbers, and those of each verdict."""
    counted = []
    for count in count_verdicts().values():
        numbers = [count[word] for word in WORDS]
        counted.append([sum(numbers), *numbers])
    rows = re.findall(r"^\|.*?((?: \| \d+){8}) \|$", README, re.MULTILINE)
    listed = [[int(number) for number in row.split(" | ")[1:]] for row in rows]
    assert sorted(listed) == sorted(counted)


def test_every_printed_number_is_accounted_for():
    total = sum(count_verdicts().values(), Counter())
    known, settings, unknown = map(
        int, re.search(r"known of (\d+), (\d+) rest.* of (\d+) is unknown", README).groups()
    )
    assert known == total["cause known"]
    assert settings == total["settings not printed"]
    assert unknown == total["cause unknown"] <= 4
    printed, *parts = map(
        int,
        re.search(
            r"print (\d+) numbers: these (\d+), (\d+) that.*, (\d+) durations, and (\d+) of",
            README,
        ).groups(),
    )
    rows = sum(len(load_paper(paper)) for paper in PAPERS)
    assert printed == rows == sum(parts)
    assert parts[0] == sum(total[word] for word in WORDS)

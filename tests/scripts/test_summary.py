"""All printed values in one figure, and the counts of verdicts in the documents."""

import re
from pathlib import Path

import summary
from PIL import Image

from bdl.spec import list_benchmarks, load_benchmark

ROOT = Path(__file__).parents[2]


def test_the_figure_is_drawn(tmp_path):
    cells = summary.values()
    summary.draw(cells, tmp_path / "summary.png")
    with Image.open(tmp_path / "summary.png") as image:
        assert image.width > 1000
    assert len(cells) == sum(found.total() for found in summary.counts(cells).values())


def test_the_documents_count_the_verdicts_of_the_tables():
    """A row a benchmark: values, match, better, worse, differs, print in error, open."""
    rows = re.findall(
        r"^\| \[`([\w-]+)`\][^|]*\|[^|]*((?:\| \d+ ){7})\|$", (ROOT / "docs/results.md").read_text("utf-8"), re.M
    )
    told = {name: [int(number) for number in cells.split("|")[1:]] for name, cells in rows}
    counted = summary.counts(summary.values())
    assert told == {
        name: [found.total(), *(found[group] for group in summary.GROUPS)] for name, found in counted.items()
    }


def test_the_documents_have_the_claims_as_the_rows_judge_them():
    page = (ROOT / "docs/results.md").read_text("utf-8")
    judged = summary.claims()
    rows = re.search(r"\| Claim \|.*\n\|:.*\n((?:\|.*\n)+)", page)[1].splitlines()
    assert rows == summary.doubted(judged)
    confirmed, count = map(int, re.search(r"confirm (\d+) of (\d+) comparisons", page).groups())
    assert (confirmed, count) == (len(judged) - len(rows), len(judged))
    assert count == sum(len(load_benchmark(name).claims) for name, _ in list_benchmarks()) > 20

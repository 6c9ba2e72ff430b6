"""The page of a run: one file, in which every text is text."""

import re
from html.parser import HTMLParser
from itertools import product
from pathlib import Path

import pandas as pd
import pytest
from run_folders import write_frame
from tiny import EXACT, benchmark_text

from bdl.publishing.provenance import write_provenance
from bdl.publishing.report_page import select_errata, select_headline, write_page
from bdl.spec import load_request
from bdl.stored_results.loading import NO_VERDICTS

RESULTS = Path(__file__).parents[2] / "results"
SCORES = {"one": [3.0, 3.1, 3.2, 3.3], "two": [2.0, 2.1, 2.2, None]}


class Outline(HTMLParser):
    """Elements with their attributes, and the text of table cells."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.cells, self.within = [], [], False
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self.within = tag == "td" or (self.within and tag == "span")
        if tag == "td":
            self.cells.append("")

    def handle_data(self, data):
        if self.within:
            self.cells[-1] += data.strip()


def facts(page):
    """Names and values of the head."""
    return re.findall(r"<div><dt>(.*?)</dt><dd>(.*?)</dd></div>", page.partition("</dl>")[0])


def test_a_page_that_cannot_be_is_refused(invoke, published, tmp_path):
    path, results = published(tmp_path, SCORES), tmp_path / "results"
    for words, told in (
        (("uci-regression",), "start with: bdl-bench run uci-regression"),
        ((path, "--output", tmp_path / "no" / "page.html"), "choose another --output"),
        ((path, "--splits", "2"), "no results"),  # whose means would be of another run
    ):
        code, _, err = invoke("report", *words, "--results", results)
        assert code == 2
        assert told in err


@pytest.fixture(scope="module")
def page(published, tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    path = published(folder, SCORES)
    return write_page(load_request(str(path)), folder / "results").read_text(encoding="utf-8")


def test_names_titles_and_notes_are_text(page):
    assert "<title>small: &lt;script&gt;alert(1)&lt;/script&gt; &amp; [/x]</title>" in page
    assert "Read &lt;b&gt;this&lt;/b&gt;." in page
    assert "&lt;i&gt;blew&lt;/i&gt; up" in page
    assert not [told for told in ("<script>alert", "<b>this", "<i>blew") if told in page]


def test_it_needs_no_network(page):
    elements = Outline(page).elements
    sources = [attrs[name] for _, attrs in elements for name in ("src", "href") if name in attrs]
    assert {source[:5] for source in sources if not source.startswith("#")} == {"data:"}
    assert not [tag for tag, _ in elements if tag in ("link", "iframe", "object")]
    assert "url(" not in page
    anchors = {attrs["id"] for _, attrs in elements if "id" in attrs}
    assert {source[1:] for source in sources if source.startswith("#")} <= anchors


def test_what_it_shows(page):
    """Differences of two from one are -1 on three splits.

    The median of the learning rates 0.01 to 0.04 is 0.025.
    """
    found = Outline(page)
    rows = [found.cells[i : i + 7] for i in range(len(found.cells))]
    assert ["diabetes/two", "final", "3", "1", "<i>blew</i> up"] in [row[:5] for row in rows]
    assert ["diabetes", "one", "learning_rate", "0.025", "0.01", "0.04"] in [
        row[:6] for row in rows
    ]
    assert ["NMLL", "two", "0", "1", "0"] in [row[:5] for row in rows], (
        "undecided, as a fit failed"
    )
    assert ["diabetes", "two", "-1.00", "-1.00 to -1.00", "undecided"] in [row[:5] for row in rows]
    figures = [attrs for tag, attrs in found.elements if tag == "img"]
    names = ("small-nmll", "small-rmse", "small-nmll-paired", "small-rmse-paired")
    assert tuple(attrs["alt"] for attrs in figures) == names
    assert {attrs["width"] for attrs in figures} == {"528"}, "a panel of 5.5 inches stays as large"


def test_the_head_names_what_the_run_has(published, tmp_path):
    path = published(tmp_path, {"two": SCORES["two"][1:]}, split=[1, 3, 2])
    text = write_page(load_request(str(path)), tmp_path / "results").read_text("utf-8")
    assert facts(text)[:3] == [
        ("Data sets", "diabetes"),
        ("Methods", "two"),
        ("Splits", "3 of 4 (1-3)"),
    ]


def test_a_page_of_a_part_of_the_published_rows(invoke, published, tmp_path):
    path, results = published(tmp_path, SCORES), tmp_path / "results"
    code, out, err = invoke("report", path, "--method", "one", "--results", results)
    assert (code, err) == (0, "")
    written = Path(out.strip())
    assert written.parent.parent == results / "small" / "variants"
    assert not (results / "small" / "figures").exists()
    text = written.read_text(encoding="utf-8")
    assert "small-nmll" in text
    assert not [cell for cell in Outline(text).cells if "<i>blew</i>" in cell or cell == "two"]
    assert f"bdl-bench run {path} --method one" in text
    assert facts(text)[:3] == [("Data sets", "diabetes"), ("Methods", "one"), ("Splits", "4")]


def test_a_standing_over_few_splits_has_no_pairs_and_a_page(tmp_path):
    """Two splits of three data sets rank methods, and show no pair of them to differ."""
    datasets, entries = ["diabetes", "energy", "yacht"], ["one", "two", "three"]
    path = tmp_path / "small.yaml"
    path.write_text(
        benchmark_text(
            dict.fromkeys(entries, EXACT), datasets=datasets, baseline="one", metrics=["nmll"]
        )
    )
    cells = [*product(datasets, entries, ["final"], range(2))]
    frame = pd.DataFrame(cells, columns=["dataset", "entry", "stage", "split"])
    frame = frame.assign(trial=0, fold=0, status="ok", reason=None, seconds=1.0)
    frame["nmll"] = frame.entry.map(entries.index) + 0.1 * frame.split
    folder, labels = tmp_path / "results" / "small", [f"{name}/one" for name in datasets]
    write_frame(folder, frame)
    write_provenance({"overlap": {}, "fit_hashes": dict.fromkeys(labels)}, folder)
    text = write_page(load_request(str(path)), tmp_path / "results").read_text("utf-8")
    assert "Overall standing" in text
    assert "Every pair of methods" not in text


def test_the_figure_of_the_first_drawn_metric_opens():
    benchmark = load_request("uci-regression").benchmark
    stems = ["uci-regression-nmll-paired", "uci-regression-rmse", "uci-regression-nmll"]
    assert select_headline(stems, benchmark) == "uci-regression-nmll"
    assert select_headline(stems[:2], benchmark) == "uci-regression-rmse"
    assert select_headline(stems[:1], benchmark) == stems[0]
    assert select_headline([], benchmark) is None


def test_errata_are_those_of_the_papers():
    assert select_errata(["unheard-of"]) == ""
    text = select_errata(["mata2018"])
    assert text.startswith("## Noisy Adam")
    assert "<!--" not in text
    assert re.findall("(?m)^## (.*)", text) == ["Noisy Adam, noisy K-FAC and Vprop"]


@pytest.mark.slow  # a whole run
def test_without_verdicts_printed_values_are_grey(tmp_path):
    text = write_page(
        load_request("mnist-slang", "cpu"), RESULTS, tmp_path / "page.html"
    ).read_text("utf-8")
    assert NO_VERDICTS in text
    assert '<td class="right quiet">1.77</td>' in text
    assert 'class="verdict worse"' not in text
    whole = write_page(load_request("noisy-mnist"), RESULTS, tmp_path / "whole.html").read_text(
        "utf-8"
    )
    assert 'quiet">1.82' not in whole
    assert ">1.82 ± 0.067 SD</td>" in whole

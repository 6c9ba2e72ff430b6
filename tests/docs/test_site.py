"""The documentation site, built strictly: no broken link, every method and benchmark, nothing from elsewhere."""

import json
import os
import re
import shutil
import subprocess
import sys
from html import unescape
from pathlib import Path

import pandas as pd
import pytest

from bdl.methods import METHODS
from bdl.reports.paired import paired_differences
from bdl.spec import list_benchmarks, load_request
from bdl.stored_results.loading import load_results

ROOT = Path(__file__).parents[2]

pytest.importorskip("mkdocs", reason="comes with the extra docs")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.mark.slow  # builds the site
def test_methods_have_their_formulas(site):
    text = (site / "methods/index.html").read_text("utf-8")
    plain = unescape(re.sub(r"<[^>]+>|¶", "", text))
    headings = re.findall(r"<h2[^>]*>(.*?)<", text, re.DOTALL)
    assert sorted(name for heading in headings for name in heading.strip().split(", ")) == sorted(
        METHODS.builtin
    )
    assert "dJ/dc     = alpha c + mean_l G_l" in plain
    assert "Brownlie 2022, chapter 5" in plain


def opened(page, script, width, change=str):
    """Open a page in a window of some width, with a script more, and return what that makes the title."""
    own = page.with_name("opened.html")
    own.write_text(change(page.read_text("utf-8")).replace("</body>", f"{script}</body>"), "utf-8")
    flags = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        f"--window-size={width},900",
        "--virtual-time-budget=3000",
    ]
    command = ["chromium", *flags, "--dump-dom", own.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    own.unlink()
    return json.loads(unescape(re.search(r"<title>(.*?)</title>", done.stdout)[1]))


BROWSER = pytest.mark.skipif(shutil.which("chromium") is None, reason="needs chromium")
BROKEN = """<script>addEventListener("load", () => {
  const codes = [...document.querySelectorAll("table code")].filter((code) => /^\\w+$/.test(code.textContent));
  const broken = codes.filter((code) => code.getClientRects().length > 1);
  document.title = JSON.stringify({names: codes.length, broken: broken.map((code) => code.textContent)});
})</script>"""


@pytest.mark.slow  # builds the site
@BROWSER
def test_no_name_of_a_field_is_broken_on_a_narrow_screen(site):
    found = opened(site / "spec/index.html", BROKEN, 500)
    assert found["names"] > 80
    assert found["broken"] == []


MEASURE = """<script>
const width = document.documentElement.clientWidth;
const cut = [...document.querySelectorAll("table")].filter((table) => table.getBoundingClientRect().right > width);
document.title = JSON.stringify([cut.length > 0, document.documentElement.scrollWidth > width]);
</script>"""


@pytest.mark.slow  # builds the site
@BROWSER
def test_a_report_is_cut_neither_on_screens_nor_on_paper(site):
    """On a phone tables scroll, and the page does not.

    A sheet in landscape has 960 dots between its margins.
    """
    report = site / "results/uci-regression/report.html"
    assert opened(report, MEASURE, 1280) == [False, False]
    assert opened(report, MEASURE, 400) == [True, False]
    assert "@page { size: landscape; margin: 12mm; }" in report.read_text("utf-8")

    def printed(text):
        return text.replace("@media print", "@media all").replace(
            "@media screen", "@media not all"
        )

    assert not opened(report, MEASURE, 960, printed)[0]


@pytest.mark.slow  # builds the site
def test_every_benchmark_is_there_and_links_to_its_table(site):
    page = (site / "benchmarks/index.html").read_text("utf-8")
    assert [name for name, _ in list_benchmarks() if name not in page] == []
    for table in ROOT.glob("results/*/table.md"):
        assert f"results/{table.parent.name}/table/" in page
        assert (site / "results" / table.parent.name / "table/index.html").exists()


@pytest.mark.slow  # builds the site
def test_a_report_is_part_of_it_and_light_figures_are_below_their_table(site):
    page = (site / "results/uci-regression/table/index.html").read_text("utf-8")
    assert 'href="../report.html"' in page
    report = (site / "results/uci-regression/report.html").read_text("utf-8")
    assert "Not the protocol" not in report
    assert 'class="verdict equivalent"' in report
    for figure in ROOT.glob("results/*/figures/*.png"):
        page = (site / f"results/{figure.parents[1].name}/table/index.html").read_text("utf-8")
        assert (f'src="../figures/{figure.name}"' in page) == (figure.stat().st_size <= 200_000), (
            figure
        )
        if figure.stat().st_size <= 200_000:
            assert (site / figure.relative_to(ROOT)).read_bytes() == figure.read_bytes()


@pytest.mark.slow  # builds the site
def test_the_tour_has_its_plots(site):
    assert len(list((site / "images").glob("tour-*.png"))) == 2
    assert "in the table" in (site / "tour/index.html").read_text("utf-8")


def board(site, name):
    return json.loads(
        (site / f"leaderboard/{name}.js")
        .read_text("utf-8")
        .removeprefix("const BOARD = ")
        .strip(";\n")
    )


def rounded(value):
    return None if value is None else float(f"{value:.9g}")


BOARDS = pytest.mark.parametrize("name", ["uci", "posteriors", "images"])


@pytest.mark.slow  # builds the site
@BOARDS
def test_the_leaderboard_has_the_numbers_of_published_tables(site, name):
    found = board(site, name)
    for folder in found["sources"]:
        table = json.loads((ROOT / f"results/{folder}/table.json").read_text("utf-8"))
        table = {
            (row["dataset"], row["method"], row["metric"], row["statistic"]): row for row in table
        }
        cells = [cell for cell in found["cells"] if cell["benchmark"] == folder]
        shown = {
            (cell["dataset"].partition(" ")[0], cell["method"], metric)
            for cell in cells
            for metric in cell["scores"]
        }
        assert shown == {place[:3] for place, row in table.items() if row["n_trials"]}
        for cell in cells:
            for metric, (mean, se, median, n, failed, _, values) in cell["scores"].items():
                place = cell["dataset"].partition(" ")[0], cell["method"], metric
                row = table[*place, "mean"]
                assert (n, failed) == (row["n_trials"] - row["n_failed"], row["n_failed"])
                assert not n or cell["seconds"] > 0
                if (
                    row["replicates"] > 1
                ):  # the board is of the first seed, by which it pairs splits
                    continue
                middle = table.get((*place, "median"), {"ours": None})
                assert (mean, se, median) == (
                    *map(rounded, (row["ours"], row["ours_se"], middle["ours"])),
                )
                of_splits = [value for value in values if value is not None]
                if len(of_splits) == n and n:  # not where a paper prints one split alone
                    assert sum(of_splits) / n == pytest.approx(mean, rel=1e-7)


@pytest.mark.slow  # builds the site
@BOARDS
def test_links_and_downloads_of_the_leaderboard_are_there(site, name):
    for folder, source in board(site, name)["sources"].items():
        benchmark, _, profile = folder.partition("/")
        assert source["command"] == f"bdl-bench run {benchmark}" + (
            f" --profile {profile}" if profile else ""
        )
        for link in source["links"].values():
            path, _, anchor = link.partition("#")
            assert (site / path).is_file()
            assert f'id="{anchor}"' in (site / path).read_text("utf-8") if anchor else True
        csv, parquet = (source["links"][kind] for kind in ("splits as CSV", "as Parquet"))
        rows = pd.read_parquet(site / parquet)
        alike = (
            frame.astype({"reason": object}).fillna({"reason": ""})
            for frame in (pd.read_csv(site / csv), rows)
        )
        pd.testing.assert_frame_equal(*alike, check_dtype=False)
        own = [cell for cell in board(site, name)["cells"] if cell["benchmark"] == folder]
        assert len(rows) == sum(len(cell["at"]) for cell in own)
        for cell in own:  # an installed package knows nine digits
            assert re.fullmatch(r"[0-9a-f]{9,40}(\+changes)?", cell["commit"])
        origin = json.loads((ROOT / f"results/{folder}/run.json").read_text("utf-8"))
        made = {
            label: each["git_commit"]
            for each in origin.get("taken_from", ())
            for label in each["cells"]
        }
        for cell in own:
            label = f"{cell['dataset'].partition(' ')[0]}/{cell['method']}"
            assert cell["commit"] == made.get(label, origin["git_commit"])


@pytest.mark.slow  # builds the site
def test_ranks_are_of_whole_rows_of_ours(site):
    cells = board(site, "uci")["cells"]
    elsewhere = [cell for cell in cells if cell["origin"] == "printed elsewhere"]
    assert {cell["family"] for cell in elsewhere} == {"ensemble, dropout", "moment matching"}
    assert {score[5] for cell in elsewhere for score in cell["scores"].values()} == {None}
    of_boston = [
        cell["scores"]["rmse"]
        for cell in cells
        if cell["dataset"] == "boston" and cell not in elsewhere
    ]
    whole = sorted(score[0] for score in of_boston if not score[4])
    assert len(whole) > 10
    for mean, _, _, _, failed, rank, _ in of_boston:
        assert rank == (None if failed else 1 + whole.index(mean))


COMPARED = """<script>addEventListener("load", () => {
  const form = document.querySelector(".board-filters");
  const show = (field, value) => { form.elements[field].value = value; form.dispatchEvent(new Event("input")); };
  const rows = () => [...document.querySelectorAll("table.board tbody tr")].map((row) => [...row.cells]);
  const found = [], of = (field) => [...form.elements[field].options].map((option) => option.value);
  show("text", "uci-regression");
  for (const score of of("score")) for (const dataset of of("dataset").slice(1)) {
    show("score", score);
    show("dataset", dataset);
    const baseline = rows().find((cells) => cells[0].firstChild.textContent === "swag-nn");
    if (!baseline) continue;
    baseline[7].querySelector("button").click();
    for (const cells of rows())
      found.push([score, dataset, cells[0].firstChild.textContent, cells[8].title, cells[8].className.split(" ")[1]]);
  }
  show("text", ""); show("score", "rmse"); show("dataset", "boston");
  const header = document.getElementById("sort-3");
  header.click();
  const means = rows().map((cells) => parseFloat(cells[3].textContent));
  show("origin", "printed elsewhere");
  const grey = rows().map((cells) => [cells[2].textContent, cells[3].textContent]);
  show("origin", ""); show("seconds", "1");
  const quick = rows().map((cells) => parseFloat(cells[9].textContent));
  show("seconds", ""); show("searched", "10");
  const searched = rows().map((cells) => cells[10].textContent);
  const heads = [...document.querySelectorAll("table.board thead th")].map((head) => head.textContent);
  const {scrollWidth, clientWidth} = document.documentElement;
  document.title = JSON.stringify({found, heads, means, grey, quick, searched, scrollWidth, clientWidth});
})</script>"""


@pytest.mark.slow  # builds the site
@BROWSER
def test_the_leaderboard_in_a_narrow_browser(site):
    """Differences are those of `bdl-bench compare`.

    Columns sort, filters narrow, and the page does not scroll.
    """
    found = opened(site / "leaderboard/uci/index.html", COMPARED, 400)
    published = load_results(load_request("uci-regression"), ROOT / "results")
    shared = json.loads((ROOT / "results/uci-regression/run.json").read_text("utf-8"))["overlap"]
    expected = [
        each for each in paired_differences(published.benchmark, published.rows, shared) if each.n
    ]
    shown = {tuple(place): (title, verdict) for *place, title, verdict in found["found"] if title}
    assert len(expected) > 80
    for each in expected:
        title, verdict = shown[each.metric, each.dataset, each.entry]
        assert verdict == each.verdict
        n, *numbers = re.findall(r"[-+.\de]+", title.removeprefix("n = ").replace(":", ""))
        assert int(n) == each.n
        assert [*map(float, numbers)] == pytest.approx(
            [each.mean, each.low, each.high], rel=1e-5, abs=1e-9
        )
    assert found["heads"][2:9] == [
        "Rank",
        "Mean ± SE",
        "Median",
        "n",
        "Failed",
        "Compare",
        "Difference",
    ]
    assert found["heads"][9:11] == ["Fit, s", "Search"]
    assert len(found["means"]) > 10
    assert found["means"] == sorted(found["means"])
    assert ["\N{EN DASH}", "2.90 ± 0.18"] in found["grey"]
    assert {rank for rank, _ in found["grey"]} == {"\N{EN DASH}"}
    assert len(found["quick"]) > 3
    assert max(found["quick"]) <= 1  # what other papers print has no time
    assert {"none", "4 \N{MULTIPLICATION SIGN} 2"} == {*found["searched"]}
    assert found["scrollWidth"] == found["clientWidth"]


@pytest.mark.slow  # builds the site
def test_nothing_is_loaded_from_elsewhere(site):
    for page in site.rglob("*.html"):
        loaded = re.findall(
            r"<(?:script|link|img)[^>]*(?:src|href)=\"(https?://[^\"]*)", page.read_text("utf-8")
        )
        assert loaded == [], page


def test_a_link_that_leads_nowhere_stops_the_build(tmp_path):
    """By the settings of the site, of two pages without plugins, which take most of the time and find no links."""
    before, _, after = (ROOT / "mkdocs.yml").read_text("utf-8").partition("plugins:")
    extensions = after.partition("markdown_extensions:")[2].partition("nav:")[0]
    settings = (
        before.replace("scripts/docs_site.py", "links.py")
        + "plugins: []\nmarkdown_extensions:"
        + extensions
    )
    (tmp_path / "mkdocs.yml").write_text(settings, "utf-8")
    (tmp_path / "links.py").write_text("from docs_site import on_page_markdown\n")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/site.css").touch()
    (tmp_path / "docs/index.md").write_text(
        "# Speed\n\n[Nowhere](nowhere.md), and [there](there.md#nothing)\n"
    )
    (tmp_path / "docs/there.md").write_text("# There\n")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict"],
        **{
            "cwd": tmp_path,
            "env": os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'scripts'}"},
        },
        **{"capture_output": True, "text": True, "timeout": 300},
    )
    assert done.returncode == 1
    assert "'nowhere.md'" in done.stderr
    assert "nothing" in done.stderr
    assert "Aborted with 2 warnings" in done.stdout, done.stderr

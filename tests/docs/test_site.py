"""The documentation site, built strictly: no broken link, every method and benchmark, nothing from elsewhere."""

import re
import shutil
import subprocess
import sys
from html import unescape
from pathlib import Path

import pytest

from bdl.methods import METHODS
from bdl.spec import list_benchmarks

ROOT = Path(__file__).parents[2]

pytest.importorskip("mkdocs", reason="comes with the extra docs")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def headings(page: Path) -> list[str]:
    found = re.findall(r"<h2[^>]*>(.*?)</h2>", page.read_text("utf-8"), re.DOTALL)
    return [re.sub(r"<[^>]+>|¶", "", unescape(heading)).strip() for heading in found]


@pytest.mark.slow
def test_methods_have_their_formulas(site):
    named = [name for heading in headings(site / "methods/index.html") for name in heading.split(", ")]
    assert sorted(named) == sorted(METHODS.builtin)
    page = unescape(re.sub(r"<[^>]+>", "", (site / "methods/index.html").read_text("utf-8")))
    assert "dJ/dc     = alpha c + mean_l G_l" in page
    assert "Brownlie 2022, ch. 5" in page


BROKEN = """<script>addEventListener("load", () => {
  const codes = [...document.querySelectorAll("table code")].filter((code) => /^\\w+$/.test(code.textContent));
  const broken = codes.filter((code) => code.getClientRects().length > 1);
  document.title = `${codes.length} names, broken: ${broken.map((code) => code.textContent)}.`;
})</script>"""


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs chromium")
def test_no_name_of_a_field_is_broken_on_a_narrow_screen(site):
    page = site / "spec/measured.html"
    page.write_text((site / "spec/index.html").read_text("utf-8").replace("</body>", f"{BROKEN}</body>"), "utf-8")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--window-size=500,900", "--virtual-time-budget=3000"]
    done = subprocess.run(
        ["chromium", *flags, "--dump-dom", page.as_uri()], capture_output=True, text=True, timeout=120
    )
    (count, broken) = re.search(r"<title>(\d+) names, broken: (.*)\.</title>", done.stdout).groups()
    page.unlink()
    assert int(count) > 100
    assert broken == ""


@pytest.mark.slow
def test_every_benchmark_is_there_and_links_to_its_table(site):
    page = (site / "benchmarks/index.html").read_text("utf-8")
    assert [name for name, _ in list_benchmarks() if name not in page] == []
    for table in ROOT.glob("results/*/table.md"):
        assert f"results/{table.parent.name}/table/" in page
        assert (site / "results" / table.parent.name / "table/index.html").exists()


@pytest.mark.slow
def test_a_report_is_part_of_it_and_light_figures_are_below_their_table(site):
    page = (site / "results/uci-regression/table/index.html").read_text("utf-8")
    assert 'href="../report.html"' in page
    report = (site / "results/uci-regression/report.html").read_text("utf-8")
    assert "Not the protocol" not in report
    assert 'class="verdict match"' in report
    for figure in ROOT.glob("results/*/figures/*.png"):
        page = (site / f"results/{figure.parents[1].name}/table/index.html").read_text("utf-8")
        assert (f'src="../figures/{figure.name}"' in page) == (figure.stat().st_size <= 200_000), figure
        if figure.stat().st_size <= 200_000:
            assert (site / figure.relative_to(ROOT)).read_bytes() == figure.read_bytes()


@pytest.mark.slow
def test_the_tour_has_its_plots(site):
    assert len(list((site / "images").glob("tour-*.png"))) == 2
    assert "in the table" in (site / "tour/index.html").read_text("utf-8")


@pytest.mark.slow
def test_nothing_is_loaded_from_elsewhere(site):
    for page in site.rglob("*.html"):
        loaded = re.findall(r"<(?:script|link|img)[^>]*(?:src|href)=\"(https?://[^\"]*)", page.read_text("utf-8"))
        assert loaded == [], page


@pytest.mark.slow
def test_a_link_that_leads_nowhere_stops_the_build(tmp_path):
    (tmp_path / "docs").mkdir()
    for path in [*ROOT.glob("[!.]*"), *ROOT.glob("docs/*")]:
        if path.name not in ("docs", "site", "speed.md"):
            (tmp_path / path.relative_to(ROOT)).symlink_to(path)
    (tmp_path / "docs/speed.md").write_text("# Speed\n\n[Nowhere](nowhere.md), and [there](spec.md#nothing)\n")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict"], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 1
    assert "'nowhere.md'" in done.stderr
    assert "nothing" in done.stderr

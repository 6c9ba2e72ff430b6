"""The page in a browser, where there is one: nothing is cut off on a screen or on paper."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from bdl.publishing import page as writing
from bdl.spec import load_variant

ROOT = Path(__file__).parents[2]
BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
LANDSCAPE = 960
"""Dots between the margins of a sheet of 11 inches."""

MEASURE = """<script>
const cut = [...document.querySelectorAll("table")].filter(
  (table) => table.getBoundingClientRect().right > document.documentElement.clientWidth);
document.title = JSON.stringify({
  columns: cut.length, page: document.documentElement.scrollWidth, width: document.documentElement.clientWidth});
</script>"""

pytestmark = pytest.mark.skipif(BROWSER is None, reason="needs Chromium")


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """The report of published tables with eleven columns; it is measured without figures."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writing, "draw_figures", lambda *_, pdf: [])
        path = tmp_path_factory.mktemp("page") / "report.html"
        return writing.write_page(load_variant("uci-regression"), ROOT / "results", path).read_text("utf-8")


@pytest.fixture
def measured(tmp_path):
    """Open a page in a window of some width, and measure it."""

    def measure(page, width):
        (tmp_path / "page.html").write_text(page.replace("</body>", f"{MEASURE}</body>"), "utf-8")
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        own = [f"--user-data-dir={tmp_path / 'profile'}", f"--window-size={width},900", "--dump-dom"]
        command = [BROWSER, *flags, *own, (tmp_path / "page.html").as_uri()]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
        return json.loads(re.search("<title>(.*?)</title>", done.stdout)[1])

    return measure


@pytest.mark.slow  # starts a browser
def test_at_1280_nothing_is_cut(page, measured):
    found = measured(page, 1280)
    assert (found["columns"], found["page"]) == (0, found["width"])


@pytest.mark.slow  # starts a browser
def test_on_a_phone_tables_scroll_and_the_page_does_not(page, measured):
    found = measured(page, 400)
    assert found["columns"] > 0
    assert found["page"] == found["width"]


@pytest.mark.slow  # starts a browser
def test_a_sheet_in_landscape_has_all_columns(page, measured):
    """What holds on paper holds here on the screen, and the other way round."""
    assert "@page { size: landscape; margin: 12mm; }" in page
    printed = page.replace("@media print", "@media all").replace("@media screen", "@media not all")
    assert measured(printed, LANDSCAPE)["columns"] == 0

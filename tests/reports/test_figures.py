"""All figures of a benchmark, and what the documents and the page say of them."""

import subprocess
import sys
from pathlib import Path

import matplotlib as mpl
import pandas as pd
import pytest
from matplotlib.image import imread

from bdl.reports import compare
from bdl.reports.figures import KINDS, Shown, draw_figures, heading_of


def test_files_are_written_and_large_enough(drawn, tmp_path):
    paths = draw_figures(Shown(*drawn), tmp_path / "new")
    assert [path.name for path in paths] == [
        f"uci-nn-{metric}.{suffix}" for metric in ("nmll", "rmse", "runtime") for suffix in ("png", "pdf")
    ]
    assert imread(paths[0]).shape[1] == pytest.approx(200 * (2 * 2.6 + 0.4), abs=1)
    assert paths[1].read_bytes().startswith(b"%PDF")


def test_files_do_not_depend_on_time_or_the_users_settings(drawn, tmp_path, monkeypatch):
    first = [path.read_bytes() for path in draw_figures(Shown(*drawn), tmp_path / "a")]
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1")
    with mpl.rc_context({"font.size": 30, "axes.grid": True, "lines.linewidth": 9, "savefig.bbox": "tight"}):
        second = [path.read_bytes() for path in draw_figures(Shown(*drawn), tmp_path / "b")]
    assert first == second
    assert not any(b"CreationDate" in content or b"Software" in content for content in first)


def test_the_users_settings_and_figures_are_left_alone(drawn, tmp_path):
    before = dict(mpl.rcParams)
    draw_figures(Shown(*drawn), tmp_path)
    assert dict(mpl.rcParams) == before
    if "matplotlib.pyplot" in sys.modules:
        assert sys.modules["matplotlib.pyplot"].get_fignums() == []


def test_nothing_run_yet_still_draws(make_benchmark, tmp_path):
    benchmark = make_benchmark(papers=[])
    assert len(draw_figures(Shown(benchmark, compare(benchmark, pd.DataFrame())), tmp_path)) == 6


def test_importing_the_reports_stays_light():
    code = (
        "import sys, bdl.reports\n"
        "print(sorted({'torch', 'sklearn', 'matplotlib', 'pandas', 'mlflow'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_documents_list_every_kind():
    """In the table of docs/spec.md: files, where and what of each, in their order."""
    text = (Path(__file__).parents[2] / "docs" / "spec.md").read_text(encoding="utf-8")
    rows = [f"| `<benchmark>-{kind.files}` | {kind.where} | {kind.what} |" for kind in KINDS]
    assert "\n".join(["| File | For benchmarks with | Content |", "|---|---|---|", *rows, ""]) in text


def test_the_page_knows_figures_by_their_names():
    names = {
        "-nmll": "Scores",
        "-nmll-paired": "Paired differences",
        "-nmll-curve-epochs": "Curves",
        "-sym_kl-cost": "What scores cost",
        "-selective-accuracy": "The most certain rows",
        "-posterior-energy-vifa": "Posteriors and the truth",
        "-posteriors-energy": "Posteriors and the truth",
        "-bands-cubic": "Credible bands",
        "-refusal-risk": "Predictions that may be refused",
        "-nmll-ranks": "Ranks",
    }
    assert {name: heading_of(name) for name in names} == names

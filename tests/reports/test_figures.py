import subprocess
import sys

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from matplotlib.image import imread

from bdl.reports import compare, figures
from bdl.reports.figures import OURS, PAPER, _figure


@pytest.fixture
def drawn(make_benchmark, make_trials):
    """Benchmark and cells: one entry fails on yacht."""
    rng = np.random.default_rng(0)
    rows = pd.concat(
        [
            make_trials("energy", "vifa-lr", rng.normal(2.6, 0.1, 20)),
            make_trials("energy", "vifa-nn", rng.normal(2.5, 0.1, 20)),
            make_trials("yacht", "vifa-lr", rng.normal(3.6, 0.1, 20)),
            make_trials("yacht", "vifa-nn", [np.nan] * 20, status=["failed"] * 20),
        ]
    )
    benchmark = make_benchmark()
    return benchmark, compare(benchmark, rows)


def test_files_are_written_and_large_enough(drawn, tmp_path):
    paths = figures(*drawn, tmp_path / "new")
    assert [path.name for path in paths] == [
        f"uci-nn-{metric}.{suffix}" for metric in ("nmll", "rmse", "runtime") for suffix in ("png", "pdf")
    ]
    assert imread(paths[0]).shape[1] == pytest.approx(200 * (2 * 2.5 + 0.8), abs=1)
    assert paths[1].read_bytes().startswith(b"%PDF")


def test_files_do_not_depend_on_time_or_the_users_settings(drawn, tmp_path, monkeypatch):
    first = [path.read_bytes() for path in figures(*drawn, tmp_path / "a")]
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1")
    with mpl.rc_context({"font.size": 30, "axes.grid": True, "lines.linewidth": 9, "savefig.bbox": "tight"}):
        second = [path.read_bytes() for path in figures(*drawn, tmp_path / "b")]
    assert first == second
    assert not any(b"CreationDate" in content or b"Software" in content for content in first)


def test_the_users_settings_and_figures_are_left_alone(drawn, tmp_path):
    before = dict(mpl.rcParams)
    figures(*drawn, tmp_path)
    assert dict(mpl.rcParams) == before
    if "matplotlib.pyplot" in sys.modules:
        assert sys.modules["matplotlib.pyplot"].get_fignums() == []


def test_what_is_drawn(drawn):
    benchmark, cells = drawn
    means = [cell for cell in cells if (cell.metric, cell.statistic) == ("nmll", "mean")]
    figure = _figure(benchmark, "nmll", means)
    energy, yacht = figure.axes
    assert [panel.get_title(loc="left") for panel in figure.axes] == ["energy", "yacht"]
    assert [label.get_text() for label in energy.get_yticklabels()] == ["vifa-lr", "vifa-nn"]
    for panel, dataset in ((energy, "energy"), (yacht, "yacht")):
        for style, field in ((OURS, "ours"), (PAPER, "paper")):
            marks = [line for line in panel.lines if line.get_marker() == style["marker"]]
            values = [getattr(cell, field) for cell in means if cell.dataset == dataset]
            assert [line.get_xdata()[0] for line in marks] == [value for value in values if value is not None]
    assert [text.get_text() for text in yacht.texts] == ["failed"]
    assert figure.get_suptitle() == "UCI neural networks\nNMLL (nats per test point), ↓ lower is better"
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [
        "ours, mean ± SE", "paper, mean ± SE as printed",
    ]  # fmt: skip


def test_entries_have_no_place_where_they_do_not_run(make_benchmark, make_trials):
    pairs = [("energy", "vifa-lr"), ("yacht", "vifa-lr"), ("yacht", "vifa-nn")]
    benchmark = make_benchmark(pairs=pairs)
    cells = compare(benchmark, pd.concat([make_trials(*pair, [2.5, 2.6]) for pair in pairs]))
    means = [cell for cell in cells if (cell.metric, cell.statistic) == ("nmll", "mean")]
    energy, yacht = _figure(benchmark, "nmll", means).axes
    assert [label.get_text() for label in energy.get_yticklabels()] == ["vifa-lr"]
    assert [label.get_text() for label in yacht.get_yticklabels()] == ["vifa-lr", "vifa-nn"]
    assert (energy.get_ylim(), yacht.get_ylim()) == ((0.5, -0.5), (1.5, -0.5))


def test_wide_spans_get_a_logarithmic_axis(drawn):
    benchmark, cells = drawn
    runtime = [cell for cell in cells if cell.metric == "runtime"]
    assert _figure(benchmark, "runtime", runtime).axes[0].get_xscale() == "log"  # 0.5 against 22 minutes
    nmll = [cell for cell in cells if (cell.metric, cell.statistic) == ("nmll", "mean")]
    assert _figure(benchmark, "nmll", nmll).axes[0].get_xscale() == "linear"


def test_nothing_run_yet_still_draws(make_benchmark, tmp_path):
    benchmark = make_benchmark(papers=[])
    assert len(figures(benchmark, compare(benchmark, pd.DataFrame()), tmp_path)) == 6


def test_importing_the_reports_stays_light():
    code = (
        "import sys, bdl.reports\n"
        "print(sorted({'torch', 'sklearn', 'matplotlib', 'pandas', 'mlflow'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"

"""Tables for LaTeX: escaped, no wider than the text, with the best in bold."""

import re
import shutil
import subprocess
from dataclasses import replace

import pandas as pd
import pytest

from bdl.reports import compare
from bdl.reports.render import TEXT_WIDTH, _body, _width, best, escape, render


def three(centre):
    """Three values with the standard error 0.01: their 95 % interval reaches 0.043 to either side."""
    away = 0.01 * 3**0.5
    return [centre - away, centre, centre + away]


@pytest.fixture
def cells(make_benchmark, make_trials, make_note):
    """On energy the second is better, on yacht they overlap; one note is of an entry, one of a whole table."""
    scores = {"energy": (2.57, 2.47), "yacht": (3.65, 3.60)}
    rows = [
        make_trials(dataset, entry, three(value))
        for dataset, values in scores.items()
        for entry, value in zip(("vifa-lr", "vifa-nn"), values, strict=True)
    ]
    notes = [make_note("50 % & _more_.", entry="vifa-lr"), make_note("Timed elsewhere.", metric="runtime")]
    return compare(make_benchmark(notes=notes), pd.concat(rows))


@pytest.mark.parametrize(
    ("text", "latex"),
    [
        ("a_b&c", r"a\_b\&c"),
        ("50%$#{}~^\\", r"50\%\$\#\{\}\textasciitilde{}\textasciicircum{}\textbackslash{}"),
        ("-0.5 ± 0.1", r"$-$0.5 $\pm$ 0.1"),
        ("vifa-1", "vifa-1"),
    ],
)
def test_escapes(text, latex):
    assert escape(text) == latex


def of(cells, dataset, metric="nmll"):
    return [c for c in cells if (c.dataset, c.metric, c.statistic) == (dataset, metric, "mean")]


def test_the_best_and_what_overlaps_it(cells):
    lr, nn = of(cells, "energy")
    assert best([lr, nn]) == [nn]
    assert best(of(cells, "yacht")) == of(cells, "yacht")
    assert best([lr, replace(nn, n_failed=1)]) == [lr]
    assert best([lr, replace(nn, ours=None)]) == [lr]
    assert best([lr, replace(nn, ours=4e17, ours_se=4e17)]) == [lr], "an interval that reaches zero overlaps everything"
    assert best([replace(lr, metric="log_evidence")]) == [], "neither more nor less is better"


def test_rows_and_columns(cells):
    lines = render(of(cells, "energy") + of(cells, "yacht"), "latex").splitlines()
    assert lines[:2] == [r"\begin{table}", r"\centering"]
    assert lines[2].startswith(
        r"\caption{uci-nn: NMLL (nats per test point), $\downarrow$ lower is better; a match is within 0.05. Mean $\pm$"
    )
    assert lines[3] == r"\label{tab:uci-nn-nmll}"
    assert r"\begin{tabular}{lrr}" in lines
    assert r"Method & energy & yacht \\" in lines
    first, second = (
        next(i for i, line in enumerate(lines) if line.startswith(name)) for name in ("vifa-lr", "vifa-nn")
    )
    assert lines[first].startswith(r"vifa-lr\textsuperscript{1} & 2.570 $\pm$ 0.010 & \textbf{3.650 $\pm$ 0.010")
    assert lines[second].startswith(r"vifa-nn & \textbf{2.470 $\pm$ 0.010\textsuperscript{2}} &")
    assert lines[first + 1].startswith(r"\quad printed & 2.57 $\pm$ 0.02 &")
    assert lines[second + 1].startswith(r"\quad printed & 2.53 $\pm$ 0.02\textsuperscript{+} &")
    assert r"\par{\footnotesize \textsuperscript{1} 50 \% \& \_more\_.\par}" in lines


def test_nothing_is_said_of_papers_that_print_nothing(cells):
    text = render([replace(cell, paper=None, paper_se=None, verdict="no paper value") for cell in cells], "latex")
    assert "printed" not in text
    assert text.count(r"\toprule") == 3


def test_a_metric_alone_has_a_label_of_its_own(cells):
    text = render([cell for cell in cells if cell.metric in ("rmse", "runtime")], "latex")
    assert re.findall(r"\\label{(.*?)}", text) == ["tab:uci-nn-rmse", "tab:uci-nn-runtime"]


def test_what_is_too_wide_goes_below():
    """Nine columns of 15 letters and a method of 20: 345 points have room for three of them."""
    lines = [[("m" * 20, 20), *((f"{i}" * 15, 15) for i in range(9))] for _ in range(2)]
    assert _width(lines, 3) <= TEXT_WIDTH < _width(lines, 4)
    body = _body(lines)
    assert body[0] == r"\begin{tabular}{lrrr}"
    assert [line.count("m" * 20) for line in body if line.startswith("m")] == [1] * 6
    assert body.count(r"\midrule") == 5


@pytest.mark.skipif(not shutil.which("pdflatex"), reason="needs LaTeX")
def test_it_compiles_within_the_width_of_the_text(cells, tmp_path):
    wide = [replace(c, dataset=f"{c.dataset}_{i}") for i in range(5) for c in of(cells, "energy")]
    text = "\n".join(
        [r"\documentclass{article}\usepackage{booktabs}\begin{document}", render(wide, "latex"), r"\end{document}"]
    )
    (tmp_path / "t.tex").write_text(text)
    done = subprocess.run(["pdflatex", "-halt-on-error", "t.tex"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-800:]
    assert "Overfull" not in done.stdout

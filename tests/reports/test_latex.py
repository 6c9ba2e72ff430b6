"""Tables for articles: escapes, rows and columns, and which numbers are bold."""

import re
import shutil
import subprocess
from dataclasses import replace

import pandas as pd
import pytest

from bdl.reports.comparison import compare_with_papers
from bdl.reports.latex import escape, select_best
from bdl.reports.render import render

from .conftest import make_benchmark, make_note, make_trials, of, three, unprinted


@pytest.fixture
def pairs():
    """On energy the second is better, on yacht each lies in the interval of the other.

    One note is of an entry, one of a whole table.
    """
    scores = {"energy": (2.57, 2.47), "yacht": (3.65, 3.62)}
    rows = [
        make_trials(dataset, entry, three(value))
        for dataset, values in scores.items()
        for entry, value in zip(("vifa-lr", "vifa-nn"), values, strict=True)
    ]
    notes = [
        make_note("50 % & _more_.", entry="vifa-lr"),
        make_note("Timed elsewhere.", metric="runtime"),
    ]
    return compare_with_papers(make_benchmark(notes=notes), pd.concat(rows))


@pytest.mark.parametrize(
    ("text", "latex"),
    [
        ("a_b&c", r"a\_b\&c"),
        ("50%$#{}~^\\", r"50\%\$\#\{\}\textasciitilde{}\textasciicircum{}\textbackslash{}"),
        ("-0.5 ± 0.1", r"$-$0.5 $\pm$ 0.1"),
        ("vifa-1", "vifa-1"),
    ],
)
def test_escapes_of_latex(text, latex):
    assert escape(text) == latex


def test_the_best_and_what_lies_in_its_interval(pairs):
    lr, nn = of(pairs, dataset="energy")
    assert select_best([lr, nn]) == [nn]
    assert select_best(of(pairs, dataset="yacht")) == of(pairs, dataset="yacht")
    assert select_best([replace(lr, n_failed=1), nn]) == [nn]
    assert select_best([lr, replace(nn, n_failed=1)]) == [lr]
    assert select_best([lr, replace(nn, ours=None)]) == [lr]
    assert select_best([lr, replace(nn, ours=4e17, ours_se=4e17)]) == [lr], (
        "the interval of a method that diverged on one split reaches everything"
    )
    assert select_best([replace(lr, metric="log_evidence")]) == [], (
        "neither more nor less is better"
    )


def test_an_interval_that_holds_zero_may_be_the_best(pairs):
    """Yacht: NMLL 0.003 with a standard error of 0.19 was plain, and 1.48 bold."""
    lr, nn = of(pairs, dataset="energy")
    near = replace(nn, ours=0.003, ours_se=0.186, n_trials=20)
    far = replace(lr, ours=1.48, ours_se=0.1, n_trials=20)
    assert select_best([far, near]) == [near]
    likelihoods = [replace(cell, metric="accuracy") for cell in (far, near)]
    assert select_best(likelihoods) == likelihoods[:1], "higher is better"


def test_shift_of_a_score_moves_no_bold_type(pairs):
    """Another unit of the target shifts every NMLL by one number."""
    lr, nn = of(pairs, dataset="yacht")
    third = replace(lr, method="third", ours=3.0, ours_se=0.2)
    for shift in (-4.0, -3.6, -3.0, 0.0, 2.0):
        shifted = [replace(cell, ours=cell.ours + shift) for cell in (lr, nn, third)]
        assert [cell.method for cell in select_best(shifted)] == ["vifa-lr", "vifa-nn", "third"]
        sharp = [*shifted[:2], replace(shifted[2], ours_se=0.02)]
        assert [cell.method for cell in select_best(sharp)] == ["third"]


def test_rows_and_columns_of_latex(pairs):
    lines = render(of(pairs), "latex").splitlines()
    assert lines[:2] == [r"\begin{table}", r"\centering"]
    heading = r"uci-nn: NMLL (nats per test point), $\downarrow$ lower is better"
    assert lines[2].startswith(rf"\caption{{{heading}; the margin is 0.05. Mean $")
    assert lines[3] == r"\label{tab:uci-nn-nmll}"
    assert r"\begin{tabular}{lrr}" in lines
    start = lines.index(r"Method & energy & yacht \\") + 2
    beginnings = [
        r"vifa-lr\textsuperscript{1} & 2.570 $\pm$ 0.010 & \textbf{3.650 $\pm$ 0.010",
        r"\quad printed & 2.57 $\pm$ 0.02\textsuperscript{$\approx$} &",
        r"vifa-nn & \textbf{2.470 $\pm$ 0.010\textsuperscript{2} \textsuperscript{3}} &",
        r"\quad printed & 2.53 $\pm$ 0.02\textsuperscript{$\neq$} &",
    ]
    for line, beginning in zip(lines[start:], beginnings, strict=False):
        assert line.startswith(beginning)
    assert r"\par{\footnotesize \textsuperscript{1} 50 \% \& \_more\_.\par}" in lines
    text = render(unprinted(pairs), "latex")
    assert "printed" not in text
    assert text.count(r"\toprule") == 3
    assert re.findall(r"\\label{(.*?)}", text) == [
        f"tab:uci-nn-{name}" for name in ("nmll", "rmse", "runtime")
    ]


def test_further_columns_follow_in_a_further_table(pairs):
    energy = of(pairs, dataset="energy")
    wide = [replace(cell, dataset=f"set_{i}") for i in range(9) for cell in energy]
    text = render(wide, "latex")
    assert re.findall(r"tabular}{(.*?)}", text) == ["lrrrr", "lrrrr", "lr"]
    labels = ["tab:uci-nn-nmll", "tab:uci-nn-nmll-2", "tab:uci-nn-nmll-3"]
    assert re.findall(r"\\label{(.*?)}", text) == labels
    assert all(text.count(rf"set\_{i}") == 1 for i in range(9))


@pytest.mark.skipif(not shutil.which("pdflatex"), reason="needs LaTeX")
def test_latex_compiles_within_the_width_of_the_text(pairs, tmp_path):
    wide = [
        replace(c, dataset=f"{c.dataset}_{i}")
        for i in range(5)
        for c in of(pairs, dataset="energy")
    ]
    head = r"\documentclass{article}\usepackage{booktabs,adjustbox}\begin{document}"
    (tmp_path / "t.tex").write_text("\n".join([head, render(wide, "latex"), r"\end{document}"]))
    done = subprocess.run(
        ["pdflatex", "-halt-on-error", "t.tex"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-800:]
    assert "Overfull" not in done.stdout

"""Draw all printed values against ours in one figure, and count their verdicts.

    python scripts/summary.py  # draws docs/images/summary.png, prints the rows of the tables in
    README.md and docs/results.md

Only tables of the protocol count: under other profiles verdicts are withheld. Each printed number
counts once, and durations are left out.
"""

import argparse
import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import bdl
from bdl.publishing.run_tables import judge_run_claims
from bdl.reports.claims import ClaimVerdict
from bdl.reports.papers import PAPERS, load_paper
from bdl.spec import list_benchmarks, load_benchmark
from bdl.stored_results.folders import has_published_rows

ROOT = Path(__file__).parents[1]
GROUPS = {
    "same digits": "#146c43",
    "equivalent": "#2a9d5c",
    "consistent": "#7cc49a",
    "unsettled": "#9aa3ad",
    "differs": "#d1495b",
    "print in error": "#8d6cab",
    "given": "#c9ced4",
}
"""Verdicts and their colours; `differs` whatever is known of the cause."""
REACH = 30.0
"""Largest difference, in margins, that has a place of its own; beyond it points stand at the
edge.
"""
NOT_RUN = {
    ("vifa2023", "Table 2"),
    ("vifa2023", "Table 3"),
    ("vifa2023", "Table 12"),
    ("vifa2023", "Table 13"),
    ("slang2018", "Table 3"),
}
"""Tables whose experiments were not run as printed: they need days of a GPU."""


class PrintedCounts(NamedTuple):
    """How many numbers the papers print, and what becomes of them."""

    printed: int
    compared: int
    durations: int
    not_run: int

    @property
    def repeated(self) -> int:
        """Numbers that another table prints as well, which is the one that is compared."""
        return self.printed - self.compared - self.durations - self.not_run


def values() -> list[dict[str, Any]]:
    """Return the counted cells with a printed value and a verdict, in the order of the tables."""
    cells: list[dict[str, Any]] = []
    for path in sorted(ROOT.glob("results/*/table.json")):
        for cell in json.loads(path.read_text("utf-8")):
            group = cell["verdict"].partition(",")[0]
            if cell["counted"] and group in GROUPS:
                cells.append(cell | {"group": group, "source": cell["paper_source"].split()[0]})
    return cells


def counts(cells: Iterable[dict[str, Any]], key: str = "benchmark") -> dict[str, Counter[str]]:
    """Count the verdicts of each benchmark, or of each `source`."""
    counted: dict[str, Counter[str]] = {}
    for cell in cells:
        counted.setdefault(cell[key], Counter())[cell["group"]] += 1
    return counted


def count_printed(cells: list[dict[str, Any]]) -> PrintedCounts:
    """Count the numbers in the tables of all papers."""
    printed = durations = not_run = 0
    for paper in PAPERS:
        for row in load_paper(paper):
            printed += 1
            if row["unit"] in ("seconds", "minutes"):
                durations += 1
            elif (paper, row["table"]) in NOT_RUN:
                not_run += 1
    return PrintedCounts(printed, len(cells), durations, not_run)


def claims() -> list[tuple[str, ClaimVerdict]]:
    """Return the claims of benchmarks with published rows, judged, each after its benchmark."""
    runs = [
        bdl.results(name, results=ROOT / "results")
        for name, _ in list_benchmarks()
        if load_benchmark(name).claims and has_published_rows(ROOT / "results" / name)
    ]
    return [
        (run.loaded.benchmark.name, each) for run in runs for each in judge_run_claims(run.loaded)
    ]


def is_ours(judged: tuple[str, ClaimVerdict]) -> bool:
    """Return whether no paper makes a claim."""
    return judged[1].claim.source == "ours"


def claim_rows(judged: list[tuple[str, ClaimVerdict]]) -> list[str]:
    """Write claims as rows of a table."""
    return [
        f"| {each.claim.text} | [`{name}`](../results/{name}/table.md) | {each.verdict} |"
        for name, each in judged
    ]


def doubted(judged: list[tuple[str, ClaimVerdict]]) -> list[str]:
    """Write the papers' claims that are not confirmed on every data set, each as a row."""
    return claim_rows(
        [each for each in judged if not is_ours(each) and each[1].verdict != "confirmed"]
    )


def draw(cells: list[dict[str, Any]], target: Path) -> None:
    """Draw the difference of every value from the printed one in units of its margin, a row a benchmark."""
    from matplotlib.figure import Figure

    names = list(counts(cells))
    figure = Figure(figsize=(8.2, 0.34 * len(names) + 1.5), layout="constrained")
    panel = figure.subplots()
    panel.axvspan(-1, 1, color="#2a9d5c", alpha=0.1, lw=0)
    panel.axvline(0, color="#6b7480", lw=0.7)
    spread = np.random.default_rng(0)
    for group, colour in GROUPS.items():
        own = [cell for cell in cells if cell["group"] == group and cell["ours"] is not None]
        x = np.array([(cell["ours"] - cell["paper"]) / (cell["margin"] or np.nan) for cell in own])
        y = np.array([names.index(cell["benchmark"]) for cell in own]) + spread.uniform(
            -0.3, 0.3, len(own)
        )
        panel.scatter(
            np.clip(x, -REACH, REACH),
            y,
            s=11,
            color=colour,
            alpha=0.75,
            lw=0,
            label=f"{group} ({len(own)})",
        )
    panel.set_xscale("symlog", linthresh=1, linscale=1)
    panel.set_xlim(-REACH * 1.15, REACH * 1.15)
    panel.set_xticks(
        [-30, -10, -3, -1, 0, 1, 3, 10, 30],
        ["≤-30", "-10", "-3", "-1", "0", "1", "3", "10", "≥30"],
    )
    panel.minorticks_off()
    panel.set_yticks(range(len(names)), names)
    panel.set_ylim(len(names) - 0.4, -0.6)
    panel.set_xlabel("ours minus printed, in margins of equivalence")
    panel.grid(axis="x", color="#e3e7eb", lw=0.6)
    panel.set_axisbelow(True)
    panel.spines[["top", "right", "left"]].set_visible(False)
    panel.tick_params(length=0)
    figure.legend(
        loc="outside upper center",
        ncols=4,
        frameon=False,
        fontsize=8.5,
        handletextpad=0.2,
    )
    target.parent.mkdir(exist_ok=True)
    figure.savefig(target, dpi=150)


def main() -> None:
    """Draw the figure and print the counts as rows of a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, default=ROOT / "docs/images/summary.png")
    cells = values()
    draw(cells, parser.parse_args().output)
    for key in ("benchmark", "source"):
        for name, counted in counts(cells, key).items():
            numbers = [counted.total(), *(counted[group] for group in GROUPS)]
            print(f"| {name} | {' | '.join(map(str, numbers))} |")
    causes = Counter(cell["verdict"] for cell in cells if cell["group"] == "differs")
    print(dict(causes))
    printed = count_printed(cells)
    print(printed, f"repeated={printed.repeated}")
    judged = claims()
    own = [each for each in judged if is_ours(each)]
    print("\n".join(doubted(judged)), f"of {len(judged) - len(own)} claims", sep="\n")
    print("\n".join(claim_rows(own)))


if __name__ == "__main__":
    main()

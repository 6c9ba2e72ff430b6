"""Draw all printed values against ours in one figure, and count the verdicts of each benchmark.

    python scripts/summary.py  # draws docs/images/summary.png, prints the rows of the tables in
    docs/results.md

Only tables of the protocol count: under other profiles verdicts are withheld. Durations are left
out.
"""

import argparse
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

import bdl
from bdl.publishing.published_files import judge_run_claims
from bdl.reports.claims import ClaimVerdict
from bdl.reports.verdicts import WITHHELD
from bdl.spec import list_benchmarks, load_benchmark

ROOT = Path(__file__).parents[1]
GROUPS = {
    "match": "#2a9d5c",
    "better": "#2f6fde",
    "worse": "#d1495b",
    "differs": "#e08e2b",
    "print in error": "#8d6cab",
    "open": "#9aa3ad",
}
"""Verdicts and their colours; `no difference shown` and `undecided` are open."""
REACH = 30.0
"""Largest difference, in margins, that has a place of its own; beyond it points stand at the
edge.
"""


def values() -> list[dict[str, Any]]:
    """Return the cells that have a printed value and a verdict, in the order of the tables."""
    found = []
    for path in sorted(ROOT.glob("results/*/table.json")):
        for cell in json.loads(path.read_text("utf-8")):
            timed = cell["metric"] == "runtime"
            if (
                cell["paper"] is not None
                and cell["verdict"] not in (WITHHELD, "not run", "failed")
                and not timed
            ):
                found.append(
                    cell | {"group": cell["verdict"] if cell["verdict"] in GROUPS else "open"}
                )
    return found


def counts(cells: list[dict[str, Any]]) -> dict[str, Counter[str]]:
    """Count the verdicts of each benchmark."""
    found: dict[str, Counter[str]] = {}
    for cell in cells:
        found.setdefault(cell["benchmark"], Counter())[cell["group"]] += 1
    return found


def claims() -> list[tuple[str, ClaimVerdict]]:
    """Return the claims of the papers as the rows judge them, each after its benchmark."""
    runs = [
        bdl.results(name, results=ROOT / "results")
        for name, _ in list_benchmarks()
        if load_benchmark(name).claims
    ]
    return [
        (run.loaded.benchmark.name, each) for run in runs for each in judge_run_claims(run.loaded)
    ]


def doubted(judged: list[tuple[str, ClaimVerdict]]) -> list[str]:
    """Return the claims that are not confirmed on every data set, each as a row of the table."""
    return [
        f"| {each.claim.text} | [`{name}`](../results/{name}/table.md) | {each.verdict} |"
        for name, each in judged
        if each.verdict != "confirmed"
    ]


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
        ncols=len(GROUPS),
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
    for name, found in counts(cells).items():
        print(
            f"| {name} | {found.total()} | "
            + " | ".join(f"{found[group]}" for group in GROUPS)
            + " |"
        )
    print(
        f"| all | {len(cells)} | "
        + " | ".join(f"{sum(c['group'] == group for c in cells)}" for group in GROUPS)
        + " |"
    )
    judged = claims()
    print("\n".join(doubted(judged)), f"of {len(judged)} claims", sep="\n")


if __name__ == "__main__":
    main()

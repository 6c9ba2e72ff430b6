"""What the documents count and list: verdicts, claims, the fields of a benchmark file, scores of the truth."""

import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import spec_tables
import summary
import truth_scores

from bdl.plan.planning import list_tasks
from bdl.plan.reference_posteriors import find_recipe
from bdl.spec import list_benchmarks, load_benchmark, load_request

RESULTS = (Path(__file__).parents[2] / "docs/results.md").read_text("utf-8")
STALE = "docs/results.md is stale: python scripts/summary.py prints its rows"


def test_verdicts_are_those_of_the_tables(tmp_path):
    """A row a benchmark: its numbers, and those of each verdict."""
    cells = summary.values()
    summary.draw(cells, tmp_path / "summary.png")
    rows = re.findall(r"^\| \[`([\w-]+)`\][^|]*\|[^|]*((?:\| \d+ ){8})\|$", RESULTS, re.M)
    told = {name: [int(number) for number in numbers.split("|")[1:]] for name, numbers in rows}
    counted = summary.counts(cells)
    assert told == {
        name: [own.total(), *(own[group] for group in summary.GROUPS)]
        for name, own in counted.items()
    }, STALE


def test_claims_are_as_the_rows_judge_them():
    """A table of the papers' claims that are not confirmed, and one of ours."""
    judged = summary.claims()
    blocks = re.findall(r"\| Claim \|.*\n\|:.*\n((?:\|.*\n)+)", RESULTS)
    doubted, own = (block.splitlines() for block in blocks)
    assert doubted == summary.doubted(judged), STALE
    assert own == summary.claim_rows([each for each in judged if summary.is_ours(each)]), STALE
    confirmed, count = map(int, re.search(r"confirm (\d+) of (\d+) comparisons", RESULTS).groups())
    of_papers = len(judged) - len(own)
    assert (confirmed, count) == (of_papers - len(doubted), of_papers), STALE
    (not_run,) = map(
        int, re.findall(r"(\d+) more, of `blindness-detection`, have not been\stested", RESULTS)
    )
    assert not_run == len(load_benchmark("blindness-detection").claims)
    listed = sum(len(load_benchmark(name).claims) for name, _ in list_benchmarks())
    assert listed == len(judged) + not_run


def test_tables_are_those_of_the_schema_and_of_the_benchmarks():
    fields, searches = (page.read_text(encoding="utf-8") for page in spec_tables.PAGES)
    assert fields.count("<!-- fields: ") == len(spec_tables.TABLES)
    assert "<!-- searches: uci-contenders -->" in searches
    for page in (fields, searches):
        assert spec_tables.filled(page) == page, "stale: python scripts/spec_tables.py"


def test_draws_of_the_truth_that_are_zero_predict_the_mean_of_the_training_targets(monkeypatch):
    cell = list_tasks(
        load_request("network-posterior", overrides=["datasets=[gap_curve]"]).selected_benchmark
    )[0]
    theta = np.zeros((2, 3, find_recipe(cell, 0).problem.dim))
    monkeypatch.setattr(truth_scores, "load_or_sample", lambda _: SimpleNamespace(theta=theta))
    split, y, noise = cell.data.split(0), cell.data.y, cell.settings.hyper["noise_precision"]
    judged = y[split.test if len(split.test) else split.train]
    error = (judged - y[split.train].mean()) ** 2
    expected = 0.5 * np.log(2 * np.pi / noise) + noise / 2 * error.mean()
    assert truth_scores.score(cell, 0) == pytest.approx(expected, rel=1e-9)


def test_vifa_is_reproduced_as_the_page_says():
    """Every printed score of VIFA on the UCI sets, and the seeds that ours are means over."""
    cells = [
        cell
        for cell in summary.values()
        if cell["benchmark"] == "uci-regression" and cell["method"].startswith("vifa")
    ]
    text = " ".join(RESULTS.split())
    total, *seeds = map(
        int,
        re.search(
            r"none of its (\d+) scores differs .*? means over (\d+) to (\d+) seeds ", text
        ).groups(),
    )
    shares = re.search(
        r"(\d+) have the printed digits, (\d+) are equivalent, (\d+) consistent, and (\d+) is "
        "unsettled",
        text,
    ).groups()
    verdicts = [cell["verdict"] for cell in cells]
    assert total == len(cells)
    assert sorted({cell["replicates"] for cell in cells}) == seeds
    words = ["same digits", "equivalent", "consistent", "unsettled"]
    counted = [verdicts.count(word) for word in words]
    assert counted == list(map(int, shares))
    assert sum(counted) == total

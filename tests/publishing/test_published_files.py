"""Tables and figures show what rows have.

Verdicts are of the protocol, and notes of searches that ended on a bound.
"""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from tiny import EXACT, benchmark_text

from bdl.plan.planning import list_tasks
from bdl.publishing import pictures, run_figures
from bdl.publishing.run_tables import compare_with_print, narrow_benchmark, render_tables
from bdl.records.row import FitResult, Row
from bdl.records.run_folder import RunFolder
from bdl.reports.search_bounds import bound_notes
from bdl.spec import load_benchmark, load_request
from bdl.stored_results.folders import locate_folder
from bdl.stored_results.loading import NO_VERDICTS, LoadedResults, load_results

RESULTS = Path(__file__).parents[2] / "results"


def test_what_no_row_has_is_left_out():
    content = {
        "dataset": "boston",
        "entry": "vifa-nn",
        "nmll": 2.7,
        "rmse": np.nan,
        "status": "ok",
        "reason": None,
    }
    benchmark, rows = load_benchmark("uci-regression"), pd.DataFrame([content])
    shown = narrow_benchmark(benchmark, rows)
    assert (shown.datasets, tuple(shown.entries), shown.metrics) == (
        ("boston",),
        ("vifa-nn",),
        ("nmll",),
    )
    assert narrow_benchmark(benchmark, rows.assign(nmll=np.nan)).metrics == benchmark.metrics, (
        "as every trial failed"
    )


def test_figures_of_a_sweep_have_the_posteriors_of_its_store(tmp_path, monkeypatch):
    """What was asked of a benchmark before, such as one of its points, makes it no other."""
    asked = load_request(
        "uci-regression", "check", ["sweep={model.hidden: [[5], [7]]}", "splits=1"]
    )
    cells = list_tasks(asked.benchmark)
    with RunFolder(locate_folder(tmp_path, asked) / "store") as store:
        store.record_request(json.dumps(asked.dump()))
        for cell in cells:
            store.append(
                [
                    FitResult(
                        Row(*cell.key, "final", 0, 0, 0, "ok", None, {}, {"nmll": 1.0}, 1.0, {})
                    )
                ]
            )
    monkeypatch.setattr(pictures, "gather_pictures", lambda cells, store: len(cells))
    found = load_results(asked, tmp_path)
    assert run_figures.gather_stored_pictures(found, asked) == len(cells)


@pytest.mark.usefixtures("blank_figures")
@pytest.mark.parametrize("text", ['{"overlap": {"diabetes": 100.0}}', "{"])
def test_intervals_of_a_run_rest_on_its_own_splits(tmp_path, invoke, monkeypatch, text):
    """Rather than on those of the rows that were published before, which may be damaged."""
    monkeypatch.chdir(tmp_path)
    other = EXACT | {"hyper": {"prior_precision": 100, "noise_precision": 0.0003}}
    content = benchmark_text({"exact": EXACT, "other": other}, splits=3, baseline="exact")
    Path("small.yaml").write_text(content)
    drawn = []
    monkeypatch.setattr(
        "bdl.publishing.published_files.draw_figures",
        lambda figure_data, *_, pdf: drawn.append(figure_data.differences) or [],
    )
    run = ("run", "./small.yaml", "--tracking", "none")
    assert invoke(*run)[0] == 0
    Path("results/small/run.json").write_text(text)
    assert invoke(*run)[0] == 0
    assert drawn[0] == drawn[1]
    assert json.loads(Path("results/small/run.json").read_text())["overlap"]["diabetes"] < 1


LONGER = ["entries.slang.training.epochs=3"]


@pytest.mark.parametrize(
    ("options", "protocol"),
    [
        ({}, True),
        ({"splits": "0-1"}, True),
        ({"entries": ["slang"]}, True),
        ({"profile": "quick"}, False),
        ({"overrides": LONGER}, False),
        ({"overrides": LONGER, "entries": ["bbb"]}, True),
    ],
)
def test_a_part_is_the_protocol_and_what_is_changed_is_not(options, protocol):
    """An override of an entry that was not run changes nothing of what was."""
    asked = load_request("slang-uci", **options)
    scores = {"rmse": 3.0, "joint_nll": 2.5, "nmll": 2.5, "runtime": 1.0}
    place = {"dataset": asked.benchmark.datasets[0], "entry": "slang", "split": 0, "status": "ok"}
    rows = pd.DataFrame([place | scores])
    found = LoadedResults.of(RESULTS, asked, asked.benchmark, rows, rows)
    words = {
        cell.verdict
        for cell in compare_with_print(found)
        if cell.paper is not None and cell.ours is not None
    }
    assert (found.protocol, words == {"withheld"}) == (protocol, not protocol)
    assert found.banner.endswith(NO_VERDICTS) is not protocol


def test_rows_of_another_file_are_not_the_protocol():
    before, now = load_request("slang-uci"), load_request("slang-uci", overrides=LONGER).benchmark
    assert not LoadedResults.of(
        RESULTS, before, now, pd.DataFrame(), pd.DataFrame(), has_spec=False
    ).protocol


def test_the_published_table_of_a_profile_has_no_verdicts():
    text = render_tables(load_results(load_request("mnist-slang", "cpu"), RESULTS), "markdown")
    assert text.startswith("**Not the protocol: profile cpu")
    assert NO_VERDICTS in text.splitlines()[0]
    assert "| Paper ± SE |" in text
    assert not {"Verdict", "worse", "withheld"} & {
        word.strip("*") for word in text.replace("|", " ").split()
    }


SEARCH = {"sampler": "random", "trials": 2, "folds": 2, "metric": "rmse"}
RATES, PRIORS = {"low": 0.001, "high": 0.1, "scale": "log"}, {"low": 1, "high": 10}
RANGES = {
    "model": {"name": "linear"},
    "likelihood": {"name": "gaussian"},
    "method": {"name": "vifa", "latent_dim": 1},
    "training": {"epochs": 1, "batch_size": 10},
    "hyper": {"noise_precision": 1},
    "by_dataset": {"yacht": {"search": {"space": {"learning_rate": {"high": 1}}}}},
    "search": SEARCH | {"space": {"learning_rate": RATES, "prior_precision": PRIORS}},
}
GRID = {"learning_rate": [0.01, 0.1, 1], "prior_precision": [1]}
SMALL = {
    **{
        "name": "b",
        "title": "B",
        "datasets": ["energy", "yacht"],
        "splits": 3,
        "metrics": ["rmse"],
    },
    "entries": {
        "ranges": RANGES,
        "grid": RANGES
        | {
            "by_dataset": {},
            "search": {"sampler": "grid", "folds": 2, "metric": "rmse", "grid": GRID},
        },
    },
}


FOUR = "rate 0.001 (1 of 3), learning_rate 0.1 (1 of 3), prior_precision 1 (1 of 3), prior_precision 10 (1 of 3)."
TWO = "space: learning_rate 0.01 (1 of 2), learning_rate 1 (1 of 2)."


@pytest.mark.parametrize(
    ("entry", "dataset", "rates", "priors", "told"),
    [
        ("ranges", "energy", [0.1 * (1 + 1e-9), 0.0999, 0.001], [5.0, 1.0, 10.0], FOUR),
        ("ranges", "yacht", [0.1], [5.0], None),  # which has another range
        ("ranges", "yacht", [1.0], [5.0], "learning_rate 1 (1 of 1)."),
        ("grid", "energy", [0.1], [1.0], None),  # a single value is no bound
        ("grid", "energy", [1.0, 0.01], [1.0, 1.0], TWO),
        ("gone", "energy", [0.1], [1.0], None),
    ],
)
def test_searches_that_ended_on_a_bound_say_so(tmp_path, entry, dataset, rates, priors, told):
    path = tmp_path / "b.yaml"
    path.write_text(yaml.safe_dump(SMALL), "utf-8")
    columns = {
        "dataset": dataset,
        "entry": entry,
        "hyper_learning_rate": rates,
        "hyper_prior_precision": priors,
    }
    found = bound_notes(load_benchmark(str(path)), pd.DataFrame(columns))
    assert [(note.dataset, note.entry) for note in found] == ([(dataset, entry)] if told else [])
    assert not told or found[0].text.endswith(told)

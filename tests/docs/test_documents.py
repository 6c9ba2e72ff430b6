"""Documents are true: numbers of the page on speed are those of files that scripts wrote, and the tour runs."""

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SMALL = {
    "torch's Adam": "torch Adam",
    "numpyro, diagonal": "numpyro diagonal",
    "numpyro, low rank": "numpyro low rank",
}
UPDATES = 4320


def measured(name, part):
    return json.loads((ROOT / f"results/{name}.json").read_text("utf-8"))[part]


@pytest.fixture(scope="module")
def page():
    return (ROOT / "docs/speed.md").read_text("utf-8")


@pytest.fixture(scope="module")
def networks():
    return measured("bench_single", "networks")


@pytest.fixture(scope="module")
def tables(page):
    """Cells of the lines of both tables of the section, without headings."""
    section = page.partition("## One network")[2].partition("\n## ")[0]
    blocks = [block.splitlines()[2:] for block in section.split("\n\n") if block.startswith("|")]
    return [
        [[cell.strip() for cell in line.strip("|").split("|")] for line in block]
        for block in blocks
    ]


def test_one_small_network(networks, tables):
    costs = networks["13-50-1"]
    for name, us, ratio, setup, whole in tables[0]:
        method = re.fullmatch(r"`([a-z]+)`, traced; compiled", name)
        names = (
            [f"{method[1]}, traced", f"{method[1]}, compiled"]
            if method
            else [SMALL.get(name, name)]
        )
        found = [costs[each] for each in names]
        assert us == "; ".join(f"{cost['us']:.0f}" for cost in found)
        assert ratio == "; ".join(f"{cost['ratio']:.2f}" for cost in found)
        assert setup == "; ".join(
            f"{cost['setup_s']:.1f}" if cost["setup_s"] else "\u2013" for cost in found
        )
        assert whole == "; ".join(
            f"{(cost['setup_s'] or 0) + 1e-6 * UPDATES * cost['us']:.1f}" for cost in found
        )


def test_larger_networks(networks, tables):
    methods = ("adam", "bbb", "vifa", "slang", "noisy-adam", "noisy-kfac")
    for name, torch, *ratios in tables[1]:
        network, _, how = name.split(", ")
        assert torch == f"{networks[network]['torch Adam']['us'] / 1000:.2f} ms"
        names = ["IVON", "bayesian-torch", *(f"{method}, {how}" for method in methods)]
        costs = [networks[network].get(each) for each in names]
        assert ratios == [f"{cost['ratio']:.2f}" if cost else "" for cost in costs]


def missing(text, *claims):
    text = " ".join(text.split())
    return [claim for claim in claims if claim not in text]


def test_ratios_in_words(page, networks):
    us = {name: cost["us"] for name, cost in networks["13-50-1"].items()}
    ratio = {
        name.removesuffix(", compiled"): cost["ratio"]
        for name, cost in networks["784-100-10"].items()
    }
    laplace = {
        curvature: networks[f"laplace, {curvature}"]["laplace"]["ratio"]
        for curvature in ("ggn", "kronecker")
    }
    engine = measured("bench_training", "contenders")
    of = {name: cost["ratio"] for name, cost in engine.items()}
    methods = {
        name: cost["ratio"]
        for name, cost in measured("bench_methods", "methods").items()
        if name != "VIFA"
    }
    assert not missing(
        page,
        f"{us['bbb, compiled'] / us['numpyro diagonal']:.1f} times as fast as those of `bbb`",
        f"{us['vifa, compiled'] / us['numpyro low rank']:.1f} times as fast as those of `vifa`",
        f"`noisy-kfac` costs {ratio['noisy-kfac'] / ratio['adam']:.1f} times",
        f"`noisy-adam` costs {ratio['noisy-adam'] / ratio['adam']:.1f} times",
        f"{laplace['ggn']:.2f} times as long as with laplace-torch",
        f"{laplace['kronecker']:.1f} times with Kronecker",
        f"takes {engine['engine, compiled']['us']:.2f} \u00b5s per network",
        f"JAX takes {of['JAX']:.1f} times as long",
        f"the uncompiled engine {of['engine, eager']:.1f} times",
        f"loop {of['plain loop, tuned']:.0f} times and a plain one {of['plain loop']:.0f} times",
    )
    assert not missing(
        page.partition("## Methods")[2], *(f"{name} {each:.1f}" for name, each in methods.items())
    )


def test_seconds_in_words(page):
    store, h100 = measured("bench_store", "stores")[-1], measured("gpu_suite/h100", "parts")
    parts = measured("gpu_suite/cpu-64", "parts")
    s = {name: part["seconds"] for name, part in parts.items() if "seconds" in part}
    uci = [60 * part["minutes"] for name, part in h100.items() if name.startswith("uci-")]
    table, report = (store[name]["cpu_seconds"] for name in ("table", "report"))
    assert store["rows"] == 1_000_000
    assert not missing(
        page,
        f"`table` takes {table:.0f} s of CPU and `report` {report:.0f} s",
        f"takes {s['resnet-vifa']:.2f} s with VIFA in two stages, and {s['resnet-adam']:.2f} s with Adam",
        f"takes {s['mnist-bbb']:.3f} s with Bayes by Backprop, and "
        f"{s['mnist-1']:.3f}, {s['mnist-8']:.2f} and {s['mnist-32']:.2f} s with SLANG",
        f"{h100['engine']['model_minibatches_a_second']:,.0f}"[:4] + "000 model-minibatches",
        f"take {min(uci):.1f} to {max(uci):.1f} s",
        f"takes {1000 * h100['mnist-bbb']['seconds']:.1f} ms",
    )


def test_estimators_compared():
    page = (ROOT / "docs/api.md").read_text("utf-8").partition("### Compared")[2]
    heading, _, *lines = [line for line in page.splitlines() if line.startswith("|")]
    methods = [cell.strip() for cell in heading.strip("|").split("|")][1:]
    scores = measured("bench_estimators", "scores")
    expected: dict[str, list[str]] = {}
    for entry in scores:
        cells = expected.setdefault(entry["dataset"], [])
        assert entry["method"] == methods[len(cells)]
        cells.append(f"{entry['rmse']:.2f}; {entry['coverage']:.2f}")
    expected["seconds"] = []
    for method in methods:
        seconds = [entry["seconds"] for entry in scores if entry["method"] == method]
        expected["seconds"].append(f"{sum(seconds) / len(seconds):.1f}")
    printed = {}
    for line in lines:
        name, *cells = [cell.strip() for cell in line.strip("|").split("|")]
        printed[name] = cells
    assert printed == expected
    settings = measured("bench_estimators", "settings")
    assert not missing(page, f"{settings['rows']} random rows", f"{settings['splits']} splits")


@pytest.mark.slow  # a kernel that runs a benchmark
def test_the_tour_runs_as_it_stands(tmp_path, monkeypatch):
    client = pytest.importorskip("nbclient", reason="comes with the extra test")
    import nbformat

    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    printed, notebook = (nbformat.read(ROOT / "docs/tour.ipynb", as_version=4) for _ in range(2))
    client.NotebookClient(
        notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    before, after = (
        [out for cell in own.cells for out in cell.get("outputs", ())]
        for own in (printed, notebook)
    )
    assert [sum("image/png" in out.get("data", {}) for out in own) for own in (before, after)] == [
        2,
        2,
    ]
    (line,) = (
        out.text for out in after if out.output_type == "stream" and "in the table" in out.text
    )
    here, stored = re.findall(r"\d+\.\d+", line)
    assert here == stored
    assert (tmp_path / "tour-results").is_dir()

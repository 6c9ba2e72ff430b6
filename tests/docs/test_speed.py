"""Numbers of the page on speed are those of the files that the scripts wrote."""

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SMALL = {"torch's Adam": "torch Adam", "numpyro, diagonal": "numpyro diagonal", "numpyro, low rank": "numpyro low rank"}
UPDATES = 4320


@pytest.fixture(scope="module")
def networks():
    return json.loads((ROOT / "results/bench_single.json").read_text("utf-8"))["networks"]


@pytest.fixture(scope="module")
def tables():
    """Cells of the lines of both tables of the section, without headings."""
    page = (ROOT / "docs/speed.md").read_text("utf-8")
    section = page.partition("## One network")[2].partition("\n## ")[0]
    blocks = [block.splitlines()[2:] for block in section.split("\n\n") if block.startswith("|")]
    return [[[cell.strip() for cell in line.strip("|").split("|")] for line in block] for block in blocks]


def test_one_small_network(networks, tables):
    costs = networks["13-50-1"]
    for name, us, ratio, setup, whole in tables[0]:
        method = re.fullmatch(r"`([a-z]+)`, traced; compiled", name)
        names = [f"{method[1]}, traced", f"{method[1]}, compiled"] if method else [SMALL.get(name, name)]
        found = [costs[each] for each in names]
        assert us == "; ".join(f"{cost['us']:.0f}" for cost in found)
        assert ratio == "; ".join(f"{cost['ratio']:.2f}" for cost in found)
        assert setup == "; ".join(f"{cost['setup_s']:.1f}" if cost["setup_s"] else "\u2013" for cost in found)
        assert whole == "; ".join(f"{(cost['setup_s'] or 0) + 1e-6 * UPDATES * cost['us']:.1f}" for cost in found)


def test_ratios_in_words(networks):
    text = " ".join((ROOT / "docs/speed.md").read_text("utf-8").split())
    small, medium = networks["13-50-1"], networks["784-100-10"]
    bbb, vifa = (small[f"{name}, compiled"]["us"] for name in ("bbb", "vifa"))
    assert f"{bbb / small['numpyro diagonal']['us']:.1f} times as fast as those of `bbb`" in text
    assert f"{vifa / small['numpyro low rank']['us']:.1f} times as fast as those of `vifa`" in text
    kfac, noisy, adam = (medium[f"{name}, compiled"]["ratio"] for name in ("noisy-kfac", "noisy-adam", "adam"))
    assert f"`noisy-kfac` costs {kfac / adam:.1f} times" in text
    assert f"`noisy-adam` costs {noisy / adam:.1f} times" in text
    ggn, kronecker = (networks[f"laplace, {curvature}"]["laplace"]["ratio"] for curvature in ("ggn", "kronecker"))
    assert f"{ggn:.2f} times as long as with laplace-torch" in text
    assert f"{kronecker:.1f} times with Kronecker" in text


def test_methods():
    costs = json.loads((ROOT / "results/bench_methods.json").read_text("utf-8"))["methods"]
    text = " ".join((ROOT / "docs/speed.md").read_text("utf-8").partition("## Methods")[2].split())
    for name, cost in costs.items():
        assert name == "VIFA" or f"{name} {cost['ratio']:.1f}" in text


def test_deep_networks():
    parts = json.loads((ROOT / "results/gpu_suite/cpu-64.json").read_text("utf-8"))["parts"]
    text = " ".join((ROOT / "docs/speed.md").read_text("utf-8").partition("Deep networks")[2].split())
    seconds = {name: part["seconds"] for name, part in parts.items() if "seconds" in part}
    vifa, adam = seconds["resnet-vifa"], seconds["resnet-adam"]
    assert f"takes {vifa:.2f} s with VIFA in two stages, and {adam:.2f} s with Adam" in text
    slang = f"{seconds['mnist-1']:.3f}, {seconds['mnist-8']:.2f} and {seconds['mnist-32']:.2f} s with SLANG"
    assert f"takes {seconds['mnist-bbb']:.3f} s with Bayes by Backprop, and {slang}" in text


def test_large_stores():
    stores = json.loads((ROOT / "results/bench_store.json").read_text("utf-8"))["stores"]
    text = " ".join((ROOT / "docs/speed.md").read_text("utf-8").split())
    largest = stores[-1]
    assert largest["rows"] == 1_000_000
    table, report = (largest[name]["cpu_seconds"] for name in ("table", "report"))
    assert f"`table` takes {table:.0f} s of CPU and `report` {report:.0f} s" in text


def test_larger_networks(networks, tables):
    methods = ("adam", "bbb", "vifa", "slang", "noisy-adam", "noisy-kfac")
    peers = ("IVON", "bayesian-torch")
    for name, torch, *ratios in tables[1]:
        network, _, how = name.split(", ")
        assert torch == f"{networks[network]['torch Adam']['us'] / 1000:.2f} ms"
        names = [*peers, *(f"{method}, {how}" for method in methods)]
        costs = [networks[network].get(each) for each in names]
        assert ratios == [f"{cost['ratio']:.2f}" if cost else "" for cost in costs]


def test_on_a_gpu():
    parts = json.loads((ROOT / "results/gpu_suite/h100.json").read_text("utf-8"))["parts"]
    text = " ".join((ROOT / "docs/speed.md").read_text("utf-8").partition("## On a GPU")[2].split())
    minutes = [part["minutes"] for name, part in parts.items() if name.startswith("uci-")]
    assert f"{parts['engine']['model_minibatches_a_second']:,.0f}"[:4] + "000 model-minibatches" in text
    assert f"take {60 * min(minutes):.1f} to {60 * max(minutes):.1f} s" in text
    assert f"takes {1000 * parts['mnist-bbb']['seconds']:.1f} ms" in text


def test_many_networks():
    costs = json.loads((ROOT / "results/bench_training.json").read_text("utf-8"))["contenders"]
    text = " ".join((ROOT / "docs/speed.md").read_text("utf-8").partition("\n## ")[0].split())
    assert f"takes {costs['engine, compiled']['us']:.2f} \u00b5s per network" in text
    ratio = {name: cost["ratio"] for name, cost in costs.items()}
    assert f"JAX takes {ratio['JAX']:.1f} times as long" in text
    assert f"the uncompiled engine {ratio['engine, eager']:.1f} times" in text
    assert f"loop {ratio['plain loop, tuned']:.0f} times and a plain one {ratio['plain loop']:.0f} times" in text

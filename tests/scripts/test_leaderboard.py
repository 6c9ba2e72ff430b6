"""What the leaderboard says of methods, beside the built pages, which the tests of the site look at."""

import json
import subprocess
from importlib import import_module
from inspect import isabstract
from pathlib import Path

import pytest
from leaderboard import BOARDS, FAMILIES, data, family
from leaderboard_runs import handed_in, rows_by_split

from bdl.api import benchmark as opened
from bdl.methods import METHODS
from bdl.methods.guest import Guest
from bdl.publishing.submitting import submit
from bdl.spec import list_benchmarks, load_variant

GUESTS = Path(__file__).parents[2] / "bdl/guests"


def guests():
    """Classes of guests, without importing the libraries that they are of."""
    for path in GUESTS.glob("[!_]*.py"):
        module = import_module(f"bdl.guests.{path.stem}")
        yield from (
            name
            for name, one in vars(module).items()
            if isinstance(one, type)
            and issubclass(one, Guest)
            and not isabstract(one)
            and not name.startswith("_")
        )


@pytest.mark.parametrize("method", [*METHODS.builtin, *guests()])
def test_every_method_has_one_family(method):
    assert family(method) in FAMILIES
    assert sum(method in names.split() for names in FAMILIES.values()) == 1


def test_a_benchmark_stands_on_one_page_at_most():
    specs = {name: load_variant(name).benchmark for name, _ in list_benchmarks()}
    stands = {
        page: {name for name in specs if board.belongs(specs[name])}
        for page, board in BOARDS.items()
    }
    assert {
        "uci-regression",
        "uci-gap",
        "slang-uci",
        "slang-online-eig-uci",
        "noisy-wine-splits",
    } < stands["uci"]
    assert {"uci-linear-posterior", "posterior-methods", "network-posterior"} < stands[
        "posteriors"
    ]
    assert {"noisy-mnist", "mnist-slang", "mnist-priors", "blindness-detection"} < stands["images"]
    assert sum(map(len, stands.values())) == len(set().union(*stands.values()))


SPEC = """
name: tiny
title: A tiny benchmark
datasets: [yacht]
splits: 3
entries:
  gp: {method: {name: "bdl.guests.bayesian_ridge:BayesianRidge"}}
  vifa:
    model: {name: linear}
    likelihood: {name: gaussian}
    method: {name: vifa}
    training: {epochs: 1, batch_size: 10}
    search: {trials: 2, folds: 3, metric: nmll, space: {learning_rate: {low: 0.1, high: 0.2}}}
    hyper: {prior_precision: 1, noise_precision: 1}
metrics: [nmll, rmse, runtime]
"""


@pytest.fixture(scope="module")
def handed(tmp_path_factory):
    """A repository with a bundle, whose spec was committed before it, and the results that it is of."""
    folder = tmp_path_factory.mktemp("repository")
    place = folder / "submissions"
    place.mkdir()
    (place / "tiny.yaml").write_text(SPEC, "utf-8")
    git = ("git", "-C", folder, "-c", "user.name=a", "-c", "user.email=a@b.c")
    for words in (("init", "-q"), ("add", "."), ("commit", "-q", "-m", "a spec", "--no-gpg-sign")):
        subprocess.run([*git, *words], check=True)
    opened(place / "tiny.yaml").run(results=folder / "results", compile=False)
    submit(load_variant(str(place / "tiny.yaml")), folder / "results", place / "made.zip")
    return folder


@pytest.mark.usefixtures("blank_figures")
def test_bundles_have_rows_with_their_marks(handed):
    (run,) = handed_in(handed / "submissions", [])
    cells = {
        cell["method"]: cell
        for cell in data(BOARDS["uci"], [run])["cells"]
        if cell["origin"] != "printed elsewhere"
    }
    table = json.loads((handed / "results/tiny/table.json").read_text("utf-8"))
    for row in table:
        score = cells[row["method"]]["scores"][row["metric"]]
        assert score[0 if row["statistic"] == "mean" else 2] == pytest.approx(
            row["ours"], rel=1e-8
        )
    head = subprocess.run(
        ["git", "-C", handed, "rev-parse", "HEAD"], capture_output=True, text=True, check=True
    ).stdout
    assert {cell["origin"] for cell in cells.values()} == {"self-reported"}
    assert {cell["registered"] for cell in cells.values()} == {head.strip()}
    assert [cells[name]["search"] for name in ("gp", "vifa")] == [[0, 0], [2, 3]]
    assert [cells[name]["family"] for name in ("gp", "vifa")] == ["exact, truth", "variational"]
    assert run.command == "bdl-bench run submissions/tiny.yaml"
    assert (
        run.files["leaderboard/rows/submissions-made.zip"]
        == (handed / "submissions/made.zip").read_bytes()
    )
    assert {*run.links.values()} == {*run.files}
    assert (
        next(path for _, path, _ in rows_by_split(run)) == "leaderboard/rows/submissions-made.csv"
    )


def test_a_bundle_is_reproduced_by_published_rows_of_the_same_fits(handed):
    (run,) = handed_in(handed / "submissions", [])

    def origins(ours):
        (found,) = handed_in(handed / "submissions", [ours._replace(overlap={})])
        return {*found.origins.values()}

    shifted = run.found.rows.assign(
        nmll=run.found.rows["nmll"] + 1 + 0.01 * run.found.rows["split"]
    )
    assert origins(run) == {"reproduced"}
    assert origins(run._replace(found=run.found._replace(rows=shifted))) == {"self-reported"}
    fewer = run.found.rows[run.found.rows["split"] > 0]
    assert origins(run._replace(found=run.found._replace(rows=fewer))) == {"self-reported"}
    assert origins(run._replace(hashes={})) == {"self-reported"}

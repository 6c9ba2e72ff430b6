"""Which cells a plan has, and what it refuses before anything is written."""

import pickle
import re
import subprocess
import sys
from collections import Counter

import pytest
import yaml

from bdl import registry
from bdl.data.streams import Stream
from bdl.errors import InputError
from bdl.plan import fit_hash, initial_check
from bdl.plan.planning import cells_of, first_of, plan
from bdl.plan.programs import compiles, final_fitting, minibatches, remaining_work, unit, updates, width
from bdl.plan.truths import truth
from bdl.spec import Point, load_benchmark

PARTS = """
from dataclasses import dataclass

import numpy as np
import torch

from bdl.data import Dataset
from bdl.references.base import Truth


def three():
    x = np.random.default_rng(0).normal(size=(90, 2))
    return Dataset("three", x, np.arange(90.0) % 3, "classification")


@dataclass(frozen=True)
class Far:
    estimates = ()

    def check(self, problem):
        pass

    def fit(self, problem, x, y, hyper):
        return Truth(torch.ones(problem.dim).double(), torch.eye(problem.dim).double(), {})
"""

VIFA = {
    "model": {"name": "linear"},
    "method": {"name": "vifa"},
    "training": {"epochs": 2, "batch_size": 10},
}
RATES = {"learning_rate": 0.01, "prior_precision": 1}
LABEL = "parts_three"
"""What a benchmark calls the function `three` of the file parts.py."""


@pytest.fixture
def three(tmp_path):
    (tmp_path / "parts.py").write_text(PARTS)
    return f"{tmp_path}/parts.py:three"


@pytest.fixture
def load(tmp_path, three):
    """Load a benchmark of a classification and a regression, with changes: (dotted path, value)."""

    def read(*changes):
        far = {"reference": {"name": three.replace(":three", ":Far")}}
        classes = {"likelihood": {"name": "categorical"}, "hyper": RATES, "datasets": [LABEL]}
        numbers = {"likelihood": {"name": "gaussian"}, "hyper": {**RATES, "noise_precision": 0.1}}
        content = {
            "name": "labels",
            "title": "Labels",
            "datasets": [three, "diabetes"],
            "splits": 2,
            "entries": {"classes": VIFA | far | classes, "numbers": VIFA | far | numbers | {"datasets": ["diabetes"]}},
            "metrics": ["rel_mean_dist"],
        }
        for path, value in changes:
            *parents, last = path.split(".")
            place = content
            for key in parents:
                place = place.setdefault(key, {})
            place[last] = value
        (tmp_path / "labels.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
        return load_benchmark(str(tmp_path / "labels.yaml"))

    return read


def test_entries_run_on_their_own_data_sets_only(load):
    cells = plan(load(), splits=[0, 1])
    assert [(cell.dataset, cell.entry) for cell in cells] == [(LABEL, "classes"), ("diabetes", "numbers")]


def test_outputs_are_counted_by_the_classes_of_the_data(load):
    """A linear model of two inputs and three classes has 3 (2 + 1) parameters, and such a cell can be fitted."""
    (cell,) = plan(load().select([LABEL]), splits=[0], compile=False)
    assert (cell.problem.d_out, cell.problem.dim) == (3, 9)
    fitting = final_fitting([(cell, 0)], [RATES], compile=False)
    (end,) = fitting.run()
    assert fitting.posterior(end, 0).mean().shape == truth(cell, 0).mean.shape == (9,)


SPACE = {"learning_rate": {"low": 1, "high": 2}, "prior_precision": {"low": 1, "high": 2}}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"entries.classes.likelihood": {"name": "bernoulli"}},
            "entries.classes.likelihood: 'bernoulli' does not fit dataset 'THREE', which has 3 classes; "
            "use categorical",
        ),
        (
            {"entries.numbers.datasets": []},
            "entries.numbers.likelihood: 'gaussian' does not fit dataset 'THREE', which has 3 classes; use categorical",
        ),
        (
            {"entries.classes.datasets": []},
            "entries.classes.likelihood: 'categorical' does not fit dataset 'diabetes', which is a regression; "
            "use gaussian",
        ),
        (
            {"metrics": ["rmse", "nmll"]},
            "metrics: 'rmse' scores a regression, and dataset 'THREE' is a classification; use another metric",
        ),
        (
            {
                "entries.classes.hyper": {},
                "entries.classes.search": {"trials": 2, "folds": 2, "metric": "nmll", "space": SPACE},
            },
            "entries.classes.search.metric: 'nmll' scores a regression, and dataset 'THREE' is a classification; "
            "use another metric",
        ),
        (
            {
                "datasets": ["synthetic_logistic", "diabetes"],
                "entries.classes.datasets": ["synthetic_logistic"],
                "metrics": ["rel_mean_dist", "nll"],
            },
            "metrics: 'nll' scores predictions, and dataset 'synthetic_logistic' has no test rows; use metrics of the "
            "posterior",
        ),
        (
            {"preparation.rows": {"diabetes": 399}},
            "preparation.rows: split 0 of dataset 'diabetes' has 398 training rows, so 399 cannot be kept; "
            "choose at most 398",
        ),
        (
            {
                "preparation.rows": {"diabetes": 399},
                "entries.numbers.method": {"name": "conjugate"},
                "entries.numbers.training": None,
                "entries.numbers.hyper": {"prior_precision": 1, "noise_precision": 1},
            },
            "preparation.rows: split 0 of dataset 'diabetes' has 398 training rows, so 399 cannot be kept; "
            "choose at most 398",
        ),
    ],
)
def test_refusals(load, changes, message):
    with pytest.raises(InputError) as caught:
        plan(load(*changes.items()), splits=[0])
    assert str(caught.value) == message.replace("THREE", LABEL)


DROPOUT = {"name": "mc-dropout"}
FIXED = {**RATES, "noise_precision": 0.1, "dropout_rate": 1.0}


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"hyper": FIXED}, "hyper.dropout_rate: 1"),
        (
            {"hyper": FIXED | {"dropout_rate": 0.1}, "by_dataset": {"diabetes": {"hyper": {"dropout_rate": 1.5}}}},
            "hyper.dropout_rate: 1.5",
        ),
        (
            {
                "hyper": {name: value for name, value in FIXED.items() if name != "dropout_rate"},
                "search": {
                    "trials": 2,
                    "folds": 2,
                    "metric": "joint_nll",
                    "space": {"dropout_rate": {"low": 0, "high": 1}},
                },
            },
            "search.space.dropout_rate.high: 1",
        ),
    ],
)
def test_a_dropout_rate_is_below_one(load, changes, place):
    changes = {f"entries.numbers.{name}": value for name, value in {"method": DROPOUT, **changes}.items()}
    benchmark = load(*changes.items()).select(["diabetes"])
    with pytest.raises(InputError) as caught:
        plan(benchmark, splits=[0])
    assert str(caught.value) == f"entries.numbers.{place} is too large; choose a value below 1"


NOISY = {"learning_rate": 0.01, "prior_precision": 1.0, "noise_precision": 0.1}


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"hyper": NOISY | {"kl_weight": 0.0}}, "hyper.kl_weight: 0"),
        (
            {
                "hyper": NOISY,
                "search": {
                    "trials": 2,
                    "folds": 2,
                    "metric": "joint_nll",
                    "space": {"kl_weight": {"low": 0, "high": 1}},
                },
            },
            "search.space.kl_weight.low: 0",
        ),
    ],
)
def test_the_weight_of_the_divergence_is_above_zero(load, changes, place):
    changes = {
        f"entries.numbers.{name}": value for name, value in {"method": {"name": "noisy-adam"}, **changes}.items()
    }
    with pytest.raises(InputError) as caught:
        plan(load(*changes.items()).select(["diabetes"]), splits=[0])
    assert str(caught.value) == f"entries.numbers.{place} is too small; choose a value above 0"


def test_a_dropout_rate_is_not_negative(load):
    changes = {"entries.numbers.method": DROPOUT, "entries.numbers.hyper": FIXED | {"dropout_rate": -0.1}}
    with pytest.raises(InputError, match=r"entries.numbers.hyper.dropout_rate.*greater than or equal to 0"):
        load(*changes.items())


@pytest.mark.parametrize(("likelihood", "outputs"), [("bernoulli", 1), ("categorical", 2)])
def test_two_classes_take_either_likelihood_of_labels(load, likelihood, outputs):
    changes = {
        "datasets": ["synthetic_logistic", "diabetes"],
        "entries.classes.datasets": ["synthetic_logistic"],
        "entries.classes.likelihood": {"name": likelihood},
    }
    cell, _ = plan(load(*changes.items()), splits=[0])
    assert cell.problem.d_out == outputs
    with pytest.raises(InputError, match=r"'gaussian' does not fit .* 2 classes; use bernoulli or categorical"):
        plan(load(*changes.items(), ("entries.numbers.datasets", [])), splits=[0])


def test_rows_and_the_first_split_reach_the_data(load):
    few = ("preparation", {"split": "first", "rows": {"diabetes": 40}})
    (cell,) = plan(load(few).select(["diabetes"]), splits=[0, 5])
    (whole,) = plan(load().select(["diabetes"]), splits=[0])
    for split in (0, 5):
        assert cell.data.split(split).train.tolist() == whole.data.split(0).train[:40].tolist()
    assert fit_hash(cell) != fit_hash(whole)


def test_a_data_set_may_have_fewer_splits_than_others(load):
    fewer = load(("preparation", {"splits": {"diabetes": 1}}))
    assert [cell.splits for cell in cells_of(fewer)] == [(0, 1), (0,)]
    assert [(cell.dataset, cell.splits) for cell in plan(fewer, splits=[0, 1])] == [(LABEL, (0, 1)), ("diabetes", (0,))]
    assert [(cell.dataset, cell.splits) for cell in plan(fewer, splits=[1])] == [(LABEL, (1,))]
    with pytest.raises(InputError, match="no data set that is chosen has a split 1: choose a smaller number"):
        plan(fewer.select(["diabetes"]), splits=[1])
    (one,), (all_of_it,) = cells_of(fewer.select(["diabetes"])), cells_of(load().select(["diabetes"]))
    assert fit_hash(one) == fit_hash(all_of_it)
    assert fewer.content_hash != load().content_hash
    with pytest.raises(InputError, match=r"preparation.splits.diabetic"):
        load(("preparation", {"splits": {"diabetic": 1}}))


SWEEP = {"training.epochs": [1, 3], "preparation.rows": [40, 50]}


def test_each_point_of_a_sweep_is_a_cell_of_its_own(load):
    cells = plan(load(("sweep", SWEEP)), splits=[1])
    points = [(1, 40), (1, 50), (3, 40), (3, 50)]
    assert [(cell.dataset, cell.entry, *cell.point.values()) for cell in cells] == [
        *((LABEL, "classes", *values) for values in points),
        *(("diabetes", "numbers", *values) for values in points),
    ]
    assert cells[1].key == (LABEL, "classes", '{"preparation.rows":50,"training.epochs":1}')
    assert cells[1].label.endswith('/classes {"preparation.rows":50,"training.epochs":1}')
    for cell, (epochs, rows) in zip(cells, points * 2, strict=True):
        assert cell.settings.training.epochs == epochs
        assert len(cell.data.split(1).train) == rows
        assert cell.splits == (1,)
    assert len({fit_hash(cell) for cell in cells}) == len({cell.identity for cell in cells}) == len(cells)


def test_without_a_sweep_a_trial_is_called_as_it_was_before_there_were_any(load):
    (cell,) = plan(load().select(["diabetes"]), splits=[0])
    assert cell.identity == (0, "labels", "diabetes", "numbers")
    assert (cell.key, cell.label) == (("diabetes", "numbers", "{}"), "diabetes/numbers")


def test_the_same_settings_at_a_point_and_without_a_sweep_decide_the_same(load):
    """All but the name of the trial: the hash is that of what is fitted."""
    changes = ("entries.numbers.training", {"epochs": 3, "batch_size": 10})
    (plain,) = plan(load(changes).select(["diabetes"]), splits=[0])
    swept = plan(load(("sweep", {"training.epochs": [1, 3]})).select(["diabetes"]), splits=[0])
    assert [fit_hash(cell) == fit_hash(plain) for cell in swept] == [False, True]
    assert swept[1].identity == (*plain.identity, '{"training.epochs":3}')


def test_a_data_set_may_have_other_settings_at_each_point(load):
    """Under one label: its data are told apart."""
    streams = load_benchmark("online-fa", "quick", ["sweep={dataset.top: [1, 1000]}"]).select([], ["online-em"])
    low, high = plan(streams, splits=[0])
    assert (low.dataset, low.point) == (high.dataset, Point({"dataset.top": 1}))
    assert (low.stream.top, high.stream.top) == (1, 1000)
    assert fit_hash(low) != fit_hash(high)


def test_cells_are_sent_to_other_processes_without_their_data(load):
    cells = cells_of(load(("sweep", SWEEP)))
    for cell in cells:
        assert cell.problem.dim == 9 or cell.entry == "numbers"
        text = pickle.dumps(cell)
        assert len(text) < 20_000
        back = pickle.loads(text)
        assert (back.key, back.identity, back.splits, back.label) == (cell.key, cell.identity, (0, 1), cell.label)
        assert fit_hash(back) == fit_hash(cell)
        assert back.data.checksum == cell.data.checksum


def test_work_is_counted_in_minibatches_and_the_time_that_one_takes(load):
    """398 rows make 39 minibatches an epoch, of which an update takes four; 48 normals for 11 parameters."""
    (cell,) = plan(load().select(["diabetes"]), splits=[0])
    assert minibatches(cell, "final") == 2 * 39 // 4 * 4
    assert minibatches(cell, "final") == updates(cell, 398) * 4
    assert remaining_work(cell, 0, 2) == 2 * unit(cell, "final") * minibatches(cell, "final")
    assert remaining_work(cell, 3, 0) == 3 * unit(cell, "search") * minibatches(cell, "search")
    at_once, updated = width(cell, "final"), 0.45e-3 + 25e-9 * width(cell, "final") * 48
    assert not compiles(cell, "final")
    assert unit(cell, "final") == pytest.approx(1e9 * updated / at_once / 4, abs=1)


GRID = """
name: grid
title: Many cells of few components
datasets: [diabetes]
splits: 1
sweep: {{hyper.prior_precision: {values}}}
entries:
  one: &one
    model: {{name: linear}}
    likelihood: {{name: gaussian}}
    method: {{name: vifa}}
    training: {{epochs: 1, batch_size: 50}}
    hyper: {{learning_rate: 0.01, prior_precision: 1, noise_precision: 0.001}}
  two: {{<<: *one, method: {{name: bbb}}}}
metrics: [nmll]
"""


def counts(tmp_path, monkeypatch, points: int) -> Counter[str]:
    """Count what the plan of a sweep of so many points makes."""
    found: Counter[str] = Counter()

    def counted(module, name):
        before = getattr(module, name)

        def count(*given, **more):
            found[name] += 1
            return before(*given, **more)

        monkeypatch.setattr(module, name, count)

    (tmp_path / "grid.yaml").write_text(GRID.format(values=list(range(1, points + 1))))
    registry._made.cache_clear()
    initial_check._shaped.cache_clear()
    with monkeypatch.context():
        counted(initial_check, "initial_state")
        cells = plan(load_benchmark(str(tmp_path / "grid.yaml")), splits=[0])
        initial_check.check(cells)
    assert len(cells) == 2 * points
    return found | Counter(made=registry._made.cache_info().misses, shaped=initial_check._shaped.cache_info().misses)


def test_many_cells_are_planned_from_few_components(tmp_path, monkeypatch):
    """A component is made once, a state counted once, and starts that are alike are looked at together."""
    few, many = (counts(tmp_path, monkeypatch, points) for points in (2, 30))
    assert few == many
    assert many["shaped"] == many["initial_state"] == 2


@pytest.mark.parametrize("method", ["vifa", "swag", "slang", "bbb", "natural-gradient"])
def test_a_state_that_is_made_is_as_large_as_its_shapes_say(monkeypatch, method):
    benchmark = load_benchmark("uci-regression", overrides=[f"entries.vifa-nn.method={{name: {method}}}"])
    (cell,) = (cell for cell, _ in first_of(benchmark.select(["boston"], ["vifa-nn"]), [0]))
    initial_check._shaped.cache_clear()
    made = initial_check.posterior_size(cell)
    monkeypatch.setattr(initial_check, "_SMALL", -1)
    initial_check._shaped.cache_clear()
    assert initial_check.posterior_size(cell) == made > 4 * cell.problem.dim


def test_a_plan_of_small_states_leaves_the_compiler_alone():
    """PyTorch's compiler takes a second to import."""
    code = (
        "import sys; from bdl.plan.planning import plan; from bdl.spec import load_benchmark;"
        "plan(load_benchmark('uci-regression', 'quick').select(['diabetes']), splits=[0]);"
        "sys.exit('torch._dynamo' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_stream_is_checked_without_its_model(monkeypatch):
    """A model takes 0.2 s with 1000 parameters, and a plan has one for each split of each cell."""
    monkeypatch.setattr(Stream, "model", None)
    assert len(plan(load_benchmark("online-fa").select(["fa_1000_10"]), splits=range(10))) == 6


SPIKES = """
name: spikes
title: A prior with a share
datasets: [diabetes]
splits: 1
entries:
  own:
    model: {{name: linear}}
    likelihood: {{name: gaussian}}
    prior: {{name: spike-slab}}
    method: {{name: bbb}}
    training: {{epochs: 1, batch_size: 50}}
    hyper: {{learning_rate: 0.01, slab_share: {share}, slab_scale: 1, spike_scale: 0.1, noise_precision: {noise}}}
metrics: [nmll]
"""


@pytest.mark.parametrize(
    ("share", "noise", "message"),
    [
        (5, 0.001, "entries.own.hyper.slab_share: 5 is too large; choose a value below 1"),
        (1, 0.001, "entries.own.hyper.slab_share: 1 is too large; choose a value below 1"),
        (0, 0.001, "entries.own.hyper.slab_share: 0 is too small; choose a value above 0"),
        (0.5, 0, "entries.own.hyper.noise_precision: 0 is too small; choose a value above 0"),
    ],
)
def test_limits_of_priors_and_likelihoods_are_heeded(tmp_path, share, noise, message):
    (tmp_path / "spikes.yaml").write_text(SPIKES.format(share=share, noise=noise))
    with pytest.raises(InputError, match=re.escape(message)):
        plan(load_benchmark(str(tmp_path / "spikes.yaml")), splits=[0])

"""Which cells a plan has, and what it refuses before anything is written."""

import pickle
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest

from bdl import registry
from bdl.data.streams import Stream
from bdl.errors import InputError
from bdl.plan import cost, initial_check
from bdl.plan.cost import estimate_batch_work, estimate_work
from bdl.plan.fittings import build_final_fitting
from bdl.plan.planning import list_first_splits, list_tasks, plan_tasks
from bdl.plan.reference_posteriors import compute_truth, load_training_data
from bdl.plan.task_checks import check_task
from bdl.plan.workload import count_fits_per_batch, count_stage_updates, is_stage_compiled
from bdl.spec import SweepPoint, load_benchmark

from .conftest import LABEL, RATES, VIFA


def test_outputs_are_counted_by_the_classes_of_the_data(load):
    """A linear model of two inputs and three classes has 3 (2 + 1) parameters, and such a cell can be fitted."""
    (cell,) = plan_tasks(load().select([LABEL]), splits=[0], compile=False)
    assert (cell.problem.d_out, cell.problem.dim) == (3, 9)
    fitting = build_final_fitting([(cell, 0)], [RATES], compile=False)
    (end,) = fitting.run()
    assert fitting.posterior(end, 0).mean().shape == compute_truth(cell, 0).mean.shape == (9,)


def searched(metric, **space):
    """A search of a range of each hyper-parameter."""
    ranges = {name: {"low": low, "high": high} for name, (low, high) in space.items()}
    return {"trials": 2, "folds": 2, "metric": metric, "space": ranges}


NUMBERS = {**RATES, "noise_precision": 0.1}
CONJUGATE = {
    "entries.numbers.method": {"name": "conjugate"},
    "entries.numbers.training": None,
    "entries.numbers.hyper": {"prior_precision": 1, "noise_precision": 1},
}
TOO_MANY = (
    "preparation.rows: split 0 of dataset 'diabetes' has 398 training rows, so 399 cannot be kept; "
    "choose at most 398"
)


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
                "entries.classes.hyper": {"prior_precision": 1},
                "entries.classes.search": searched("nmll", learning_rate=(1, 2)),
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
            {
                "datasets": ["synthetic_logistic", "diabetes"],
                "entries.classes.datasets": ["synthetic_logistic"],
                "metrics": ["rel_mean_dist", "function_w2"],
            },
            "metrics: 'function_w2' scores distances of functions, and dataset 'synthetic_logistic' has no test rows; "
            "use metrics of the posterior",
        ),
        (
            {
                "entries.classes.datasets": [],
                "entries.classes.likelihood": {"name": "gaussian"},
                "entries.classes.hyper": NUMBERS,
                "datasets": ["diabetes"],
                "metrics": [{"name": "rmse", "standardised": True, "label": "rmse_standardised"}],
                "preparation.standardise": "inputs",
            },
            "metrics: 'rmse_standardised' is in standard deviations of the target, which stays as it is: use "
            "preparation.standardise: both, or leave out standardised",
        ),
        ({"preparation.rows": {"diabetes": 399}}, TOO_MANY),
        ({"preparation.rows": {"diabetes": 399}, **CONJUGATE}, TOO_MANY),
    ],
)
def test_what_does_not_fit_the_data_is_refused(load, changes, message):
    with pytest.raises(InputError) as caught:
        plan_tasks(load(*changes.items()), splits=[0])
    assert str(caught.value) == message.replace("THREE", LABEL)


DROPOUT = {"method": {"name": "mc-dropout"}}
NOISY_ADAM = {"method": {"name": "noisy-adam"}}
SPIKES = {"method": {"name": "bbb"}, "prior": {"name": "spike-slab"}}
SPIKY = {
    "learning_rate": 0.01,
    "slab_share": 0.5,
    "slab_scale": 1,
    "spike_scale": 0.1,
    "noise_precision": 0.001,
}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            DROPOUT | {"hyper": NUMBERS | {"dropout_rate": 1}},
            "hyper.dropout_rate: 1 is too large; choose a value below 1",
        ),
        (
            DROPOUT
            | {
                "hyper": NUMBERS | {"dropout_rate": 0.1},
                "by_dataset": {"diabetes": {"hyper": {"dropout_rate": 1.5}}},
            },
            "hyper.dropout_rate: 1.5 is too large; choose a value below 1",
        ),
        (
            DROPOUT | {"hyper": NUMBERS, "search": searched("joint_nll", dropout_rate=(0, 1))},
            "search.space.dropout_rate.high: 1 is too large; choose a value below 1",
        ),
        (
            NOISY_ADAM | {"hyper": NUMBERS | {"kl_weight": 0}},
            "hyper.kl_weight: 0 is too small; choose a value above 0",
        ),
        (
            NOISY_ADAM | {"hyper": NUMBERS, "search": searched("joint_nll", kl_weight=(0, 1))},
            "search.space.kl_weight.low: 0 is too small; choose a value above 0",
        ),
        *(
            (
                SPIKES | {"hyper": SPIKY | {name: value}},
                f"hyper.{name}: {value} is too {size}; choose a value {limit}",
            )
            for name, value, size, limit in (
                ("slab_share", 1, "large", "below 1"),
                ("slab_share", 0, "small", "above 0"),
                ("noise_precision", 0, "small", "above 0"),
            )
        ),
    ],
)
def test_limits_of_hyper_parameters_are_heeded(load, changes, message):
    """Of methods, priors and likelihoods."""
    benchmark = load(*((f"entries.numbers.{name}", value) for name, value in changes.items()))
    with pytest.raises(InputError) as caught:
        plan_tasks(benchmark.select(["diabetes"]), splits=[0])
    assert str(caught.value) == f"entries.numbers.{message}"


@pytest.mark.parametrize(("likelihood", "outputs"), [("bernoulli", 1), ("categorical", 2)])
def test_two_classes_take_either_likelihood_of_labels(load, likelihood, outputs):
    changes = {
        "datasets": ["synthetic_logistic", "diabetes"],
        "entries.classes.datasets": ["synthetic_logistic"],
        "entries.classes.likelihood": {"name": likelihood},
    }
    cell, _ = plan_tasks(load(*changes.items()), splits=[0])
    assert cell.problem.d_out == outputs
    with pytest.raises(
        InputError, match=r"'gaussian' does not fit .* 2 classes; use bernoulli or categorical"
    ):
        plan_tasks(load(*changes.items(), ("entries.numbers.datasets", [])), splits=[0])


def test_rows_and_the_first_split_reach_the_data(load):
    few = ("preparation", {"split": "first", "rows": {"diabetes": 40}})
    (cell,) = plan_tasks(load(few).select(["diabetes"]), splits=[0, 5])
    (whole,) = plan_tasks(load().select(["diabetes"]), splits=[0])
    for split in (0, 5):
        assert cell.data.split(split).train.tolist() == whole.data.split(0).train[:40].tolist()
    assert cell.fit_hash != whole.fit_hash


@pytest.mark.parametrize(
    ("search", "count"),
    [({"folds": 1, "refit": True}, 70), ({"folds": 1}, 50), ({"folds": 5}, 50), (None, 50)],
)
def test_final_fits_train_on_validation_rows_only_if_told(load, parts, search, count):
    grid = {"sampler": "grid", "metric": "error", "grid": {"prior_precision": [1, 10]}}
    entry = VIFA | {"likelihood": {"name": "categorical"}, "hyper": RATES}
    if search:
        entry |= {"hyper": {"learning_rate": 0.01}, "search": grid | search}
    benchmark = load(
        ("datasets", [f"{parts}:kept"]), ("entries", {"vifa": entry}), ("metrics", ["error"])
    )
    (cell,) = plan_tasks(benchmark, splits=[0, 1], compile=False)
    whole, rows = cell.data.split(1), cell.rows(1)
    assert rows.train.tolist() == np.concatenate([whole.train, whole.validation])[:count].tolist()
    assert rows.test.tolist() == whole.test.tolist()
    # a reference is the posterior given the rows of the final fit
    assert len(load_training_data(cell, 1).x) == count
    fitting = build_final_fitting([(cell, 1)], [RATES], compile=False)
    assert [len(rows) for rows in fitting.trials.rows] == [count]


def test_a_search_by_the_posterior_needs_no_validation_rows(load, parts):
    """Predictions of rows that do not exist are refused, the ELBO of all training rows is not."""

    def cell(metric):
        search = searched(metric, prior_precision=(1, 10)) | {"folds": 1}
        entry = VIFA | {
            "likelihood": {"name": "categorical"},
            "hyper": {"learning_rate": 0.01},
            "search": search,
        }
        benchmark = load(
            ("datasets", [f"{parts}:without"]),
            ("entries", {"vifa": entry}),
            ("metrics", ["error"]),
        )
        return list_tasks(benchmark)[0]

    check_task(cell("neg_elbo"))
    with pytest.raises(
        InputError, match="without has none; choose 2 folds or more, or a score of the posterior"
    ):
        check_task(cell("error"))


def test_a_data_set_may_have_fewer_splits_than_others(load):
    fewer = load(("preparation", {"splits": {"diabetes": 1}}))
    assert [cell.splits for cell in list_tasks(fewer)] == [(0, 1), (0,)]
    assert [(cell.dataset, cell.splits) for cell in plan_tasks(fewer, splits=[0, 1])] == [
        (LABEL, (0, 1)),
        ("diabetes", (0,)),
    ]
    assert [(cell.dataset, cell.splits) for cell in plan_tasks(fewer, splits=[1])] == [
        (LABEL, (1,))
    ]
    with pytest.raises(
        InputError, match="no data set that is chosen has a split 1: choose a smaller number"
    ):
        plan_tasks(fewer.select(["diabetes"]), splits=[1])
    (one,), (all_of_it,) = (
        list_tasks(fewer.select(["diabetes"])),
        list_tasks(load().select(["diabetes"])),
    )
    assert one.fit_hash == all_of_it.fit_hash
    assert fewer.content_hash != load().content_hash
    with pytest.raises(InputError, match=r"preparation.splits.diabetic"):
        load(("preparation", {"splits": {"diabetic": 1}}))


SWEEP = {"training.epochs": [1, 3], "preparation.rows": [40, 50]}


def test_each_point_of_a_sweep_is_a_cell_of_its_own(load):
    cells = plan_tasks(load(("sweep", SWEEP)), splits=[1])
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
    assert (
        len({cell.fit_hash for cell in cells})
        == len({cell.identity for cell in cells})
        == len(cells)
    )


def test_the_same_settings_at_a_point_and_without_a_sweep_decide_the_same(load):
    """All but the name of the trial, which without a sweep is as it was before there were any."""
    changes = ("entries.numbers.training", {"epochs": 3, "batch_size": 10})
    (plain,) = plan_tasks(load(changes).select(["diabetes"]), splits=[0])
    swept = plan_tasks(
        load(("sweep", {"training.epochs": [1, 3]})).select(["diabetes"]), splits=[0]
    )
    assert [cell.fit_hash == plain.fit_hash for cell in swept] == [False, True]
    assert plain.identity == (0, "labels", "diabetes", "numbers")
    assert (plain.key, plain.label) == (("diabetes", "numbers", "{}"), "diabetes/numbers")
    assert swept[1].identity == (*plain.identity, '{"training.epochs":3}')


def test_a_data_set_may_have_other_settings_at_each_point(load):
    """Under one label: its data are told apart."""
    entry = VIFA | {"likelihood": {"name": "gaussian"}, "hyper": NUMBERS}
    swept = load(
        ("datasets", [{"name": "cubic", "variant": "plain", "label": "cubic"}]),
        ("entries", {"vifa": entry}),
        ("metrics", ["nmll"]),
        ("sweep", {"dataset.variant": ["plain", "outlier"]}),
    )
    plain, outlier = list_tasks(swept)
    assert plain.dataset == outlier.dataset
    assert plain.data.y.tolist() != outlier.data.y.tolist()
    streams = load_benchmark("online-fa", "quick", ["sweep={dataset.top: [1, 1000]}"]).select(
        [], ["online-em"]
    )
    low, high = plan_tasks(streams, splits=[0])
    assert (low.dataset, low.point) == (high.dataset, SweepPoint({"dataset.top": 1}))
    assert (low.stream.top, high.stream.top) == (1, 1000)
    assert low.fit_hash != high.fit_hash


def test_cells_are_sent_to_other_processes_without_their_data(load):
    for cell in list_tasks(load(("sweep", SWEEP))):
        assert cell.problem.dim == 9 or cell.entry == "numbers"
        text = pickle.dumps(cell)
        assert len(text) < 20_000
        back = pickle.loads(text)
        assert (back.key, back.identity, back.splits, back.label) == (
            cell.key,
            cell.identity,
            (0, 1),
            cell.label,
        )
        assert back.fit_hash == cell.fit_hash
        assert back.data.checksum == cell.data.checksum


def test_work_is_counted_in_minibatches_and_the_time_that_one_takes(load):
    """398 rows make 39 minibatches an epoch, of which an update takes four.

    48 normals for 11 parameters.
    """
    (cell,) = plan_tasks(load().select(["diabetes"]), splits=[0])
    assert count_stage_updates(cell, "final") == 2 * 39 // 4
    assert estimate_work(cell, 0, 2) == 2 * estimate_batch_work(
        cell, "final"
    ) * 4 * count_stage_updates(cell, "final")
    assert estimate_work(cell, 3, 0) == 3 * estimate_batch_work(
        cell, "search"
    ) * 4 * count_stage_updates(cell, "search")
    at_once, updated = (
        count_fits_per_batch(cell, "final"),
        0.45e-3 + 25e-9 * count_fits_per_batch(cell, "final") * 48,
    )
    assert not is_stage_compiled(cell, "final")
    assert estimate_batch_work(cell, "final") == pytest.approx(1e9 * updated / at_once / 4, abs=1)


def test_many_cells_are_planned_from_few_components(load, monkeypatch):
    """A component is made once, a state counted once, and starts that are alike are looked at together."""
    make, made, found = initial_check.make_initial_state, Counter(), []
    monkeypatch.setattr(
        initial_check, "make_initial_state", lambda *given: made.update(["starts"]) or make(*given)
    )
    for points in (2, 30):
        made.clear()
        registry._build_validated.cache_clear()
        cost._count_shaped_bytes.cache_clear()
        cells = plan_tasks(
            load(("sweep", {"hyper.prior_precision": list(range(1, points + 1))})), splits=[0]
        )
        initial_check.check_initial_likelihood(cells)
        assert len(cells) == 2 * points
        misses = {
            "components": registry._build_validated.cache_info().misses,
            "sizes": cost._count_shaped_bytes.cache_info().misses,
        }
        found.append(made | Counter(misses))
    assert found[0] == found[1]
    assert found[0]["starts"] == found[0]["sizes"] == 2


@pytest.mark.data
@pytest.mark.parametrize("method", ["vifa", "swag", "slang", "bbb", "natural-gradient"])
def test_a_state_that_is_made_is_as_large_as_its_shapes_say(monkeypatch, method):
    benchmark = load_benchmark(
        "uci-regression", overrides=[f"entries.vifa-nn.method={{name: {method}}}"]
    )
    ((cell, _),) = list_first_splits(benchmark.select(["boston"], ["vifa-nn"]), [0])
    cost._count_shaped_bytes.cache_clear()
    made = cost.count_state_bytes(cell)
    monkeypatch.setattr(cost, "_MAX_ALLOCATED_NUMBERS", -1)
    cost._count_shaped_bytes.cache_clear()
    assert cost.count_state_bytes(cell) == made > 4 * cell.problem.dim


def test_a_plan_of_small_states_leaves_the_compiler_alone():
    """PyTorch's compiler takes a second to import."""
    code = (
        "import sys; from bdl.plan.planning import plan_tasks; from bdl.spec import load_benchmark;"
        "plan_tasks(load_benchmark('uci-regression', 'check').select(['diabetes']), splits=[0]);"
        "sys.exit('torch._dynamo' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_stream_is_checked_without_its_model(monkeypatch):
    """A model takes 0.2 s with 1000 parameters, and a plan has one for each split of each cell."""
    monkeypatch.setattr(Stream, "model", None)
    assert (
        len(plan_tasks(load_benchmark("online-fa").select(["fa_1000_10"]), splits=range(10))) == 6
    )

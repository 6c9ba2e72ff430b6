import pytest

from bdl.cli.describe import _benchmark, _entry, describe
from bdl.data import DATASETS
from bdl.errors import InputError
from bdl.methods import METHODS
from bdl.metrics import METRICS
from bdl.models import LIKELIHOODS, MODELS, PRIORS
from bdl.references import REFERENCES
from bdl.registry import shipped
from bdl.spec import load_benchmark
from bdl.training.schedule import RATES

NAMES = [
    *shipped(),
    *(
        name
        for registry in (DATASETS, MODELS, LIKELIHOODS, PRIORS, METHODS, REFERENCES, RATES, METRICS)
        for name in registry.names()
    ),
]


@pytest.fixture(scope="module")
def told():
    """What is said of each name."""
    return {name: describe(name) for name in NAMES}


def test_benchmark_is_told_as_its_file_says():
    lines = describe("uci-regression").splitlines()
    assert lines[:6] == [
        "uci-regression (benchmark)",
        "UCI regression with VIFA, SLANG and the iterates of SGD",
        "data sets: energy, boston, concrete, yacht; 20 splits of each",
        "metrics: nmll, joint_nll, rmse, runtime",
        "papers: vifa2023, Table 1 and Table 11; vifa2023, Section 4.2.1 (prose)",
        "profiles: paper, quick",
    ]
    assert lines[lines.index("entry vifa-nn") + 1 : lines.index("entry swag-nn")] == [
        "  model: mlp (hidden=[50], activation=relu)",
        "  likelihood: gaussian",
        "  method: vifa (initial_scale=0.0, latent_dim=1, gradients_per_update=4, max_grad_norm=10.0, optimizer=adam, "
        "lr_factors=[1.0, 1.0, 1.0], initial_std=1.0)",
        "  training: 120 epochs, batches of 10",
        "  search: random, 30 trials, 5 folds, by nmll",
        "    learning_rate: 0.01 to 0.02, log",
        "    prior_precision: 0.01 to 10, log",
        "    noise_precision: 0.01 to 1, log",
    ]


def test_preparation_is_told_where_it_is_not_the_usual_one():
    assert "preparation: split=first, standardise=none, rows={'usps_3v5': 767}" in describe("logistic-posterior")
    assert "preparation" not in describe("uci-regression")


def test_what_differs_on_a_data_set_is_told():
    assert "  on boston: hyper.learning_rate=0.001" in describe("uci-linear-posterior").splitlines()
    assert (
        "  on concrete: training.epochs=20000, training.batch_size=100" in describe("uci-linear-posterior").splitlines()
    )


def test_a_bayesian_search_is_told_with_its_start():
    """No benchmark that comes with the package is needed for this."""
    changes = [f"entries.vifa-nn.search.{change}" for change in ("sampler=bayesian", "startup=4")]
    entry = load_benchmark("uci-regression", overrides=changes).entries["vifa-nn"]
    assert "search: bayesian, 30 trials, 4 at random first, 5 folds, by nmll" in _entry(entry)


def test_training_that_is_not_the_usual_one_is_told():
    training = "entries.vifa-nn.training"
    overrides = [
        f"{training}.{change}" for change in ("schedule={name: decay, power: 0.6}", "sampling=with_replacement")
    ]
    entry = load_benchmark("uci-regression", overrides=overrides).entries["vifa-nn"]
    told = "training: 120 epochs, batches of 10, rate decay (power=0.6), sampling=with_replacement"
    assert told in _entry(entry)
    groups = "{c: {name: ramp}, F: {name: constant}}"
    entry = load_benchmark("uci-regression", overrides=[f"{training}.schedule={groups}"]).entries["vifa-nn"]
    assert "training: 120 epochs, batches of 10, c ramp (centre=2.0)" in _entry(entry)


def test_prior_and_record_are_told_where_they_are_given():
    overrides = ["entries.vifa-nn.record={unit: epochs, every: 5}", "entries.vifa-nn.prior.bias_precision=2"]
    lines = _entry(load_benchmark("uci-regression", overrides=overrides).entries["vifa-nn"])
    assert "prior: gaussian (bias_precision=2.0)" in lines
    assert "looked at every 5 epochs" in lines
    overrides = ["entries.vifa-nn.record={unit: updates, log: true, first: 10}"]
    lines = _entry(load_benchmark("uci-regression", overrides=overrides).entries["vifa-nn"])
    assert "looked at after 1, 2, 5, 10, ... updates, from 10 on" in lines
    assert not any(line.startswith("prior") for line in lines)


def test_a_sweep_and_changes_of_all_entries_are_told(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(
        "{name: mine, title: Mine, datasets: [yacht], splits: 1, metrics: [rmse], sweep: {model.hidden: [[3], [4]]},\n"
        "by_dataset: {yacht: {training: {epochs: 2}}}, record: {unit: epochs, every: 1}, entries: {one: {\n"
        "model: {name: mlp}, likelihood: {name: gaussian}, method: {name: vifa},\n"
        "training: {epochs: 1, batch_size: 9}, hyper: {learning_rate: 1, prior_precision: 1, noise_precision: 1}}}}"
    )
    lines = _benchmark(str(path))
    assert "sweep: model.hidden in [3], [4]" in lines
    assert "on yacht: training.epochs=2" in lines
    assert "looked at every 1 epochs" in lines


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        (
            "energy",
            ["energy (data set)", "heating load of buildings, kWh/m2", "768 rows, 8 inputs, 20 published splits"],
        ),
        (
            "diabetes",
            [
                "diabetes (data set)",
                "Disease progression after one year of 442 diabetes patients, 10 inputs, in original units.",
            ],
        ),
        (
            "usps_3v5",
            [
                "usps_3v5 (data set)",
                "whether a handwritten digit is a five (1) or a three",
                "1540 rows, 256 inputs, 20 published splits",
            ],
        ),
        (
            "mlp",
            [
                "mlp (model)",
                "Multilayer perceptron with a linear output layer.",
                "settings:",
                "  hidden=(50,): Units of each hidden layer, from the input upwards.",
                "  activation=relu: Function of the hidden units; gelu is the exact one, x Phi(x).",
            ],
        ),
        (
            "linear",
            [
                "linear (model)",
                "Affine map, or linear map if bias is false.",
                "settings:",
                "  bias=True: Whether there is a bias.",
                "linear (rate)",
                "A straight fall over the whole fit, from 1 to 0.",
            ],
        ),
        (
            "fa",
            [
                "fa (data set)",
                "Streams of parameter vectors, each from a factor-analysis model of its own; stream i has the seed i.",
                "settings:",
                "  dim=(required): Parameters, D; more than the rank of the models, 10.",
                "  top=(required): The squared scales s^2 of the factors are uniform on [1, top]; see "
                "bdl.data.teachers.factor_model.",
                '  scaling=rows: "rows" as published, or "columns".',
                "  length=100000: Observations that are used, the first of 100,000.",
                "  splits=10: Number of streams.",
            ],
        ),
        (
            "decay",
            [
                "decay (rate)",
                "1 / (1 + t^p) in the number t of the update, from 1.",
                "settings:",
                "  power=0.51: The p above; the larger, the faster the rate falls.",
            ],
        ),
        ("bernoulli", ["bernoulli (likelihood)", "P(y = 1) = sigmoid(f) for y in {0, 1}."]),
        (
            "vifa",
            [
                "vifa (method)",
                "VIFA: variational inference with a factor-analysis posterior "
                "(Brownlie 2022, ch. 5; VIFA paper 2023, Alg. 1).",
                "hyper-parameters, fixed or searched:",
                "  learning_rate: size of a step, which the schedule of the training may change",
                "settings:",
                "  initial_scale=0.0: Standard deviation of the initial c, which is normal with mean 0; null for the "
                "model's own start.",
                "  latent_dim=1: Rank K of the factors.",
                "  gradients_per_update=4: Minibatch gradients averaged per update, L.",
                "  max_grad_norm=10.0: Each of the three gradients (c; F; gamma) is clipped separately to this "
                "Frobenius norm.",
                '  optimizer=adam: "adam" or "sgd".',
                "  lr_factors=(1.0, 1.0, 1.0): Learning rates of c, F and gamma as multiples of the hyper-parameter "
                "learning_rate.",
                "  initial_std=1.0: Start of every psi^1/2. F starts with columns of norm 1.",
            ],
        ),
        (
            "grid",
            [
                "grid (reference)",
                "The posterior of one or two parameters under any likelihood, by sums over a grid.",
            ],
        ),
        (
            "rmse",
            [
                "rmse (metric)",
                "RMSE, target units; lower is better",
                "settings:",
                "  standardised=False: Give it in standard deviations of the training targets, as the thesis on noisy "
                "optimisers (Mata 2018) prints it.",
                "  at=samples: Parameters that predict: samples of the posterior, or its mean alone.",
            ],
        ),
        ("runtime", ["runtime (metric)", "Runtime, minutes per split; a duration, shown as paper / ours"]),
    ],
)
def test_component_is_told_as_its_source_says(name, lines):
    assert describe(name).splitlines() == lines


def test_limits_of_hyper_parameters_and_settings_of_bases_are_told():
    assert "  dropout_rate, below 1: share of the units that are left out" in describe("mc-dropout").splitlines()
    assert "  kl_weight, above 0: factor of the divergence from the prior; 1 is Bayes' rule" in describe("noisy-adam")
    assert '  denominator=plain: "root" divides by the root of s, "plain" by s.' in describe("vprop")


def test_every_setting_and_hyper_parameter_has_a_meaning(told):
    lines = [line for text in told.values() for line in text.splitlines() if "(benchmark)" not in line]
    bare = [line for line in lines if line.startswith("  ") and not line.startswith("   ") and ": " not in line]
    assert bare == []


def test_marks_of_code_are_not_shown(told):
    assert not [name for name, text in told.items() if "``" in text]


METHOD = """
from bdl.methods.vifa import Vifa
from bdl.data import Dataset
from dataclasses import dataclass

NUMBER = 3


@dataclass(frozen=True)
class Mine(Vifa):
    '''A method of my own.'''


def rows() -> Dataset:
    '''Rows of ``my`` own.'''
"""


def test_a_component_is_described_by_its_path(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(METHOD, "utf-8")
    assert describe(f"{path}:Mine").splitlines()[:2] == [f"{path}:Mine (method)", "A method of my own."]
    assert "  latent_dim=1" in describe(f"{path}:Mine")
    assert describe(f"{path}:rows").splitlines() == [f"{path}:rows (data set)", "Rows of my own."]
    assert describe("bdl.metrics.likelihoods:Nmll").splitlines()[0] == "bdl.metrics.likelihoods:Nmll (metric)"
    for name, told in (
        (f"{path}:NUMBER", "is no component"),
        (f"{path}:None", "defines no 'None'"),
        (f"{path}", "say which class or function of it, as .*mine.py:NAME"),
        ("nowhere.py:Mine", "no such file"),
    ):
        with pytest.raises(InputError, match=told):
            describe(name)


@pytest.mark.parametrize("registry", [METHODS, METRICS, MODELS, LIKELIHOODS, PRIORS, RATES])
def test_a_path_leads_to_the_kind_of_the_component(registry):
    """A reference may be a method as well, so that these are left out."""
    for path in registry.builtin.values():
        assert describe(path).splitlines()[0] == f"{path} ({registry.kind})"


def test_a_file_is_described(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text((shipped()["sgd-posterior"]).read_text("utf-8"), "utf-8")
    assert describe(str(path)).splitlines()[1:] == describe("sgd-posterior").splitlines()[1:]


@pytest.mark.parametrize("name", NAMES)
def test_everything_listed_has_more_than_a_heading(name, told):
    heading, *body = told[name].splitlines()
    assert heading.startswith(f"{name} (")
    assert body
    assert all(line.strip() for line in body)


def test_names_are_unique_across_kinds():
    """But for optima (methods, references), the Gaussian likelihood and prior, and the rates `linear` and `power`."""
    shared = {"conjugate", "exact-gaussian", "gaussian", "linear", "power"}
    assert {name for name in NAMES if NAMES.count(name) > 1} == shared
    assert [line for line in describe("conjugate").splitlines() if line.startswith("conjugate (")] == [
        "conjugate (method)",
        "conjugate (reference)",
    ]


def test_unknown_name_gets_the_nearest_names_of_any_kind():
    with pytest.raises(InputError, match=r"^unknown name 'vifaa': did you mean vifa"):
        describe("vifaa")

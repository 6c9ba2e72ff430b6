"""What is said of benchmarks and components."""

import pytest

from bdl.cli.describe import REGISTRIES, _entry_lines, describe_by_name
from bdl.errors import InputError
from bdl.methods import METHODS
from bdl.metrics import METRICS
from bdl.models import LIKELIHOODS, MODELS, PRIORS
from bdl.registry import shipped_benchmarks
from bdl.spec import load_benchmark
from bdl.training.schedule import RATES

NAMES = [*shipped_benchmarks(), *(name for registry in REGISTRIES for name in registry.names())]


def test_everything_listed_is_described_with_its_settings():
    for name, text in ((name, describe_by_name(name)) for name in dict.fromkeys(NAMES)):
        heading, *body = text.splitlines()
        assert heading.startswith(f"{name} (")
        assert body
        assert all(line.strip() for line in body), name
        assert "``" not in text, "marks of code are not shown"
        settings = [line for line in body if line.startswith("  ") and not line.startswith("   ")]
        assert [line for line in settings if ": " not in line] == [], name


def test_a_benchmark_is_told_as_its_file_says(tmp_path):
    lines = describe_by_name("uci-regression").splitlines()
    assert lines[:6] == [
        "uci-regression (benchmark)",
        "UCI regression with VIFA, SLANG and the iterates of SGD",
        "data sets: energy, boston, concrete, yacht; 20 splits of each",
        "metrics: nmll, joint_nll, rmse, runtime",
        "papers: vifa2023, Table 1 and Table 11; vifa2023, Section 4.2.1 (prose)",
        "profiles: paper, quick, check",
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
    assert not any(line.startswith("preparation") for line in lines)
    assert (
        "preparation: split=first, standardise=none, rows={'usps_3v5': 767}"
        in describe_by_name("logistic-posterior")
    )
    changes = "  on concrete: training.epochs=20000, training.batch_size=100"
    assert changes in describe_by_name("uci-linear-posterior").splitlines()
    path = tmp_path / "mine.yaml"
    path.write_text(shipped_benchmarks()["uci-regression"].read_text("utf-8"), "utf-8")
    assert describe_by_name(str(path)).splitlines()[1:] == lines[1:]
    path.write_text(
        "{name: mine, title: Mine, datasets: [yacht], splits: 1, metrics: [rmse], sweep: {model.hidden: [[3], [4]]},\n"
        "by_dataset: {yacht: {training: {epochs: 2}}}, record: {unit: epochs, every: 1}, entries: {one: {\n"
        "model: {name: mlp}, likelihood: {name: gaussian}, method: {name: vifa},\n"
        "training: {epochs: 1, batch_size: 9}, hyper: {learning_rate: 1, prior_precision: 1, noise_precision: 1}}}}"
    )
    told = {
        "sweep: model.hidden in [3], [4]",
        "on yacht: training.epochs=2",
        "looked at every 1 epochs",
    }
    assert told <= set(describe_by_name(str(path)).splitlines())


UNUSUAL = {
    (
        "search.sampler=bayesian",
        "search.startup=4",
    ): "search: bayesian, 30 trials, 4 at random first, 5 folds, by nmll",
    ("training.schedule={name: decay, power: 0.6}", "training.sampling=with_replacement"): (
        "training: 120 epochs, batches of 10, rate decay (power=0.6), sampling=with_replacement"
    ),
    ("training.schedule={c: {name: exponential, base: 0.9}, F: {name: constant}}",): (
        "training: 120 epochs, batches of 10, c exponential (base=0.9)"
    ),
    ("prior.bias_precision=2",): "prior: gaussian (bias_precision=2.0)",
    ("record={unit: epochs, every: 5}",): "looked at every 5 epochs",
    (
        "record={unit: updates, log: true, first: 10}",
    ): "looked at after 1, 2, 5, 10, ... updates, from 10 on",
}


@pytest.mark.parametrize("changes", UNUSUAL)
def test_what_is_not_usual_of_an_entry_is_told(changes):
    overrides = [f"entries.vifa-nn.{change}" for change in changes]
    assert UNUSUAL[changes] in _entry_lines(
        load_benchmark("uci-regression", overrides=overrides).entries["vifa-nn"]
    )


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        (
            "energy",
            [
                "energy (data set)",
                "heating load of buildings, kWh/m2",
                "768 rows, 8 inputs, 20 published splits",
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
            "runtime",
            ["runtime (metric)", "Runtime, minutes per split; a duration, shown as paper / ours"],
        ),
    ],
)
def test_a_component_is_told_as_its_source_says(name, lines):
    assert describe_by_name(name).splitlines() == lines


def test_limits_of_hyper_parameters_and_settings_of_bases_are_told():
    assert (
        "  dropout_rate, below 1: share of the units that are left out"
        in describe_by_name("mc-dropout").splitlines()
    )
    assert (
        "  kl_weight, above 0: factor of the divergence from the prior; 1 is Bayes' rule"
        in describe_by_name("noisy-adam")
    )
    assert (
        '  denominator=plain: "root" divides by the root of s, "plain" by s.'
        in describe_by_name("vprop")
    )


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
    assert describe_by_name(f"{path}:Mine").splitlines()[:2] == [
        f"{path}:Mine (method)",
        "A method of my own.",
    ]
    assert "  latent_dim=1" in describe_by_name(f"{path}:Mine")
    assert describe_by_name(f"{path}:rows").splitlines() == [
        f"{path}:rows (data set)",
        "Rows of my own.",
    ]
    for name, told in (
        (f"{path}:NUMBER", "is no component"),
        (f"{path}:None", "defines no 'None'"),
        (f"{path}", "say which class or function of it, as .*mine.py:NAME"),
        ("vifaa", r"^unknown name 'vifaa': did you mean vifa"),
    ):
        with pytest.raises(InputError, match=told):
            describe_by_name(name)


@pytest.mark.parametrize("registry", [METHODS, METRICS, MODELS, LIKELIHOODS, PRIORS, RATES])
def test_a_path_leads_to_the_kind_of_the_component(registry):
    """A reference may be a method as well, so that these are left out."""
    for path in registry.builtin.values():
        assert describe_by_name(path).splitlines()[0] == f"{path} ({registry.kind})"


def test_names_are_unique_across_kinds():
    """But for optima (methods, references), the Gaussian likelihood and prior, and the rates `linear` and `power`."""
    shared = {"conjugate", "exact-gaussian", "gaussian", "linear", "power"}
    assert {name for name in NAMES if NAMES.count(name) > 1} == shared

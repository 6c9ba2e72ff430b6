"""Files, profiles, overrides."""

import re
import subprocess
import sys

import pytest

from bdl.errors import InputError
from bdl.spec import list_benchmarks, load_benchmark
from bdl.spec.values import parse_yaml


def test_profile_is_laid_over_the_file(load, text):
    paper, quick = load(text), load(text, "quick")
    assert (quick.profile, quick.splits) == ("quick", 1)
    entry = quick.entries["searched"]
    assert (entry.training.epochs, entry.training.batch_size) == (2, 10)
    learning_rate = entry.search.space["learning_rate"]
    assert (learning_rate.low, learning_rate.high, learning_rate.scale) == (2e-3, 1e-2, "log")
    assert list(entry.search.space) == list(paper.entries["searched"].search.space)
    assert quick.entries["fixed"] == paper.entries["fixed"]
    assert load(text, "paper") == paper
    assert load(text + "  paper: {seed: 7}\n").seed == 7


def test_overrides_come_last_and_in_order(load, text):
    benchmark = load(
        text, "quick", ["splits=5", "seed=1", "entries.searched.training.epochs=9", "seed=2"]
    )
    assert (benchmark.splits, benchmark.seed) == (5, 2)
    assert benchmark.entries["searched"].training.epochs == 9


@pytest.mark.parametrize(
    ("overrides", "read", "value"),
    [
        (["fixed.hyper.learning_rate=1e-4"], lambda b: b["fixed"].hyper["learning_rate"], 1e-4),
        (
            ["fixed.prior.bias_precision=1e-6"],
            lambda b: b["fixed"].prior.build().bias_precision,
            1e-6,
        ),
        (["fixed.training={epochs: 8}"], lambda b: b["fixed"].training.batch_size, 10),
        (["fixed.method.optimizer=sgd"], lambda b: b["fixed"].method.build().optimizer, "sgd"),
        (["searched.model.name=linear"], lambda b: b["searched"].model.settings, {"bias": True}),
        (
            ["fixed.model={name: mlp, hidden: [3]}"],
            lambda b: b["fixed"].model.build().hidden,
            (3,),
        ),
        (
            [
                "searched.search=null",
                "searched.hyper={learning_rate: 1, prior_precision: 2, noise_precision: 3}",
            ],
            lambda b: (b["searched"].search, *b["searched"].hyper.values()),
            (None, 1, 2, 3),
        ),
    ],
)
def test_overrides_of_entries(load, text, overrides, read, value):
    assert (
        read(load(text, overrides=[f"entries.{override}" for override in overrides]).entries)
        == value
    )


def test_overrides_of_the_benchmark(load, text):
    overrides = [
        "evaluation.samples=7",
        "datasets=[yacht]",
        "title=a = b",
        "preparation.rows.yacht=7",
    ]
    benchmark = load(text, overrides=overrides)
    assert (benchmark.evaluation.samples, benchmark.datasets, benchmark.title) == (
        7,
        ("yacht",),
        "a = b",
    )
    assert benchmark.preparation.rows == {"yacht": 7}


LONG = "x" * 3000


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("seed", "--set seed: give path.to.field=value, for example seed=1"),
        ("=1", "--set =1: give path.to.field=value"),
        ("a..b=1", "--set a..b=1: give path.to.field=value"),
        (
            "sed=1",
            "--set sed=1: unknown field 'sed' (did you mean seed?); allowed: name, title, profile, seed,",
        ),
        ("profile=quick", "--set profile=quick: profile is not a field of the file: remove it"),
        (
            "entries.searched.training.epoch=1",
            "--set entries.searched.training.epoch=1: entries.searched.training: unknown field 'epoch' "
            "(did you mean epochs?); allowed: epochs, batch_size",
        ),
        ("entries.serched.seed=1", "entries: unknown entry 'serched': did you mean searched?"),
        ("entries.fixed.hyper.lr=1", "entries.fixed: unknown hyper-parameter 'lr'"),
        (
            "entries.fixed.method.rank=1",
            "entries.fixed.method: unknown setting of method 'vifa' 'rank'; allowed: ",
        ),
        (
            "preparation.rows.yatch=7",
            "preparation.rows.yatch: unknown dataset 'yatch': did you mean yacht",
        ),
        (
            "preparation.rows.boston=7",
            "--set preparation.rows.boston=7: preparation.rows.boston: unknown data set",
        ),
        (
            "entries.searched.by_dataset.boston={}",
            "entries.searched.by_dataset.boston: unknown data set 'boston'",
        ),
        ("seed.x=1", "--set seed.x=1: seed: Input should be a valid integer"),
        ("seed=-1", "--set seed=-1: seed: Input should be greater than or equal to 0 (got -1)"),
        ("seed=", "--set seed=: seed: Input should be a valid integer (got null)"),
        ("datasets=[yacht", "--set datasets=[yacht, line 1, column 7:"),
        ("entries.fixed.search.trials=3", "entries.fixed.search.folds: is missing"),
        # values that cannot be meant
        ("splits=1000000001", "splits: Input should be less than or equal to 1000000000"),
        ("splits=1e20", "splits: Input should be a valid integer (got 1e+20)"),
        ("title=!!timestamp abc", "!!timestamp is a tag that benchmarks do not use"),
        (
            "evaluation.samples=1000000000000",
            "evaluation.samples: Input should be less than or equal to",
        ),
        (
            "entries.fixed.hyper.prior_precision=1e300",
            "1e+300 cannot be meant: numbers go from 1e-100 to 1e+100 in si",
        ),
        ("entries.fixed.hyper.prior_precision=1e-300", "1e-300 cannot be meant"),
        (
            "entries.fixed.prior.bias_precision=1e300",
            "prior.bias_precision: 1e+300 cannot be meant",
        ),
        (
            "entries.fixed.method.gradients_per_update=1000000000000",
            "1000000000000 cannot be meant: integers go to",
        ),
        (
            "limits.minutes=1e300",
            "limits.minutes: Input should be less than or equal to 1000000000",
        ),
        (f"title={{{LONG}: 1}}", "x ... "),
        (f"{LONG}=1", "unknown field 'xxx"),
        (f"datasets=[{LONG}]", "unknown dataset 'xxx"),
        (f"splits={LONG}", "splits: Input should be a valid integer"),
    ],
)
def test_overrides_are_refused_in_a_short_line(load, text, override, message):
    with pytest.raises(InputError) as caught:
        load(text, overrides=[override])
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 700


def test_override_below_an_overridden_value(load, text):
    with pytest.raises(InputError, match=r"entries\.fixed.training.batch_size: is missing"):
        load(text, overrides=["entries.fixed.training=5", "entries.fixed.training.epochs=3"])


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "epochs: 2}",
            "epoch: 2}",
            ", profile quick: entries.searched.training: unknown field 'epoch' (did you mean ",
        ),
        (
            "  searched: {training",
            "  serched: {training",
            ", profile quick: entries: unknown entry 'serched': did you me",
        ),
        (
            "    splits: 1",
            "    splits: 0",
            ", profile quick: splits: Input should be greater than or equal to 1",
        ),
        (
            "  quick:\n",
            "  fast: 3\n  quick:\n",
            "small.yaml: profiles.fast: should be a mapping (got 3)",
        ),
        (
            "  quick:\n",
            "  ../quick:\n",
            "small.yaml: profiles.../quick: String should match pattern",
        ),
    ],
)
@pytest.mark.parametrize("asked", ["quick", "paper"])
def test_bad_profile(load, text, old, new, message, asked):
    """Also one that is not asked for."""
    assert old in text
    with pytest.raises(InputError, match=re.escape(message)):
        load(text.replace(old, new), asked)


def test_unknown_profile(load, text):
    with pytest.raises(InputError, match=r"unknown profile 'quik': did you mean quick\?"):
        load(text, "quik")


@pytest.mark.parametrize(
    ("line", "place", "message"),
    [
        ("splits: 2", ", line 3, column 1", "the key 'splits' comes twice: remove one"),
        ("seed: [1", ", line 2, column 6", ""),
        ("1: x", ", line 1, column 1", "a key must be text: put it in quotes"),
        ("[a]: x", ", line 1, column 1", "a key must be text: put it in quotes"),
        (
            "seed: !!python/name:os.system",
            ", line 1, column 7",
            "!!python/name:os.system is a tag that benchmarks do",
        ),
        ("seed: 1e999", ", line 1, column 7", "1e999 is not a finite number"),
        (
            "seed: !!int abc",
            ", line 1, column 7",
            "'abc' is no int: correct it, or remove the tag",
        ),
        (
            "seed: !!float abc",
            ", line 1, column 7",
            "'abc' is no float: correct it, or remove the tag",
        ),
        (
            "seed: !!bool abc",
            ", line 1, column 7",
            "'abc' is no bool: correct it, or remove the tag",
        ),
        (
            "seed: !!binary abc",
            ", line 1, column 7",
            "!!binary is a tag that benchmarks do not use: remove it",
        ),
        ("seed: &a [*a]", ", line 1, column 7", "an anchor within itself: write the values out"),
        (
            "seed: 9223372036854775808",
            ", line 1, column 7",
            "9223372036854775808 is too large: integers go to 9,223,",
        ),
        (
            f"seed: {'9' * 5000}",
            ", line 1, column 7",
            f"{'9' * 60} ... {'9' * 15} is too large: integers go to",
        ),
        ('seed: "a\\0b"', ", line 1, column 7", "a text has a character that is none"),
        ('seed: "\\ud800"', ", line 1, column 7", "a text has a character that is none"),
        (
            "seed: {<<: 1}",
            ", line 1, column 12",
            "expected a mapping or list of mappings for merging",
        ),
        (
            f"seed: {'[' * 60}{']' * 60}",
            ", line 1, column 57",
            "too many levels, one within another",
        ),
        (f"seed: {'[' * 20_000}", "", "too many levels, one within another"),
        ("seed: \x00", "", "unacceptable character"),
    ],
)
def test_malformed_yaml(load, line, place, message):
    with pytest.raises(InputError) as caught:
        load(f"{line}\ntitle: x\nsplits: 1\n")
    assert f"small.yaml{place}: {message}" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_is_anchored_is_not_written_out_beyond_measure(load):
    """Each line has the one before it ten times: ten million values in eight lines."""
    lines = [
        "a0: &a0 [1, 2]",
        *(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 8)),
    ]
    with pytest.raises(InputError, match=r"line 6, column 5: more than 200,000 values"):
        load("\n".join(lines) + "\n")


def test_not_a_mapping(load):
    with pytest.raises(InputError, match="a benchmark is a mapping"):
        load("[1, 2]")


@pytest.mark.parametrize("written", ["010", "1_0", "0x10", "1:30", "no"])
def test_forms_that_yaml_1_1_reads_as_numbers_and_no_are_text(load, text, written):
    assert load(f"seed: +7\n{text}").seed == 7
    with pytest.raises(
        InputError, match=re.escape(f'seed: Input should be a valid integer (got "{written}")')
    ):
        load(f"seed: {written}\n{text}")


def test_mappings_are_merged():
    """A merge key gives way to keys beside it, the first of several to none.

    It takes what was merged before.
    """
    text = """
    base: &base {epochs: 2, batch_size: 10}
    more: &more {<<: *base, epochs: 3}
    both: {batch_size: 20, <<: [*more, {dtype: float64, epochs: 4}]}
    """
    found = parse_yaml(text, "text")
    assert found["more"] == {"epochs": 3, "batch_size": 10}
    assert found["both"] == {"epochs": 3, "batch_size": 20, "dtype": "float64"}


def test_a_benchmark_may_merge_entries(load, text):
    own = "  again: {<<: *fixed, hyper: {learning_rate: 0.5, prior_precision: 1}}"
    entries = load(
        text.replace("  fixed:\n", "  fixed: &fixed\n").replace(
            "\nmetrics:", f"\n{own}\nmetrics:", 1
        )
    ).entries
    assert entries["again"].hyper["learning_rate"] == 0.5
    assert entries["again"].training == entries["fixed"].training


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ("{folder}/none.yaml", r"cannot read benchmark .*none\.yaml: No such file"),
        ("{folder}/", r"cannot read benchmark .*: Is a directory"),
        ("{folder}/latin.yml", "it is not UTF-8 text"),
        ("uci-regresion", "unknown benchmark 'uci-regresion': did you mean uci-regression"),
    ],
)
def test_unreadable_and_unknown_files(tmp_path, asked, message):
    (tmp_path / "latin.yml").write_bytes(b"title: \xe9")
    with pytest.raises(InputError, match=message):
        load_benchmark(asked.format(folder=tmp_path))


@pytest.mark.parametrize("folder", ["bdl/benchmarks", "benchmarks"])
def test_benchmarks_of_a_wheel_and_of_a_checkout(tmp_path, monkeypatch, text, folder):
    (tmp_path / folder).mkdir(parents=True)
    (tmp_path / folder / "small.yaml").write_text(text, "utf-8")
    monkeypatch.setattr("importlib.resources.files", lambda package: tmp_path / package)
    assert list_benchmarks() == [("small", "A small benchmark")]
    assert load_benchmark("small").splits == 3


def test_import_is_light():
    heavy = "{'torch', 'numpy', 'sklearn', 'pandas', 'pooch', 'matplotlib', 'mlflow', 'optuna'}"
    code = f"import sys, bdl.spec; sys.exit(' '.join({heavy} & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert done.stderr.strip() == ""

"""The printed numbers: their digits, the rows that entries stand for, and that benchmarks leave none out."""

from collections import Counter

import pytest

from bdl.errors import InputError
from bdl.registry import shipped_benchmarks
from bdl.reports.papers import PAPERS, Printed, _count, load_paper, paper_values
from bdl.spec import load_benchmark

from .conftest import VIFA, changed, make_tables

SLANG = make_tables("slang2018", "uci_bnn", ["Table 2"], {"slang-1": "slang", "bbb": "bbb"})
SLANG_LOGISTIC = changed(SLANG, task="logistic_posterior", tables=["Table 1"])
THESIS = make_tables("brownlie2022", "vifa_posterior_linear_synthetic", ["Table 5.1"], {})


def texts(value):
    return value.value.text, None if value.stderr is None else value.stderr.text


def test_every_value_of_the_vifa_tables_is_found():
    """Four data sets, three methods.

    Mean and median of NMLL and RMSE, and the mean of durations.
    """
    entries = {"vifa_lr": "a", "vifa_nn": "b", "slang": "c"}
    values = paper_values(
        [changed(VIFA, methods={entry: method for method, entry in entries.items()})]
    )
    rows = [row for row in load_paper("vifa2023") if row["table"] in VIFA.tables]
    assert len(values) == len(rows) == 60
    for row in rows:
        value = values[row["dataset"], entries[row["method"]], row["metric"], row["statistic"]]
        assert (*texts(value), value.source) == (
            row["value"],
            row["stderr"] or None,
            f"vifa2023 {row['table']}",
        )


def test_vifa_means_transcribed_by_hand():
    values = paper_values([VIFA])
    nmll = {
        "vifa-lr": {
            "energy": "2.57 0.02",
            "boston": "3.07 0.12",
            "concrete": "3.77 0.02",
            "yacht": "3.65 0.04",
        },
        "vifa-nn": {
            "energy": "2.53 0.02",
            "boston": "2.66 0.06",
            "concrete": "3.34 0.01",
            "yacht": "2.36 0.06",
        },
    }
    for entry, by_dataset in nmll.items():
        for dataset, both in by_dataset.items():
            value = values[dataset, entry, "nmll", "mean"]
            assert texts(value) == tuple(both.split())
            assert [value.value, value.stderr] == [float(text) for text in both.split()]


def test_every_statistic_says_of_how_many_it_is():
    """But for counts, which are not of several runs, and where 20 predictions are of one network."""
    rows = [
        row
        for paper in PAPERS
        for row in load_paper(paper)
        if row["statistic"] in ("mean", "median")
    ]
    assert {
        _count(row)
        for row in rows
        if row["paper"] != "mata2018" and "runtime" not in row["metric"]
    } == {5, 10, 20}
    assert {
        _count(row)
        for paper in PAPERS
        for row in load_paper(paper)
        if row["statistic"] == "single"
    } == {1}


def test_the_first_listed_table_wins():
    thesis = changed(VIFA, paper="brownlie2022", tables=["Table 5.4"])
    key = ("energy", "vifa-nn", "nmll", "mean")
    assert paper_values([thesis, VIFA])[key].source == "brownlie2022 Table 5.4"
    assert paper_values([VIFA, thesis])[key].source == "vifa2023 Table 1"


def test_a_metric_of_another_name_and_opposite_sign():
    """Table 2 of the SLANG paper prints log-likelihoods."""
    values = paper_values([changed(SLANG, metrics={"joint_nll": "-test_ll"})])
    assert {key[2] for key in values} == {"joint_nll"}, "rmse is not listed"
    printed = {
        key: texts(values[*key, "joint_nll", "mean"])
        for key in (("boston", "bbb"), ("naval", "slang-1"))
    }
    assert printed == {
        ("boston", "bbb"): ("2.66", "0.06"),
        ("naval", "slang-1"): ("-4.76", "0.00"),
    }
    assert values["boston", "bbb", "joint_nll", "mean"].value == 2.66
    assert len(values) == 8 * 2, "data sets and methods of Table 2"


def test_one_table_may_be_listed_twice_and_a_metric_stand_for_two_of_ours():
    """The paper's test_ll is the joint density for some methods, and that of each row for others."""
    first = changed(SLANG, metrics={"joint_nll": "-test_ll"})
    second = changed(
        SLANG, methods={"mc-dropout": "mc_dropout"}, metrics={"nmll": "-test_ll", "rmse": "rmse"}
    )
    values = paper_values([first, second])
    expected = {
        ("slang-1", "joint_nll"),
        ("bbb", "joint_nll"),
        ("mc-dropout", "nmll"),
        ("mc-dropout", "rmse"),
    }
    assert {key[1:3] for key in values} == expected
    assert texts(values["boston", "mc-dropout", "nmll", "mean"]) == ("2.46", "0.06")
    both = paper_values([changed(SLANG, metrics={"nmll": "-test_ll", "joint_nll": "-test_ll"})])
    assert both["yacht", "bbb", "nmll", "mean"] == both["yacht", "bbb", "joint_nll", "mean"]


@pytest.mark.parametrize(
    ("text", "negative"), [("2.90", "-2.90"), ("-2.90", "2.90"), ("0.00", "0.00"), ("1e3", "-1e3")]
)
def test_the_opposite_sign_keeps_the_digits(text, negative):
    opposite = -Printed(text)
    assert type(opposite) is Printed
    assert (opposite.text, float(opposite)) == (negative, float(negative))
    assert opposite.exponent == Printed(text).exponent


@pytest.mark.parametrize(
    ("text", "value", "shown"),
    [
        ("2.53", 2.5349, True),
        ("2.53", 2.5351, False),
        ("2.90", 2.9049, True),
        ("2.90", 2.94, False),
        ("-2.66", -2.6649, True),
        ("2.13e7", 2.134e7, True),
        ("2.13e7", 2.136e7, False),
        ("10", 10.4, True),
    ],
)
def test_equal_at_the_printed_digits(text, value, shown):
    assert Printed(text).shows(value) is shown


def test_a_printed_standard_deviation_is_not_taken_for_a_standard_error():
    wine = make_tables("mata2018", "wine", ["Table 4.2"], {"bbb": "bbb"})
    value = paper_values([wine])["wine", "bbb", "rmse", "mean"]
    assert (value.n, value.stderr.text) == (20, "0.0051"), "0.023 over the root of 20 repeats"


@pytest.mark.parametrize(
    ("listed", "message"),
    [
        (changed(VIFA, paper="vifa2032"), "unknown paper 'vifa2032': did you mean vifa2023"),
        (
            changed(VIFA, task="uci_nn"),
            "unknown task of vifa2023 'uci_nn': did you mean uci_nn_predictions",
        ),
        (
            changed(VIFA, metrics={"joint_nll": "-test_ll"}),
            "unknown metric .* 'test_ll': known: nmll, rmse, runtime",
        ),
        (
            changed(VIFA, tables=["Table 99"]),
            "unknown table of vifa2023 uci_nn_predictions 'Table 99'",
        ),
        (
            changed(VIFA, methods={"a": "vifa_rl"}),
            "unknown method of vifa2023 uci_nn_predictions 'vifa_rl': did you",
        ),
        (
            changed(SLANG_LOGISTIC, methods={"slang": "slang"}),
            "Table 1 prints several numbers for australian slang neg",
        ),
        (changed(THESIS, methods={"k": "vifa"}), "which differ in their settings"),
        (
            changed(THESIS, methods={"k": "vifa latent_dim=3"}),
            "unknown method .* 'vifa latent_dim=3'",
        ),
    ],
)
def test_wrong_names_and_several_numbers_for_one_place_are_told(listed, message):
    with pytest.raises(InputError, match=message):
        paper_values([listed])


@pytest.mark.parametrize("paper", PAPERS)
def test_every_shipped_number_is_a_number(paper):
    for row in load_paper(paper):
        assert isinstance(Printed(row["value"]).exponent, int)
        assert not row["stderr"] or Printed(row["stderr"]) >= 0


def test_a_setting_chooses_among_the_numbers_of_a_method():
    values = paper_values(
        [changed(THESIS, methods={"k1": "vifa latent_dim=1", "k2": "vifa latent_dim=2"})]
    )
    printed = {
        entry: values["synthetic", entry, "rel_cov_dist", "mean"].value.text
        for entry in ("k1", "k2")
    }
    assert printed == {"k1": "0.0983", "k2": "0.1053"}


def test_a_single_run_stands_under_the_mean_and_values_of_one_split_say_so():
    """Figure 7d of the SLANG paper prints the bias on the first split.

    Table 1 prints means over twenty.
    """
    tables = changed(
        THESIS, tables=["Table B.3"], task="vifa_posterior_linear_uci", methods={"vifa": "vifa"}
    )
    value = paper_values([tables])["boston", "vifa", "rel_mean_dist", "mean"]
    assert (*texts(value), value.n, value.split) == ("0.0262", None, 1, None)
    methods = {"mf-exact": "mf_exact", "slang-10": "slang L=10"}
    figure = changed(SLANG_LOGISTIC, tables=["Figure 7d"], methods=methods, split=0)
    means = changed(SLANG_LOGISTIC, methods={"mf-exact": "mf_exact"})
    values = paper_values([figure, means])
    bias = values["usps_3v5", "slang-10", "bias_variance", "mean"]
    assert (bias.value.text, bias.n, bias.split) == ("1.38", 1, 0)
    mean = values["australian", "mf-exact", "neg_elbo", "mean"]
    assert (mean.n, mean.split) == (20, None)
    assert len([key for key in values if key[2].startswith("bias_")]) == 4 * 2 * 2


def test_a_data_set_of_ours_may_stand_for_one_of_theirs_with_any_setting():
    """What SLANG's paper prints of a data set, under the name of ours: ranks are settings of its methods."""
    methods = {"slang-1": "slang L=1", "slang-10": "slang L=10"}
    table = {
        "tables": ["Table 7"],
        "datasets": {"usps_3v5_smoothed": "usps_3v5"},
        "metrics": {"sym_kl": "sym_kl"},
    }
    values = paper_values([changed(SLANG_LOGISTIC, methods=methods, **table)])
    assert {key: value.value.text for key, value in values.items()} == {
        ("usps_3v5_smoothed", "slang-1", "sym_kl", "mean"): "14.924",
        ("usps_3v5_smoothed", "slang-10", "sym_kl", "mean"): "4.481",
    }


@pytest.mark.parametrize(
    ("table", "task", "minutes"), [("Table 4.3", "mnist", "5.82"), ("Table 4.2", "wine", "0.0147")]
)
def test_durations_in_seconds_become_minutes(table, task, minutes):
    """Table 4.3 of the thesis on noisy optimisers prints 5m49s for Adam, Table 4.2 0.88 seconds."""
    paper = make_tables("mata2018", task, [table], {"adam": "adam"})
    assert paper_values([paper])[task, "adam", "runtime", "mean"].value.text == minutes


def values_of_benchmark(name, paper=None):
    """The printed numbers that a benchmark holds ours against, of one paper or of all."""
    benchmark = load_benchmark(name)
    values = paper_values([listed for listed in benchmark.papers if paper in (None, listed.paper)])
    metrics = {str(metric) for metric in benchmark.metrics}
    rows = (benchmark.datasets, benchmark.entries, metrics)
    return {
        key: value
        for key, value in values.items()
        if all(name in names for name, names in zip(key, rows, strict=False))
    }


@pytest.mark.parametrize(
    ("name", "count", "place", "value"),
    [
        (
            "blindness-detection",
            42,
            ("aptos2019", "vifa", "accuracy_0.8_disagreement", "mean"),
            0.975,
        ),
        ("mnist-slang", 7, ("mnist", "slang-32", "test_error_pct", "mean"), 1.73),
    ],
)
def test_all_printed_values_of_deep_networks_are_compared(name, count, place, value):
    values = values_of_benchmark(name)
    assert (len(values), values[place].value) == (count, value)


def test_all_46_printed_values_of_the_thesis_on_noisy_optimisers_are_compared_each_in_one_benchmark():
    printed = Counter(f"mata2018 {row['table']}" for row in load_paper("mata2018"))
    assert printed.total() == 46
    names = [
        name
        for name, path in shipped_benchmarks().items()
        if "mata2018" in path.read_text("utf-8")
    ]
    assert (
        Counter(
            value.source
            for name in names
            for value in values_of_benchmark(name, "mata2018").values()
        )
        == printed
    )

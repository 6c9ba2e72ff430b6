from copy import deepcopy
from types import SimpleNamespace

import pytest

from bdl.errors import InputError
from bdl.reports.papers import PAPERS, PaperValue, Printed, _count, load_paper, paper_values

SLANG = SimpleNamespace(
    paper="slang2018",
    tables=["Table 2"],
    task="uci_bnn",
    methods={"slang-1": "slang", "bbb": "bbb"},
    metrics={},
    datasets={},
    split=None,
)


def listed(base, **changes):
    return SimpleNamespace(**(vars(base) | changes))


def test_known_value_with_its_standard_error(vifa):
    value = paper_values([vifa])["energy", "vifa-nn", "nmll", "mean"]
    assert (value.value.text, value.stderr.text, value.source) == ("2.53", "0.02", "vifa2023 Table 1")
    assert (value.value, value.stderr) == (2.53, 0.02)


def test_medians_come_from_their_own_table_without_standard_error(vifa):
    value = paper_values([vifa])["energy", "vifa-nn", "nmll", "median"]
    assert (value.value.text, value.stderr, value.source) == ("2.54", None, "vifa2023 Table 11")


def test_every_value_of_the_vifa_tables_is_found(vifa):
    papers = [listed(vifa, methods=vifa.methods | {"slang": "slang"})]
    values = paper_values(papers)
    printed = [row for row in load_paper("vifa2023") if row["table"] in ("Table 1", "Table 11")]
    # 4 datasets x 3 methods x (mean and median of NMLL and RMSE, mean runtime)
    assert len(values) == len(printed) == 60
    names = {method: entry for entry, method in papers[0].methods.items()}
    for row in printed:
        value = values[row["dataset"], names[row["method"]], row["metric"], row["statistic"]]
        assert value.value.text == row["value"]
        assert (value.stderr.text if value.stderr else "") == row["stderr"]


def test_vifa_means_transcribed_by_hand(vifa):
    values = paper_values([vifa])
    nmll = {
        ("energy", "vifa-lr"): ("2.57", "0.02"),
        ("boston", "vifa-lr"): ("3.07", "0.12"),
        ("concrete", "vifa-lr"): ("3.77", "0.02"),
        ("yacht", "vifa-lr"): ("3.65", "0.04"),
        ("energy", "vifa-nn"): ("2.53", "0.02"),
        ("boston", "vifa-nn"): ("2.66", "0.06"),
        ("concrete", "vifa-nn"): ("3.34", "0.01"),
        ("yacht", "vifa-nn"): ("2.36", "0.06"),
    }
    for place, texts in nmll.items():
        value = values[*place, "nmll", "mean"]
        assert (value.value.text, value.stderr.text) == texts


def test_every_statistic_says_of_how_many_it_is():
    """But for counts, which are not of several runs, and where 20 predictions are of one network."""
    rows = [row for paper in PAPERS for row in load_paper(paper) if row["statistic"] in ("mean", "median")]
    assert {_count(row) for row in rows if row["paper"] != "mata2018" and "runtime" not in row["metric"]} == {5, 10, 20}
    assert {_count(row) for paper in PAPERS for row in load_paper(paper) if row["statistic"] == "single"} == {1}


def test_the_first_listed_table_wins(vifa):
    thesis = listed(vifa, paper="brownlie2022", tables=["Table 5.4"])
    key = ("energy", "vifa-nn", "nmll", "mean")
    assert paper_values([thesis, vifa])[key].source == "brownlie2022 Table 5.4"
    assert paper_values([vifa, thesis])[key].source == "vifa2023 Table 1"


def test_two_entries_may_stand_for_one_method(vifa):
    values = paper_values([listed(vifa, methods={"published": "vifa_nn", "corrected": "vifa_nn"})])
    assert values["yacht", "published", "rmse", "mean"] == values["yacht", "corrected", "rmse", "mean"]


def test_another_paper():
    value = paper_values([SLANG])["boston", "slang-1", "rmse", "mean"]
    assert value == PaperValue(Printed("3.21"), Printed("0.19"), "slang2018 Table 2", n=20)


def texts(value):
    return value.value.text, value.stderr.text


def test_a_metric_of_another_name_and_opposite_sign():
    """Table 2 of the SLANG paper prints log-likelihoods."""
    values = paper_values([listed(SLANG, metrics={"joint_nll": "-test_ll"})])
    assert {key[2] for key in values} == {"joint_nll"}, "rmse is not listed"
    assert texts(values["boston", "bbb", "joint_nll", "mean"]) == ("2.66", "0.06")
    assert texts(values["kin8nm", "bbb", "joint_nll", "mean"]) == ("-1.07", "0.00")
    assert texts(values["naval", "bbb", "joint_nll", "mean"]) == ("-4.61", "0.01")
    assert texts(values["naval", "slang-1", "joint_nll", "mean"]) == ("-4.76", "0.00")
    assert values["boston", "bbb", "joint_nll", "mean"].value == 2.66
    assert len(values) == 8 * 2, "data sets and methods of Table 2"


def test_a_metric_may_stand_for_two_of_ours():
    values = paper_values([listed(SLANG, metrics={"nmll": "-test_ll", "joint_nll": "-test_ll", "rmse": "rmse"})])
    assert values["yacht", "bbb", "nmll", "mean"] == values["yacht", "bbb", "joint_nll", "mean"]
    assert values["yacht", "bbb", "rmse", "mean"] == paper_values([SLANG])["yacht", "bbb", "rmse", "mean"]
    assert "test_ll" not in {key[2] for key in values}


def test_one_table_may_be_listed_twice():
    """The paper's test_ll is the joint density for some methods, and that of each row for others."""
    first = listed(SLANG, methods={"slang-1": "slang", "bbb": "bbb"}, metrics={"joint_nll": "-test_ll"})
    second = listed(SLANG, methods={"mc-dropout": "mc_dropout"}, metrics={"nmll": "-test_ll", "rmse": "rmse"})
    values = paper_values([first, second])
    assert {key[1:3] for key in values} == {
        ("slang-1", "joint_nll"),
        ("bbb", "joint_nll"),
        ("mc-dropout", "nmll"),
        ("mc-dropout", "rmse"),
    }
    assert texts(values["boston", "mc-dropout", "nmll", "mean"]) == ("2.46", "0.06")


@pytest.mark.parametrize(
    ("text", "negative"), [("2.90", "-2.90"), ("-2.90", "2.90"), ("0.00", "0.00"), ("1e3", "-1e3")]
)
def test_the_opposite_sign_keeps_the_digits(text, negative):
    opposite = -Printed(text)
    assert type(opposite) is Printed
    assert (opposite.text, float(opposite)) == (negative, float(negative))
    assert opposite.exponent == Printed(text).exponent


def test_a_printed_standard_deviation_is_not_taken_for_a_standard_error():
    wine = SimpleNamespace(
        paper="mata2018", tables=["Table 4.2"], task="wine", methods={"bbb": "bbb"}, metrics={}, datasets={}, split=None
    )
    found = paper_values([wine])["wine", "bbb", "rmse", "mean"]
    assert (found.n, found.stderr.text) == (20, "0.0051"), "0.023 over the root of 20 repeats"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"paper": "vifa2032"}, "unknown paper 'vifa2032': did you mean vifa2023"),
        ({"task": "uci_nn"}, "unknown task of vifa2023 'uci_nn': did you mean uci_nn_predictions"),
        (
            {"metrics": {"joint_nll": "-test_ll"}},
            "unknown metric of vifa2023 uci_nn_predictions 'test_ll': known: nmll, rmse, runtime",
        ),
        ({"tables": ["Table 99"]}, "unknown table of vifa2023 uci_nn_predictions 'Table 99'"),
        (
            {"methods": {"a": "vifa_rl"}},
            "unknown method of vifa2023 uci_nn_predictions 'vifa_rl': did you mean vifa_lr",
        ),
    ],
)
def test_wrong_names_are_told(vifa, changes, message):
    with pytest.raises(InputError, match=message):
        paper_values([listed(vifa, **changes)])


def test_several_numbers_for_one_key_are_refused():
    ambiguous = listed(SLANG, tables=["Table 1"], task="logistic_posterior", methods={"slang": "slang"})
    with pytest.raises(InputError, match="slang2018 Table 1 prints several numbers for australian slang neg_elbo mean"):
        paper_values([ambiguous])


@pytest.mark.parametrize("paper", PAPERS)
def test_every_shipped_number_is_a_number(paper):
    for row in load_paper(paper):
        assert isinstance(Printed(row["value"]).exponent, int)
        assert not row["stderr"] or Printed(row["stderr"]) >= 0


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


def test_copies_keep_the_digits():
    assert deepcopy(Printed("2.90")).text == "2.90"


THESIS = SimpleNamespace(
    paper="brownlie2022",
    tables=["Table 5.1"],
    task="vifa_posterior_linear_synthetic",
    metrics={},
    datasets={},
    split=None,
)


def test_a_setting_chooses_among_the_numbers_of_a_method():
    values = paper_values([listed(THESIS, methods={"k1": "vifa latent_dim=1", "k2": "vifa latent_dim=2"})])
    found = {entry: values["synthetic", entry, "rel_cov_dist", "mean"].value.text for entry in ("k1", "k2")}
    assert found == {"k1": "0.0983", "k2": "0.1053"}
    with pytest.raises(InputError, match="which differ in their settings"):
        paper_values([listed(THESIS, methods={"k": "vifa"})])
    with pytest.raises(InputError, match=r"unknown method .* 'vifa latent_dim=3'"):
        paper_values([listed(THESIS, methods={"k": "vifa latent_dim=3"})])


def test_a_single_run_stands_under_the_mean_and_says_so(vifa):
    tables = SimpleNamespace(
        paper="brownlie2022",
        tables=["Table B.3"],
        task="vifa_posterior_linear_uci",
        methods={"vifa": "vifa"},
        metrics={},
        datasets={},
        split=None,
    )
    value = paper_values([tables])["boston", "vifa", "rel_mean_dist", "mean"]
    assert (value.value.text, value.stderr, value.single) == ("0.0262", None, True)
    assert not paper_values([vifa])["energy", "vifa-nn", "nmll", "mean"].single


def test_values_of_one_split_say_so():
    """Figure 7d of the SLANG paper prints the bias on the first split; Table 1 prints means over twenty."""
    tables = SimpleNamespace(
        paper="slang2018",
        tables=["Figure 7d"],
        task="logistic_posterior",
        methods={"mf-exact": "mf_exact", "slang-10": "slang L=10"},
        metrics={},
        datasets={},
        split=0,
    )
    values = paper_values([tables, listed(tables, tables=["Table 1"], methods={"mf-exact": "mf_exact"}, split=None)])
    bias = values["usps_3v5", "slang-10", "bias_variance", "mean"]
    assert (bias.value.text, bias.single, bias.split) == ("1.38", True, 0)
    assert values["australian", "mf-exact", "neg_elbo", "mean"].split is None
    assert len([key for key in values if key[2].startswith("bias_")]) == 4 * 2 * 2


def test_a_data_set_of_ours_may_stand_for_one_of_theirs_with_any_setting():
    """What SLANG's paper prints of a data set, under the name of ours: ranks are settings of its methods."""
    tables = SimpleNamespace(
        paper="slang2018",
        tables=["Table 7"],
        task="logistic_posterior",
        methods={"slang-1": "slang L=1", "slang-10": "slang L=10"},
        metrics={"sym_kl": "sym_kl"},
        datasets={"usps_3v5_smoothed": "usps_3v5"},
        split=None,
    )
    values = {key: value.value.text for key, value in paper_values([tables]).items()}
    assert values == {
        ("usps_3v5_smoothed", "slang-1", "sym_kl", "mean"): "14.924",
        ("usps_3v5_smoothed", "slang-10", "sym_kl", "mean"): "4.481",
    }


def test_durations_in_seconds_become_minutes():
    """Table 4.3 of the thesis on noisy optimisers prints 5m49s for Adam, Table 4.2 0.88 seconds."""
    tables = {"Table 4.3": ("mnist", "5.82"), "Table 4.2": ("wine", "0.0147")}
    for table, (task, minutes) in tables.items():
        paper = listed(SLANG, paper="mata2018", tables=[table], task=task, methods={"adam": "adam"})
        assert paper_values([paper])[task, "adam", "runtime", "mean"].value.text == minutes

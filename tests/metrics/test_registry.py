"""What metrics say about themselves."""

import pytest

from bdl.errors import InputError
from bdl.metrics import METRICS, MetricInfo, get_metric_info
from bdl.registry import Label
from bdl.spec.labels import list_steering_scores

from .fits import fit


@pytest.mark.parametrize("name", METRICS.names())
def test_every_metric_follows_the_contract(name):
    score = METRICS.build(name, {})
    assert isinstance(score.info, MetricInfo)
    assert METRICS.missing_members(type(score)) is None


@pytest.mark.parametrize(
    ("label", "name"),
    [
        ("nll", "nll"),
        ("ece_20", "ece"),
        ("joint_nll", "joint_nll"),
        ("neg_elbo_1000_mcse", "neg_elbo"),
    ],
)
def test_labels_are_resolved_by_the_longest_name(label, name):
    assert get_metric_info(label) == METRICS.get(name).info


def test_a_name_within_a_name_does_not_count(monkeypatch):
    """With `error` and `error_rate` registered the label error_rate_5 is of the second."""
    monkeypatch.setitem(METRICS.targets, "error_rate", METRICS.targets["accuracy"])
    assert get_metric_info("error_rate_5") == get_metric_info("accuracy")
    assert get_metric_info("error_5") == get_metric_info("error")


def test_metrics_of_a_file_are_known_by_their_label(tmp_path):
    """Which reads otherwise than the place."""
    file = tmp_path / "mine.py"
    file.write_text(
        "from bdl.metrics import MetricInfo\n"
        "class Misses:\n    info = MetricInfo('Misses', 'rows', 'lower', 'predictive')\n"
    )
    place = f"{file}:Misses"
    for label in (place, Label("misses_100", place, {"limit": 100})):
        assert get_metric_info(label).label == "Misses"


@pytest.mark.parametrize("label", ["rmsee", "ece20", "_nll", ""])
def test_unknown_labels_are_refused(label):
    with pytest.raises(InputError, match=f"unknown metric '{label}'"):
        get_metric_info(label)


def test_runtime_is_not_computed():
    with pytest.raises(InputError, match="runtime is measured while a fit runs"):
        METRICS.build("runtime", {})(fit())


def test_methods_are_ranked_by_what_judges_predictions_of_new_rows():
    """Not by training scores, which overfitting wins, nor by entropy, which overconfidence wins."""
    names = ("nmll", "crps", "rmse", "accuracy", "training_nmll", "training_nll", "entropy")
    ranking = [name for name in names if get_metric_info(name).ranks_methods]
    assert ranking == ["nmll", "crps", "rmse", "accuracy"]
    others = ("coverage", "runtime", "rel_mean_dist", "neg_elbo", "training_error_pct")
    assert not any(get_metric_info(name).ranks_methods for name in others)


def test_a_search_is_steered_by_rows_that_a_fit_has_not_seen():
    steering = list_steering_scores()
    assert {"nmll", "crps", "rmse", "error"} <= {*steering}
    assert not {"training_nmll", "training_nll", "training_error_pct", "entropy"} & {*steering}

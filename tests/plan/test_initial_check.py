"""What is refused before training: a likelihood that overflows where training starts."""

import pytest

from bdl.errors import InputError
from bdl.plan import initial_check
from bdl.plan.initial_check import check_initial_likelihood
from bdl.plan.planning import plan_tasks
from bdl.spec import load_benchmark


def cells(*changes, name="uci-regression", entry="vifa-nn"):
    profile = "check" if name == "uci-regression" else "quick"
    overrides = [f"entries.{entry}.{change}" for change in changes]
    return plan_tasks(
        load_benchmark(name, profile, overrides).select(entries=[entry] if entry else []),
        splits=(0,),
    )


@pytest.mark.parametrize("name", ["uci-regression", "online-fa"])
def test_sound_ranges_pass(name):
    check_initial_likelihood(cells(name=name, entry=None))


SHIPPED = ["uci-regression", "posterior-methods", "noisy-wine", "sgd-posterior", "slang-toy"]


@pytest.mark.data
@pytest.mark.parametrize("name", [*SHIPPED, "sparse-network", "network-posterior"])
def test_shipped_methods_return_what_is_asked_of_others(name, monkeypatch):
    """Their first update as well, which only methods from outside make before training."""
    monkeypatch.setattr(initial_check, "outside_file", lambda method: ("method.py", ""))
    tasks = plan_tasks(load_benchmark(name), splits=(0,))
    methods = {(task.settings.method.build(), str(task.settings.model)): task for task in tasks}
    check_initial_likelihood(methods.values())


HIGH = "search.space.noise_precision.high"


@pytest.mark.parametrize("entry", ["vifa-nn", "slang-nn", "swag-nn"])
def test_an_upper_end_that_overflows_is_refused(entry):
    """The targets of diabetes have a variance of 6,000: with 1e37 their precision exceeds single precision."""
    check_initial_likelihood(cells(f"{HIGH}=1.0e20", entry=entry))
    with pytest.raises(
        InputError, match=f"entries.{entry}: on diabetes the likelihood is not finite at the start"
    ):
        check_initial_likelihood(cells(f"{HIGH}=1.0e37", entry=entry))


def test_double_precision_has_a_higher_limit():
    """1e39 overflows single precision, but not double precision."""
    check_initial_likelihood(cells("training.dtype=float64", f"{HIGH}=1.0e39"))


def test_fixed_values_are_looked_at_too():
    fixed = "{learning_rate: 0.01, prior_precision: 1, noise_precision: 1.0e37}"
    with pytest.raises(
        InputError, match=r"with learning_rate 0\.01, prior_precision 1, noise_precision 1e"
    ):
        check_initial_likelihood(cells("search=null", f"hyper={fixed}"))


@pytest.mark.parametrize("prior", ["student-t", "spike-slab"])
def test_a_prior_that_the_method_cannot_use_is_refused(prior):
    """By one update, which other methods of the package do not make before training."""
    hyper = {
        "student-t": "{learning_rate: 0.01, noise_precision: 1, prior_scale: 1}",
        "spike-slab": "{learning_rate: 0.01, noise_precision: 1, slab_share: 0.5, slab_scale: 1, spike_scale: 0.1}",
    }[prior]
    changes = ("search=null", f"prior={{name: {prior}}}", f"hyper={hyper}")
    with pytest.raises(
        InputError, match=r"entries.vifa-nn: on diabetes prior .* has no precision: .*gaussian"
    ):
        check_initial_likelihood(cells(*changes))

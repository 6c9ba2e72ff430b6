"""Golden trials of methods: two trials in a batch, a few updates by the engine that runs use."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, get_args, get_type_hints

from torch import Tensor

from bdl.data import Dataset, Stream
from bdl.errors import InputError
from bdl.methods import METHODS
from bdl.methods.base import Direct, MinibatchMethod, StreamMethod
from bdl.methods.teacher import TEACHERS
from bdl.models import LIKELIHOODS, MODELS, PRIORS
from bdl.models.problem import Problem
from bdl.posteriors.base import Posterior
from bdl.posteriors.tensors import FAMILIES
from bdl.training.fitting import run_to_end
from bdl.training.schedule import RATES, Schedule
from bdl.training.setup import TrainingSetup
from bdl.training.streaming import StreamFitting, StreamTrial
from bdl.training.trials import Pool
from goldens import problems
from goldens.case import CANCELLING, DOUBLE, SINGLE, SOLVER, Case
from goldens.shipped_settings import NETWORK, Settings, text

EPOCHS = 4
"""More than any warm-up here: methods pass what they do at the ends of epochs and in each phase.
"""
_SOLVERS = (
    "exact-gaussian",
    "fa-elbo",
    "fa-optimum",
    "batch-fa",
    "moment-matching",
    "importance-sampling",
    "laplace",
)
_COMPANY = {
    "model": {"name": "linear"},
    "likelihood": {"name": "gaussian"},
    "prior": {"name": "gaussian"},
}
_PARTS = {"model": MODELS, "likelihood": LIKELIHOODS, "prior": PRIORS}


def case(settings: Settings, dtype: str = "float64") -> Case:
    """Make the case of a method among what it is used with.

    Settings as `goldens.shipped_settings` gives them.
    """
    method = settings["method"]["name"]
    own, others = f"method:{method}", ["engine", "preparation"]
    if _streams(settings["method"]):
        others = ["engine", "dataset:fa", *families(method)]
        tolerance = (
            10 * SINGLE if method in _SOLVERS else SINGLE
        )  # a solver that float32 keeps from its optimum
        return Case(
            text(settings["method"], "method"),
            own,
            lambda: _streamed(settings),
            (*others,),
            tolerance,
            settings,
        )
    company = {kind: settings.get(kind) or default for kind, default in _COMPANY.items()}
    others += [f"{kind}:{part['name']}" for kind, part in company.items()]
    others += families(method)
    others += [f"rate:{rate['name']}" for rate in (settings.get("rates") or {}).values()]
    name = f"{text(settings['method'], 'method')} on {', '.join(text(part, kind) for kind, part in company.items())}"
    for field in ("sampling", "incomplete"):
        if settings.get(field, "drop") not in ("without_replacement", "drop"):
            name += f", {field} {settings[field]}"
    if settings.get("rates"):
        name += ", rates " + ", ".join(
            f"{group} {text(rate, 'rate')}" for group, rate in settings["rates"].items()
        )
    tolerance = SINGLE if dtype == "float32" else SOLVER if method in _SOLVERS else DOUBLE
    if method == "sgd-iterates":  # the spread of a few iterates, which differ little
        tolerance = CANCELLING
    return Case(
        name, own, lambda: fitted(settings | company, dtype), (*others,), tolerance, settings
    )


def singles() -> Iterator[Case]:
    """Yield cases of the engine in float32, in which runs train."""
    network = {"model": {"name": "mlp", "hidden": [3]}}
    for name in ("vifa", "bbb", "slang", "adam"):
        made = case({"method": {"name": name}, **network}, "float32")
        yield replace(
            made,
            name=f"float32: {made.name}",
            owner="engine",
            others=(made.owner, *made.others[1:]),
            settings=None,
        )


def families(method: str) -> list[str]:
    """Name the posterior families that a method says it gives."""
    component = METHODS.get(method)
    found = get_type_hints(
        component.fit if issubclass(component, Direct) else component.posterior
    )["return"]
    given = get_args(found) or (found,)
    return [f"posterior:{name}" for name in FAMILIES.names() if FAMILIES.get(name) in given]


def _streams(method: Settings) -> bool:
    return issubclass(METHODS.get(method["name"]), StreamMethod)


def _build(registry: Any, settings: Settings) -> Any:
    return registry.build(
        settings["name"], {field: value for field, value in settings.items() if field != "name"}
    )


def problem_of(settings: Mapping[str, Settings], dataset: Dataset) -> Problem:
    """Make the problem of model, likelihood and prior on a data set."""
    model, likelihood, prior = (
        _build(registry, settings[kind]) for kind, registry in _PARTS.items()
    )
    return Problem(model, likelihood, dataset.d, likelihood.outputs(dataset.classes), prior)


def dataset_of(settings: Mapping[str, Any]) -> Dataset:
    """Return the data that suit model and likelihood; of a teacher, those that it made."""
    method = settings.get("method", {})
    if method.get("name") == "teacher":
        return TEACHERS[method.get("data", "sparse_linear")]()()
    shape = tuple(NETWORK["shape"]) if settings["model"]["name"] == "module" else ()
    return problems.table(
        {"gaussian": 0, "bernoulli": 2}.get(settings["likelihood"]["name"], 3), shape
    )


def fitted(settings: Settings, dtype: Any, device: str = "cpu") -> dict[str, Tensor]:
    """Train two trials on a device, and return what they end with.

    Settings as those of a case, with all components.
    """
    dataset, method = dataset_of(settings), _build(METHODS, settings["method"])
    if settings["method"]["name"] == "teacher":
        widths = [len(layer) for layer in method._layers(0)]
        settings = settings | {"model": _teacher_model(widths)}
    problem = problem_of(settings, dataset)
    method.check(problem)
    schedule = None
    if isinstance(method, MinibatchMethod):
        rates = {
            group: _build(RATES, rate) for group, rate in (settings.get("rates") or {}).items()
        }
        sampling, incomplete = (
            settings.get("sampling", "without_replacement"),
            settings.get("incomplete", "drop"),
        )
        schedule = Schedule(EPOCHS, problems.BATCH, rates, sampling, incomplete, dtype)
    program = TrainingSetup(dataset, Pool.load(dataset, device, dtype), problem, method, schedule)
    hyper = {name: problems.hyper_of(name) for name in (*method.hyper, *problem.hyper)}
    trained = [dataset.split(i).train if _made(settings) else problems.rows(i) for i in range(2)]
    faster = {
        name: value * (1.5 if name == "learning_rate" else 1) for name, value in hyper.items()
    }
    trials = program.trials([("golden", i) for i in range(2)], trained, [hyper, faster])
    fitting = program.fitting(trials)
    end = run_to_end(fitting)
    found: dict[str, Tensor] = {"updates": end.updates}
    found |= _each(
        [fitting.posterior(end, place) for place in range(2)], settings["method"]["name"]
    )
    return found | {f"buffer {name}": value for name, value in end.buffers.items()}


def _made(settings: Settings) -> bool:
    return bool(settings["method"]["name"] == "teacher")


def _teacher_model(widths: list[int]) -> Settings:
    return (
        {"name": "linear"}
        if len(widths) == 1
        else {"name": "mlp", "hidden": widths[:-1], "activation": "sigmoid"}
    )


def _streamed(settings: Settings) -> dict[str, Tensor]:
    """Learn from two streams of 12 parameters, long enough for a warm-up and more than one block."""
    method, stream = _build(METHODS, settings["method"]), Stream(12, 10.0, length=250)
    fitting = StreamFitting(method, [StreamTrial(stream, split, 7 + split) for split in range(2)])
    end = run_to_end(fitting)
    return _each([fitting.posterior(end, place) for place in range(2)], settings["method"]["name"])


def _each(posteriors: list[Posterior], method: str) -> dict[str, Tensor]:
    """Return what the posteriors of both trials say.

    Solvers leave the sign of factors open, or their rotation: what is drawn by them says nothing.
    """
    told = {
        f"{name} {i}": value
        for i, own in enumerate(posteriors)
        for name, value in about(own).items()
    }
    return {
        name: value
        for name, value in told.items()
        if method not in _SOLVERS or not name.startswith("sample")
    }


def about(posterior: Posterior) -> dict[str, Tensor]:
    """Return what a posterior says: moments, samples of fixed noise, and densities where it has one."""
    mean, variance = posterior.mean(), posterior.variance()
    noise, place = (
        problems.wave(2, n, phase=5.0).to(mean) for n in (posterior.noise_dim, posterior.dim)
    )
    found = {"mean": mean, "variance": variance, "sample": posterior.sample(noise)}
    with suppress(InputError):
        found["log_prob"] = posterior.log_prob(mean + variance.sqrt() * place)
    return found

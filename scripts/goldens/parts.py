"""Golden trials of models, likelihoods, priors, rates, posterior families, references and data sets."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from bdl.data import DATASETS, Dataset, Stream
from bdl.errors import InputError
from bdl.methods.counters import StepCounters
from bdl.models import LIKELIHOODS, MODELS, PRIORS
from bdl.models.base import BufferedModel, LayeredModel
from bdl.models.likelihoods import GaussianLikelihood
from bdl.models.networks import Mlp
from bdl.models.priors import HorseshoePrior, PrecisionPrior
from bdl.models.problem import Batch, Problem
from bdl.posteriors import FAMILIES, kl_divergence
from bdl.posteriors.base import GaussianPosterior as GaussianFamily
from bdl.posteriors.base import Posterior
from bdl.references import REFERENCES
from bdl.references.chains import build_log_posterior
from bdl.references.function_certificate import lay_grid
from bdl.training.direct import TrainingData
from bdl.training.schedule import RATES
from goldens import methods, problems
from goldens.case import CANCELLING, DOUBLE, SINGLE, SOLVER, Case
from goldens.shipped_settings import Settings, text

Found = dict[str, Any]
_HYPER = {name: torch.tensor(value, dtype=torch.float64) for name, value in problems.HYPER.items()}
_DRAWN = 1e-6
"""Some data sets are drawn in float32 and kept as float64."""
_UNIT = torch.tensor(2.0, dtype=torch.float64)


def _build(registry: Any, settings: Settings) -> Any:
    return registry.build(
        settings["name"], {field: value for field, value in settings.items() if field != "name"}
    )


def model(settings: Settings) -> Case:
    """Make the case of a model: outputs, gradients, and what else it knows, at fixed parameters."""

    def compute() -> Found:
        network = _build(MODELS, settings)
        shape = settings.get("shape")
        d_in, d_out = (
            (int(np.prod(shape)), 2) if shape else (3, 1 if settings["name"] == "unit" else 2)
        )
        problem = Problem(
            network,
            GaussianLikelihood() if d_out == 1 else LIKELIHOODS.get("categorical")(),
            d_in,
            d_out,
        )
        noise = problems.wave(problem.dim)
        theta, x = problem.initial(noise), problems.wave(3 if shape else 5, d_in, phase=1.0)
        y = torch.arange(len(x), dtype=torch.float64) % 2
        batch = Batch(x, y, torch.tensor(20.0, dtype=torch.float64), _UNIT)
        gradient, value = torch.func.grad_and_value(
            lambda one: problem.log_likelihood(one, batch, _HYPER)
        )(theta)
        found = {
            "dim": problem.dim,
            "biases": problem.layout.biases,
            "initial": theta,
            "value": value,
        }
        found |= {"f": network(theta, x, d_out), "gradient": gradient}
        if isinstance(network, LayeredModel):
            for number, (inputs, errors) in enumerate(problem.layers(theta, batch, _HYPER)):
                found |= {f"inputs {number}": inputs, f"errors {number}": errors}
        if isinstance(network, BufferedModel):
            state = {name: value.double() for name, value in problem.buffers().items()}
            buffers = (
                problem.recompute_statistics(theta, x)
                if problem.recomputes
                else problem.track(theta, x, state)
            )
            found |= {"predicted": problem.predict(theta, x, buffers)}
            found |= {f"buffer {name}": value for name, value in list(buffers.items())[:4]}
        return found

    others = ("likelihood:gaussian", "likelihood:categorical", "prior:gaussian")
    tolerance = CANCELLING if settings["name"] == "module" else DOUBLE
    return Case(
        text(settings, "model"), f"model:{settings['name']}", compute, others, tolerance, settings
    )


def likelihood(settings: Settings) -> Case:
    """Make the case of a likelihood: densities, draws, moments and Fisher information of fixed outputs."""

    def compute() -> Found:
        own = _build(LIKELIHOODS, settings)
        d_out, hyper = (
            own.outputs(3 if settings["name"] == "categorical" else 2),
            {n: _HYPER[n] for n in own.hyper},
        )
        f, y = problems.wave(6, d_out), torch.arange(6, dtype=torch.float64) % max(2, d_out)
        gradient = torch.func.grad(lambda one: own.log_prob(one, y, hyper, _UNIT).sum())(f)
        restored = own.restore(f, _UNIT, _UNIT + 1)
        predictive = own.predictive(restored, hyper)
        found = {
            "log_prob": own.log_prob(f, y, hyper, _UNIT),
            "gradient": gradient,
            "restored": restored,
        }
        found |= {
            "predictive": predictive.log_prob(y),
            "sample": own.sample(f, hyper, problems.wave(6, phase=1.0)),
        }
        found |= {"root_fisher": own.root_fisher(f, hyper, _UNIT)}
        moments = (
            {"mean": predictive.mean, "variance": predictive.variance}
            if d_out == 1
            else {"p": predictive.probs}
        )
        found |= moments
        units = {
            f"model {name}": value for name, value in own.to_model_units(hyper, _UNIT).items()
        }
        return (
            found
            | units
            | {f"original {name}": v for name, v in own.to_original_units(hyper, _UNIT).items()}
        )

    return Case(
        text(settings, "likelihood"),
        f"likelihood:{settings['name']}",
        compute,
        (),
        DOUBLE,
        settings,
    )


def prior(settings: Settings) -> Case:
    """Make the case of a prior on the layers of a network."""

    def compute() -> Found:
        own = _build(PRIORS, settings)
        layout = Problem(Mlp((3,)), GaussianLikelihood(), 2).layout
        hyper = {
            name: torch.tensor(problems.hyper_of(name), dtype=torch.float64) for name in own.hyper
        }
        size = own.latent_dim(layout)
        phi = problems.wave(size)
        gradient, value = torch.func.grad_and_value(lambda one: own.log_prob(one, hyper, layout))(
            phi
        )
        found = {"log_prob": value, "gradient": gradient, "theta": own.push(phi, hyper, layout)}
        found["sample"] = own.sample(problems.wave(size, phase=1.0), hyper, layout)
        if isinstance(own, PrecisionPrior):
            found["precision"] = own.precision(hyper, layout)
        if isinstance(own, HorseshoePrior):
            found["expected"] = own.expected_log_prob(
                phi, problems.wave(size, phase=2.0).exp(), hyper, layout
            )
            found["source"] = own.source(layout)
        return found

    return Case(
        text(settings, "prior"),
        f"prior:{settings['name']}",
        compute,
        ("model:mlp",),
        DOUBLE,
        settings,
    )


def rate(settings: Settings) -> Case:
    """Make the case of a learning rate's course: its factors, five updates an epoch."""

    def compute() -> Found:
        own = _build(RATES, settings)
        counts = [
            StepCounters(update, update // 5, update % 5 == 0, 5.0, 40)
            for update in (1, 2, 4, 5, 6, 40)
        ]
        return {
            "factors": torch.tensor(
                [own.factor(counters) for counters in counts], dtype=torch.float64
            )
        }

    return Case(text(settings, "rate"), f"rate:{settings['name']}", compute, (), DOUBLE, settings)


_DIM = 6


def families() -> dict[str, Callable[[], Posterior]]:
    """Make a posterior of each family, of six parameters."""
    loc, positive = problems.wave(_DIM), problems.wave(_DIM, phase=1.0).exp()
    factors, below = (
        problems.wave(_DIM, 2, phase=2.0),
        0.4 * problems.wave(_DIM, _DIM, phase=3.0).tril(-1),
    )
    root, draws = below + positive.diag(), problems.wave(5, _DIM, phase=4.0)

    def kronecker() -> Posterior:
        inner = [
            0.4 * problems.wave(2, 2, phase=i).tril(-1) + problems.wave(2, phase=i).exp().diag()
            for i in (5, 6)
        ]
        outer = [problems.wave(1).exp().diag(), below[:2, :2] + positive[:2].diag()]
        roots = [torch.cat([own.flatten() for own in roots]) for roots in (inner, outer)]
        made: Posterior = FAMILIES.get("kronecker")(
            loc, *roots, torch.zeros(0, 1, 1, 2, dtype=torch.float64)
        )
        return made

    def built(name: str, *tensors: Tensor) -> Callable[[], Posterior]:
        return lambda: FAMILIES.get(name)(*tensors)

    source = torch.tensor([[0, 0, 0, 1, 1, 1], [2, 3, 4, 2, 3, 4]])
    return {
        "diagonal": built("diagonal", loc, positive),
        "factor-analysis": built("factor-analysis", loc, factors, positive),
        "full": built("full", loc, root),
        "full-precision": built("full-precision", loc, root),
        "low-rank-precision": built("low-rank-precision", loc, factors, positive),
        "kronecker": kronecker,
        "linearised": built("linearised", loc, root),
        "traced": built("traced", loc, root, positive, draws),
        "last-layer": built("last-layer", loc, root[:2, :2]),
        "mixture": built(
            "mixture",
            draws[:2],
            problems.wave(2, _DIM, 2, phase=6.0),
            problems.wave(2, _DIM).exp(),
        ),
        "point": built("point", loc),
        "dropout": built(
            "dropout", loc, torch.tensor([0, 0, 1, 1, 2, 2]), 0.2 * positive[:2] / positive.max()
        ),
        "empirical": built("empirical", draws),
        "scaled": built(
            "scaled", loc, positive, 0.3 * loc[:4], 0.2 * positive[:4], source.clamp(max=4)
        ),
        "student-t": built("student-t", loc, positive, torch.tensor(5.0, dtype=torch.float64)),
        "weighted": built("weighted", draws, problems.wave(5, phase=7.0)),
    }


def family(settings: Settings) -> Case:
    """Make the case of a posterior family."""
    name = settings["name"]

    def compute() -> Found:
        posterior = families()[name]()
        found: Found = {**methods.about(posterior), "covariance": posterior.covariance()}
        with suppress(InputError):
            found["entropy"] = posterior.entropy()
        if isinstance(posterior, GaussianFamily):
            delta, other = problems.wave(_DIM, phase=8.0), families()["full"]()
            assert isinstance(other, GaussianFamily), "full is one"
            found |= {
                "log_det": posterior.log_det(),
                "whitened": posterior.whiten(delta).square().sum(),
            }
            found |= {
                "precision": posterior.precision_diagonal(),
                "kl": kl_divergence(posterior, other),
            }
            found |= {"kl back": kl_divergence(other, posterior)}
        for verb in ("effective_size", "log_evidence", "gain"):
            if hasattr(posterior, verb):
                found[verb] = getattr(posterior, verb)()
        return found

    return Case(
        name,
        f"posterior:{name}",
        compute,
        ("posterior:full",) * (name != "full"),
        DOUBLE,
        settings,
    )


def reference(settings: Settings) -> Case:
    """Make the case of a reference: its moments; of one that samples, what it would sample."""
    name = settings["name"]

    def compute() -> Found:
        own, found = _build(REFERENCES, settings), dict[str, Any]()
        for likelihood in ("gaussian", "bernoulli"):
            for bias in (True, False):
                fit = {
                    "model": {"name": "linear", "bias": bias},
                    "likelihood": {"name": likelihood},
                }
                fit |= {"prior": {"name": "gaussian", "bias_precision": 0.2 if bias else None}}
                with suppress(InputError):
                    for part, value in _truth(own, fit, two=name == "grid").items():
                        found[f"{likelihood} {'with' if bias else 'without'} bias {part}"] = value
        return found

    others = (
        "preparation",
        "model:linear",
        "likelihood:gaussian",
        "likelihood:bernoulli",
        "prior:gaussian",
    )
    return Case(
        text(settings, "reference"), f"reference:{name}", compute, others, SOLVER, settings
    )


def _truth(own: Any, fit: Settings, two: bool) -> Found:
    dataset = methods.dataset_of(fit)
    if two:  # a grid has room for two parameters
        dataset = replace(dataset, x=dataset.x[:, : 1 if fit["model"]["bias"] else 2])
    problem = methods.problem_of(fit, dataset)
    own.check(problem)
    data = TrainingData.of(dataset, problems.rows(0))
    given = {name: problems.hyper_of(name) for name in problem.hyper}
    hyper = data.hyper(given, problem)
    if own.of_functions:
        value, gradient = build_log_posterior(problem, data.x, data.y, hyper)(
            problems.wave(problem.dim).numpy()
        )
        return {"value": [value], "gradient": gradient, "grid": lay_grid(data.x)}
    if recipe := own.recipe(problem, data.x, data.y, hyper):
        regression = recipe.regression
        noise = [] if regression.noise_precision is None else [regression.noise_precision]
        return {
            "x": regression.x,
            "y": regression.y,
            "precision": regression.prior_precision,
            "noise": noise,
        }
    truth = own.fit(problem, data.x, data.y, hyper)
    found = {"mean": truth.mean, "covariance": truth.covariance}
    if truth.log_density is not None:
        found["log_density"] = truth.log_density(problems.wave(2, problem.dim))
    return found | {name: torch.as_tensor(value).double() for name, value in truth.hyper.items()}


def dataset(settings: Settings) -> Case:
    """Make the case of a data set that is simulated, bundled, or read from a file of the user."""
    name = settings["name"]

    def compute() -> Found:
        if name in ("csv", "parquet"):
            return _table(name)
        component = _build(DATASETS, settings)
        made = component()
        return _stream(made) if isinstance(made, Stream) else _rows(made)

    tolerance = SINGLE if name == "fa" else _DRAWN
    others = ("posterior:factor-analysis",) if name == "fa" else ("preparation",)
    return Case(text(settings, "dataset"), f"dataset:{name}", compute, others, tolerance, settings)


def _rows(made: Dataset) -> Found:
    found: Found = {"shape": list(made.x.shape), "x": made.x.astype(np.float64), "y": made.y}
    for index in range(min(2, made.splits or 2)):
        split = made.split(index)
        found |= {
            f"{part} {index}": rows.astype(np.float64)
            for part, rows in split._asdict().items()
            if len(rows)
        }
    return found


def _stream(made: Stream) -> Found:
    model = made.model(1)
    observations = torch.cat(list(made.blocks(1, 20)))
    return {"mean": model.loc, "covariance": model.covariance(), "observations": observations}


def _table(name: str) -> Found:
    """Read a small file with a column of text and groups."""
    columns = {
        "a": problems.wave(12).numpy().round(6),
        "b": problems.wave(12, phase=1.0).numpy().round(6),
    }
    frame = pd.DataFrame(
        {
            **columns,
            "kind": list("xyzxyzxyzxyz"),
            "y": problems.wave(12, phase=2.0).numpy().round(6),
        }
    )
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"table.{name}"
        frame.to_csv(path, index=False) if name == "csv" else frame.to_parquet(path)
        found: Found = {}
        ways: dict[str, Found] = {"plain": {"leave_out": ["kind"]}, "grouped": {"group": "kind"}}
        for word, options in ways.items():
            made = DATASETS.build(name, {"path": str(path), "target": "y", **options})()
            found |= {f"{word} {part}": value for part, value in _rows(made).items()}
        return found

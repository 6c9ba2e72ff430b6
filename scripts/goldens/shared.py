"""Golden trials of what all results share: random numbers, schedules, splits, standardisation, searches."""

from collections.abc import Iterator
from dataclasses import replace
from math import nan
from typing import Any

import torch

from bdl.data import (
    Dataset,
    SplitScheme,
    Standardise,
    folds,
    half_split,
    leading_split,
    prepare_dataset,
    recipe_split,
)
from bdl.data.splits import group_split, part_split, tail_split, three_way_split
from bdl.methods import METHODS
from bdl.metrics import METRICS
from bdl.models.likelihoods import GaussianLikelihood
from bdl.models.networks import LinearModel
from bdl.models.problem import Problem
from bdl.rng import normal_slice, random_bits, random_normals, trial_keys
from bdl.search.choice import choose_best_setting, summarise_trials
from bdl.search.crossval import FoldScore, cross_validate
from bdl.search.proposals import propose
from bdl.spec import Search
from bdl.training.direct import TrainingData
from bdl.training.fitting import ignore_progress
from bdl.training.schedule import Schedule
from bdl.training.setup import TrainingSetup
from bdl.training.trials import Pool
from goldens import methods, problems
from goldens.case import SOLVER, Case
from goldens.shipped_settings import Settings

Found = dict[str, Any]


def engine() -> Iterator[Case]:
    """Yield the cases of the engine."""
    yield Case("random numbers", "engine", _random)
    yield from methods.singles()


def _random() -> Found:
    """Draw bits, both halves of them, and normals of both precisions.

    Each word of 32 bits is a digit by itself.
    """
    keys, step = (
        trial_keys([("golden", 0), ("golden", 1)], "steps"),
        torch.tensor(3, dtype=torch.int32),
    )
    first, second = random_bits(keys, step, 3)
    double = torch.cat(random_normals(keys, step, 3, torch.float64), 1)
    part = normal_slice(keys[:1], step, 3, 1, 5, torch.float64)
    return {"keys": keys, "first": first, "second": second, "normals": double, "part": part}


def preparation() -> Iterator[Case]:
    """Yield the cases of splits."""
    yield Case("splits", "preparation", _splits)
    yield Case("tails", "preparation", _tails)


def _splits() -> Found:
    groups = torch.tensor([0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7, 8, 8, 9, 9]).numpy()
    made = {
        "recipe 0": recipe_split(20, 0),
        "recipe 2": recipe_split(20, 2),
        "half": half_split(20, 3),
        "leading": leading_split(20, 7),
        "three ways": three_way_split(groups % 2, groups, 5),
        "groups": group_split(groups, 0.3, 1),
        "parts": part_split(groups, 4),
    }
    found = {
        f"{name} {part}": rows
        for name, own in made.items()
        for part, rows in own._asdict().items()
        if len(rows)
    }
    return found | {f"fold {i}": rows for i, pair in enumerate(folds(20, 3)) for rows in pair}


def _tails() -> Found:
    split = tail_split(problems.wave(20, 3).numpy(), 1)
    return {"train": split.train, "test": split.test}


def prepared(settings: Settings) -> Case:
    """Make the case of a way to split and standardise.

    Settings as `goldens.shipped_settings` gives them.
    """

    def compute() -> Found:
        found: Found = {}
        for word, source in {"numbers": problems.table(0), "labels": problems.table(3)}.items():
            split: SplitScheme = settings["split"]
            standardise: Standardise = settings["standardise"]
            gaps = [problems.split(source)] * 2  # in place of published ones
            dataset = prepare_dataset(
                replace(source, gap=gaps.__getitem__), split, standardise, settings["rows"]
            )
            rows, pool = dataset.split(1), Pool.load(dataset, dtype="float64")
            data = TrainingData.of(dataset, rows.train)
            found |= {f"{word} {part}": own for part, own in data._asdict().items()}
            found |= {
                f"{word} train": rows.train,
                f"{word} test": rows.test,
                f"{word} pool": pool.x,
            }
            found |= _view(word, dataset, pool)
        return found

    name = " ".join(f"{field}={value}" for field, value in settings.items())
    return Case(name, "preparation", compute, (), settings=settings)


def _view(word: str, dataset: Dataset, pool: Pool) -> Found:
    """Return how a trial of the engine sees the pool: the same numbers as `TrainingData`, by another way."""
    problem = Problem(LinearModel(), GaussianLikelihood(), dataset.d)
    program = TrainingSetup(dataset, pool, problem, None, None)  # type: ignore[arg-type]
    view = program.trials([("golden",)], [dataset.split(1).train], [{"noise_precision": 1.0}]).view
    return {f"{word} view {name}": value for name, value in view._asdict().items()}


def search(settings: Settings) -> Case:
    """Make the case of a search: what it proposes before and after scores, one of them of a failed fold."""

    def compute() -> Found:
        chosen = Search.model_validate(settings)
        found, scores = dict[str, Any](), list[FoldScore]()
        while len(scores) < chosen.trials * chosen.folds:
            for setting in propose(chosen, 3, summarise_trials(scores, chosen.penalty)):
                scores += _scored(len(scores) // chosen.folds, setting, chosen.folds)
        for name in chosen.names:
            found[name] = [score.hyper[name] for score in scores[:: chosen.folds]]
        found["told"] = [score for _, score in summarise_trials(scores, chosen.penalty)]
        best = choose_best_setting(scores)
        return found | {f"best {name}": value for name, value in (best or {}).items()}

    name = f"{settings['sampler']} folds={settings['folds']} penalty={settings['penalty']} refit={settings['refit']}"
    ranges = [own["scale"] for own in settings["space"].values()] or list(settings["grid"])
    return Case(" ".join([name, *ranges]), "search", compute, (), SOLVER, settings)


def _scored(trial: int, setting: dict[str, float], k: int) -> list[FoldScore]:
    """Score a setting by a bowl; a fold of the second one fails."""
    value = sum((i + 1) * (number**0.25 - 0.4) ** 2 for i, number in enumerate(setting.values()))
    failed = trial == 1
    reason = "failed" if failed else None
    return [
        FoldScore(0, trial, fold, setting, nan if failed else value + 0.1 * fold, reason, 1)
        for fold in range(k)
    ]


def crossval() -> Case:
    """Make the case of cross-validation through the engine: scores of folds, and of validation rows."""

    def compute() -> Found:
        dataset, found = problems.table(0), dict[str, Any]()
        problem = Problem(LinearModel(), GaussianLikelihood(), dataset.d)
        method, schedule = METHODS.build("vifa", {}), Schedule(4, 4, dtype="float64")
        program = TrainingSetup(
            dataset, Pool.load(dataset, dtype="float64"), problem, method, schedule, samples=8
        )
        hyper = {name: problems.hyper_of(name) for name in (*method.hyper, *problem.hyper)}
        settings, split = (
            {0: {0: hyper, 1: hyper | {"learning_rate": 0.05}}},
            problems.split(dataset),
        )
        for k in (1, 3):
            scores = cross_validate(
                *(program, {0: split}, settings),
                slot_batch={0: split},
                k=k,
                score=METRICS.build("nmll", {}),
                identity=("golden",),
                compile=False,
                progress=ignore_progress,
            )
            found[f"folds {k}"] = [score.score for score in scores]
        return found

    others = (
        "engine",
        "preparation",
        "scoring",
        "method:vifa",
        "metric:nmll",
        "model:linear",
        "likelihood:gaussian",
    )
    return Case(
        "cross-validation",
        "search",
        compute,
        (*others, "prior:gaussian", "posterior:factor-analysis"),
        SOLVER,
    )

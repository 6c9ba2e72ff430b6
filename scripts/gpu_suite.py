"""Measure on a GPU what needs one, part by part: a call stops in time, and the next goes on where it stood.

Parts, each a number or a few in the file of results:

- ``engine``: throughput, 100 networks of `uci-regression` side by side, model-minibatches a
  second;
- ``uci-<set>``: VIFA on 20 splits of each of four data sets of `uci-regression`, made up in their sizes: seconds of an
  update of all splits, and minutes of their final fits;
- ``mnist-<L>``: seconds of SLANG's update on MNIST at rank L, and ``mnist-bbb`` of Bayes by
  Backprop's, S = 4, M = 200;
- ``resnet-adam``, ``resnet-vifa``: seconds of an epoch of ResNet-18 (D = 11,177,538), minibatches of 16 of 1832 images
  of 256 x 256 pixels, by plain Adam and by VIFA in two stages, and the most memory that each had;
- ``efficientnet-adam``, ``efficientnet-vifa``: the same of EfficientNet-Lite0 (D = 3,373,570), which the profile
  `gpu` of `blindness-detection` trains as a whole;
- ``pass-resnet``, ``pass-heads``: seconds of a minibatch's gradient, with its share of a move every twelfth, by the
  Adam and the two-stage VIFA of `blindness-detection`, which take turns of twelve minibatches:
  what a pass over the rows costs on ResNet-18, and on heads 1280-128-2 of features. The VIFA paper
  (2023) has a ratio of 1.06 of whole runs.

- ``engine-adam``, ``loop-adam``, ``loop-compiled``: seconds of a minibatch of Adam on the network of
  ``mnist-bbb``, by the engine, by a plain loop of PyTorch, and by one with
  ``torch.compile(mode="reduce-overhead")`` (on a GPU alone);
- ``jax``: model-minibatches a second of ``jit(vmap(scan))`` on 150 networks 13-50-1, where JAX has
  a GPU.

Each is the median over dozens of updates, after the first dozen. On a GPU, ``kernel_seconds`` is
what the kernels of an update take by PyTorch's profiler, and ``wall_to_kernels`` how many times as
long the update takes. ``--device cpu --tiny`` measures
single updates on a few rows and small images, so that the script can be tried without a GPU; CI
does so. ``--parts`` chooses parts, and ``--pixels`` other images. Times on a CPU are those of the
process, which others on the machine do not change.

The JSON file has the keys ``system``, ``parts`` (what was measured, by name) and ``ratios``; what
it has is not measured again.
"""

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np
import torch
from peers import machine, timing, workload
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from bdl.data import Dataset
from bdl.methods import METHODS
from bdl.models.likelihoods import Categorical, GaussianLikelihood
from bdl.models.modules import Module
from bdl.models.networks import Mlp
from bdl.models.priors import GaussianPrior
from bdl.models.problem import Problem
from bdl.training.fitting import EvaluationSchedule
from bdl.training.schedule import Schedule
from bdl.training.setup import TrainingSetup
from bdl.training.slots import SlotBatch
from bdl.training.traced import trace_immediately
from bdl.training.trials import Pool

RANKS = (1, 2, 4, 8, 16, 32)
UCI = {"boston": (455, 13), "concrete": (927, 8), "energy": (691, 8), "yacht": (277, 6)}
"""Training rows of a split, and inputs."""
NETWORKS = {
    "resnet": "bdl.models.resnet:resnet18",
    "efficientnet": "bdl.models.efficientnet:efficientnet_lite0",
}
"""Factories of networks of photographs."""
TINY_NETWORKS = NETWORKS | {"resnet": "bdl.models.resnet:narrow_resnet18"}
RATIOS = {
    "VIFA's minibatch of ResNet-18 to plain Adam's": ("resnet-vifa", "resnet-adam"),
    "VIFA's minibatch of EfficientNet-Lite0 to plain Adam's": (
        "efficientnet-vifa",
        "efficientnet-adam",
    ),
    "SLANG's update on MNIST at rank 8 to Bayes by Backprop's": ("mnist-8", "mnist-bbb"),
    "Adam's update on MNIST to a plain loop's": ("engine-adam", "loop-adam"),
    "Adam's update on MNIST to a compiled loop's": ("engine-adam", "loop-compiled"),
}
PASSES: dict[str, tuple[dict[str, object], int]] = {
    "adam": ({"prior_share": 0, "gradients_per_update": 12, "max_grad_norm": 10}, 1),
    "vifa-two-stage": ({"gradients_per_update": 12, "mean_epochs": 0}, 12),
}
"""Methods of `blindness-detection`, and their updates in a dozen minibatches."""
Measured = dict[str, float]
_PHOTOGRAPHS = {"learning_rate": 1e-4, "prior_precision": 1.0}


@dataclass(frozen=True)
class Suite:
    """Where and how large to measure.

    Parameters
    ----------
    device
        ``"cuda"`` or ``"cpu"``.
    tiny
        Whether a few rows and small images will do.
    pixels
        Height and width of images, unless they are tiny.
    """

    device: str
    tiny: bool
    pixels: int = 256

    @property
    def parts(self) -> dict[str, Callable[[], Measured]]:
        """What there is to measure, by name."""
        slang = {f"mnist-{rank}": partial(self.digits, "slang", {"rank": rank}) for rank in RANKS}
        return {
            "engine": self.networks,
            **{f"uci-{name}": partial(self.regression, *sizes) for name, sizes in UCI.items()},
            "mnist-bbb": partial(self.digits, "bbb", {}),
            **slang,
            **self._deep_networks,
            "pass-resnet": self.pass_of_networks,
            "pass-heads": self.pass_of_heads,
            "engine-adam": partial(self.digits, "adam", {}),
            "loop-adam": partial(self.loop, compiled=False),
            **self._gpu_peers,
        }

    @property
    def _deep_networks(self) -> dict[str, Callable[[], Measured]]:
        """Networks of photographs, each by plain Adam and by VIFA in two stages."""
        parts: dict[str, Callable[[], Measured]] = {}
        for name in NETWORKS:
            parts[f"{name}-adam"] = partial(self.photographs, name, "adam", {})
            parts[f"{name}-vifa"] = partial(
                self.photographs, name, "vifa-two-stage", {"mean_epochs": 0}
            )
        return parts

    @property
    def _gpu_peers(self) -> dict[str, Callable[[], Measured]]:
        """Peers that are of interest on a GPU alone."""
        if self.device != "cuda":
            return {}
        peers: dict[str, Callable[[], Measured]] = {
            "loop-compiled": partial(self.loop, compiled=True)
        }
        if find_spec("jax") and import_module("jax").default_backend() == "gpu":
            peers["jax"] = self.jax_networks
        return peers

    def networks(self) -> Measured:
        """Train 100 networks 8-50-1 on 691 rows side by side, as on energy."""
        count, rows = (4, 60) if self.tiny else (100, 691)
        rng = np.random.default_rng(0)
        data = Dataset("energy", rng.standard_normal((rows, 8)), rng.standard_normal(rows))
        problem = Problem(Mlp((50,)), GaussianLikelihood(), 8)
        hyper = {"learning_rate": 0.01, "prior_precision": 1.0, "noise_precision": 1.0}
        updates = self._durations(
            data, problem, "vifa", {}, 10, hyper, count, epochs=10, every=self._dozen
        )
        measured = self._update(updates)
        return measured | {"model_minibatches_a_second": count * 4 / measured["seconds"]}

    def regression(self, rows: int, inputs: int) -> Measured:
        """Train the networks of 20 splits side by side by VIFA, as `uci-regression` does."""
        count, rows = (2, 60) if self.tiny else (20, rows)
        rng = np.random.default_rng(0)
        data = Dataset(
            "regression", rng.standard_normal((rows, inputs)), rng.standard_normal(rows)
        )
        hyper = {"learning_rate": 0.01, "prior_precision": 1.0, "noise_precision": 1.0}
        problem, settings = (
            Problem(Mlp((50,)), GaussianLikelihood(), inputs),
            {"gradients_per_update": 4, "max_grad_norm": 10.0},
        )
        found = self._update(
            self._durations(
                data, problem, "vifa", settings, 10, hyper, count, epochs=8, every=self._dozen
            )
        )
        return found | {"minutes": found["seconds"] * (120 * (rows // 10) // 4) / 60}

    def digits(self, method: str, settings: Mapping[str, object]) -> Measured:
        """Time updates of a network 784-400-400-10."""
        rows, units = (600, 8) if self.tiny else (10_000, 400)
        problem = Problem(Mlp((units, units)), Categorical(), 784, 10, GaussianPrior(1e-6))
        hyper = {"learning_rate": 0.001, "prior_precision": 54.6}
        settings = {} if method == "adam" else {"samples": 4, **settings}
        data = _images(rows, (1, 28, 28), 10)
        return self._update(
            self._durations(data, problem, method, settings, 200, hyper, every=self._dozen)
        )

    def loop(self, *, compiled: bool) -> Measured:
        """Time minibatches of a plain loop of Adam on the same network."""
        rows, units = (600, 8) if self.tiny else (10_000, 400)
        data = _images(rows, (1, 28, 28), 10)
        x = torch.as_tensor(data.x).reshape(rows, 784).float().to(self.device) / 255
        labels = torch.as_tensor(data.y).long().to(self.device)
        widths = (784, units, units, 10)
        layers = [layer for pair in pairwise(widths) for layer in (nn.Linear(*pair), nn.ReLU())][
            :-1
        ]
        model = nn.Sequential(*layers).to(self.device)
        optimiser = torch.optim.Adam(model.parameters(), lr=0.001, capturable=compiled)

        def compute_loss(x: Tensor, labels: Tensor) -> Tensor:
            return nn.functional.cross_entropy(model(x), labels)

        loss = torch.compile(compute_loss, mode="reduce-overhead") if compiled else compute_loss

        def durations() -> Iterator[float]:
            for _ in range(8):
                begun = self._now()
                for _ in range(self._dozen):
                    batch = torch.randperm(rows, device=self.device)[:200]
                    optimiser.zero_grad(set_to_none=True)
                    loss(x[batch], labels[batch]).backward()  # type: ignore[no-untyped-call]
                    optimiser.step()
                yield self._now() - begun

        return self._update(durations())

    def jax_networks(self) -> Measured:
        """Train 150 networks 13-50-1 by JAX's scan."""
        run = timing.JaxRun(workload.make(4 if self.tiny else 150), epochs=5)
        run.seconds()
        return {"model_minibatches_a_second": 1 / run.seconds()}

    def photographs(self, network: str, method: str, settings: Mapping[str, object]) -> Measured:
        """Time minibatches of a deep network, and multiply by those of an epoch."""
        data, problem, hyper = self._photographs(network, 3 if self.tiny else 37)
        found = self._update(
            self._durations(data, problem, method, settings, 16, hyper, every=self._dozen)
        )
        return found | {"epoch_seconds": 115 * found["seconds"]}

    def pass_of_networks(self) -> Measured:
        """Let Adam and VIFA take turns on ResNet-18."""
        return self._pass(*self._photographs("resnet", 36 if self.tiny else 72))

    def pass_of_heads(self) -> Measured:
        """Let Adam and VIFA take turns on heads of features."""
        rows, units = (16 * 36, 8) if self.tiny else (16 * 120, 128)
        x = np.random.default_rng(0).standard_normal((rows, 1280))
        data = Dataset("features", x, (np.arange(rows) % 2).astype(np.float64), "classification")
        return self._pass(data, Problem(Mlp((units,)), Categorical(), 1280, 2), _PHOTOGRAPHS)

    def _photographs(
        self, network: str, minibatches: int
    ) -> tuple[Dataset, Problem, Mapping[str, float]]:
        """Make up photographs, and the problem of classifying them by a network of this name."""
        size = 16 if self.tiny else self.pixels
        factory = (TINY_NETWORKS if self.tiny else NETWORKS)[network]
        model = Module(factory, {}, (3, size, size))
        data = _images(16 * minibatches, (3, size, size), 2)
        return data, Problem(model, Categorical(), 3 * size**2, 2), _PHOTOGRAPHS

    def _pass(self, data: Dataset, problem: Problem, hyper: Mapping[str, float]) -> Measured:
        """Time dozens of minibatches, method by method in turn, without the first.

        The ratio is of neighbours.
        """
        runs = {
            name: self._durations(data, problem, name, settings, 16, hyper, every=every)
            for name, (settings, every) in PASSES.items()
        }
        turns = [dict(zip(runs, turn, strict=True)) for turn in zip(*runs.values(), strict=True)][
            1:
        ]
        found = {
            f"{name}_seconds": statistics.median(turn[name] for turn in turns) / 12
            for name in runs
        }
        return found | {
            "ratio": statistics.median(turn["vifa-two-stage"] / turn["adam"] for turn in turns)
        }

    @property
    def _dozen(self) -> int:
        """Updates that are timed together, so that what happens at every twelfth has its share."""
        return 1 if self.tiny else 12

    def _update(self, durations: Iterator[float]) -> Measured:
        """Take the median duration of an update over dozens, after the first.

        On a GPU also what the kernels of one more dozen take, and the most memory meanwhile.
        """
        if self.device != "cuda":
            seconds = [duration / self._dozen for duration in durations]
            return {"seconds": statistics.median(seconds[1:] or seconds)}
        torch.cuda.reset_peak_memory_stats()
        first = next(durations)
        with profile(activities=[ProfilerActivity.CUDA]) as profiler:
            profiled = next(durations, None)
        timed = list(durations) or [first]
        measured = {
            "seconds": statistics.median(timed) / self._dozen,
            "gigabytes": torch.cuda.max_memory_allocated() / 1e9,
        }
        if profiled is not None:
            kernels = kernel_seconds(profiler.key_averages()) / self._dozen
            measured["kernel_seconds"] = kernels
            measured["wall_to_kernels"] = measured["seconds"] / kernels
        return measured

    def _durations(
        self,
        data: Dataset,
        problem: Problem,
        method: str,
        settings: Mapping[str, object],
        size: int,
        hyper: Mapping[str, float],
        count: int = 1,
        epochs: int = 1,
        every: int = 12,
    ) -> Iterator[float]:
        """Yield the seconds of so many updates at a time, not counting what happens in between."""
        pool, rows = Pool.load(data, self.device), [len(data.y)] * count
        program = TrainingSetup(
            data, pool, problem, METHODS.build(method, settings), Schedule(epochs, size), samples=1
        )
        trials = program.trials(
            [(i,) for i in range(count)], [np.arange(len(data.y))] * count, [hyper] * count
        )
        slot_batch = SlotBatch(rows, range(count), min_slots=1)
        # to compile ResNet-18 takes minutes
        compiled = self.device == "cuda" and not isinstance(problem.model, Module)
        fitting = program.fitting(trials, compile=compiled, slot_batch=slot_batch)
        begun = self._now()
        for snapshot in fitting.run(EvaluationSchedule("updates", every)):
            if snapshot.last:
                return
            yield self._now() - begun
            begun = self._now()

    def _now(self) -> float:
        if self.device != "cuda":
            return process_time()
        torch.cuda.synchronize()
        return perf_counter()


def kernel_seconds(events: Iterable[Any]) -> float:
    """Sum the seconds that kernels and copies took on the device, of averages of a profile."""
    return sum(event.self_device_time_total for event in events) / 1e6


def measure(suite: Suite, file: Path, seconds: float, pattern: str = "*") -> Iterator[str]:
    """Measure what the file lacks until the time is up, write it after each part, and tell what was found.

    Parameters
    ----------
    suite
        Where and how.
    file
        What has been measured, as JSON; written anew after each part.
    seconds
        No part is begun after so long.
    pattern
        Which parts are meant, by name.
    """
    begun = perf_counter()
    device = torch.cuda.get_device_name() if suite.device == "cuda" else "cpu"
    report = json.loads(file.read_text("utf-8")) if file.exists() else {"parts": {}}
    images = {"tiny": suite.tiny, "pixels": suite.pixels}
    system = {
        **machine.system(torch.get_num_threads()),
        "cores": machine.cores(),
        "device": device,
    }
    report["system"] = {**system, **images}
    for name, part in suite.parts.items():
        if name in report["parts"] or not fnmatch(name, pattern):
            continue
        if perf_counter() - begun > seconds:
            yield f"time is up before {name}; the same command goes on with it"
            return
        report["parts"][name] = part()
        file.write_text(json.dumps(report, indent=2) + "\n", "utf-8")
        yield f"{name:12} " + ", ".join(
            f"{key} {value:.4g}" for key, value in report["parts"][name].items()
        )
    report["ratios"] = ratios(report["parts"])
    file.write_text(json.dumps(report, indent=2) + "\n", "utf-8")
    for name, ratio in report["ratios"].items():
        yield f"{name}: {ratio:.3f}"


def ratios(parts: Mapping[str, Measured]) -> Measured:
    """Compare the seconds of parts, as far as they have been measured."""
    found = {}
    for name, (one, other) in RATIOS.items():
        if one in parts and other in parts:
            found[name] = parts[one]["seconds"] / parts[other]["seconds"]
    passes = {
        "pass-resnet": "VIFA's pass of ResNet-18 to Adam's",
        "pass-heads": "VIFA's pass of heads to Adam's",
    }
    return found | {text: parts[name]["ratio"] for name, text in passes.items() if name in parts}


def main(arguments: list[str] | None = None) -> int:
    summary, _, details = str(__doc__).partition("\n")
    parser = argparse.ArgumentParser(
        description=summary, epilog=details, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--json",
        type=Path,
        metavar="FILE",
        default=Path("gpu_suite.json"),
        help="(gpu_suite.json)",
    )
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--tiny", action="store_true", help="a few rows and small images")
    parser.add_argument("--pixels", type=int, default=256, help="height and width of images (256)")
    parser.add_argument(
        "--parts", metavar="PATTERN", default="*", help="parts to measure, such as 'pass-*' (all)"
    )
    parser.add_argument(
        "--minutes", type=float, default=8.0, help="begin no part after so long (8)"
    )
    asked = parser.parse_args(arguments)
    if asked.device == "cuda" and not torch.cuda.is_available():
        print(
            "gpu_suite: PyTorch finds no CUDA device here; try it with --device cpu --tiny",
            file=sys.stderr,
        )
        return 2
    with trace_immediately():  # as fits of more than a hundred updates are
        for line in measure(
            Suite(asked.device, asked.tiny, asked.pixels),
            asked.json,
            60 * asked.minutes,
            asked.parts,
        ):
            print(line, flush=True)
    return 0


def _images(rows: int, shape: tuple[int, int, int], classes: int) -> Dataset:
    x = np.random.default_rng(0).integers(0, 256, (rows, *shape), dtype=np.uint8)
    return Dataset("images", x, (np.arange(rows) % classes).astype(np.float64), "classification")


if __name__ == "__main__":
    sys.exit(main())

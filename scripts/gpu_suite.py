"""Measure on a GPU what needs one, part by part: a call stops in time, and the next goes on where it stood.

Parts, each a number or a few in the file of results:

- ``uci``: the engine's throughput, `uci-regression`'s networks, 100 of them side by side, model-minibatches a second;
- ``mnist-<L>``: seconds of SLANG's update on MNIST at rank L, and ``mnist-bbb`` of Bayes by Backprop's, S = 4, M = 200;
- ``resnet-adam``, ``resnet-vifa``: seconds of an epoch of ResNet-18 (D = 11,177,538), minibatches of 16 of 1832 images,
  by plain Adam and by VIFA in two stages, and the most memory that each had; their ratio is VIFA's overhead, which the
  VIFA paper (2023) has as 1.06.

Each is the median over dozens of updates, after the first dozen. ``--device cpu --tiny`` measures single updates on a
few rows and small images, so that the script can be tried without a GPU.

The JSON file has the keys ``system`` and ``parts`` (what was measured, by name); what it has is not measured again.
"""

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import perf_counter

import numpy as np
import torch
from peers import machine

from bdl.data import Dataset
from bdl.methods import METHODS
from bdl.models.likelihoods import Categorical, Gaussian
from bdl.models.modules import Module
from bdl.models.networks import Mlp
from bdl.models.priors import GaussianPrior
from bdl.models.problem import Problem
from bdl.training.fitting import EvaluationSchedule
from bdl.training.program import Program
from bdl.training.schedule import Schedule
from bdl.training.slots import SlotBatch
from bdl.training.trials import Pool

RANKS = (1, 2, 4, 8, 16, 32)
Measured = dict[str, float]


@dataclass(frozen=True)
class Suite:
    """Where and how large to measure.

    Parameters
    ----------
    device
        ``"cuda"`` or ``"cpu"``.
    tiny
        Whether a few rows and small images will do.
    """

    device: str
    tiny: bool

    @property
    def parts(self) -> dict[str, Callable[[], Measured]]:
        """What there is to measure, by name."""
        slang = {f"mnist-{rank}": partial(self.digits, "slang", {"rank": rank}) for rank in RANKS}
        return {
            "uci": self.networks,
            "mnist-bbb": partial(self.digits, "bbb", {}),
            **slang,
            "resnet-adam": partial(self.photographs, "adam", {}),
            "resnet-vifa": partial(self.photographs, "vifa-two-stage", {"mean_epochs": 0}),
        }

    def networks(self) -> Measured:
        """Train 100 networks 8-50-1 on 691 rows side by side, as on energy."""
        count, rows = (4, 60) if self.tiny else (100, 691)
        rng = np.random.default_rng(0)
        data = Dataset("energy", rng.standard_normal((rows, 8)), rng.standard_normal(rows))
        problem = Problem(Mlp((50,)), Gaussian(), 8)
        hyper = {"learning_rate": 0.01, "prior_precision": 1.0, "noise_precision": 1.0}
        seconds = self._update(data, problem, "vifa", {}, 10, hyper, count, epochs=10)["seconds"]
        return {"model_minibatches_a_second": count * 4 / seconds}

    def digits(self, method: str, settings: Mapping[str, object]) -> Measured:
        """Time updates of a network 784-400-400-10."""
        rows, units = (600, 8) if self.tiny else (10_000, 400)
        problem = Problem(Mlp((units, units)), Categorical(), 784, 10, GaussianPrior(1e-6))
        hyper = {"learning_rate": 0.001, "prior_precision": 54.6}
        return self._update(_images(rows, (1, 28, 28), 10), problem, method, {"samples": 4, **settings}, 200, hyper)

    def photographs(self, method: str, settings: Mapping[str, object]) -> Measured:
        """Time minibatches of ResNet-18, and multiply by those of an epoch."""
        size, factory = (16, "narrow_resnet18") if self.tiny else (256, "resnet18")
        problem = Problem(Module(f"bdl.models.resnet:{factory}", {}, (3, size, size)), Categorical(), 3 * size**2, 2)
        hyper = {"learning_rate": 1e-4, "prior_precision": 1.0}
        found = self._update(
            _images(16 * (4 if self.tiny else 37), (3, size, size), 2), problem, method, settings, 16, hyper
        )
        return found | {"epoch_seconds": 115 * found["seconds"]}

    def _update(
        self,
        data: Dataset,
        problem: Problem,
        method: str,
        settings: Mapping[str, object],
        size: int,
        hyper: Mapping[str, float],
        count: int = 1,
        epochs: int = 1,
    ) -> Measured:
        """Train for some epochs; the median duration of an update over dozens, after the first, and the most memory."""
        schedule = Schedule(epochs, size)
        program = Program(
            data, Pool.load(data, self.device), problem, METHODS.build(method, settings), schedule, samples=1
        )
        trials = program.trials([(i,) for i in range(count)], [np.arange(len(data.y))] * count, [hyper] * count)
        seconds, begun, dozen = list[float](), perf_counter(), 1 if self.tiny else 12
        if self.device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        # a look after each dozen, so that what happens at every twelfth update has its share
        slot_batch = SlotBatch([len(data.y)] * count, range(count), least=1)
        fitting = program.fitting(trials, compile=self.device == "cuda", slot_batch=slot_batch)
        for snapshot in fitting.run(EvaluationSchedule("updates", dozen)):
            if snapshot.last:
                break
            if self.device == "cuda":
                torch.cuda.synchronize()
            now = perf_counter()
            seconds.append((now - begun) / dozen)
            begun = now
        memory = {"gigabytes": torch.cuda.max_memory_allocated() / 1e9} if self.device == "cuda" else {}
        return {"seconds": statistics.median(seconds[1:] or seconds), **memory}


def measure(suite: Suite, file: Path, seconds: float) -> Iterator[str]:
    """Measure what the file lacks until the time is up, write it after each part, and tell what was found.

    Parameters
    ----------
    suite
        Where and how.
    file
        What has been measured, as JSON; written anew after each part.
    seconds
        No part is begun after so long.
    """
    begun = perf_counter()
    device = torch.cuda.get_device_name() if suite.device == "cuda" else "cpu"
    report = json.loads(file.read_text("utf-8")) if file.exists() else {"parts": {}}
    report["system"] = {**machine.system(torch.get_num_threads()), "device": device, "tiny": suite.tiny}
    for name, part in suite.parts.items():
        if name in report["parts"]:
            continue
        if perf_counter() - begun > seconds:
            yield f"time is up before {name}; the same command goes on with it"
            return
        report["parts"][name] = part()
        file.write_text(json.dumps(report, indent=2) + "\n", "utf-8")
        yield f"{name:12} " + ", ".join(f"{key} {value:.4g}" for key, value in report["parts"][name].items())
    parts = report["parts"]
    yield f"VIFA's overhead: {parts['resnet-vifa']['seconds'] / parts['resnet-adam']['seconds']:.3f} (paper: 1.06)"
    yield f"SLANG at rank 8: {parts['mnist-8']['seconds'] / parts['mnist-bbb']['seconds']:.2f} times Bayes by Backprop"


def main(arguments: list[str] | None = None) -> int:
    summary, _, details = str(__doc__).partition("\n")
    parser = argparse.ArgumentParser(
        description=summary, epilog=details, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, metavar="FILE", default=Path("gpu_suite.json"), help="(gpu_suite.json)")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--tiny", action="store_true", help="a few rows and small images")
    parser.add_argument("--seconds", type=float, default=480.0, help="begin no part after so long (480)")
    asked = parser.parse_args(arguments)
    if asked.device == "cuda" and not torch.cuda.is_available():
        print("gpu_suite: PyTorch finds no CUDA device here; try it with --device cpu --tiny", file=sys.stderr)
        return 2
    for line in measure(Suite(asked.device, asked.tiny), asked.json, asked.seconds):
        print(line, flush=True)
    return 0


def _images(rows: int, shape: tuple[int, int, int], classes: int) -> Dataset:
    x = np.random.default_rng(0).integers(0, 256, (rows, *shape), dtype=np.uint8)
    return Dataset("images", x, (np.arange(rows) % classes).astype(np.float64), "classification")


if __name__ == "__main__":
    sys.exit(main())

"""Return every field of a benchmark file, and every option of the command line, values that nobody means.

The fields are those of the schema itself: all that a complete benchmark says, and the settings of
every registered component in a benchmark around it. Each is tried in a file and as an override, on
a dry run. A command must end with exit code 0, or with 2 and one line on stderr.

    python scripts/extremes.py --output results/faults/extremes.json
    python scripts/extremes.py --tries 500 --seed 3
"""

import argparse
import io
import json
import os
import random
import resource
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, NamedTuple

from bdl.cli import commands as cli_commands
from bdl.cli import terminal
from bdl.data import DATASETS
from bdl.methods import METHODS
from bdl.metrics import METRICS
from bdl.models import LIKELIHOODS, MODELS, PRIORS
from bdl.references import REFERENCES
from bdl.registry import Registry
from bdl.training.schedule import RATES

VALUES = (
    *(
        "null",
        "true",
        "''",
        "x",
        "'é漢'",
        "a/../b",
        "/",
        "~",
        "[]",
        "{}",
        "[[]]",
        "[null]",
        "{a: {b: [1]}}",
        "[1, 1]",
    ),
    *(
        "0",
        "1",
        "-1",
        "2",
        "0.5",
        "5",
        "1e20",
        "-1e20",
        "1e-300",
        "1e30",
        "1e300",
        "1e400",
        "1.0",
        ".nan",
        ".inf",
    ),
    *(
        "2147483648",
        "9223372036854775807",
        "9223372036854775808",
        f"1{'0' * 12}",
        f"1{'0' * 30}",
        "9" * 5000,
    ),
    *(
        "x" * 5000,
        "/" + "x" * 5000,
        "x/" * 3000,
        '"a\\0b"',
        '"\\ud800"',
        "'a\n\n  b'",
        "'[red]x[/red]'",
        "{name: x}",
    ),
    *(
        "!!int abc",
        "!!timestamp abc",
        "!!binary abc",
        "!!python/object:os.system x",
        "!!set {a}",
        "&a [*a]",
        "*a",
    ),
    *(
        "[" * 45 + "]" * 45,
        "[" * 2000 + "]" * 2000,
        "{<<: {a: 1}}",
        "{<<: 1}",
        "'%s%n'",
        '"\\r\\n"',
        "[x, 1, null]",
    ),
)
"""YAML texts."""
WORDS = (
    "",
    "x",
    "-1",
    "0",
    "1",
    "9" * 5000,
    "1e20",
    "x" * 5000,
    "a/b",
    "/",
    "é",
    "nan",
    "\udcff",
    "a=b",
    "[x]",
    "{",
    "%",
)
"""Values of options."""
MARK = "@here@"
HYPER = 0.01
NEEDED: dict[str, dict[str, Any]] = {
    "power": {"power": 0.5},
    "exponential": {"base": 0.9},
    "fa": {"dim": 20, "top": 10},
    "csv": {"path": "data.csv", "target": "y"},
    "module": {"factory": "bdl.models.resnet:narrow_resnet18", "shape": [1, 2, 5]},
    "last-layer-laplace": {"descent_epochs": 5},
}
"""Settings that components cannot do without, or not here."""
SECONDS = 120
"""After which a command counts as stuck."""

CLAIM_SIDE = {"entry": "searched", "metric": "nmll", "dataset": "diabetes", "after": 1}
COMPLETE: dict[str, Any] = {
    "name": "probe",
    "title": "All fields",
    "seed": 1,
    "datasets": ["diabetes"],
    "splits": 2,
    "entries": {
        "searched": {
            "model": {"name": "mlp", "hidden": [3], "activation": "relu"},
            "likelihood": {"name": "gaussian"},
            "prior": {"name": "gaussian", "bias_precision": None},
            "method": {"name": "vifa", "latent_dim": 1},
            "training": {
                **{
                    "epochs": 2,
                    "batch_size": 50,
                    "schedule": {"name": "constant"},
                    "dtype": "float32",
                },
                **{"sampling": "without_replacement", "incomplete": "drop"},
            },
            "hyper": {"noise_precision": 0.001},
            "by_dataset": {"diabetes": {"training": {"epochs": 3}}},
            "search": {
                **{
                    "sampler": "bayesian",
                    "trials": 3,
                    "startup": 2,
                    "penalty": None,
                    "folds": 2,
                    "refit": False,
                },
                **{"metric": "nmll", "grid": {}},
                "space": {
                    "learning_rate": {"low": 0.001, "high": 0.01, "scale": "log"},
                    "prior_precision": {"low": 0.1, "high": 10},
                },
            },
            "evaluation": {"samples": 5},
            "record": {"unit": "epochs", "every": 1},
            "datasets": ["diabetes"],
        },
        "direct": {
            "model": {"name": "linear"},
            "likelihood": {"name": "gaussian"},
            "method": {"name": "conjugate"},
            "hyper": {"noise_precision": 0.001, "prior_precision": 1},
            "reference": {"name": "conjugate"},
            "from_reference": [],
        },
    },
    "by_dataset": {"diabetes": {"training": {"batch_size": 40}}},
    "sweep": {"evaluation.samples": [5, 6]},
    "baseline": "direct",
    "preparation": {
        "split": "published",
        "standardise": "both",
        "rows": {"diabetes": 200},
        "splits": {"diabetes": 2},
    },
    "evaluation": {"samples": 5},
    "record": {"unit": "epochs", "every": 1},
    "limits": {"minutes": 5, "gigabytes": 2},
    "metrics": ["nmll", {"name": "weights_below", "limit": 0.5}],
    "papers": [
        {
            **{"paper": "vifa2023", "tables": ["Table 1"], "task": "uci_nn_predictions"},
            "methods": {"direct": "vifa_lr"},
            **{"datasets": {"diabetes": "yacht"}, "metrics": {"nmll": "-nmll"}, "split": 0},
            **{"same_splits": {"diabetes": "index files"}, "uncounted": ["diabetes"]},
        }
    ],
    "notes": [
        {
            **{"dataset": "diabetes", "entry": "direct", "metric": "nmll", "statistic": "mean"},
            **{"text": "see the errata", "verdict": "print in error", "cause": "known"},
        }
    ],
    "claims": [
        {
            **{
                "text": "Less",
                "source": "a paper",
                "metric": "nmll",
                "times": 0.5,
                "equal": True,
                "datasets": ["diabetes"],
                "at": {},
            },
            "less": CLAIM_SIDE | {"at": {"evaluation.samples": 5}},
            "than": CLAIM_SIDE | {"at": {"evaluation.samples": 6}},
        }
    ],
    "elsewhere": ["gal2018"],
    "profiles": {"quick": {"splits": 1}},
}
"""A benchmark that says something in every field but for a few that exclude each other."""


class Try(NamedTuple):
    """A command, and the benchmark file that it reads."""

    place: str
    value: str
    content: str
    words: tuple[str, ...]


class End(NamedTuple):
    """How a command ended."""

    code: int
    message: str

    @property
    def fine(self) -> bool:
        """Whether it is what a command may do."""
        line = (
            self.message.startswith("bdl-bench: ")
            and self.message.count("\n") == 1
            and len(self.message) < 2000
        )
        return "Traceback" not in self.message and (self.code == 0 or (self.code == 2 and line))


def paths(content: Any, start: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Yield the place of every value, mappings and lists among them."""
    if start:
        yield start
    pairs = (
        content.items()
        if isinstance(content, dict)
        else enumerate(content)
        if isinstance(content, list)
        else ()
    )
    for key, value in pairs:
        yield from paths(value, (*start, key))


def replaced(content: Any, path: Sequence[str | int], value: Any) -> Any:
    """Return a copy with another value at a place."""
    if not path:
        return value
    first, *rest = path
    if isinstance(content, list):
        return [
            replaced(own, rest, value) if place == first else own
            for place, own in enumerate(content)
        ]
    return content | {first: replaced(content.get(first, {}), rest, value)}


def entry_with(kind: str, name: str) -> dict[str, Any]:
    """Return a benchmark around a component of the spec: the smallest that has its place."""
    entry: dict[str, Any] = {
        "model": {"name": "linear"},
        "likelihood": {"name": "gaussian"},
        "method": {"name": "vifa"},
        "training": {"epochs": 600, "batch_size": 50},
    }
    content = COMPLETE | {
        "entries": {},
        "splits": 1,
        "by_dataset": {},
        "sweep": {},
        "baseline": None,
        "record": None,
    }
    content |= {
        "papers": [],
        "notes": [],
        "claims": [],
        "elsewhere": [],
        "preparation": {},
        "metrics": ["nmll"],
        "profiles": {},
    }
    if kind == "rate":
        entry["training"]["schedule"] = {"name": name} | NEEDED.get(name, {})
    elif kind in ("dataset", "metric"):
        content[f"{kind}s"] = [{"name": name} | NEEDED.get(name, {})]
    else:
        entry[kind] = {"name": name} | NEEDED.get(name, {})
    if kind == "metric" and METRICS.get(name).info.task == "classification":
        content |= {"datasets": ["overlapping_classes"]}
        entry["likelihood"] = {"name": "categorical"}
    method = METHODS.get(entry["method"]["name"])
    if hasattr(method, "update_block"):
        entry = {"method": entry["method"]}
        content |= {
            "datasets": [{"name": "fa", "dim": 20, "top": 10}],
            "metrics": ["rel_cov_dist"],
        }
    elif hasattr(method, "fit"):
        del entry["training"]
    if "likelihood" in entry:
        own = (METHODS, "method"), (PRIORS, "prior"), (LIKELIHOODS, "likelihood")
        names = [
            hyper
            for registry, part in own
            for hyper in registry.get(entry.get(part, {"name": "gaussian"})["name"])().hyper
        ]
        entry["hyper"] = dict.fromkeys(names, HYPER)
    return content | {"entries": {"own": entry}}


def places() -> Iterator[tuple[str, dict[str, Any], tuple[str | int, ...]]]:
    """Yield every field: what it is called, a benchmark that has it, and where it is there."""
    for path in paths(COMPLETE):
        yield ".".join(map(str, path)), COMPLETE, path
    registries: dict[Registry, tuple[str | int, ...]] = {
        MODELS: ("entries", "own", "model"),
        LIKELIHOODS: ("entries", "own", "likelihood"),
        PRIORS: ("entries", "own", "prior"),
        METHODS: ("entries", "own", "method"),
        REFERENCES: ("entries", "own", "reference"),
        RATES: ("entries", "own", "training", "schedule"),
        DATASETS: ("datasets", 0),
        METRICS: ("metrics", 0),
    }
    for registry, place in registries.items():
        for name in registry.names():
            component = registry.get(name)
            content = entry_with(registry.kind, name)
            for field in (
                fields(component)
                if isinstance(component, type) and is_dataclass(component)
                else ()
            ):
                if field.init:
                    yield f"{registry.kind} {name}.{field.name}", content, (*place, field.name)
            for hyper in (
                content["entries"]["own"].get("hyper", ()) if registry in (PRIORS, METHODS) else ()
            ):
                yield (
                    f"{registry.kind} {name}: hyper.{hyper}",
                    content,
                    ("entries", "own", "hyper", hyper),
                )


def of_fields() -> Iterator[Try]:
    """Yield every field with every value, in a file and as an override."""
    for name, content, path in places():
        for value in VALUES:
            text = json.dumps(replaced(content, path, MARK)).replace(f'"{MARK}"', value)
            yield Try(name, value, text, ("run", "probe.yaml", "--dry-run"))
            own = json.dumps(content)
            yield Try(
                f"--set {name}", value, own, _dry(("--set", f"{'.'.join(map(str, path))}={value}"))
            )


def _dry(words: Sequence[str]) -> tuple[str, ...]:
    return ("run", "probe.yaml", "--dry-run", *words)


def of_options() -> Iterator[Try]:
    """Yield every option and argument of every command with every word."""
    import typer

    content = json.dumps(entry_with("method", "vifa"))

    def commands(group: Any, words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
        for name, command in group.commands.items():
            if hasattr(command, "commands"):
                yield from commands(command, (*words, name))
            else:
                yield (*words, name), command

    for words, command in commands(typer.main.get_command(cli_commands.app), ()):
        if words[-1] in ("fetch", "make"):  # they would download, or sample
            continue
        given = ("probe.yaml",) if any(own.name == "name" for own in command.params) else ()
        dry = ("--dry-run",) if words == ("run",) else ()
        for option in command.params:
            for word in WORDS:
                if option.param_type_name == "argument":
                    yield Try(
                        " ".join((*words, option.name)), word, content, (*words, *dry, "--", word)
                    )
                elif not option.is_flag:
                    name = option.opts[0]
                    yield Try(
                        " ".join((*words, name)), word, content, (*words, *given, *dry, name, word)
                    )


def ending(one: Try, folder: Path) -> End:
    """Run a command in this process, in a folder."""
    (folder / "probe.yaml").write_text(one.content, encoding="utf-8")
    (folder / "data.csv").write_text(
        "a,b,y\n" + "".join(f"{i},{i % 7},{i % 5}.5\n" for i in range(200))
    )
    before, sys.argv = sys.argv, ["bdl-bench", *one.words]
    out, err = io.StringIO(), io.StringIO()
    signal.signal(signal.SIGALRM, _stuck)
    signal.alarm(SECONDS)
    try:
        with redirect_stdout(out), redirect_stderr(err):
            code = terminal.run_to_exit_code(lambda: cli_commands.app(standalone_mode=False))
    except BaseException as error:
        return End(-1, f"Traceback: {type(error).__name__}: {error}")
    finally:
        signal.alarm(0)
        sys.argv = before
    return End(code, err.getvalue())


def _stuck(*_: object) -> None:
    raise TimeoutError(f"no end in {SECONDS} seconds")


def main() -> None:
    """Try all, or a sample, and write a tally."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--tries", type=int, help="how many, drawn at random; all of them by default"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--part", default="0/1", help="which part of how many: 0/2 and 1/2 are all"
    )
    parser.add_argument("--output", type=Path, help="file of the tally")
    given = parser.parse_args()
    output = given.output and given.output.resolve()
    resource.setrlimit(resource.RLIMIT_AS, (16 << 30, 16 << 30))
    tries = [*of_fields(), *of_options()]
    total = len(tries)
    if given.tries:
        tries = random.Random(given.seed).sample(tries, given.tries)
    first, step = map(int, given.part.split("/"))
    tries = tries[first::step]
    codes: Counter[int] = Counter()
    found = []
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for number, one in enumerate(tries, start=1):
            end = ending(one, Path(folder))
            codes[end.code] += 1
            if not end.fine:
                told = {"code": end.code, "message": end.message[-300:]}
                found.append({"place": one.place, "value": one.value[:80]} | told)
                print(
                    f"{one.place} = {one.value[:60]}: {end.code} {end.message[-200:].strip()}",
                    flush=True,
                )
            if number % 500 == 0:
                print(
                    f"{number} of {len(tries)}: {dict(codes)}, {len(found)} findings", flush=True
                )
    tally = {
        "possible": total,
        "tries": len(tries),
        "codes": dict(sorted(codes.items())),
        "findings": found,
    }
    print(json.dumps(tally | {"findings": len(found)}))
    if output:
        output.write_text(json.dumps(tally, indent=2) + "\n")


if __name__ == "__main__":
    main()

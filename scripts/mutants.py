"""Change the package at one place at a time, and see whether a test fails.

The changes are those of cosmic-ray's operators, drawn with a seed from the packages below, each of
which has its number. First the tests of these packages run once, and what each of them executes is
recorded. Then each mutant runs the tests that execute its statement, the quickest first, golden
trials among them, and in any case those of its module. Outside of functions these are the tests
that execute anything of the file. All happens in a copy, and in forks of a process that has
imported and collected everything: a mutant is put into the functions that are there, or, outside
of functions, imported anew.

The tally is written after each mutant, and a later run goes on from it. One that no test can kill
is equivalent: "reason" says why, is written into the tally by hand, and stays::

    python scripts/mutants.py --output results/faults/mutants.json python scripts/mutants.py
    --output results/faults/mutants.json --again    try the survivors again

What was recorded is kept in the folder ``--work``; an empty one records anew, as is needed when
the package changed.
"""

import argparse
import ast
import gc
import hashlib
import importlib
import json
import os
import random
import shutil
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = {
    "methods": ("bdl/methods/*.py", 160),
    "metrics": ("bdl/metrics/*.py", 100),
    "posteriors": ("bdl/posteriors/*.py", 80),
    "references": ("bdl/references/*.py", 60),
    "records": ("bdl/records/*.py", 40),
    "verdicts": ("bdl/reports/verdicts*.py", 40),
}
"""Where a package has its files, and how many mutants are drawn from it."""
TESTS = [
    f"tests/{name}"
    for name in ("methods", "metrics", "models", "posteriors", "references", "records")
]
TESTS += [
    "tests/stored_results/test_folder.py",
    "tests/spec/test_declared.py",
    "tests/reports/test_verdicts.py",
    "tests/test_golden.py",
]
NEEDED = (
    "bdl",
    "tests",
    "scripts",
    "benchmarks",
    "docs",
    "pyproject.toml",
    "README.md",
    "CHANGELOG.md",
)
PRELOADED = (
    "torch",
    "pandas",
    "scipy.stats",
    "sklearn.linear_model",
    "mlflow",
    "optuna",
    "matplotlib.pyplot",
)
"""What takes long to import, and is no part of the package."""
OPERATORS = [
    *(
        "AddNot",
        "ExceptionReplacer",
        "NumberReplacer",
        "ReplaceAndWithOr",
        "ReplaceOrWithAnd",
        "ZeroIterationForLoop",
    ),
    *(
        "ReplaceFalseWithTrue",
        "ReplaceTrueWithFalse",
        "ReplaceBreakWithContinue",
        "ReplaceContinueWithBreak",
    ),
    *(f"ReplaceUnaryOperator_Delete_{name}" for name in ("Not", "USub")),
    *(
        f"ReplaceBinaryOperator_{pair}"
        for pair in ("Add_Sub", "Sub_Add", "Mul_Div", "Div_Mul", "Pow_Mul")
    ),
    *(
        f"ReplaceBinaryOperator_{pair}"
        for pair in ("FloorDiv_Div", "Mod_FloorDiv", "BitAnd_BitOr")
    ),
    *(
        f"ReplaceComparisonOperator_{pair}"
        for pair in ("Lt_LtE", "LtE_Lt", "Gt_GtE", "GtE_Gt", "Lt_GtE", "Gt_LtE")
    ),
    *(
        f"ReplaceComparisonOperator_{pair}"
        for pair in ("GtE_Lt", "LtE_Gt", "Eq_NotEq", "NotEq_Eq", "Is_IsNot")
    ),
    "ReplaceComparisonOperator_IsNot_Is",
]
"""Those of cosmic-ray whose mutants do not fail at the first call, as a shift of floats would."""


class Mutant(NamedTuple):
    """One change of one line."""

    file: str
    line: int
    before: str
    after: str
    nth: int
    """Which one it is of those that look alike in the file."""
    source: str
    """The whole file, changed."""

    @property
    def key(self) -> str:
        """What it is known by, wherever its line moves."""
        return json.dumps([self.file, self.before, self.after, self.nth])

    @property
    def statement(self) -> range:
        """The lines of the statement that it is in; none outside of functions."""
        return statement_of((ROOT / self.file).read_text("utf-8"), self.line)

    @property
    def tests(self) -> list[str]:
        """What the names of tests contain that run in any case.

        Declarations are tested by contracts and registries.
        """
        path = Path(self.file)
        declared = [f"/{path.parent.name}/test_{what}" for what in ("contract", "registry")]
        declared += ["/test_declared", "/test_verdicts"]
        return [f"/test_{path.stem}", *(() if self.statement else declared)]


def mutants(file: str) -> Iterator[Mutant]:
    """Make all mutants of a file."""
    from cosmic_ray.ast import ast_nodes, get_ast
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.plugins import get_operator

    text = (ROOT / file).read_text("utf-8")
    nodes, alike = list(ast_nodes(get_ast(text))), Counter[tuple[str, str]]()
    for name in OPERATORS:
        operator = get_operator(f"core/{name}")()
        for occurrence in range(
            sum(len(list(operator.mutation_positions(node))) for node in nodes)
        ):
            source = mutate_code(text, operator, occurrence)
            pairs = enumerate(zip(text.splitlines(), source.splitlines(), strict=False), 1)
            line, before, after = next(
                (number, a.strip(), b.strip()) for number, (a, b) in pairs if a != b
            )
            yield Mutant(file, line, before, after, alike[before, after], source)
            alike[before, after] += 1


def drawn(package: str, seed: int) -> list[Mutant]:
    """Draw the mutants of a package; an edit elsewhere leaves the draw alone."""
    pattern, number = PACKAGES[package]
    files = sorted(str(path.relative_to(ROOT)) for path in ROOT.glob(pattern))
    found = [mutant for file in files for mutant in mutants(file)]
    return sorted(
        found, key=lambda mutant: hashlib.sha256(f"{seed} {mutant.key}".encode()).digest()
    )[:number]


class Recorder:
    """A plugin of pytest that records what each test executes, and how long it takes."""

    def __init__(self, folder: Path) -> None:
        import coverage

        self.times = folder / "seconds.json"
        self.coverage = coverage.Coverage(folder / ".coverage", include=[str(folder / "bdl/*")])
        self.seconds = Counter[str]()

    def pytest_sessionstart(self) -> None:
        """Begin before anything of the package is imported."""
        self.coverage.start()

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Name the test that begins."""
        self.coverage.switch_context(nodeid)

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Add the time of set-up, test and tear-down."""
        self.seconds[report.nodeid] += report.duration

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        """Keep what was recorded if no test failed."""
        self.coverage.stop()
        if not exitstatus:
            self.coverage.save()
            self.times.write_text(json.dumps(self.seconds), "utf-8")


def forked(work: Callable[[], int], limit: float) -> int | None:
    """Call in a fork; return its exit code, None where the time was up."""
    child = os.fork()
    if not child:
        os.setsid()
        try:
            os._exit(work())
        except BaseException:
            traceback.print_exc()
            os._exit(99)
    end = time.monotonic() + limit
    while time.monotonic() < end:
        if (done := os.waitpid(child, os.WNOHANG))[0]:
            return os.waitstatus_to_exitcode(done[1])
        time.sleep(0.02)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


class Record:
    """A copy of the package and its tests, and what each test executes of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in NEEDED:
            if (ROOT / name).is_dir():
                shutil.rmtree(folder / name, ignore_errors=True)
                shutil.copytree(
                    ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__")
                )
            else:
                shutil.copy2(ROOT / name, folder / name)
        (folder / "results").unlink(missing_ok=True)
        (folder / "results").symlink_to(ROOT / "results")
        os.chdir(folder)
        os.environ["PYTHONPATH"] = str(folder)  # of the processes that tests start
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        sys.path.insert(0, str(folder))
        for name in PRELOADED:
            importlib.import_module(name)

    def pytest(self, files: Sequence[str], plugin: Any) -> int:
        """Run pytest in this process, with its output in a log."""
        import pytest

        with Path("log.txt").open("a", encoding="utf-8") as log:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
        words = [
            "-x",
            "-q",
            "-m",
            "not slow",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:xdist",
            "--basetemp=temp",
        ]
        return int(pytest.main([*words, *files], plugins=[plugin]))

    def make(self) -> None:
        """Run all tests once, unless that has been done before."""
        if not Path("seconds.json").exists():
            forked(lambda: self.pytest(TESTS, Recorder(self.folder)), 7200)
            if not Path("seconds.json").exists():
                sys.exit(f"the tests fail without a mutant: see {self.folder / 'log.txt'}")
        sys.dont_write_bytecode = True  # of a mutant, which would be taken for the file

    def related(self, mutant: Mutant, items: Iterable[Any]) -> tuple[list[Any], float]:
        """Choose the tests of a mutant, new ones first, then the quickest.

        Return their seconds, too.
        """
        seconds: dict[str, float] = json.loads(Path("seconds.json").read_text("utf-8"))
        reached = self.reached(mutant)
        reached |= {item.nodeid for item in items if item.nodeid not in seconds}
        chosen = [
            item
            for item in items
            if item.nodeid in reached or any(own in item.nodeid for own in mutant.tests)
        ]
        chosen.sort(key=lambda item: seconds.get(item.nodeid, 0.0))
        return chosen, sum(seconds.get(item.nodeid, 0.0) for item in chosen)

    def reached(self, mutant: Mutant) -> set[str]:
        """List the tests that execute the statement of a mutant, or anything of its file."""
        import coverage

        data = coverage.CoverageData(".coverage")
        data.read()
        lines = data.contexts_by_lineno(str(self.folder / mutant.file))
        return {name for line in mutant.statement or lines for name in lines.get(line, ())}

    def files(self, mutant: Mutant) -> list[str]:
        """List the files with tests of a mutant."""
        own = {
            str(path)
            for path in Path("tests").rglob("test_*.py")
            if any(word in str(path) for word in mutant.tests)
        }
        return sorted({name.partition("::")[0] for name in self.reached(mutant)} - {""} | own)

    @contextmanager
    def changed(self, mutant: Mutant) -> Iterator[None]:
        """Put a mutant in the place of its file for a while."""
        try:
            Path(mutant.file).write_text(mutant.source, "utf-8")
            yield
        finally:
            shutil.copy2(ROOT / mutant.file, mutant.file)


class Trials:
    """A plugin of pytest that runs, instead of all tests, those of each mutant in a fork."""

    def __init__(
        self, record: Record, mutants: Iterable[Mutant], done: Callable[[Mutant, int | None], None]
    ) -> None:
        self.record, self.mutants, self.done = record, mutants, done

    def pytest_runtestloop(self, session: Any) -> bool:
        """Try one mutant after the other."""
        for mutant in self.mutants:
            items, seconds = self.record.related(mutant, session.items)
            with self.record.changed(mutant):
                self.done(mutant, forked(lambda: _run(session, items, mutant), 60 + 5 * seconds))  # noqa: B023
        return True


class Related:
    """A plugin of pytest that runs the tests of one mutant alone."""

    def __init__(self, record: Record, mutant: Mutant) -> None:
        self.record, self.mutant = record, mutant

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        """Leave out the others."""
        items[:], _ = self.record.related(self.mutant, items)


def _run(session: Any, items: list[Any], mutant: Mutant) -> int:
    """Put a mutant into the functions that have been imported, and run tests until one fails."""
    codes = {
        (code.co_qualname, code.co_firstlineno): code
        for code in _codes(compile(mutant.source, "", "exec"))
    }
    for function in gc.get_objects():
        if type(function) is FunctionType and function.__code__.co_filename.endswith(
            f"/{mutant.file}"
        ):
            function.__code__ = codes[
                function.__code__.co_qualname, function.__code__.co_firstlineno
            ]
    for item, following in zip_longest(items, items[1:]):
        session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if session.testsfailed:
            return 1
    return 0


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _codes(inner)


def statement_of(source: str, line: int) -> range:
    """Return the lines of the statement at a line of a function.

    None for a line outside of functions.
    """
    inside, found = False, range(line, line + 1)
    for node in ast.walk(ast.parse(source)):  # the outer ones first
        if not isinstance(node, ast.stmt) or not node.lineno <= line <= (node.end_lineno or 0):
            continue
        body: list[ast.stmt] = getattr(node, "body", [])
        if body and line >= body[0].lineno:
            inside |= isinstance(node, ast.FunctionDef)
        else:
            found = range(node.lineno, (body[0].lineno if body else (node.end_lineno or 0) + 1))
    return found if inside else range(0)


def summary(seed: int, tried: list[dict[str, Any]]) -> dict[str, Any]:
    """Count the outcomes by package; a mutant with a reason is equivalent."""
    counts: dict[str, Counter[str]] = {name: Counter() for name in PACKAGES}
    for one in tried:
        (package,) = (
            name for name, (pattern, _) in PACKAGES.items() if Path(one["file"]).match(pattern)
        )
        counts[package]["equivalent" if "reason" in one else one["outcome"]] += 1
    total = sum(counts.values(), Counter[str]())
    apart = total.total() - total["equivalent"]
    share = (apart - total["survived"]) / max(apart, 1)
    return {
        "seed": seed,
        "mutants": len(tried),
        "killed of those not equivalent": round(share, 4),
        "packages": counts,
    }


def write(path: Path, seed: int, tried: list[dict[str, Any]]) -> None:
    """Write the tally, a mutant a line."""
    tried.sort(key=lambda one: (one["file"], one["line"], one["after"], one["nth"]))
    head = json.dumps(summary(seed, tried), indent=2)[:-2]
    lines = ",\n".join(f"    {json.dumps(one, ensure_ascii=False)}" for one in tried)
    path.with_suffix(".new").write_text(f'{head},\n  "tried": [\n{lines}\n  ]\n}}\n', "utf-8")
    path.with_suffix(".new").replace(path)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--output", type=Path, required=True, help="the tally, which is gone on with"
    )
    parser.add_argument(
        "--work",
        type=Path,
        default=ROOT / "build/mutants",
        help="a folder for the copy that is changed",
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--package", choices=PACKAGES, action="append", help="these alone")
    parser.add_argument(
        "--again", action="store_true", help="try those again that survived and have no reason"
    )
    options = parser.parse_args()
    tried = read(options.output)
    known = {key_of(one) for one in tried}
    if options.again:
        left = [one for one in tried if one["outcome"] == "survived" and "reason" not in one]
        wanted = {key_of(one) for one in left}
        todo = [
            one
            for file in sorted({one["file"] for one in left})
            for one in mutants(file)
            if one.key in wanted
        ]
    else:
        todo = [
            one
            for name in options.package or PACKAGES
            for one in drawn(name, options.seed)
            if one.key not in known
        ]
        random.Random(options.seed).shuffle(todo)  # so that a part of a run is of all packages

    def done(mutant: Mutant, code: int | None) -> None:
        outcome = "survived" if code in (0, 5) else "out of time" if code is None else "killed"
        new = {name: value for name, value in mutant._asdict().items() if name != "source"} | {
            "outcome": outcome
        }
        write(
            output,
            options.seed,
            [one for one in read(output) if key_of(one) != mutant.key] + [new],
        )

    output = options.output.resolve()
    record = Record(options.work.resolve())
    record.make()
    inside = [mutant for mutant in todo if mutant.statement]
    forked(lambda: record.pytest(TESTS, Trials(record, inside, done)), 10**6)
    for mutant in todo:
        if not mutant.statement:
            with record.changed(mutant):
                related = Related(record, mutant)
                done(mutant, forked(lambda: record.pytest(record.files(mutant), related), 600))  # noqa: B023


def read(path: Path) -> list[dict[str, Any]]:
    """Read the mutants of a tally."""
    return json.loads(path.read_text("utf-8"))["tried"] if path.exists() else []


def key_of(one: dict[str, Any]) -> str:
    return Mutant(
        **{"source": ""} | {name: one[name] for name in Mutant._fields if name in one}
    ).key


if __name__ == "__main__":
    main()

"""How the code reads, in counts: each is a hint where to look, and none is met by writing worse."""

import ast
import io
import statistics
import tokenize
from collections import Counter, defaultdict
from itertools import chain
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILES = {path: path.read_text("utf-8") for path in sorted((ROOT / "bdl").rglob("*.py"))}
TREES = {path: ast.parse(text) for path, text in FILES.items()}
LINES = list(chain.from_iterable(text.splitlines() for text in FILES.values()))

VAGUE = frozenset(
    """
    found own told given kept keep place places part parts made seen asked lacking drawn
    wanted known shown there here second each one ones other others what again beside alike
    about whole right_ more most few some apart
""".split()
)
"""Words that stand for anything: a name says what it is of."""
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def bound_names():
    """Yield each name that is bound, with the place where."""
    for path, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield node.name, path, node.lineno
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                yield node.id, path, node.lineno
            elif isinstance(node, ast.arg) and node.arg not in ("self", "cls"):
                yield node.arg, path, node.lineno


def per_thousand(count):
    return 1000 * count / len(LINES)


def test_names_say_what_they_are_of():
    names = list(bound_names())
    vague = [
        f"{path.relative_to(ROOT)}:{line} {name}"
        for name, path, line in names
        if name.strip("_") in VAGUE
    ]
    assert len(vague) <= 0.01 * len(names), "\n".join(["name these for what they hold:", *vague])


def test_a_public_name_lives_in_one_module():
    modules = defaultdict(set)
    for path, tree in TREES.items():
        for node in tree.body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
                modules[node.name].add(str(path.relative_to(ROOT)))
    shared = {name: sorted(paths) for name, paths in modules.items() if len(paths) > 1}
    assert len(shared) <= 10, shared


def test_lines_are_short():
    wide = Counter(
        path.name for path in FILES for line in FILES[path].splitlines() if len(line) >= 100
    )
    assert per_thousand(wide.total()) <= 10, wide.most_common(10)


def test_loops_are_loops():
    counts = Counter(
        {
            str(path.relative_to(ROOT)): sum(
                isinstance(node, COMPREHENSIONS) for node in ast.walk(tree)
            )
            for path, tree in TREES.items()
        }
    )
    assert per_thousand(counts.total()) <= 30, counts.most_common(10)


def test_functions_are_not_fragments():
    lengths = [
        node.end_lineno - node.lineno + 1
        for tree in TREES.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    assert statistics.median(lengths) >= 7


def test_comments_say_why():
    commented = 0
    for text in FILES.values():
        tokens = tokenize.generate_tokens(io.StringIO(text).readline)
        commented += len({token.start[0] for token in tokens if token.type == tokenize.COMMENT})
    assert per_thousand(commented) >= 13


@pytest.mark.parametrize("word", ["Give", "Tell", "Say"])
def test_docstrings_begin_with_a_plain_verb(word):
    first_words = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
        and (ast.get_docstring(node) or "").startswith(f"{word} ")
    ]
    assert first_words == [], f"write Return, Compute, Raise, Draw or Load instead of {word}"

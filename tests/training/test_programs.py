"""Compiled programs are called without the compiler's layers, and loaded without the compiler."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from bdl.training import programs
from bdl.training.programs import ProgramCache
from bdl.training.recording import record_operations
from bdl.training.updates import is_compiler_installed

OPTIONS = {"cpp_wrapper": True}
LEAVES = [torch.arange(3.0), torch.ones(3)]
ADD = record_operations(lambda x, y: [x + y], LEAVES)


@pytest.fixture(autouse=True)
def cache_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    programs.warn_slower.cache_clear()  # it warns once in a process
    return tmp_path


def compiled_graph(entry, arguments=2, constants=None, last="return output_tensors\n"):
    """What the compiler makes of a graph, as far as it is looked at, with this function inside."""

    def call(tensors):
        return entry(tensors)

    return SimpleNamespace(
        source_code=f"    arg{arguments - 1}_1 = rand_strided((3,))\n    {last}",
        current_callable=call,
        constants=constants,
    )


def inductor_entry_cpp(handles):
    """Return the arguments of a library as its results."""
    return handles


def in_layers(*leaves):
    return list(leaves)


def key(graph=ADD, leaves=LEAVES, options=OPTIONS):
    return programs._program_key(graph, leaves, options)  # the file's name, which nobody sees


def test_a_program_is_known_by_all_that_decides_it(monkeypatch):
    shifts = [record_operations(lambda x, s=shift: [x + s], LEAVES[:1]) for shift in LEAVES]
    keys = {
        key(),
        key(record_operations(lambda x, y: [x - y], LEAVES)),
        key(leaves=[LEAVES[0].double(), LEAVES[1]]),
        key(leaves=[LEAVES[0], torch.ones(6)[::2]]),
        key(options={"cpp_wrapper": True, "cpp.simdlen": 256}),
        *(key(graph, LEAVES[:1]) for graph in shifts),
    }
    assert len(keys) == 7
    assert key(record_operations(lambda x, y: [x + y], LEAVES)) == key()
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "elsewhere")
    assert key() in keys
    monkeypatch.setattr(torch, "get_num_threads", lambda: 77)
    assert key() not in keys
    monkeypatch.undo()
    monkeypatch.setenv("TORCHINDUCTOR_LOOP_ORDERING", "1")
    assert key() not in keys


@pytest.mark.parametrize(
    ("graph", "layers"),
    [
        pytest.param(compiled_graph(inductor_entry_cpp, arguments=3), in_layers, id="lifted"),
        pytest.param(compiled_graph(inductor_entry_cpp, arguments=1), in_layers, id="left out"),
        pytest.param(
            compiled_graph(inductor_entry_cpp, constants={"c": LEAVES[0]}),
            in_layers,
            id="constants",
        ),
        pytest.param(
            compiled_graph(inductor_entry_cpp, last="return [output_tensors[0].item()]\n"),
            in_layers,
            id="numbers",
        ),
        pytest.param(compiled_graph(in_layers), in_layers, id="another function"),
        pytest.param(SimpleNamespace(), in_layers, id="another compiler"),
        pytest.param(None, in_layers, id="a compiler that hides it"),
        pytest.param(
            compiled_graph(inductor_entry_cpp), lambda x, y: [x + 1, y], id="other results"
        ),
        pytest.param(
            compiled_graph(inductor_entry_cpp), lambda x, y: [x, y, y], id="more results"
        ),
    ],
)
def test_layers_that_do_anything_stay(cache_folder, caplog, graph, layers):
    """One line warns of what they cost, unless they are there for constants."""
    cache = ProgramCache(ADD, LEAVES, OPTIONS)
    assert cache.store(layers, graph, LEAVES) is layers
    assert cache.store(layers, graph, LEAVES) is layers
    assert cache.load() is None
    assert not [*cache_folder.iterdir()]
    has_constants = bool(getattr(graph, "constants", None))
    assert [record.levelname for record in caplog.records] == (
        [] if has_constants else ["WARNING"]
    )


def test_a_library_outside_the_cache_is_warned_of(cache_folder, caplog):
    assert programs.name_in_cache(cache_folder / "ab" / "c.so", "it") == "ab/c.so"
    assert not caplog.records
    assert programs.name_in_cache(cache_folder.parent / "c.so", "it") is None
    assert "it is compiled by every process (slower): its library is not in" in caplog.text


def test_a_library_that_is_gone_is_none(cache_folder):
    (cache_folder / "bdl-programs").mkdir()
    (cache_folder / "bdl-programs" / key()).write_text("gone.so")
    assert ProgramCache(ADD, LEAVES, OPTIONS).load() is None


def test_a_library_that_is_cut_off_is_none(cache_folder):
    (cache_folder / "cut.so").write_bytes(b"\x7fELF")
    (cache_folder / "bdl-programs").mkdir()
    (cache_folder / "bdl-programs" / key()).write_text("cut.so")
    assert ProgramCache(ADD, LEAVES, OPTIONS).load() is None


WARM = """
import sys, torch
from bdl.training.compiler import compile_graph
from bdl.training.recording import record_operations
leaves = [torch.linspace(-3, 3, 999).reshape(3, 333), torch.tensor(0.5), torch.arange(3.0)]
shift = torch.linspace(0, 1, 333)
graph = record_operations(lambda x, a, y: [(x * a).exp().cos() + shift, y, x[1] @ x.T], leaves)
results = compile_graph(graph, leaves)(*leaves)
torch.save([*results], sys.argv[1])
print("torch._inductor.compile_fx" in sys.modules)
"""


@pytest.mark.slow  # compiles
def test_a_later_process_loads_the_program_without_the_compiler(tmp_path):
    """It has the same bits; and so has an eager call, to the rounding of exponentials.

    The installed PyTorch writes programs as they are read here, or the gain is lost, with a warning.
    """
    if not is_compiler_installed():
        pytest.skip("needs a C++ compiler")
    outputs, saved = [], []
    for number in range(2):
        path = Path(tmp_path / f"{number}.pt")
        done = subprocess.run(
            [sys.executable, "-c", WARM, str(path)],
            env=os.environ | {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache")},
            capture_output=True,
            text=True,
            check=True,
        )
        assert "slower" not in done.stderr
        outputs.append(done.stdout.strip())
        saved.append(torch.load(path))
    assert outputs == ["True", "False"]
    assert all(map(torch.equal, *saved))
    x, shift = torch.linspace(-3, 3, 999).reshape(3, 333), torch.linspace(0, 1, 333)
    torch.testing.assert_close(saved[0][0], (x * 0.5).exp().cos() + shift)
    assert torch.equal(saved[0][1], torch.arange(3.0))

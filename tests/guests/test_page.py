"""The files and the command of docs/guests.md, as printed."""

import re
import shlex
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from bdl.methods import METHODS
from bdl.records.run_folder import RunFolder

PAGE = Path(__file__).parents[2].joinpath("docs/guests.md").read_text("utf-8")
FILES = dict(re.findall(r"<!-- file: (\S+) -->\n```\w+\n(.*?)```", PAGE, re.DOTALL))
(COMMAND,) = re.findall(r"<!-- command -->\n```sh\n(.*?)\n```", PAGE)


@pytest.mark.slow  # a process that runs the guests
def test_the_guests_of_the_page_run_beside_a_method_of_the_suite(
    tmp_path, monkeypatch, invoke, blank_figures
):
    monkeypatch.chdir(tmp_path)
    for name, content in FILES.items():
        (tmp_path / name).write_text(content, "utf-8")
    program, *arguments = shlex.split(COMMAND)
    assert program == "bdl-bench"
    known = ["conjugate", "own-loop", "ridge", *(["scales"] if find_spec("numpyro") else [])]
    fewer = "--splits", "1", "--set", "entries.own-loop.method.epochs=4"  # of 40, on two splits
    code, _, error = invoke(
        *arguments, "--tracking", "none", *fewer, *(f"--method={name}" for name in known)
    )
    assert (code, error) == (0, "")
    (published,) = (tmp_path / "results").rglob("run.json")
    rows = RunFolder(published.parent).tabulate()
    finals = rows[rows.stage == "final"].set_index("entry")
    assert list(finals.status) == ["ok"] * len(known), finals.reason.tolist()
    assert (finals.loc[["ridge"], "kept"] == "predictions at the test rows").all()
    assert finals.loc[["own-loop", "conjugate"], "kept"].isna().all()
    nmll = finals.nmll.groupby("entry").mean()
    assert np.isfinite(nmll).all()
    # the same linear model, with other priors on its weights and its noise
    for name in {"ridge", "scales"} & set(known):
        assert nmll[name] == pytest.approx(nmll["conjugate"], abs=0.1)


def test_contenders_of_the_page_exist():
    for name in re.findall(r"`(bdl\.guests\.\w+:\w+)`", PAGE):
        assert METHODS.adapter(name)

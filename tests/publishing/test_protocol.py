"""Verdicts are of the protocol: what is made otherwise stands beside the printed values without them."""

from pathlib import Path

import pandas as pd
import pytest

from bdl.archive.loading import NO_VERDICTS, LoadedResults, load_results
from bdl.publishing.outcome import compared, tables
from bdl.publishing.page import write_page
from bdl.spec import load_variant

RESULTS = Path(__file__).parents[2] / "results"


def made(*arguments, **options):
    """Take one row as made with a variant of `slang-uci`, whose file is as it was."""
    asked = load_variant("slang-uci", *arguments, **options)
    scores = {"rmse": 3.0, "joint_nll": 2.5, "nmll": 2.5, "runtime": 1.0}
    place = {"dataset": asked.benchmark.datasets[0], "entry": "slang", "split": 0, "status": "ok"}
    rows = pd.DataFrame([place | scores])
    return LoadedResults.of(RESULTS, asked, asked.benchmark, rows, rows)


@pytest.mark.parametrize(
    ("options", "protocol"),
    [
        ({}, True),
        ({"splits": "0-1"}, True),
        ({"entries": ["slang"]}, True),
        ({"profile": "quick"}, False),
        ({"overrides": ["entries.slang.training.epochs=3"]}, False),
        ({"overrides": ["entries.slang.training.epochs=3"], "entries": ["bbb"]}, True),
    ],
)
def test_a_part_is_the_protocol_and_what_is_changed_is_not(options, protocol):
    """An override of an entry that was not run changes nothing of what was."""
    found = made(**options)
    words = {cell.verdict for cell in compared(found) if cell.paper is not None and cell.ours is not None}
    assert (found.protocol, words == {"withheld"}) == (protocol, not protocol)
    assert found.banner.endswith(NO_VERDICTS) is not protocol


def test_rows_of_another_file_are_not_the_protocol():
    before = load_variant("slang-uci")
    now = load_variant("slang-uci", overrides=["entries.slang.training.epochs=3"]).benchmark
    assert not LoadedResults.of(RESULTS, before, now, pd.DataFrame(), pd.DataFrame(), known=False).protocol


def test_the_published_table_of_a_profile_has_no_verdicts():
    found = load_results(load_variant("mnist-slang", "cpu"), RESULTS)
    text = tables(found, "markdown")
    assert text.startswith("**Not the protocol: profile cpu")
    assert NO_VERDICTS in text.splitlines()[0]
    assert "| Paper ± SE |" in text
    assert not {"Verdict", "worse", "withheld"} & {word.strip("*") for word in text.replace("|", " ").split()}


@pytest.mark.slow  # a whole run
def test_its_page_has_grey_printed_values(tmp_path):
    page = write_page(load_variant("mnist-slang", "cpu"), RESULTS, tmp_path / "page.html").read_text("utf-8")
    assert NO_VERDICTS in page
    assert '<td class="right quiet">1.77</td>' in page
    assert 'class="verdict worse"' not in page
    whole = write_page(load_variant("noisy-mnist"), RESULTS, tmp_path / "whole.html").read_text("utf-8")
    assert 'quiet">1.82' not in whole
    assert ">1.82</td>" in whole

"""Sampled references below the tables of distances to them."""

import json
from pathlib import Path

import pytest

from bdl.errors import InputError
from bdl.plan.truths import published_info
from bdl.reports.more_tables import reference_sections

PUBLISHED = Path(__file__).parents[2] / "results"


def test_each_reference_has_a_line_with_what_its_certificate_says():
    found = published_info(PUBLISHED / "network-posterior")
    (section,) = reference_sections("network-posterior", found)
    assert [(row[0], row[1]) for row in section.rows[:4]] == [(name, str(s)) for name, s, _ in found[:4]]
    yacht = next(row for row in section.rows if row[:2] == ("yacht", "0"))
    content = json.loads((PUBLISHED / "network-posterior/references/yacht.json").read_text("utf-8"))["certificate"]
    assert yacht[3] == f"{max(content['r_hat']):.4f}"
    assert yacht[4] == f"{min(content['bulk_ess'] + content['tail_ess']):.0f}"
    assert yacht[5:] == ("certified", f"{content['origin']['seconds']:.0f}")


def test_broken_rules_are_named(tmp_path):
    text = (PUBLISHED / "network-posterior/references/yacht-2.json").read_text("utf-8")
    content = json.loads(text)
    content["certificate"]["r_hat"][3], content["certificate"]["divergences"][1] = 1.02, 0.01
    (tmp_path / "references").mkdir()
    (tmp_path / "references/two-thirds-2.json").write_text(json.dumps(content))
    (section,) = reference_sections("some", published_info(tmp_path))
    assert section.rows[0][:2] == ("two-thirds", "2")
    assert section.rows[0][5] == "breaks rules 1, 7"


def test_linear_models_have_certificates_of_their_own():
    found = published_info(PUBLISHED / "logistic-posterior")
    assert {"a1a", "australian"} < {dataset for dataset, *_ in found}
    assert all(row[5] == "certified" for row in reference_sections("some", found)[0].rows)


def test_a_benchmark_without_references_has_no_table(tmp_path):
    assert reference_sections("some", published_info(tmp_path)) == []


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"certificate": 1}', '{"certificate": {"r_hat": [1]}}'])
def test_a_damaged_file_is_told(tmp_path, text):
    (tmp_path / "references").mkdir()
    (tmp_path / "references/yacht.json").write_text(text)
    with pytest.raises(InputError, match=r"tells of no reference|not a certificate"):
        published_info(tmp_path)

"""Tables of sampled references, and the certificates that they are read from."""

import json
from pathlib import Path

import pytest

from bdl.errors import InputError
from bdl.reports.reference_tables import read_certificates, reference_sections

PUBLISHED = Path(__file__).parents[2] / "results"


def test_each_reference_has_a_line_with_what_its_certificate_says():
    certificates = read_certificates(PUBLISHED / "network-posterior")
    (section,) = reference_sections("network-posterior", certificates)
    assert [(row[0], row[1]) for row in section.rows[:4]] == [
        (name, str(s)) for name, s, _ in certificates[:4]
    ]
    yacht = next(row for row in section.rows if row[:2] == ("yacht", "0"))
    content = json.loads(
        (PUBLISHED / "network-posterior/references/yacht.json").read_text("utf-8")
    )["certificate"]
    ess = min(content["bulk_ess"] + content["tail_ess"])
    seconds = f"{content['origin']['seconds']:.0f}"
    assert yacht[3:] == (f"{max(content['r_hat']):.4f}", f"{ess:.0f}", "certified", seconds)


def test_linear_models_have_certificates_of_their_own():
    certificates = read_certificates(PUBLISHED / "logistic-posterior")
    assert {"a1a", "australian"} < {dataset for dataset, *_ in certificates}
    assert all(row[5] == "certified" for row in reference_sections("some", certificates)[0].rows)


def test_broken_rules_are_named(tmp_path):
    assert reference_sections("some", read_certificates(tmp_path)) == []
    text = (PUBLISHED / "network-posterior/references/yacht-2.json").read_text("utf-8")
    content = json.loads(text)
    content["certificate"]["r_hat"][3], content["certificate"]["divergences"][1] = 1.02, 0.01
    (tmp_path / "references").mkdir()
    (tmp_path / "references/two-thirds-2.json").write_text(json.dumps(content))
    (section,) = reference_sections("some", read_certificates(tmp_path))
    assert section.rows[0][:2] == ("two-thirds", "2")
    assert section.rows[0][5] == (
        "chains disagree: R-hat 1.02, at most 1.01 allowed; "
        "trajectories diverge: 0.01, at most 0.005 allowed"
    )


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"certificate": 1}', '{"certificate": {"r_hat": [1]}}']
)
def test_a_damaged_file_is_told(tmp_path, text):
    (tmp_path / "references").mkdir()
    (tmp_path / "references/yacht.json").write_text(text)
    with pytest.raises(InputError, match=r"tells of no reference|not a certificate"):
        read_certificates(tmp_path)

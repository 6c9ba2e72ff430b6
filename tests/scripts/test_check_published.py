"""Published fits are fitted once more, of a profile as well as of the protocol."""

import check_published
import pytest
from run_folders import rewrite


@pytest.fixture
def results(tiny, invoke, tmp_path):
    folder = tmp_path / "results"
    words = ["run", "tiny.yaml", "--no-compile", "--tracking", "none", "--results", str(folder)]
    assert invoke(*words)[0] == 0
    assert invoke(*words, "--profile", "quick")[0] == 0
    return folder


def test_profiles_are_checked_as_the_protocol_is(results, capsys):
    assert check_published.main(["--results", str(results)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "tiny diabetes/fixed: 0.0e+00 (nmll, split 0) equal, 2 fits",
        "tiny quick diabetes/fixed: 0.0e+00 (nmll, split 0) equal, 1 fits",
    ]
    assert check_published.main(["tiny", "--profile", "quick", "--results", str(results)]) == 0
    assert capsys.readouterr().out.count("equal") == 1


def test_a_changed_row_differs(results, capsys):
    rewrite(results / "tiny" / "quick", lambda rows: rows.assign(nmll=rows.nmll + 0.1))
    assert check_published.main(["tiny", "--results", str(results)]) == 1
    out = capsys.readouterr().out
    assert out.count("equal") == out.count("DIFFERS") == 1


def test_a_profile_that_is_not_published_is_named(results, capsys):
    with pytest.raises(SystemExit, match="2"):
        check_published.main(["tiny", "--profile", "large", "--results", str(results)])
    assert "no published rows in" in capsys.readouterr().err

"""What the README says is found in it, and one that is wrong is reported."""

from pathlib import Path

import first_steps
from first_steps import Place, found, walk

README = (Path(__file__).parents[2] / "README.md").read_text("utf-8")


def test_a_broken_command_is_reported_and_the_last(tmp_path, capsys):
    commands = found("```sh\ntrue && touch first\nbdl-bensh run\ntouch second\n```")
    assert walk(commands, Place(tmp_path, log=tmp_path / "log")) == "bdl-bensh run"
    assert "bdl-bensh run  FAILED" in capsys.readouterr().out
    assert "bdl-bensh" in (tmp_path / "log").read_text().partition("\n$ bdl-bensh run\n")[2]
    assert (tmp_path / "first").exists()
    assert not (tmp_path / "second").exists()


def test_commands_are_found_in_blocks_and_text_in_their_order():
    text = (
        'Then `pip install "b[c]" && d`, not `--e` or `f`.\n```sh\ng h && i\n```\n'
        "```yaml\nk: [l]\n```\n`bdl-bench m`"
    )
    begun = "bdl-bench run uci-regression --profile quick --method vifa-lr --splits 1"
    assert found(text) == [
        'pip install "b[c]"',
        "d",
        "g h",
        "i",
        f"{begun} --set 'k=[l]'",
        "bdl-bench m",
    ]


def test_the_readme_has_what_is_done_otherwise():
    """A command that is shortened or stopped, and no longer in the README, would be forgotten here."""
    assert {*first_steps.IN_PART, *first_steps.SERVING} <= set(found(README))

"""What the README says is found in it, and one that is wrong is reported."""

import os
import sys
from pathlib import Path

import first_steps
import pytest
from first_steps import Place, found, travel, walk
from journeys import JOURNEYS, Shell, WrongTurnError

README = (Path(__file__).parents[2] / "README.md").read_text("utf-8")
SERVER = "http.server"


def test_a_broken_command_is_reported_and_the_last(tmp_path, capsys):
    commands = found("```sh\ntrue && touch first\nbdl-bensh run\ntouch second\n```")
    assert walk(commands, Place(tmp_path, log=tmp_path / "log")) == "bdl-bensh run"
    assert "bdl-bensh run  FAILED" in capsys.readouterr().out
    assert "bdl-bensh" in (tmp_path / "log").read_text().partition("\n$ bdl-bensh run\n")[2]
    assert (tmp_path / "first").exists()
    assert not (tmp_path / "second").exists()


def test_a_block_of_something_else_is_not_passed_over():
    with pytest.raises(ValueError, match="block of toml"):
        found("```toml\na = 1\n```")


def test_wrong_python_is_reported(tmp_path):
    commands = found("```python\nimport json\njson.loads('')\n```")
    assert walk(commands, Place(tmp_path)) == commands[0]


def test_commands_are_found_in_blocks_and_text_in_their_order():
    text = (
        'Then `pip install "b[c]" && d`, not `--e` or `f`.\n```sh\ng h && i\n```\n```yaml\nk: [l]\n```\n`bdl-bench m`'
    )
    begun = "bdl-bench run uci-regression --profile quick --method vifa-lr --splits 1"
    assert found(text) == ['pip install "b[c]"', "d", "g h", "i", f"{begun} --set 'k=[l]'", "bdl-bench m"]


def test_the_readme_has_what_is_done_otherwise():
    """A command that is shortened or stopped, and no longer in the README, would be forgotten here."""
    assert {*first_steps.IN_PART, *first_steps.SERVING} <= set(found(README))


@pytest.mark.parametrize(("command", "answered"), [(SERVER, True), ("nothing.like.this", False)])
def test_a_server_is_stopped_when_it_answers(tmp_path, monkeypatch, command, answered):
    started = f"{sys.executable} -m {command}"
    monkeypatch.setitem(first_steps.SERVING, started, "{port}")
    assert (walk([started], Place(tmp_path)) is None) == answered


def test_other_commands_do_not_reach_the_network(tmp_path):
    script = "import urllib.request as u; u.urlopen('http://example.org', timeout=60)"
    (tmp_path / "fetch.py").write_text(script)
    log = tmp_path / "log"
    assert walk([f"{sys.executable} fetch.py"], Place(tmp_path, log=log)) is not None
    assert "refused" in log.read_text()


@pytest.mark.parametrize(("command", "code", "say"), [("echo done", 1, ""), ("false", 0, ""), ("echo done", 0, "more")])
def test_a_step_that_ends_otherwise_is_a_wrong_turn(tmp_path, command, code, say):
    with pytest.raises(WrongTurnError, match=rf"(?s){command}\nended with .*instead of {code}, or without '{say}'"):
        Shell(tmp_path, os.environ)(command, code, say)


def test_a_file_is_changed_only_where_it_has_the_text(tmp_path):
    (tmp_path / "a.py").write_text("one two")
    shell = Shell(tmp_path, os.environ)
    shell.change("a.py", "two", "three")
    assert (tmp_path / "a.py").read_text() == "one three"
    with pytest.raises(WrongTurnError, match="has no 'two'"):
        shell.change("a.py", "two", "four")


def test_journeys_end_at_the_first_that_goes_wrong(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(JOURNEYS, "reader", lambda shell: shell("echo lost", say="found"))
    monkeypatch.setitem(JOURNEYS, "author", lambda shell: shell("touch here"))
    assert travel(["author"], tmp_path, os.environ) == 0
    assert (tmp_path / "author" / "here").exists()
    assert travel(["reader", "practitioner"], tmp_path, os.environ) == 1
    assert "failed: echo lost\nended with 0" in capsys.readouterr().out
    assert not (tmp_path / "practitioner").exists()


def test_no_such_journey(capsys):
    with pytest.raises(SystemExit, match="2"):
        first_steps.main(["--here", "writer"])
    assert "no journey writer; there are reader, author, practitioner" in capsys.readouterr().err

"""Files that appear whole or not at all."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from bdl.files import write_atomically


def test_a_file_is_replaced_at_the_end_of_the_block(tmp_path):
    path = tmp_path / "folder" / "rows.txt"
    with write_atomically(path) as new_path:
        new_path.write_text("first")
        assert not path.exists()
    with write_atomically(path) as new_path:
        new_path.write_text("second")
        assert path.read_text() == "first"
    assert path.read_text() == "second"
    assert [*path.parent.iterdir()] == [path]


def test_a_block_that_raises_leaves_the_file_as_it_was(tmp_path):
    path = tmp_path / "rows.txt"
    path.write_text("first")

    def fail_halfway():
        with write_atomically(path) as new_path:
            new_path.write_text("half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_halfway()
    assert path.read_text() == "first"
    assert [*tmp_path.iterdir()] == [path]


def test_a_file_that_was_not_written_replaces_nothing(tmp_path):
    path = tmp_path / "rows.txt"
    path.write_text("first")
    with pytest.raises(FileNotFoundError), write_atomically(path):
        pass
    assert path.read_text() == "first"


def test_two_writers_of_one_file_do_not_meet(tmp_path):
    path = tmp_path / "rows.npz"
    with write_atomically(path) as one, write_atomically(path) as other:
        assert one != other
        assert one.suffix == other.suffix == ".npz"
        one.write_text("one")
        other.write_text("other")
    assert path.read_text() == "one"


def test_a_file_has_the_permissions_of_any_other(tmp_path):
    path, other = tmp_path / "rows.txt", tmp_path / "other.txt"
    other.write_text("")
    with write_atomically(path) as new_path:
        new_path.write_text("")
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(other.stat().st_mode)


def test_content_and_name_are_on_the_disk(tmp_path, monkeypatch):
    """The file is synced before it is renamed, and the folder after that."""
    path, synced = tmp_path / "rows.txt", []

    def sync(descriptor):
        synced.append((Path(f"/proc/self/fd/{descriptor}").readlink(), path.exists()))

    monkeypatch.setattr(os, "fsync", sync)
    with write_atomically(path) as new_path:
        new_path.write_text("rows")
    assert synced == [(new_path, False), (tmp_path, True)]


def test_a_process_that_is_killed_leaves_the_file_as_it_was(tmp_path):
    path = tmp_path / "rows.txt"
    path.write_text("first")
    program = (
        "import os, sys; from pathlib import Path; from bdl.files import write_atomically\n"
        "with write_atomically(Path(sys.argv[1])) as new_path:\n"
        "    new_path.write_text('half')\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    ended = subprocess.run([sys.executable, "-c", program, str(path)], check=False)
    assert ended.returncode == -9
    assert path.read_text() == "first"

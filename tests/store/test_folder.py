"""Folders of a benchmark: that of the protocol, and those of its variants."""

from bdl.archive.frames import siblings


def test_siblings_are_the_other_folders_of_the_benchmark(tmp_path):
    protocol, one, other = places = [tmp_path / "toy" / path for path in ("", "variants/one", "variants/other")]
    one.mkdir(parents=True)
    other.mkdir()
    (tmp_path / "another").mkdir()
    for place in places:
        assert siblings(place) == [path for path in (protocol, one, other) if path != place]

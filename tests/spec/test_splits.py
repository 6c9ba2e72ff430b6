import pytest

from bdl.errors import InputError
from bdl.spec import parse_splits
from bdl.spec.variant import listed


@pytest.mark.parametrize(
    ("text", "splits"),
    [
        ("3", (0, 1, 2)),
        ("20", tuple(range(20))),
        ("0,3,5-7", (0, 3, 5, 6, 7)),
        ("4-4", (4,)),
        ("5, 1 - 2, 1", (1, 2, 5)),
        ("19,0", (0, 19)),
    ],
)
def test_parse(text, splits):
    assert parse_splits(text, 20) == splits


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "give a count such as 3"),
        ("a", "give a count such as 3"),
        ("-1", "give a count such as 3"),
        ("1,", "give a count such as 3"),
        ("1-2-3", "give a count such as 3"),
        ("1.5", "give a count such as 3"),
        ("0", "no split at all"),
        ("7-5", "no split at all"),
        ("21", "there are 20 splits, 0 to 19"),
        ("1,20", "there are 20 splits, 0 to 19"),
    ],
)
def test_refusals(text, message):
    with pytest.raises(InputError, match=message):
        parse_splits(text, 20)


@pytest.mark.parametrize(("splits", "text"), [([], ""), ([4], "4"), ([0, 1], "0-1"), ([7, 3, 0, 6, 5], "0, 3, 5-7")])
def test_listed(splits, text):
    assert listed(splits) == text
    assert not splits or parse_splits(f"{text},{splits[0]}", 20) == tuple(sorted(splits))

"""Values of a sweep as people and axes read them."""

import pandas as pd
import pytest

from bdl.reports.statistics import by_cell, named, number, short


@pytest.mark.parametrize(
    ("text", "shown", "place"),
    [
        ("100", "100", 100.0),
        ("[50]", "50", 50.0),
        ("[50,20]", "50-20", None),
        ("[]", "", None),
        ("0.001", "0.001", 0.001),
        ("1e-05", "1e-05", 1e-5),
        ('"relu"', "relu", None),
        ("true", "true", None),
        ("null", "null", None),
        ('{"name":"decay","power":0.5}', "name=decay power=0.5", None),
    ],
)
def test_values(text, shown, place):
    assert short(text) == shown
    assert number(text) == place


def test_points():
    values = {"model.hidden": "[50]", "method.rank": "2"}
    assert named(values) == "hidden = 50, rank = 2"
    assert named({}) == ""


def test_rows_of_a_cell():
    rows = pd.DataFrame({"model.hidden": ["[50]", "[100]", "[50]"], "method.rank": ["2", "2", "1"], "nmll": [1, 2, 3]})
    rows = rows.assign(dataset="yacht", entry="vifa")
    groups = by_cell(rows, ("model.hidden", "method.rank"))
    assert groups["yacht", "vifa", "[50]", "2"]["nmll"].tolist() == [1]
    assert by_cell(rows, ())["yacht", "vifa"]["nmll"].tolist() == [1, 2, 3]

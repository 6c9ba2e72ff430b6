"""Names of data sets for people."""

from bdl.reports.layout import sections
from bdl.reports.naming import shown


def test_files_are_left_out_unless_two_would_be_called_alike():
    assert shown(["yacht", "sub/wave.py:wave", "wave.py:Wave_500"]) == {
        "yacht": "yacht", "sub/wave.py:wave": "wave", "wave.py:Wave_500": "Wave_500",
    }  # fmt: skip
    assert shown(["a.py:load", "b.py:load", "load2"]) == {
        "a.py:load": "a.py:load",
        "b.py:load": "b.py:load",
        "load2": "load2",
    }


def test_tables_call_them_so(make_benchmark, make_trials):
    from bdl.reports import compare

    name = "sub/wave.py:wave"
    benchmark = make_benchmark(datasets=[name], papers=[])
    cells = compare(benchmark, make_trials(name, "vifa-lr", [1.0, 2.0]))
    assert [row[0] for row in sections(cells)[0].rows] == ["wave", "wave"]

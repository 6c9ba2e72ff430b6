"""One network: all contenders train, and the numbers are written."""

import json

import bench_single


def test_a_short_run_to_its_end(tmp_path):
    file = tmp_path / "single.json"
    assert bench_single.main(["--quick", "--threads", "1", "--json", str(file)]) == 0
    costs = json.loads(file.read_text())["contenders"]
    assert next(iter(costs)) == "torch Adam"
    assert {"adam, traced", "bbb, traced", "vifa, traced", "slang, traced"} < set(costs)
    assert all(cost["us_min"] > 0 for cost in costs.values())

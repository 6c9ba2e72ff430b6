"""One network: all contenders train, and the numbers are written."""

import json

import bench_single
import pytest


def test_a_short_run_to_its_end(tmp_path):
    file = tmp_path / "single.json"
    arguments = ["--quick", "--network", "13-50-1", "--network", "784-100-10"]
    assert bench_single.main([*arguments, "--threads", "1", "--json", str(file)]) == 0
    networks = json.loads(file.read_text())["networks"]
    assert {"adam, traced", "bbb, traced", "vifa, traced", "slang, traced"} < set(networks["13-50-1"])
    assert {"noisy-adam, traced", "noisy-kfac, traced"} < set(networks["784-100-10"])
    assert all(next(iter(costs)) == "torch Adam" for costs in networks.values())
    assert all(cost["us_min"] > 0 for costs in networks.values() for cost in costs.values())


@pytest.mark.parametrize(("name", "dim"), [("13-50-1", 751), ("784-100-10", 79_510), ("784-400-400-10", 478_410)])
def test_networks_are_those_of_the_documentation(name, dim):
    network = bench_single.NETWORKS[name]
    for method in network.methods.values():
        work = network.workload(method)
        method.check(work.problem)
        assert (work.problem.dim, work.cost_units, work.batch_size) == (dim, bench_single.UPDATES, network.batch_size)
    x, y = bench_single._data(network)
    loop = bench_single.TorchLoop(network, x, y)
    assert sum(part.numel() for part in loop.net.parameters()) == dim
    before = [part.clone() for part in loop.net.parameters()]
    loop.epoch()
    assert not any(map(bench_single.torch.equal, before, loop.net.parameters()))

"""One network: all contenders train, and the numbers are written."""

import bench_single
import pytest


@pytest.mark.parametrize(("name", "dim"), [("13-50-1", 751), ("784-100-10", 79_510), ("784-400-400-10", 478_410)])
def test_networks_are_those_of_the_documentation(name, dim):
    network = bench_single.NETWORKS[name]
    for method in network.methods.values():
        work = network.workload(method)
        method.check(work.problem)
        assert (work.problem.dim, work.cost_units, work.batch_size) == (dim, bench_single.UPDATES, network.batch_size)
    x, y = bench_single._data(network)
    loop = bench_single.TorchLoop(network.sizes, x, y, network.batch_size)
    assert sum(part.numel() for part in loop.net.parameters()) == dim
    before = [part.clone() for part in loop.net.parameters()]
    loop.epoch()
    assert not any(map(bench_single.torch.equal, before, loop.net.parameters()))

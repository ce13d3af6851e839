"""Sweeps on a Ray cluster of two nodes, of which one is killed."""

import os
import threading
import time

import cpumax
import pytest

ray = pytest.importorskip("ray", reason="Ray is not installed")
from test_sweeps import LIMITS, digests  # noqa: E402


@pytest.fixture
def cluster():
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    second = cluster.add_node(num_cpus=1)
    ray.init(address=cluster.address, log_to_driver=False)
    yield cluster, second
    ray.shutdown()
    cluster.shutdown()


def test_nothing_is_lost_with_a_node(cluster, bursts, web, tmp_path):
    nodes, second = cluster

    def sweep(out, **more):
        return cpumax.sweep(
            [bursts, web], LIMITS, ["all"], [1, 2], out=os.fspath(out), limits_per_task=1, **more
        )

    def kill():
        while len(digests(tmp_path / "ray")) < 3:
            time.sleep(0.05)
        nodes.remove_node(second, allow_graceful=False)

    killer = threading.Thread(target=kill)
    killer.start()
    done = sweep(tmp_path / "ray", executor="ray")
    killer.join()
    assert done.made == 16
    sweep(tmp_path / "own")
    assert digests(tmp_path / "ray") == digests(tmp_path / "own")

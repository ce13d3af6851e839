"""Sweeps on a Ray cluster of two nodes, of which one is killed."""

import os

import cpumax
import pytest

# Beside other work a node takes longer to start than Ray waits: 30 s. Ray reads this when imported.
os.environ.update(RAY_raylet_start_wait_time_s="300", RAY_gcs_server_port_wait_time_s="300")
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

    def kill(share):
        if share >= 0.5 and second in nodes.list_all_nodes():
            nodes.remove_node(second, allow_graceful=False)

    done = sweep(tmp_path / "ray", executor="ray", progress=kill)
    assert second not in nodes.list_all_nodes() and done.made == 16
    sweep(tmp_path / "own")
    assert digests(tmp_path / "ray") == digests(tmp_path / "own")

from __future__ import annotations

from gpuplan.models.cluster import Cluster, NodeGpus, RackPower
from gpuplan.models.snapshot import Snapshot
from tests.support.builders import build
from tests.support.harness.solved_model import solved


def snapshot(jobs, *, rack_watts=None, node_watts=0, nodes=2):
    """Nodes of eight GPUs of 700 W in one rack."""
    machines = tuple(
        build.node(f"n{number}", rack="r").model_copy(
            update={
                "gpus": NodeGpus(model=build.MODEL, count=8, memory_mib=81559, watts=700),
                "power_cap_watts": node_watts,
            }
        )
        for number in range(nodes)
    )
    caps = (RackPower(rack="r", watts=rack_watts),) if rack_watts else ()
    cluster = Cluster(nodes=machines, rack_power=caps)
    return Snapshot(
        taken_at=build.NOW, cluster=cluster, queues=(build.queue(),), jobs=tuple(jobs)
    ).canonical()


def four(count):
    """So many jobs of four GPUs, 2.8 kW each."""
    return [build.job(f"j{number}", gpus=4) for number in range(count)]


def test_rack_takes_what_its_cap_allows_and_no_more():
    assert solved(snapshot(four(4), rack_watts=8400)).placed == {"j0": 3}
    assert solved(snapshot(four(4), rack_watts=8399)).placed == {"j0": 2}


def test_running_jobs_draw_from_the_cap():
    running = build.job("r", gpus=4, at=[build.replica("n0", gpus=range(4))])

    assert solved(snapshot([running, *four(3)], rack_watts=5600)).placed == {"j0": 1}


def test_node_takes_what_its_cap_allows():
    assert solved(snapshot(four(4), node_watts=4000)).placed == {"j0": 2}

"""What the simulated cluster does to nodes: each change done as it says, or refused with nothing changed."""

from __future__ import annotations

from datetime import timedelta

import pytest

from gpuplan.planner.executors.interface import ExecutionError
from gpuplan.planner.executors.simulated import SimulatedCluster
from tests.support.builders.build import NOW, cluster, job, node, replica, snapshot
from tests.support.samples.all_actions import (
    cordon,
    drain,
    in_pool,
    instance,
    mig_job,
    mig_node,
    mig_replica,
    pool,
    repartition,
    scale_down,
    scale_up,
    with_pools,
)
from tests.support.samples.apply_world import landed, perform

CLOUD = pool("cloud", most=3, least=1, provisioning="10m")
FULL = pool("full", most=0)
AT_ONCE = pool("now", most=1, provisioning=0)
WORLD = with_pools(
    snapshot(
        nodes=[
            *cluster(2),
            node("down", ready=False),
            mig_node(gpus=2, layout=[("3g.40gb", 0), ("3g.40gb", 4)]),
            mig_node("odd", layout=[("3g.40gb", 0)], model="RTX-PRO-X"),
            in_pool(CLOUD, "cloud-1"),
            in_pool(CLOUD, "cloud-2"),
        ],
        jobs=[
            job("runs", gpus=1, at=[replica("n0", gpus=[0])]),
            job("there", gpus=1, at=[replica("cloud-2", gpus=[0])]),
            mig_job("holds", g3_40=1, at=[mig_replica("mig0", "3g.40gb", 0)]),
        ],
    ),
    CLOUD,
    FULL,
    AT_ONCE,
)


@pytest.fixture
def live(tmp_path):
    with SimulatedCluster.create(tmp_path / "c.db", WORLD) as cluster_:
        yield cluster_


def found(live, name):
    return live.snapshot().cluster.node_by_name.get(name)


def layout(live, name, gpu=0):
    return found(live, name).gpus.by_index[gpu].mig


def test_a_repartitioned_gpu_has_the_new_layout_and_only_it_changed(live):
    perform(live, repartition(WORLD, "mig0", ("3g.40gb", 0), ("2g.20gb", 4), ("1g.10gb", 6)))

    assert layout(live, "mig0") == (
        instance("3g.40gb", 0),
        instance("2g.20gb", 4),
        instance("1g.10gb", 6),
    )
    assert layout(live, "mig0", gpu=1) is None
    assert live.snapshot().jobs == WORLD.jobs


def test_mig_mode_is_switched_on_for_an_idle_gpu(live):
    perform(live, repartition(WORLD, "n0", ("7g.80gb", 0), gpu=1))

    assert layout(live, "n0", gpu=1) == (instance("7g.80gb", 0),)
    assert [gpu.index for gpu in found(live, "n0").gpus.details] == [1]


def test_an_idle_instance_of_a_gpu_of_unknown_model_may_go(live):
    perform(live, repartition(WORLD, "odd"))

    assert layout(live, "odd") == ()


def test_nothing_new_starts_on_a_cordoned_node(live):
    perform(live, cordon("n0"))

    assert found(live, "n0") == WORLD.cluster.node_by_name["n0"].model_copy(update={"cordoned": True})


def test_a_drained_node_is_confirmed_and_stays_as_it_is(live):
    perform(live, drain("n1"))

    assert live.snapshot() == WORLD
    assert landed(live, ["p:drain/n1"])


def test_a_new_node_is_there_at_once_and_ready_when_it_is_provisioned(live):
    perform(live, scale_up(CLOUD, "cloud-3"))

    expected = in_pool(CLOUD, "cloud-3")
    assert found(live, "cloud-3") == expected.model_copy(update={"ready_at": NOW + timedelta(minutes=10)})
    live.advance(599)
    assert found(live, "cloud-3").ready_at
    live.advance(1)
    assert found(live, "cloud-3") == expected


def test_a_node_of_a_pool_that_provisions_at_once_is_ready(live):
    perform(live, scale_up(AT_ONCE, "now-1"))

    assert found(live, "now-1") == in_pool(AT_ONCE, "now-1")


def test_an_empty_node_is_given_back(live):
    perform(live, scale_down(CLOUD, "cloud-1"))

    assert found(live, "cloud-1") is None
    assert len(live.snapshot().cluster.nodes) == len(WORLD.cluster.nodes) - 1


def test_a_pool_remembers_when_it_was_given_a_node_and_when_it_gave_one_back(live):
    def times():
        pools = {pool.name: pool for pool in live.snapshot().cluster.pools}
        assert pools["full"] == FULL
        return pools["cloud"].node_added_at, pools["cloud"].node_removed_at

    assert times() == (None, None)
    perform(live, scale_up(CLOUD, "cloud-3"))
    assert times() == (NOW, None)
    live.advance(60)
    perform(live, scale_down(CLOUD, "cloud-1"))
    assert times() == (NOW, NOW + timedelta(minutes=1))


def test_a_pool_keeps_its_minimum_and_its_maximum(live):
    perform(live, scale_up(CLOUD, "cloud-3"))
    with pytest.raises(ExecutionError, match="expected room in pool cloud, found 3 nodes of at most 3"):
        perform(live, scale_up(CLOUD, "cloud-4"))
    perform(live, scale_down(CLOUD, "cloud-1"), scale_down(CLOUD, "cloud-3"))
    live.begin(drain("n1"), "p:1")
    with pytest.raises(ExecutionError, match=r"cloud-2 cannot be removed: expected it empty, found there"):
        perform(live, scale_down(CLOUD, "cloud-2"))
    with SimulatedCluster(live.path) as theirs:
        theirs._db.execute("PRAGMA foreign_keys = ON")
        theirs._db.execute("DELETE FROM jobs WHERE name = 'there'")
    with pytest.raises(ExecutionError, match="expected more than 1 nodes in pool cloud, found 1, its least"):
        perform(live, scale_down(CLOUD, "cloud-2"))


def other(change_, **fields):
    """The change with some of it forged."""
    return change_.model_copy(update=fields)


REFUSED = [
    (
        repartition(WORLD, "mig0", ("2g.20gb", 0), ("3g.40gb", 4)),
        "mig0 cannot be repartitioned: expected MIG instances in use to stay on GPU 0, found 3g.40gb at 0",
    ),
    (
        repartition(WORLD, "mig0", ("3g.40gb", 0), ("2g.20gb", 3)),
        "expected a legal MIG layout of H100-80GB, found 2g.20gb at slice 3: may start at 0, 2, 4",
    ),
    (repartition(WORLD, "n0", ("7g.80gb", 0)), "expected GPU 0 idle to switch MIG mode on, found it in use"),
    (
        repartition(WORLD, "odd", ("3g.40gb", 0), ("3g.40gb", 4)),
        "expected no new MIG instance on GPU model RTX-PRO-X, which is not known to have MIG, found 3g.40gb",
    ),
    (repartition(WORLD, "down", ("7g.80gb", 0)), "expected it ready, found it down"),
    (other(repartition(WORLD, "n0", ("7g.80gb", 0)), gpu=8), "expected GPU 8, found no such GPU"),
    (other(repartition(WORLD, "n0", ("7g.80gb", 0)), node="n9"), "expected a node, found no such node"),
    (cordon("n9"), "node n9 cannot be cordoned: expected a node, found no such node"),
    (drain("n9"), "node n9 cannot be drained: expected a node, found no such node"),
    (drain("n0"), "node n0 cannot be drained: expected it empty, found runs running"),
    (scale_up(CLOUD, "n0"), "node n0 cannot be added: expected no node of this name, found one"),
    (scale_up(pool("zzz"), "zzz-1"), "expected pool zzz, found no such pool"),
    (scale_up(FULL, "full-1"), "expected room in pool full, found 0 nodes of at most 0"),
    (scale_up(pool("cloud", gpus=4), "cloud-3"), "expected a node as the template of pool cloud"),
    (scale_down(CLOUD, "cloud-9"), "node cloud-9 cannot be removed: expected a node, found no such node"),
    (scale_down(CLOUD, "n1"), "expected it in pool cloud, found it in none"),
    (scale_down(AT_ONCE, "cloud-1"), "expected it in pool now, found it in cloud"),
    (scale_down(pool("zzz"), "cloud-1"), "expected pool zzz, found no such pool"),
    (scale_down(CLOUD, "cloud-2"), "expected it empty, found there running"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("refused", "why"), REFUSED)
def test_a_change_of_a_node_that_cannot_be_is_refused_and_changes_nothing(live, refused, why):
    with pytest.raises(ExecutionError) as caught:
        perform(live, refused)

    assert why in str(caught.value)
    assert live.snapshot() == WORLD
    assert not landed(live, [f"p:{refused.id}"])

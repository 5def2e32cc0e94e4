"""Each change of nodes does what it says and nothing else."""

from __future__ import annotations

import pytest

from gpuplan.models.calendar import Reservation
from gpuplan.models.cluster import RackPower
from tests.support.builders.build import job, node, pool, replica, snapshot
from tests.support.harness.patch_helpers import after, on


def test_nodes_like_an_existing_one_are_whole_empty_and_where_they_are_wanted():
    broken = node("n0", rack="r1", cordoned=True, nvlink_island="i", details=[{"index": 2, "healthy": False}])
    world = snapshot(nodes=[broken, node("n0-new-1")])

    made = after(world, {"change": "add_nodes", "like": "n0", "count": 2, "rack": "r7"}).cluster.node_by_name

    assert set(made) == {"n0", "n0-new-1", "n0-new-2", "n0-new-3"}
    for new in (made["n0-new-2"], made["n0-new-3"]):
        assert (new.rack, new.cordoned, new.nvlink_island) == ("r7", False, "")
        assert all(gpu.healthy for gpu in new.gpus.by_index.values())


def test_nodes_of_a_pool_are_its_members_and_its_maximum_grows():
    world = snapshot(pools=[pool("spot", most=1)])

    made = after(world, {"change": "add_nodes", "pool": "spot", "count": 3}).cluster

    assert [one.name for one in made.nodes if one.pool == "spot"] == [f"spot-new-{n}" for n in (1, 2, 3)]
    assert made.pools[0].maximum == 3


@pytest.mark.parametrize(
    ("limits", "least", "most"), [({"min": 2}, 2, 4), ({"max": 1}, 1, 1), ({"min": 0, "max": 9}, 0, 9)]
)
def test_a_pool_has_other_limits_and_keeps_those_not_named(limits, least, most):
    world = snapshot(pools=[pool("base", least=1, most=4), pool("spot", least=1, most=4)])

    base, spot = after(world, {"change": "set_pool", "pool": "spot", **limits}).cluster.pools

    assert (spot.minimum, spot.maximum) == (least, most)
    assert base == world.cluster.pools[0]


def test_nodes_may_be_described():
    made = after(snapshot(), {"change": "add_nodes", "node": {"name": "big", "cpus": 4}, "zone": "z"}).cluster

    assert made.node_by_name["big-new-1"].zone == "z"


@pytest.mark.parametrize("change", ["fail_nodes", "remove_nodes"])
def test_what_ran_on_lost_nodes_waits_again_and_all_else_runs_on(change):
    gang = job("gang", gpus=1, replicas=2, at=[replica("n0", gpus=[1]), replica("n1", gpus=[1])])
    world = snapshot(jobs=[on("n0"), on("n1", job_name="other"), gang])

    made = after(world, {"change": change, "nodes": {"names": ["n0"]}})

    assert {each.name for each in made.jobs if each.running} == {"other"}
    found = made.cluster.node_by_name.get("n0")
    assert found is None if change == "remove_nodes" else not found.ready


def test_what_stood_on_removed_nodes_goes_with_them():
    promised = job(
        "p", gpus=1, promise={"start": "2026-11-20T14:00:00Z", "replicas": [replica("n0", gpus=[0])]}
    )
    reservations = [
        Reservation(name="a", duration=60, cron="0 * * * *", nodes=("n0",), queues=("q",)),
        Reservation(name="b", duration=60, cron="0 * * * *", nodes=("n0", "n1"), queues=("q",)),
    ]
    world = snapshot(
        nodes=[node("n0", rack="r0", watts=1), node("n1", rack="r1")],
        jobs=[promised],
        reservations=reservations,
        rack_power=[RackPower(rack="r0", watts=5), RackPower(rack="r1", watts=5)],
    )

    made = after(world, {"change": "remove_nodes", "nodes": {"rack": "r0"}})

    assert made.jobs[0].promise is None
    assert [(each.name, each.nodes) for each in made.cluster.reservations] == [("b", ("n1",))]
    assert [cap.rack for cap in made.cluster.rack_power] == ["r1"]


def test_drained_nodes_keep_what_runs():
    made = after(snapshot(jobs=[on("n0")]), {"change": "drain_nodes", "nodes": {"all": True, "count": 1}})

    assert [one.drain for one in made.cluster.nodes] == [True, False]
    assert made.jobs[0].running


@pytest.mark.parametrize(
    ("choice", "chosen"),
    [
        ({"rack": "r1"}, "ab"),
        ({"rack": "r1", "zone": "z2"}, "b"),
        ({"region": "eu"}, "c"),
        ({"pool": "spot"}, "c"),
        ({"gpu_model": "T4"}, "b"),
        ({"labels": {"tier": "gold"}}, "ac"),
        ({"names": ["b", "c"]}, "bc"),
        ({"all": True, "count": 2}, "ab"),
        ({"all": True}, "abc"),
    ],
)
def test_nodes_are_chosen_by_all_conditions_together(choice, chosen):
    gold = {"labels": {"tier": "gold"}}
    world = snapshot(
        nodes=[
            node("a", rack="r1", zone="z1", **gold),
            node("b", rack="r1", zone="z2", model="T4"),
            node("c", region="eu", pool="spot", **gold),
        ]
    )

    made = after(world, {"change": "drain_nodes", "nodes": choice})

    assert "".join(one.name for one in made.cluster.nodes if one.drain) == chosen


def test_jobs_stay_on_other_gpus_only_if_they_may_use_them():
    gang = job("gang", gpus=1, replicas=2, at=[replica("n0", gpus=[4]), replica("n1", gpus=[4])])
    sliced = job("sliced", mig={"1g.10gb": 1}, at=[replica("n0", mig=[(5, "1g.10gb", 0)])])
    world = snapshot(
        nodes=[
            node("n0", mig={5: [("1g.10gb", 0)]}),
            node("n1"),
            node("n2", model="T4", gpu_memory_mib=15360),
        ],
        jobs=[
            on("n0", (0,), "any"),
            on("n0", (1,), "picky", gpu_models={"H100-80GB": 1}),
            on("n0", (6,), "high"),
            on("n1", (0,), "elsewhere", gpu_models={"H100-80GB": 1}),
            gang,
            sliced,
        ],
    )

    made = after(world, {"change": "replace_gpus", "nodes": {"names": ["n0"]}, "model": "T4", "count": 6})

    assert {each.name for each in made.jobs if each.running} == {"any", "elsewhere"}
    gpus = made.cluster.node_by_name["n0"].gpus
    assert (gpus.model, gpus.count, gpus.memory_mib) == ("T4", 6, 15360)
    assert (gpus.details, gpus.time_sliced) == ((), False)


@pytest.mark.parametrize(("memory_mib", "stays"), [(16_000, True), (15_999, False)])
def test_a_share_stays_on_other_gpus_if_its_part_of_their_memory_is_enough(memory_mib, stays):
    share = job("share", milli=500, at=[replica("n0", gpus=[0], milli=500)])
    wanting = share.model_copy(update={"request": share.request.model_copy(update={"gpu_memory_mib": 8_000})})
    change = {"change": "replace_gpus", "nodes": {"names": ["n0"]}, "model": "V100", "memory_mib": memory_mib}

    [made] = after(snapshot(jobs=[wanting]), change).jobs

    assert (made.running is not None) == stays


def test_slices_of_profiles_that_other_gpus_do_not_have_are_lost():
    sliced = job("sliced", mig={"1g.10gb": 1}, at=[replica("n0", mig=[(5, "1g.10gb", 0)])])
    wanting = sliced.model_copy(update={"request": sliced.request.model_copy(update={"gpu_memory_mib": 1})})
    world = snapshot(nodes=[node("n0", mig={5: [("1g.10gb", 0)]})], jobs=[wanting])

    [made] = after(world, {"change": "replace_gpus", "nodes": {"all": True}, "model": "A100-40GB"}).jobs

    assert made.running is None

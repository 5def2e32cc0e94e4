"""Usage of queues and the room that is left, nodes counted in that are still to come."""

from __future__ import annotations

from gpuplan.models.queue import CPUS, MEMORY, QuotaAmounts
from gpuplan.planner.analysis.quota_headroom import QuotaHeadroom, usage_by_queue
from tests.support.builders import build

NEW = build.node("new", model="T4")
WORLD = build.snapshot(
    jobs=[build.job("r", gpus=2, at=[build.replica("n0", gpus=(0, 1))]), build.job("w", gpus=1)],
    queues=[build.queue("q", nominal=3)],
)
PLACED = (*WORLD.running_placements, build.placement("w", build.replica("new", gpus=(0,))))


def test_usage_is_by_queue_and_model():
    assert usage_by_queue(WORLD, PLACED) == {"q": {build.MODEL: 2000}}
    assert usage_by_queue(WORLD, PLACED, added=[NEW]) == {"q": {build.MODEL: 2000, "T4": 1000}}


def test_mig_instances_count_by_their_compute_slices():
    nodes = [build.node("n0", mig={0: [("3g.40gb", 0)]})]
    runs = build.job("m", mig={"3g.40gb": 1}, at=[build.replica("n0", mig=[(0, "3g.40gb", 0)])])
    world = build.snapshot(nodes=nodes, jobs=[runs])

    assert usage_by_queue(world, world.running_placements) == {"q": {build.MODEL: 428}}


def test_what_stands_on_new_nodes_takes_room():
    without = QuotaHeadroom(WORLD.queues, usage_by_queue(WORLD, PLACED)).now("q", QuotaAmounts(1000), ["T4"])
    room = QuotaHeadroom(WORLD.queues, usage_by_queue(WORLD, PLACED, added=[NEW])).now(
        "q", QuotaAmounts(1000), ["T4"]
    )

    assert without.shortage is None
    assert (room.shortage.used, room.shortage.limit) == (3000, 3000)


def test_jobs_without_gpus_count_for_cpu_cores_and_memory():
    runs = build.job("c", cpus=2, memory_gib=1, at=[build.replica("n0", cpus=2, memory_gib=1)])
    queue = build.queue("q", nominal=0, cpus=3, memory=2048)
    world = build.snapshot(jobs=[runs], queues=[queue])
    room = QuotaHeadroom(world.queues, usage_by_queue(world, world.running_placements))

    assert usage_by_queue(world, world.running_placements) == {"q": {CPUS: 2000, MEMORY: 1024}}
    assert room.now("q", QuotaAmounts(0, 1000, 1024), []).shortage is None
    assert room.alone("q", QuotaAmounts(0, 3000, 2048), []).shortage is None
    found = room.now("q", QuotaAmounts(0, 1001, 1025), []).shortage
    assert (found.resource, found.used, found.limit, found.needed) == (CPUS, 2000, 3000, 1001)
    found = room.now("q", QuotaAmounts(0, 0, 1025), []).shortage
    assert (found.resource, found.used, found.limit, found.needed) == (MEMORY, 1024, 2048, 1025)

"""What may be changed around a waiting job: quota, MIG, nodes and their power."""

from __future__ import annotations

from datetime import timedelta

from gpuplan.models.affinity import LocalityPreference
from gpuplan.models.cluster import Level, RackPower
from gpuplan.models.policy.policy import MigPolicy
from gpuplan.planner.explain.explanation import RemedyKind
from tests.support.builders.build import job, node, pool, queue, snapshot
from tests.support.harness.explain_helpers import CALM, FULL, found, greedy_plan, remedies_of, runs


def test_the_least_quota_of_the_queue_that_is_in_the_way():
    queues = [queue("all", nominal=4), queue("q", parent="all", nominal=None)]
    world = snapshot(queues=queues, jobs=[runs("old", "n0", 0, 1, 2), job("a", gpus=3)])

    part = found(world)[RemedyKind.QUOTA].parts[0]

    assert (part.subject, part.before, part.after) == ("all", 4, 6)


def test_the_quota_of_one_gpu_model():
    queues = [queue("q", nominal=100, **{"H100-80GB": 2})]
    nodes = [node("n0"), node("t0", model="T4")]
    picky = job("a", gpus=2, gpu_models={"H100-80GB": 1})
    world = snapshot(nodes=nodes, queues=queues, jobs=[runs("old", "n0", 0), picky])

    part = found(world)[RemedyKind.QUOTA].parts[0]

    assert (part.gpu_model, part.before, part.after) == ("H100-80GB", 2, 3)


def test_a_share_of_a_gpu_takes_a_share_of_quota():
    world = snapshot(queues=[queue("q", nominal=1)], jobs=[runs("old", "n0", 0), job("a", milli=300)])

    assert found(world)[RemedyKind.QUOTA].parts[0].after == 1.3


def test_a_switch_of_the_mig_policy():
    nodes = [node("n0", model="A100-80GB", mig={0: [("3g.40gb", 0)]}, gpus=1)]
    policy = CALM.model_copy(update={"mig": MigPolicy(repartition=False)})

    part = found(snapshot(nodes=nodes, jobs=[job("a", mig={"1g.10gb": 1})]), policy=policy)

    assert part[RemedyKind.POLICY].parts[0].subject == "mig.repartition"


def starved(*more, days=8):
    """Two nodes for a gang that starves: one is free, the other in use for as long as its job is expected."""
    gang = job("gang", gpus=8, replicas=2, waited=timedelta(days=days), expected_duration=3600)
    return snapshot(jobs=[runs("old", "n0", *range(8)), gang, *more])


def test_nodes_held_for_a_starving_job():
    asks = job("a", gpus=4, expected_duration=100 * 3600)
    wider = job("a", gpus=8, replicas=2, expected_duration=100 * 3600)

    remedy = found(starved(asks))[RemedyKind.POLICY]
    part = remedy.parts[0]

    assert (part.subject, part.before, part.after) == ("horizon.backfill.starving", "168h", "null")
    assert (len(remedy.parts), remedy.nodes, remedy.stops) == (1, ("n1",), ())
    assert RemedyKind.POLICY not in found(starved(wider))
    assert RemedyKind.POLICY not in found(starved(asks), "gang")


def test_a_node_more_and_its_price():
    big = pool("big", template=node("big", gpus=8, price_per_hour=3.0), most=0)

    remedy = found(
        snapshot(nodes=[node("n0", price_per_hour=5.0)], pools=(big,), jobs=[FULL[0], job("a", gpus=8)])
    )

    assert remedy[RemedyKind.NODE].parts[0].subject == "big"
    assert remedy[RemedyKind.NODE].price_per_hour == 3.0
    # 800 for the job, less 3.00 for an hour at 100 points, and 5 for getting a node.
    assert remedy[RemedyKind.NODE].points == 495


def test_as_many_nodes_as_a_gang_needs():
    remedy = found(snapshot(jobs=[*FULL, job("a", gpus=8, replicas=3)]))[RemedyKind.NODE]

    assert remedy.parts[0].after == 3


def test_the_power_of_a_rack_counts_for_new_nodes():
    nodes = [node("n0", rack="r", watts=700)]
    caps = (RackPower(rack="r", watts=8 * 700),)

    assert RemedyKind.NODE not in found(
        snapshot(nodes=nodes, rack_power=caps, jobs=[FULL[0], job("a", gpus=8)])
    )


def test_a_new_node_is_in_no_nvlink_island():
    nodes = [node("n0", gpus=4, nvlink_island="i1"), node("n1", gpus=4, nvlink_island="i2")]
    close = LocalityPreference(required=Level.NVLINK_ISLAND)
    world = snapshot(
        nodes=nodes, jobs=[runs("old", "n1", *range(4)), job("a", gpus=4, replicas=2, locality=close)]
    )

    remedies = found(world)

    assert RemedyKind.NODE not in remedies
    assert RemedyKind.LOCALITY not in remedies
    assert RemedyKind.STOP not in remedies


def test_the_power_that_a_rack_lacks():
    nodes = [node("n0", rack="r", watts=700), node("n1", rack="r", watts=700)]
    caps = (RackPower(rack="r", watts=10 * 700),)

    remedies = found(snapshot(nodes=nodes, rack_power=caps, jobs=[FULL[0], job("a", gpus=4)]))
    part = remedies[RemedyKind.POWER].parts[0]

    assert (part.subject, part.before, part.after) == ("r", 7000, 12 * 700)
    assert remedies[RemedyKind.STOP].stops == ("old",)
    assert RemedyKind.NODE not in remedies


def test_racks_of_one_name_in_two_zones_are_told_apart_and_one_without_gpus_needs_no_power():
    nodes = [
        node("n0", rack="r", zone="z0", watts=700),
        node("n1", rack="r", zone="z1", watts=700),
        node("c0", gpus=0, cpus=64, rack="c"),
    ]
    zones = [RackPower(rack="r", zone=f"z{number}", watts=7 * 700) for number in range(2)]
    caps = (*zones, RackPower(rack="c", watts=700))
    jobs = [job("a", gpus=8, co_start="g"), job("b", gpus=0, cpus=1, co_start="g")]

    remedies = remedies_of(greedy_plan(snapshot(nodes=nodes, rack_power=caps, jobs=jobs), CALM), "a")

    power = [part for each in remedies.found for part in each.parts if part.kind is RemedyKind.POWER]
    assert {part.subject for part in power} == {"z0/r", "z1/r"}


def test_a_gang_shares_the_power_of_its_rack():
    nodes = [node(f"n{number}", rack=f"r{number // 2}", watts=700) for number in range(4)]
    caps = tuple(RackPower(rack=name, watts=8 * 700) for name in ("r0", "r1"))
    plan = greedy_plan(snapshot(nodes=nodes, rack_power=caps, jobs=[job("a", gpus=8, replicas=3)]), CALM)

    remedies = remedies_of(plan, "a")

    assert remedies.fits is None
    assert remedies.unconfirmed == 0
    assert {part.kind for each in remedies.found for part in each.parts} == {
        RemedyKind.REPLICAS,
        RemedyKind.POWER,
    }

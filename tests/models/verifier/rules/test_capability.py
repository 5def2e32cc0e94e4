"""Nothing changes that the cluster cannot change, whatever the policy allows."""

from __future__ import annotations

import pytest

from gpuplan.models.plan.action_kinds import CHANGING_KINDS
from gpuplan.models.plan.violation import Rule, Violation
from gpuplan.models.policy.policy import Disruption, MigPolicy
from tests.support.builders.build import by_value, job, node, placement, pool, replica, snapshot
from tests.support.harness.verify_helpers import judge

ANYTHING = by_value(
    disruption=Disruption(migrate=True, priority_gap=0), mig=MigPolicy(switch_mode=True, repartition=True)
)
SPOT = node("spot")
NEW = SPOT.model_copy(update={"name": "spot-9", "pool": "spot"})


def without(*missing, **about):
    """Two nodes, one of which belongs to a pool, of a cluster that cannot do these kinds of action."""
    can = tuple(kind for kind in CHANGING_KINDS if kind not in missing)
    nodes = [node("n0", mig={7: []}), node("spot-0", pool="spot")]
    return snapshot(nodes=nodes, pools=[pool("spot", template=SPOT)], can=can, **about)


def one(*gpus):
    return replica("n0", gpus=gpus)


RUNNING = job("a", gpus=1, replicas=(1, 2), at=[one(0), one(1)])
GROWING = job("a", gpus=1, replicas=(1, 2), at=[one(0)])
CUT = replica("n0", mig=[(7, "1g.10gb", 0)])
SWITCHED = replica("n0", mig=[(6, "1g.10gb", 0)])

CHANGES = {
    "preempt": (RUNNING, [], {}, "job a", "stopped", "preempt jobs"),
    "migrate": (RUNNING, [one(2), one(3)], {}, "job a", "moved", "migrate jobs"),
    "shrink": (RUNNING, [one(0)], {}, "job a", "shrunk", "shrink jobs"),
    "grow": (GROWING, [one(0), one(1)], {}, "job a", "grown", "grow jobs"),
    "scale_up": (RUNNING, RUNNING.running.replicas, {"added": (NEW,)}, "node spot-9", "added", "add nodes"),
    "scale_down": (
        *(RUNNING, RUNNING.running.replicas),
        *({"removed": ("spot-0",)}, "node spot-0", "removed", "remove nodes"),
    ),
}


@pytest.mark.parametrize("kind", CHANGES)
def test_a_change_that_the_cluster_cannot_make_breaks_the_rule(kind):
    running, replicas, more, subject, found, words = CHANGES[kind]
    # Another job takes what this one gives up, so that the change has a use.
    placed = [placement("b", one(1) if kind in ("preempt", "shrink") else one(5))]
    placed += [placement("a", *replicas)] if replicas else []
    jobs = [running, job("b", gpus=1, priority=1)]

    able = judge(without(jobs=jobs), *placed, policy=ANYTHING, **more)
    unable = judge(without(kind, jobs=jobs), *placed, policy=ANYTHING, **more)

    allowed = f"no such change, since the cluster cannot {words}"
    assert able == ()
    assert [each for each in unable if each.rule is not Rule.PRIORITY] == [
        Violation(Rule.CAPABILITY, subject, found, allowed)
    ]


@pytest.mark.parametrize(("gpu", "held"), [(7, CUT), (6, SWITCHED)])
def test_instances_that_are_not_there_cannot_be_created(gpu, held):
    waits = job("a", mig={"1g.10gb": 1})

    assert judge(without(jobs=[waits]), placement("a", held), policy=ANYTHING) == ()
    found = judge(without("repartition", jobs=[waits]), placement("a", held), policy=ANYTHING)
    assert [(each.rule, each.subject) for each in found] == [
        (Rule.CAPABILITY, f"node n0 gpu {gpu}"),
        (Rule.MIG, f"node n0 gpu {gpu}"),
    ]


def test_instances_that_are_there_need_nothing_of_the_cluster():
    nodes = [node("n0", mig={7: [("1g.10gb", 0)]})]
    world = snapshot(nodes=nodes, jobs=[job("a", mig={"1g.10gb": 1})], can=("release", "start"))

    assert judge(world, placement("a", CUT), policy=ANYTHING) == ()


def test_a_policy_that_forbids_the_same_is_told_as_well_where_the_cluster_could():
    world = without(jobs=[RUNNING])

    found = judge(world, placement("a", one(0)), policy=by_value(disruption=Disruption(resize=False)))

    assert [each.rule for each in found] == [Rule.EVICTION]

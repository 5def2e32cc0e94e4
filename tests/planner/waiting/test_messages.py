"""The sentence of each reason to wait, in messages.golden.txt; other tests assert codes and numbers."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from gpuplan.models.affinity import LocalityPreference, Spread
from gpuplan.models.calendar import Reservation, ReservationKind
from gpuplan.models.cluster import Level
from gpuplan.models.dependency import Dependency, DependencyKind
from gpuplan.models.eligibility.free_resources import free_resources_by_node
from gpuplan.models.plan.reason import ReasonCode
from gpuplan.models.policy.policy import MigPolicy, Policy
from gpuplan.models.queue import ALL_MODELS, CPUS
from gpuplan.models.queue import MEMORY as QUOTA_OF_MEMORY
from gpuplan.models.timing.reservation_windows import ReservationWindow
from gpuplan.planner.analysis.projected_schedule import (
    DependencyState,
    JobInterval,
    ProjectedSchedule,
    SatisfactionEstimate,
)
from gpuplan.planner.analysis.quota_headroom import QuotaShortage
from gpuplan.planner.waiting import messages, time_messages
from gpuplan.planner.waiting.eligible_nodes import EligibleNodes
from gpuplan.planner.waiting.free_capacity import (
    CPU,
    DISK,
    GPUS,
    MEMORY,
    MIG,
    POWER,
    SHARE,
    FreeCapacity,
    NodeRoom,
)
from gpuplan.planner.waiting.mig_capacity import MigCapacity
from tests.support.builders.build import NOW, cluster, job, node, placement, replica, snapshot
from tests.support.builders.solution_builders import target
from tests.support.output.golden import golden
from tests.support.samples.horizon_plans import HOUR, at

RACK = LocalityPreference(required=Level.RACK)
SCHEDULE = ProjectedSchedule(snapshot(), Policy(), target(snapshot()))
LIMIT = QuotaShortage(queue="q", resource=ALL_MODELS, used=6000, limit=8000, needed=4000)
LIMIT_OF_CPUS = QuotaShortage(queue="q", resource=CPUS, used=500, limit=16000, needed=32000)
LIMIT_OF_MEMORY = QuotaShortage(queue="q", resource=QUOTA_OF_MEMORY, used=1536, limit=65536, needed=70000)
LIMIT_OF_MODEL = QuotaShortage(queue="q", resource="A100", used=0, limit=1000, needed=1500)
THREE_AND_FOUR = MIG + "1g.10gb 1 3g.40gb 2"


def refused(**nodes):
    counts = Counter({name.replace("_", " "): count for name, count in nodes.items()})
    return EligibleNodes(nodes=(), gpu_models=(), refusals=counts, by_model={})


def room(*nodes, held=(), power=None, **policy):
    """What is free beside one job that holds these replicas."""
    placements = [placement("held", *held)] if held else []
    free, mig = free_resources_by_node(nodes, placements), MigCapacity(placements, MigPolicy(**policy))
    return FreeCapacity([NodeRoom(each, free[each.name], mig, power) for each in nodes])


def expected(name, second=None, kind=DependencyKind.SUCCEEDED, **more):
    return SatisfactionEstimate(Dependency(job=name, kind=kind), slot=None, second=second, **more)


def depends(needed, *outstanding, never=(), satisfied=0):
    return DependencyState(needed, satisfied, outstanding, never, slot=None)


def closed(begins, owners=(), of=None, *, every=True, others=0):
    kind = ReservationKind.RESERVED if owners else ReservationKind.MAINTENANCE
    found = Reservation(name="m", nodes=("n0", "n1"), start=NOW, duration=HOUR, kind=kind, queues=owners)
    window = ReservationWindow(found, begins, 2 * HOUR, frozenset({"n0", "n1"}), of)
    return time_messages.window_closed(window, SCHEDULE, every=every, seconds=3 * HOUR, others=others)


def promised(*names):
    return [JobInterval(job(name), (replica(),), 3 * HOUR, HOUR, 3, 4) for name in names]


def capacity():
    """What is too large, too much in total, or in pieces that are too small."""
    two, pair = room(*cluster(2)), cluster(2, gpus=2, cpus=96, memory_gib=512)
    sliced = room(node(gpus=1, mig={0: [("1g.10gb", 1), ("1g.10gb", 5)]}))
    in_use = room(
        node(gpus=1, mig={0: [("1g.10gb", 1), ("1g.10gb", 5)]}),
        held=[replica(mig=[(0, "1g.10gb", 1), (0, "1g.10gb", 5)])],
    )
    full = room(node(gpus=1, mig={0: [("7g.80gb", 0)]}), held=[replica(mig=[(0, "7g.80gb", 0)])])
    yield messages.too_large(two, {GPUS: 16})
    yield messages.too_large(two, {CPU: 97_500})
    yield messages.too_large(two, {MEMORY: 1 << 20})
    yield messages.too_large(two, {DISK: 1 << 20})
    yield messages.too_large(two, {"rdma/hca": 8})
    yield messages.too_large(room(*pair), {SHARE: 1, THREE_AND_FOUR: 1})
    yield messages.too_large(sliced, {THREE_AND_FOUR: 1})
    yield messages.too_large(room(node(cpus=32), node("n1", gpus=2, cpus=128)), {GPUS: 8, CPU: 64_000})
    yield messages.wrong_layout({THREE_AND_FOUR: 1}, "mig.repartition is off")
    yield messages.too_little_free(two, {GPUS: 8}, 3)
    yield messages.too_little_free(two, {CPU: 50_000}, 4)
    yield messages.too_little_free(room(node(), power=2_000), {POWER: 3_000}, 1)
    yield messages.too_little_free(sliced, {MIG + "3g.40gb 1": 1}, 3)
    one_each = room(*pair, held=[replica(gpus=[0], cpus=96), replica("n1", gpus=[0], milli=500)])
    yield messages.fragmented(one_each, {GPUS: 2}, 1)
    yield messages.fragmented(room(*pair, node("n2", gpus=5)), {GPUS: 3}, 2)
    yield messages.fragmented(one_each, {SHARE: 600}, 3)
    yield messages.fragmented(one_each, {MEMORY: 600 << 10}, 1)
    yield messages.fragmented(in_use, {MIG + "3g.40gb 1": 1}, 1)
    yield messages.fragmented(in_use, {MIG + "2g.20gb 1": 1}, 3)
    yield messages.fragmented(full, {MIG + "1g.10gb 1": 1}, 1)
    empty = room(node(gpus=1, mig={0: []}), repartition=False)
    yield messages.fragmented(empty, {MIG + "1g.10gb 1": 1}, 1)
    idle = room(node(gpus=1, mig={0: [("3g.40gb", 0)]}), repartition=False)
    yield messages.fragmented(idle, {MIG + "1g.10gb 1": 1}, 1)
    no_cpus = room(*cluster(2), held=[replica("n1", cpus=96)])
    nor_gpus = room(*cluster(2), held=[replica(gpus=range(8)), replica("n1", cpus=96)])
    yield messages.fragmented(nor_gpus, {GPUS: 1, CPU: 8_000}, 1)
    yield messages.fragmented(no_cpus, {GPUS: 8, CPU: 40_000}, 2)
    gpus_or_cpus_or_memory = room(
        *cluster(3),
        held=[replica(gpus=range(8)), replica("n1", cpus=96), replica("n2", memory_gib=512)],
    )
    yield messages.fragmented(gpus_or_cpus_or_memory, {GPUS: 1, CPU: 8_000, MEMORY: 8 << 10}, 1)


def nodes_and_quotas():
    """No node matches, a quota, a domain, or what the plan prefers."""
    wants = job(gpus=1, gpu_models=["H200", "B200"])
    yield messages.held(job())
    yield messages.held(job(hold_reason="it asks for licenses"))
    yield messages.retries_used_up(7, 6)
    yield messages.retries_used_up(1, 0)
    yield time_messages.backing_off(at(1), NOW, 2)
    yield messages.preempted([])
    yield messages.preempted(["b", "c", "d", "e"])
    yield messages.no_match(wants, refused(), {"T4", "L4"})
    yield messages.no_match(wants, refused(), set())
    yield messages.no_match(job(gpus=1), refused(), set())
    yield messages.no_match(job(gpus=1), refused(node_is_cordoned=3, taint_a=1, taint_b=1, taint_c=2), set())
    yield messages.no_match(job(), refused(a=1, b=2, c=1, d=4), set())
    for code in (ReasonCode.EXCEEDS_MAX_QUOTA, ReasonCode.WAITING_FOR_QUOTA):
        yield messages.beyond_quota(code, LIMIT)
        yield messages.beyond_quota(code, LIMIT_OF_MODEL)
        yield messages.beyond_quota(code, LIMIT_OF_CPUS)
        yield messages.beyond_quota(code, LIMIT_OF_MEMORY)
    yield messages.too_far_apart(job(gpus=1, replicas=5, spread=Spread(level=Level.RACK, max=2)), 4, "")
    yield messages.too_far_apart(job(gpus=8, replicas=3, locality=RACK), 2, "r2")
    yield messages.too_far_apart(job(gpus=8, replicas=3, locality=RACK), 0, "r2")
    island = LocalityPreference(required=Level.NVLINK_ISLAND)
    spread = Spread(level=Level.NODE, max=1)
    yield messages.too_far_apart(job(milli=500, replicas=3, locality=island, spread=spread), 2, "i1")
    yield messages.blocked_room(messages.RESERVED, {"n0"})
    yield messages.blocked_room(messages.AVOIDED, {"n2", "n1"})
    yield messages.new_nodes("cloud", 1500, 1600)
    yield messages.cost_exceeds_value(3000, 2000)
    yield messages.zero_weight()
    yield messages.not_chosen(proven=True)
    yield messages.not_chosen(proven=False)


def times():
    """Dependencies, times, windows, groups and promises."""
    failed, never = expected("p", failed=True, never=True), expected("c", never=True)
    yield time_messages.never_satisfied(depends(1, never=(failed,)))
    yield time_messages.never_satisfied(depends(2, never=(failed, never)))
    yield time_messages.never_satisfied(depends(2, expected("r"), never=(failed, expected("o", failed=True))))
    yield time_messages.never_satisfied(depends(1, never=(failed, never), satisfied=2))
    for kind in DependencyKind:
        yield time_messages.unmet_dependencies(depends(1, expected("r", kind=kind)), SCHEDULE)
    for count in (2, 3):
        these = [expected(name, number * HOUR) for number, name in enumerate("rstu", 1)]
        yield time_messages.unmet_dependencies(depends(count, *these[:count]), SCHEDULE)
        yield time_messages.unmet_dependencies(depends(count, *these), SCHEDULE)
    both = expected("r", HOUR), expected("s", kind=DependencyKind.STARTED)
    yield time_messages.unmet_dependencies(depends(2, *both), SCHEDULE)
    yield time_messages.not_before(at(1), NOW)
    yield time_messages.not_before(at(15), NOW)
    yield time_messages.data_to_come("d", at(2), NOW)
    about = {"seconds": 3 * HOUR, "future": SCHEDULE}
    yield time_messages.deadline_impossible(begins=0, deadline=HOUR, **about)
    yield time_messages.deadline_impossible(begins=2 * HOUR, deadline=4 * HOUR, **about)
    yield closed(0)
    yield closed(HOUR, every=False)
    yield closed(HOUR, ("q",), others=1)
    yield closed(-HOUR, of="big", others=2)
    yield time_messages.not_ready(at(1), "n0", NOW)
    fits, does_not = messages.not_chosen(proven=True), messages.held(job())
    yield time_messages.co_start_group_waits("g", [("b", fits)])
    yield time_messages.co_start_group_waits("g", [("c", does_not), ("b", fits)])
    yield time_messages.later_start_planned(promised=True)
    yield time_messages.later_start_planned(promised=False)
    yield time_messages.quota_promised(LIMIT, SCHEDULE, 1)
    yield time_messages.quota_promised(LIMIT_OF_MODEL, SCHEDULE, 1)
    yield time_messages.quota_promised(LIMIT_OF_MEMORY, SCHEDULE, 1)
    yield time_messages.room_promised(promised("b"), SCHEDULE)
    yield time_messages.room_promised(promised("b", "c", "d"), SCHEDULE)


def test_the_sentence_of_each_reason():
    found = "".join(
        f"{reason.code}: {reason.text}\n    {json.dumps(reason.numbers, ensure_ascii=False)}\n"
        for reason in (*nodes_and_quotas(), *capacity(), *times())
    )

    assert found == golden(Path(__file__).with_name("messages.golden.txt"), found)

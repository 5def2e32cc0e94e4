"""What would make a waiting job start: enough, no more than that, and one example for each kind of change."""

from __future__ import annotations

from datetime import timedelta

import pytest
from brute import TooLargeError
from build import NOW, job, node, pool, queue, replica, snapshot
from instances import everything_mixed, tiny
from remedying import as_planned, changed, greedy_plan, lesser, remedies_of
from time_instances import timely

from planner.explaining import judging
from planner.models.calendar import Reservation, ReservationKind
from planner.models.cluster import Level, RackPower, Taint
from planner.models.explanation_remedies import RemedyKind
from planner.models.horizon import HorizonPolicy
from planner.models.job import AntiAffinity, LocalityPreference, NodeMatch, PreferredNodes, Spread
from planner.models.policy import Disruption, MigPolicy, Policy
from planner.models.slots import Slots
from planner.models.verifier import Verification
from planner.models.violation import Rule, Violation

CALM = Policy(disruption=Disruption(preempt=False, resize=False))


def kinds(remedy):
    return tuple(part.kind for part in remedy.parts)


def found(snapshot, name="a", policy=CALM):
    """Remedies of one part by kind; of each kind the one worth most."""
    remedies = remedies_of(greedy_plan(snapshot, policy), name)
    return {each.parts[0].kind: each for each in reversed(remedies.found) if len(each.parts) == 1}


def runs(name, node, *gpus, **more):
    return job(name, gpus=len(gpus), at=[replica(node, gpus=gpus)], **more)


FULL = [runs("old", "n0", *range(8)), runs("older", "n1", *range(8))]


# --- sound and minimal ------------------------------------------------------------------------------------


def checked(plan, name):
    """Check with nothing but the verifier what is said of a job; how many remedies, and how many doubts."""
    remedies = remedies_of(plan, name)
    assert as_planned(plan, name).may_start() == (remedies.fits is not None)
    assert not (remedies.fits and remedies.found)
    slots = Slots.of(plan.policy.horizon, plan.epoch)
    horizon = slots.end if slots.count > 1 else 0
    planned = {each.job: each.projected_start for each in plan.waiting if each.projected_start}
    for remedy in remedies.found:
        if RemedyKind.PRIORITY in kinds(remedy):
            continue
        if remedy.parts[0].subject == name and remedy.points == 0 and name in planned:
            assert remedy.starts_at == planned[name]
            continue
        assert changed(plan, name, remedy.parts).may_start(), f"not enough: {remedy}"
        for parts in lesser(remedy.parts, waits_from=horizon):
            assert not changed(plan, name, parts).may_start(), (
                f"not the least: {remedy}, as {parts} is enough"
            )
    return len(remedies.found), remedies.unconfirmed


@pytest.mark.parametrize(
    ("make", "seeds", "least"),
    [(tiny, range(part, 360, 6), 80) for part in range(6)]  # together more than 500 waiting jobs
    + [(everything_mixed, range(12), 20), (timely, (*range(40), 101), 80)],
)
def test_each_remedy_is_enough_and_nothing_less_is(make, seeds, least):
    jobs, too_large, said = 0, 0, []
    for seed in seeds:
        instance = make(seed)
        plan = greedy_plan(instance.snapshot, instance.policy)
        for waiting in plan.waiting:
            if plan.snapshot.job_by_name[waiting.job].running is None:
                jobs += 1
                try:
                    said.append(checked(plan, waiting.job))
                except TooLargeError:
                    too_large += 1

    assert jobs >= least
    assert too_large <= jobs // 10
    assert sum(remedies for remedies, _ in said) >= jobs // 2
    assert sum(doubts for _, doubts in said) <= jobs // 25


def test_nothing_is_told_that_the_verifier_does_not_accept(monkeypatch):
    wrong = Violation(Rule.QUEUES, "queue q", "9 GPUs", "8 GPUs")
    monkeypatch.setattr(judging, "verify", lambda *_: Verification((wrong,), objective=0, terms={}))

    remedies = remedies_of(greedy_plan(snapshot(jobs=[*FULL, job("a", gpus=8)]), CALM), "a")

    assert remedies.found == ()
    assert remedies.unconfirmed >= 3


# --- each kind of change ----------------------------------------------------------------------------------


def test_nothing_is_to_be_changed_for_a_job_that_fits_and_costs_too_much():
    elsewhere = PreferredNodes(match=NodeMatch(key="disk", values=("nvme",)), points=1000)
    world = snapshot(nodes=[node("n0")], jobs=[job("a", gpus=1, preferred_nodes=(elsewhere,))])

    remedies = remedies_of(greedy_plan(world, CALM), "a")

    assert remedies.fits.nodes == ("n0",)
    assert remedies.fits.points == 100 - 1000
    assert remedies.found == ()


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


def test_another_gpu_model():
    nodes = [node("n0"), node("t0", model="T4")]
    world = snapshot(nodes=nodes, jobs=[FULL[0], job("a", gpus=2, gpu_models={"H100-80GB": 1})])

    remedy = found(world)[RemedyKind.GPU_MODEL]

    assert remedy.parts[0].after == "T4"
    assert remedy.nodes == ("t0",)


@pytest.mark.parametrize(("zones", "wider"), [(("z", "z"), "zone"), (("y", "z"), None)])
def test_the_next_wider_domain_that_is_enough(zones, wider):
    nodes = [node(f"n{number}", rack=f"r{number}", zone=zone) for number, zone in enumerate(zones)]
    near = LocalityPreference(required=Level.RACK)
    world = snapshot(nodes=nodes, jobs=[job("a", gpus=8, replicas=2, locality=near)])

    part = found(world)[RemedyKind.LOCALITY].parts[0]

    assert (part.before, part.after) == ("rack", wider)


def test_more_replicas_side_by_side():
    jobs = [FULL[0], job("a", gpus=1, replicas=3, spread=Spread(most=1))]

    part = found(snapshot(jobs=jobs))[RemedyKind.SPREAD].parts[0]

    assert (part.before, part.after) == (1, 3)


def test_as_many_replicas_as_fit():
    part = found(snapshot(jobs=[FULL[0], job("a", gpus=2, replicas=6)]))[RemedyKind.REPLICAS].parts[0]

    assert (part.before, part.after) == (6, 4)


def test_as_many_cpus_as_are_free():
    old = job("old", gpus=1, cpus=90, at=[replica("n0", gpus=(0,), cpus=90)])
    jobs = [old, job("a", gpus=1, cpus=100)]

    part = found(snapshot(nodes=[node("n0")], jobs=jobs))[RemedyKind.CPUS].parts[0]

    assert (part.before, part.after) == (100, 6)


def test_as_much_memory_as_is_free():
    world = snapshot(nodes=[node("n0", memory_gib=100)], jobs=[job("a", gpus=1, memory_gib=120)])

    assert found(world)[RemedyKind.MEMORY].parts[0].after == 100 * 1024


def test_conditions_taints_and_cordons_in_the_way():
    tainted = node("n0", taints=(Taint(key="dedicated"),))
    wanted = job("a", gpus=1, node_selector={"disk": "nvme"})

    assert RemedyKind.TOLERATION in found(snapshot(nodes=[tainted], jobs=[job("a", gpus=1)]))
    assert RemedyKind.SELECTOR in found(snapshot(jobs=[wanted]))
    assert RemedyKind.UNCORDON in found(snapshot(nodes=[node("n0", cordoned=True)], jobs=[job("a", gpus=1)]))


def test_a_hold_and_a_begin_time_are_lifted():
    later = NOW + timedelta(hours=1)

    assert RemedyKind.RELEASE in found(snapshot(jobs=[job("a", gpus=1, held=True)]))
    assert RemedyKind.BEGIN in found(snapshot(jobs=[job("a", gpus=1, not_before=later)]))


def test_a_switch_of_the_mig_policy():
    nodes = [node("n0", model="A100-80GB", mig={0: [("3g.40gb", 0)]}, gpus=1)]
    policy = CALM.model_copy(update={"mig": MigPolicy(repartition=False)})

    part = found(snapshot(nodes=nodes, jobs=[job("a", mig={"1g.10gb": 1})]), policy=policy)

    assert part[RemedyKind.POLICY].parts[0].subject == "mig.repartition"


def test_the_lowest_priority_that_pays_and_whom_it_stops():
    jobs = [*FULL, job("a", gpus=8)]
    policy = Policy()

    remedy = found(snapshot(jobs=jobs), policy=policy)[RemedyKind.PRIORITY]

    assert len(remedy.stops) == 1
    assert remedy.points > 0
    # A running job is worth 800 points and its 8 GPU-hours since the last checkpoint as many again.
    assert 1 <= remedy.parts[0].after <= 3


def test_whom_it_pays_to_stop_at_the_lowest_priority_not_who_may_be_stopped_first():
    dear = runs("dear", "n0", *range(8), weight=5)
    cheap = runs("cheap", "n1", *range(8), weight=0.1, priority=2)

    remedy = found(snapshot(jobs=[dear, cheap, job("a", gpus=8)]), policy=Policy())[RemedyKind.PRIORITY]

    assert (remedy.stops, remedy.parts[0].after) == (("cheap",), 3)


def test_no_priority_where_nobody_may_be_stopped():
    world = snapshot(jobs=[*FULL, job("a", gpus=8)])
    spared = Policy(disruption=Disruption(max_preemptions=0))

    assert RemedyKind.PRIORITY not in found(world)
    assert RemedyKind.PRIORITY not in found(world, policy=spared)


def test_the_running_job_that_loses_least():
    idle = job("idle", gpus=8, weight=0.1, at=[replica("n1", gpus=range(8))])

    remedy = found(snapshot(jobs=[FULL[0], idle, job("a", gpus=8)]))[RemedyKind.STOP]

    assert remedy.parts[0].subject == "idle"
    assert remedy.stops == ("idle",)
    assert remedy.lost_gpu_hours == 8


def test_a_job_that_the_plan_starts_may_wait_instead():
    world = snapshot(nodes=[node("n0")], jobs=[job("a", gpus=8), job("b", gpus=8, priority=1)])

    remedies = found(world)
    remedy = remedies[RemedyKind.DEFER]

    assert remedy.parts[0].subject == "b"
    assert remedy.points == -800
    assert remedy.lost_gpu_hours is None
    # Once b is over nobody loses anything.
    assert remedies[RemedyKind.WAIT].parts[0].subject == "b"
    assert remedies[RemedyKind.WAIT].points == 800


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


def test_waiting_for_the_last_of_those_in_the_way():
    jobs = [
        runs("short", "n0", 0, 1, 2, 3, expected_duration=2 * 3600),
        runs("long", "n0", 4, 5, 6, 7, expected_duration=5 * 3600),
        job("a", gpus=6),
    ]

    remedy = found(snapshot(nodes=[node("n0")], jobs=jobs))[RemedyKind.WAIT]

    assert remedy.parts[0].subject == "long"
    assert remedy.seconds == 4 * 3600
    assert remedy.starts_at == NOW + timedelta(hours=4)


def test_pairs_where_no_single_change_is_enough():
    queues = [queue("q", nominal=8)]
    jobs = [FULL[0], job("a", gpus=8, gpu_models={"H100-80GB": 1})]
    world = snapshot(nodes=[node("n0"), node("t0", model="T4")], queues=queues, jobs=jobs)

    remedies = remedies_of(greedy_plan(world, CALM), "a").found
    pairs = [set(kinds(each)) for each in remedies if len(each.parts) == 2]

    assert {RemedyKind.QUOTA, RemedyKind.GPU_MODEL} in pairs


def test_more_than_two_changes_where_no_pair_is_enough():
    queues = [queue("q", nominal=1), queue("r")]
    old = [runs("old", "n0", *range(8), queue="r"), runs("older", "n1", *range(8), queue="r")]
    picky = job("a", gpus=2, held=True, node_selector={"disk": "nvme"})
    world = snapshot(queues=queues, nodes=[node("n0"), node("n1"), node("n2")], jobs=[*old, picky])

    remedies = remedies_of(greedy_plan(world, CALM), "a").found

    assert [set(kinds(each)) for each in remedies] == [
        {RemedyKind.RELEASE, RemedyKind.SELECTOR, RemedyKind.QUOTA}
    ]


def test_remedies_come_in_the_order_of_their_points_and_few_of_a_kind():
    jobs = [runs(f"r{index}", "n0", index) for index in range(8)]
    remedies = remedies_of(
        greedy_plan(snapshot(nodes=[node("n0")], jobs=[*jobs, job("a", gpus=1)]), CALM), "a"
    )

    points = [each.points for each in remedies.found]

    assert points == sorted(points, reverse=True)
    assert sum(kinds(each) == (RemedyKind.STOP,) for each in remedies.found) == 2
    assert remedies.more == 6


def test_of_two_jobs_one_of_which_must_be_over_the_first_to_end_is_waited_for():
    long = runs("long", "n0", 0, expected_duration=7200)
    short = runs("short", "n0", 1, expected_duration=3600)
    either = [{"job": "long", "kind": "completed"}, {"job": "short", "kind": "completed"}]
    waiting = job("a", gpus=1, depends_on=either, depends_on_at_least=1)

    remedy = found(snapshot(jobs=[long, short, waiting]))[RemedyKind.WAIT]

    assert "short" in remedy.parts[0].text


# --- jobs that start together -----------------------------------------------------------------------------


def company(**more):
    """Two jobs of four GPUs each that start together."""
    return [job("a", gpus=4, co_start="g"), job("b", gpus=4, co_start="g", **more)]


def test_a_change_makes_the_whole_company_start():
    world = snapshot(nodes=[node("n0")], jobs=[runs("old", "n0", 0), *company()])

    remedies = remedies_of(greedy_plan(world, CALM), "a")
    by_kind = {kinds(each): each for each in remedies.found}

    assert remedies.together_with == ("b",)
    assert by_kind[RemedyKind.NODE,].points == 800 - 5
    assert by_kind[RemedyKind.STOP,].stops == ("old",)
    assert by_kind[RemedyKind.WAIT,].parts[0].subject == "old"


def test_what_is_changed_in_another_member_is_told_of_that_one():
    world = snapshot(nodes=[node("n0")], jobs=company(node_selector={"disk": "nvme"}))

    (part,) = found(world)[RemedyKind.SELECTOR].parts

    assert (part.job, part.before) == ("b", "disk=nvme")
    assert part.text == "for b: drop its condition on nodes: disk=nvme"


def test_quota_is_raised_by_what_the_company_needs_together():
    world = snapshot(queues=[queue("q", nominal=6)], jobs=[runs("old", "n0", 0), *company()])

    assert found(world)[RemedyKind.QUOTA].parts[0].after == 9


def test_who_waits_instead_waits_with_its_company():
    first = [job("x", gpus=4, priority=5, co_start="g"), job("y", gpus=4, priority=5, co_start="g")]
    world = snapshot(nodes=[node("n0")], jobs=[*first, job("a", gpus=4)])

    remedy = found(world)[RemedyKind.DEFER]

    assert remedy.parts[0].text == "let x (queue q, priority 5), and y with it, wait, which this plan starts"


# --- nothing is done --------------------------------------------------------------------------------------


def ahead(slots=3):
    return CALM.model_copy(update={"horizon": HorizonPolicy(slots=slots, length="1h")})


def test_a_plan_that_looks_ahead_says_itself_until_when():
    world = snapshot(nodes=[node("n0")], jobs=[FULL[0], job("a", gpus=8, expected_duration=1800)])

    remedy = found(world, policy=ahead())[RemedyKind.WAIT]

    assert remedy.parts[0].text == "wait until 13:00, when it is promised to start"
    assert (remedy.points, remedy.seconds, remedy.nodes) == (0, 3600, ("n0",))


def test_beyond_the_horizon_those_who_start_until_then_are_waited_for_as_well():
    old = runs("old", "n0", *range(8), expected_duration=2 * 3600)
    later = job("b", gpus=8, priority=5, expected_duration=8 * 3600)
    world = snapshot(nodes=[node("n0")], jobs=[old, later, job("a", gpus=8, expected_duration=8 * 3600)])

    remedy = found(world, policy=ahead())[RemedyKind.WAIT]

    assert remedy.parts[0].subject == "b"
    # Old has run for an hour, and b is promised a start when it ends.
    assert remedy.seconds == 9 * 3600


def test_quota_that_is_promised_to_others_later_is_counted():
    soon = job("b", gpus=2, not_before=NOW + timedelta(hours=1), expected_duration=3600)
    long = job("a", gpus=4, held=True, expected_duration=3 * 3600)
    world = snapshot(queues=[queue("q", nominal=4)], jobs=[soon, long])

    remedies = remedies_of(greedy_plan(world, ahead(slots=4)), "a")

    assert remedies.unconfirmed == 0
    assert [
        part.after for each in remedies.found for part in each.parts if part.kind == RemedyKind.QUOTA
    ] == [6]


def test_a_window_is_waited_for_and_one_to_come_is_kept_clear_of():
    def closed(name, begins, hours):
        kind, start = ReservationKind.MAINTENANCE, NOW + timedelta(hours=begins)
        return Reservation(name=name, kind=kind, nodes=("n0",), start=start, duration=f"{hours}h")

    windows = (closed("first", -1, 2), closed("second", 2, 1))
    jobs = [job("short", gpus=1, expected_duration=1800), job("long", gpus=1, expected_duration=2 * 3600)]
    world = snapshot(nodes=[node("n0")], reservations=windows, jobs=jobs)

    waits = {name: found(world, name)[RemedyKind.WAIT] for name in ("short", "long")}

    assert waits["short"].parts[0].text == "wait until maintenance first is over at 13:00"
    assert waits["long"].parts[0].text == "wait until maintenance second is over at 15:00"


def test_its_begin_time_is_waited_for_where_there_is_room():
    later = NOW + timedelta(hours=1)

    remedy = found(snapshot(jobs=[job("a", gpus=1, not_before=later)]))[RemedyKind.WAIT]

    assert remedy.parts[0].text == "wait until 13:00, before which it may not begin"


# --- what is not known ------------------------------------------------------------------------------------


def test_room_without_places_is_told_apart_from_changes_that_do_not_help(monkeypatch):
    world = snapshot(nodes=[node("n0")], jobs=[job("a", gpus=1, weight=0)])
    plan = greedy_plan(world, CALM)
    wrong = Violation(Rule.QUEUES, "queue q", "9 GPUs", "8 GPUs")
    monkeypatch.setattr(judging, "verify", lambda *_: Verification((wrong,), objective=0, terms={}))

    remedies = remedies_of(plan, "a")

    assert remedies.unplaced
    assert (remedies.found, remedies.fits, remedies.unconfirmed) == ((), None, 0)


def test_who_must_not_meet_a_job_may_start_without_it():
    apart = AntiAffinity(level=Level.NODE, labels={"kind": "noisy"})
    noisy = runs("noisy", "n0", 0, labels={"kind": "noisy"})
    world = snapshot(nodes=[node("n0")], jobs=[noisy, job("a", gpus=1, anti_affinity=(apart,))])

    assert found(world)[RemedyKind.STOP].stops == ("noisy",)

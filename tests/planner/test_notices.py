"""Notices: nodes that are lost or serviced soon, and the plan that answers them in time."""

from __future__ import annotations

import re
import time
from datetime import timedelta

import pytest

from gpuplan.models.errors import PlannerError
from gpuplan.models.plan.actions import Migrate, Preempt
from gpuplan.models.policy.policy import Disruption, Policy
from gpuplan.models.policy.settings import DisruptionBudget, HorizonPolicy
from gpuplan.models.timing.time_slots import TimeSlots
from gpuplan.planner.explain.job import explain
from gpuplan.planner.notices import (
    Notice,
    NoticeKind,
    answer,
    in_time,
    leaving_later,
    left_behind,
    require_sensible,
    with_notice,
)
from tests.support.builders.build import NOW, job, node, queue, replica, snapshot

SOON = NOW + timedelta(seconds=120)
SPOT = Notice(NoticeKind.SPOT, ("n0",), SOON)


def busy(*, room=8, **more):
    """A node with four jobs of two GPUs, and one with so many GPUs free; jobs may not be moved otherwise."""
    jobs = [
        job(f"r{n}", gpus=2, at=[replica("n0", gpus=(2 * n, 2 * n + 1))], expected_duration="9h", **more)
        for n in range(4)
    ]
    held = [job("fixed", gpus=8 - room, at=[replica("n1", gpus=range(8 - room))])] if room < 8 else []
    return snapshot(nodes=[node("n0"), node("n1")], jobs=[*jobs, *held])


def answered(world, notice=SPOT, policy=None):
    return answer(with_notice(world, notice), policy or Policy(), notice, seed=0, created_at=NOW)


def leavers(plan):
    return {action.job: action.type for action in plan.actions if isinstance(action, Migrate | Preempt)}


def test_jobs_move_where_there_is_room_and_are_stopped_where_there_is_none():
    plan = answered(busy(room=4))

    assert sorted(leavers(plan).values()) == ["migrate", "migrate", "preempt", "preempt"]
    assert list(left_behind(plan, SPOT)) == []


def test_nothing_starts_on_a_node_that_is_lost_however_short_it_is():
    world = busy()
    short = job("short", gpus=8, expected_duration="10s", node_selector={})
    world = world.model_copy(update={"jobs": (*world.jobs[:1], short)})

    plan = answered(world)

    assert all(each.nodes == {"n1"} for each in plan.placements if each.job == "short")
    assert "n0" not in {name for each in plan.placements for name in each.nodes}


def test_no_budget_keeps_jobs_on_a_node_that_is_lost():
    budget = DisruptionBudget(name="b", max_unavailable=1)

    plan = answered(busy(), policy=Policy(disruption=Disruption(budgets=(budget,))))

    assert len(leavers(plan)) == 4
    assert [(use.down, use.disrupted) for use in plan.budgets] == [(4, 0)]


@pytest.mark.parametrize("minute", [0, 30, 57, 58, 59])
def test_the_answer_does_not_wait_for_the_next_hour(minute):
    now = NOW + timedelta(minutes=minute)
    notice = Notice(NoticeKind.MAINTENANCE, ("n0",), now + timedelta(seconds=120), now + timedelta(hours=1))
    world = busy().model_copy(update={"taken_at": now})

    assert len(leavers(answered(world, notice))) == 4
    assert TimeSlots.of(in_time(Policy(), notice, now).horizon, now).end >= 120


def test_jobs_stay_until_a_maintenance_is_near():
    far = Notice(NoticeKind.MAINTENANCE, ("n0",), NOW + timedelta(days=2), NOW + timedelta(days=3))

    policy = in_time(Policy(), far, NOW)
    looking_ahead = in_time(Policy(horizon=HorizonPolicy(slots=4)), far, NOW)

    assert policy.solvers == ()
    assert looking_ahead.horizon == HorizonPolicy(slots=4)
    assert leavers(answered(busy(), far, Policy(horizon=HorizonPolicy(slots=4)))) == {}


def test_with_one_slot_too_jobs_run_on_until_a_slot_before_the_maintenance():
    far = Notice(NoticeKind.MAINTENANCE, ("n0",), NOW + timedelta(hours=4), NOW + timedelta(hours=6))
    near = Notice(NoticeKind.MAINTENANCE, ("n0",), NOW + timedelta(hours=1), NOW + timedelta(hours=6))

    runs_on, leaves = answered(busy(), far), answered(busy(), near)

    assert leavers(runs_on) == {}
    assert list(left_behind(runs_on, far)) == []
    told = leaving_later(runs_on, far)
    assert told.startswith("r0, r1 and 2 more run on for now, and may still run at 2026-11-20T16:00:00Z.")
    assert "from 2026-11-20T15:00:00Z on" in told
    assert len(leavers(leaves)) == 4
    assert leaving_later(leaves, near) == ""


def test_with_several_slots_jobs_leave_in_the_slot_in_which_the_maintenance_begins():
    at = NOW + timedelta(hours=4, minutes=50)
    far = Notice(NoticeKind.MAINTENANCE, ("n0",), at, at + timedelta(hours=2))

    plan = answered(busy(), far, Policy(horizon=HorizonPolicy(slots=4)))

    assert leavers(plan) == {}
    assert "from 2026-11-20T16:00:00Z on" in leaving_later(plan, far)


def test_only_jobs_that_may_still_run_then_are_told():
    at = NOW + timedelta(hours=4)
    notice = Notice(NoticeKind.MAINTENANCE, ("n0",), at, at + timedelta(hours=2))
    jobs = [
        job(name, gpus=1, at=[replica("n0", gpus=[gpu])], expected_duration=duration, preemptible=False)
        for gpu, (name, duration) in enumerate([("short", "2h"), ("long", "9h"), ("unknown", None)])
    ]

    plan = answered(snapshot(nodes=[node("n0"), node("n1")], jobs=jobs), notice)

    assert [each.split()[1] for each in left_behind(plan, notice)] == ["long", "unknown"]
    assert leaving_later(plan, notice) == ""


def worthy(**more):
    """A job of more points than `prices.drain`, which would lose its queue a guarantee, and no other room."""
    jobs = [job("big", gpus=8, priority=20, at=[replica("n0", gpus=range(8))], expected_duration="9h")]
    return snapshot(nodes=[node("n0")], jobs=jobs, **more)


def test_no_worth_and_no_guarantee_keep_a_job_on_a_node_that_is_lost():
    world = worthy(queues=[queue(guarantee=8)])

    assert leavers(answered(world)) == {"big": "preempt"}


def test_a_job_that_is_worth_more_than_the_drain_stays_for_a_maintenance_and_says_why():
    soon = Notice(NoticeKind.MAINTENANCE, ("n0",), SOON, SOON + timedelta(hours=1))

    plan = answered(worthy(), soon)

    (told,) = left_behind(plan, soon)
    assert leavers(plan) == {}
    assert re.search(r"a stop costs 22,\d{3} points, prices\.drain is 10,000", told)
    assert explain(plan, "big", source="s").stays.endswith(told.split(": ")[1].rstrip("."))


def two_worthy(**more):
    """The same on two nodes, one of them to be drained."""
    jobs = [
        job(name, gpus=8, priority=20, at=[replica(where, gpus=range(8))], expected_duration="9h")
        for name, where in (("big", "n0"), ("other", "n1"))
    ]
    return snapshot(nodes=[node("n0"), node("n1", **more)], jobs=jobs)


def test_no_job_stays_where_two_notices_come_one_after_the_other():
    first = with_notice(two_worthy(), Notice(NoticeKind.SPOT, ("n1",), SOON))

    assert leavers(answered(first)) == {"big": "preempt", "other": "preempt"}


def test_a_notice_changes_no_prices_where_jobs_have_to_leave_other_nodes():
    assert leavers(answered(two_worthy(drain=True))) == {}


@pytest.mark.parametrize(
    ("seconds", "limit"), [(120, 10_000), (10, 5_000), (1, 1_000), (0, 1_000), (9000, 10_000)]
)
def test_the_search_takes_no_more_than_half_of_the_time_left(seconds, limit):
    notice = Notice(NoticeKind.SPOT, ("n0",), NOW + timedelta(seconds=seconds))

    assert in_time(Policy(), notice, NOW).budget.time_limit_ms == limit


def test_what_cannot_be_saved_is_told():
    slow = busy(checkpoint_duration="3m")
    fixed = busy(preemptible=False)

    assert ["needs 3m to save its state, and 2m" in each for each in left_behind(answered(slow), SPOT)] == [
        True
    ] * 4
    assert ["it is not preemptible" in each for each in left_behind(answered(fixed), SPOT)] == [True] * 4


def test_a_later_notice_for_the_same_nodes_replaces_the_earlier_one():
    later = Notice(NoticeKind.SPOT, ("n0",), SOON + timedelta(hours=1))

    world = with_notice(with_notice(busy(), SPOT), later)

    assert [each.start for each in world.cluster.reservations] == [later.at]


def test_notices_for_some_of_the_same_nodes_stand_beside_each_other():
    nodes = [node(f"n{number}") for number in range(3)]
    first, second, again = (
        Notice(NoticeKind.MAINTENANCE, names, at, at + timedelta(hours=1))
        for names, at in (
            (("n0", "n1"), SOON),
            (("n0", "n2"), SOON),
            (("n1", "n0"), SOON + timedelta(hours=1)),
        )
    )

    world = with_notice(with_notice(with_notice(snapshot(nodes=nodes), first), second), again)

    assert {(each.nodes, each.start) for each in world.cluster.reservations} == {
        (("n0", "n2"), SOON),
        (("n0", "n1"), again.at),
    }


def test_all_that_is_wrong_with_a_notice_is_told():
    past = Notice(NoticeKind.MAINTENANCE, ("n0", "n7", "n8"), NOW - timedelta(seconds=1))
    backwards = Notice(NoticeKind.MAINTENANCE, ("n0",), SOON, NOW)

    with pytest.raises(PlannerError, match=r"n7, n8; known: n0, n1(.|\n)*from 2026(.|\n)*the end of a main"):
        require_sensible(past, busy())
    with pytest.raises(PlannerError, match="expected an end after 2026-11-20T12:02:00Z"):
        require_sensible(backwards, busy())
    with pytest.raises(PlannerError, match="no end of a spot notice"):
        require_sensible(Notice(NoticeKind.SPOT, ("n0",), SOON, SOON), busy())


@pytest.mark.slow
def test_a_large_cluster_is_answered_long_before_the_node_is_lost():
    nodes = [node(f"n{number}") for number in range(1500)]
    jobs = [
        job(f"r{number}-{half}", gpus=4, at=[replica(f"n{number}", gpus=range(4 * half, 4 * half + 4))])
        for number in range(1300)
        for half in (0, 1)
    ]
    world = snapshot(nodes=nodes, jobs=[*jobs, *(job(f"w{number}", gpus=8) for number in range(2000))])
    lost = Notice(NoticeKind.SPOT, tuple(f"n{number}" for number in range(40)), SOON)

    began = time.process_time()
    plan = answered(world, lost)

    # Seconds of this process alone, which other load does not change; it needs two.
    assert time.process_time() - began < 60
    assert not {name for each in plan.placements for name in each.nodes} & set(lost.nodes)

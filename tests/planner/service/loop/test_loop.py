"""Epoch after epoch: what each outcome is, and that a cluster at rest stays so."""

from __future__ import annotations

from datetime import timedelta

from gpuplan.models.policy.approval import Approval
from gpuplan.models.policy.policy import Disruption
from gpuplan.models.policy.settings import HorizonPolicy
from gpuplan.planner.service.history import EpochOutcome
from tests.support.builders.build import cluster, job, queue, replica, snapshot
from tests.support.doubles.periodic_service import EVERY, GREEDY


def test_a_plan_is_applied_and_then_nothing_is_left_to_do(bench):
    one = bench()

    assert one.epochs(3)

    first, second, third = one.records()
    assert one.outcomes() == ["applied", "unchanged", "unchanged"]
    assert (first.done, first.done_before, first.undone) == (2, 0, 0)
    assert first.actions == {"start": 2, "wait": 1}
    assert (second.number, third.number) == (2, 3)
    assert one.plans_of_steps() == [first.plan_id] * 2
    assert {len(first.snapshot), len(first.policy)} == {64}
    assert first.policy == second.policy


def test_without_an_applier_plans_are_saved_and_nothing_changes(bench):
    one = bench(applies=False)

    assert one.epochs(2)

    assert one.outcomes() == ["planned", "planned"]
    assert one.plans_of_steps() == []
    assert one.context.plans.latest().plan_id == one.records()[-1].plan_id


def test_a_plan_that_the_policy_leaves_to_people_waits_for_them(bench):
    one = bench(policy=GREEDY.model_copy(update={"approval": Approval(most_changes=1)}))

    assert one.epochs(1)

    (record,) = one.records()
    assert (record.outcome, record.done, record.undone) == (EpochOutcome.AWAITS_APPROVAL, 0, 2)
    one.epochs(1)
    assert one.outcomes() == ["awaits_approval", "awaits_approval"]
    assert one.plans_of_steps() == []
    one.apply(one.context.plans.latest(), resume=False)
    one.epochs(1)
    assert one.outcomes()[-1] == "unchanged"


def test_a_cluster_that_changes_before_the_apply_makes_the_plan_stale_and_is_planned_anew(bench):
    one = bench()
    apply, calls = one.live.apply, []

    def later(plan, *, resume):
        calls.append(plan)
        if len(calls) == 1:
            one.cluster.fail_node("n0")
        return apply(plan, resume=resume)

    one.apply = later
    one.epochs(2)

    assert one.outcomes() == ["stale", "applied"]
    assert "stale" in one.records()[0].error
    assert one.stop.pauses[0] < EVERY / 4


def test_what_a_source_does_not_remember_of_promises_the_last_plan_does(bench):
    runs = job("runs", gpus=8, at=[replica("n0", gpus=range(8))], expected_duration="2h")
    world = snapshot(nodes=cluster(1), jobs=[runs, job("waits", gpus=8, expected_duration="1h")])
    ahead = GREEDY.model_copy(update={"horizon": HorizonPolicy(slots=3)})
    one = bench(world, policy=ahead, applies=False, remembers=False)

    one.epochs(1)
    first = one.context.plans.latest()
    one.epochs(1)
    second = one.context.plans.latest()

    (promise,) = first.planned
    assert first.snapshot.job_by_name["waits"].promise is None
    assert second.snapshot.job_by_name["waits"].promise.start == promise.start


def test_a_slow_epoch_overlaps_none_and_the_ticks_it_missed_are_counted(bench):
    one = bench()
    read = one.reader

    def slow():
        one.clock.seconds += 2.5 * EVERY
        return read()

    one.reader = slow
    one.epochs(2)

    first, second = one.records()
    assert (first.skipped_ticks, second.skipped_ticks) == (2, 2)
    assert second.began_at - first.ended_at == timedelta(seconds=EVERY / 2)


def test_a_changed_policy_is_in_force_in_the_next_epoch_and_recorded(bench):
    one = bench()
    one.epochs(1)

    one.policy = GREEDY.model_copy(update={"disruption": Disruption(preempt=False)})
    one.epochs(2)

    _, second, third = one.records()
    assert [change.knob for change in second.policy_changes] == [
        "disruption.minimum_runtime",
        "disruption.preempt",
    ]
    assert third.policy_changes == ()
    assert second.policy == third.policy == one.policy.fingerprint()


def test_a_job_on_a_node_that_failed_and_returned_is_started_again_by_a_clock_that_stands_still(bench):
    one = bench(snapshot(nodes=cluster(1), jobs=[job("a", gpus=8)]))
    one.epochs(1)

    one.cluster.fail_node("n0")
    one.cluster.return_node("n0")
    one.epochs(1)

    assert one.outcomes() == ["applied", "applied"]
    assert one.records()[1].done == 1
    assert one.cluster.snapshot().job_by_name["a"].running is not None


def test_two_queues_take_nothing_from_each_other_for_ever(bench):
    """Replanned again and again with nothing new, no job is stopped."""
    jobs = [
        job("x", gpus=8, queue="a", at=[replica("n0", gpus=range(8))]),
        job("y", gpus=8, queue="b"),
        job("z", gpus=8, queue="b", priority=3),
        job("w", gpus=8, queue="a", priority=1),
    ]
    one = bench(snapshot(nodes=cluster(2), jobs=jobs, queues=[queue("a", nominal=8), queue("b", nominal=8)]))

    one.epochs(4)

    assert "applied" in one.outcomes()
    assert set(one.outcomes()[2:]) == {"unchanged"}

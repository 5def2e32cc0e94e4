"""Reasons for waiting that have to do with time, and their order among the others."""

from __future__ import annotations

from datetime import timedelta

import pytest

from gpuplan.models.calendar import Reservation, ReservationKind
from gpuplan.models.cluster import Dataset
from gpuplan.models.dependency import Dependency, DependencyKind, FinishedJob, JobOutcome
from gpuplan.models.job import Running
from gpuplan.models.plan.desired_state import LaterStart
from gpuplan.models.plan.reason import ReasonCode
from gpuplan.models.policy.policy import Policy
from gpuplan.planner.waiting import waiting_reasons
from tests.support.builders.build import NOW, cluster, job, node, placement, queue, replica, snapshot
from tests.support.builders.solution_builders import target
from tests.support.samples.horizon_plans import HOUR, at, looking_ahead, running, waiting, whole


def reasons(*jobs, started=(), planned=(), policy=None, finished=(), **world):
    found = snapshot(jobs=jobs, **world).model_copy(update={"finished": tuple(finished)})
    return waiting_reasons(found, policy or Policy(), target(found, *started, planned=planned))


def why(subject, *others, **more):
    reason = reasons(subject, *others, **more)[subject.name]
    return reason.code, reason.text


def depending(*on, name="a", **more):
    """A job that depends on others: names, or (name, kind)."""
    pairs = [(each, DependencyKind.SUCCEEDED) if isinstance(each, str) else each for each in on]
    return waiting(
        name, gpus=1, depends_on=tuple(Dependency(job=one, kind=kind) for one, kind in pairs), **more
    )


def over(name, outcome=JobOutcome.SUCCEEDED):
    return FinishedJob(
        name=name, queue="q", outcome=outcome, started_at=NOW - timedelta(hours=2), ended_at=NOW
    )


FAILED = JobOutcome.FAILED
RUNS = running("r", replica("n1", gpus=[0]), hours=2)


class TestDependencies:
    def test_a_running_job_is_waited_for_until_its_expected_end(self):
        assert why(depending("r"), RUNS) == (
            ReasonCode.DEPENDENCY,
            "waits until r has succeeded, expected at 14:00",
        )

    def test_what_is_satisfied_is_no_reason(self):
        assert why(depending("p"), finished=[over("p")])[0] is ReasonCode.NOT_CHOSEN
        assert why(depending(("r", DependencyKind.STARTED)), RUNS)[0] is ReasonCode.NOT_CHOSEN

    def test_a_checkpoint_satisfies_jobs_that_wait_for_one(self):
        depends = depending(("r", DependencyKind.CHECKPOINTED))
        saved = Running(
            started_at=RUNS.running.started_at, last_checkpoint_at=NOW, replicas=RUNS.running.replicas
        )

        assert why(depends, RUNS)[1] == "waits until r has saved a checkpoint, expected at 14:00"
        assert why(depends, RUNS.model_copy(update={"running": saved}))[0] is ReasonCode.NOT_CHOSEN

    @pytest.mark.parametrize(
        ("kind", "code"),
        [
            (DependencyKind.SUCCEEDED, ReasonCode.DEPENDENCY_NEVER),
            (DependencyKind.CHECKPOINTED, ReasonCode.DEPENDENCY_NEVER),
            (DependencyKind.COMPLETED, ReasonCode.NOT_CHOSEN),
            (DependencyKind.STARTED, ReasonCode.NOT_CHOSEN),
        ],
    )
    def test_what_has_failed_satisfies_only_jobs_that_wait_for_its_end_or_start(self, kind, code):
        assert why(depending(("p", kind)), finished=[over("p", FAILED)])[0] is code

    def test_a_failure_is_named(self):
        assert why(depending("p"), finished=[over("p", FAILED)])[1] == "depends on p, which failed"

    def test_a_job_that_waits_for_one_that_never_starts_never_starts_either(self):
        others = (depending("p", name="b"), depending("b", name="c"))

        found = reasons(depending("c"), *others, finished=[over("p", FAILED)])

        assert {reason.code for reason in found.values()} == {ReasonCode.DEPENDENCY_NEVER}
        assert found["a"].text == "depends on c, which can never be what it waits for"

    def test_a_long_chain_ends_in_the_failure_of_its_first(self):
        chain = [depending(f"c{number - 1}", name=f"c{number}") for number in range(1, 3000)]

        found = reasons(*chain, finished=[over("c0", FAILED)])

        assert {reason.code for reason in found.values()} == {ReasonCode.DEPENDENCY_NEVER}

    def test_one_of_several_that_never_starts_leaves_hope_while_enough_others_are_left(self):
        hopeless = depending("p", name="b")
        either = depending("b", "c", depends_on_at_least=1)

        assert why(either, hopeless, waiting("c", gpus=1), finished=[over("p", FAILED)])[0] is (
            ReasonCode.DEPENDENCY
        )

    def test_a_job_that_waits_has_no_expected_time(self):
        assert why(depending("b"), waiting("b", gpus=8, held=True))[1] == "waits until b has succeeded"

    def test_a_planned_job_is_expected_to_end_as_planned(self):
        planned = [LaterStart("b", 2, whole("n0"))]

        assert (
            why(depending("b"), waiting("b", gpus=8, hours=3), planned=planned, policy=looking_ahead())[1]
            == "waits until b has succeeded, expected at 17:00"
        )

    def test_of_several_the_last_that_is_needed_is_expected(self):
        other = running("s", replica("n1", gpus=[1]), hours=4)

        assert (
            why(depending("r", "s"), RUNS, other)[1]
            == "waits until r and s have succeeded, expected at 16:00"
        )
        assert why(depending("r", "s", depends_on_at_least=1), RUNS, other) == (
            ReasonCode.DEPENDENCY,
            "waits for 1 more of the 2 jobs r and s, expected at 14:00",
        )

    def test_enough_of_several_suffice(self):
        some = depending("p", "r", depends_on_at_least=1)
        ended = [over("p")]

        assert why(some, RUNS, finished=ended)[0] is ReasonCode.NOT_CHOSEN
        assert why(some, RUNS, finished=[over("p", FAILED)])[0] is ReasonCode.DEPENDENCY

    def test_too_few_that_are_possible_are_counted(self):
        subject = depending("p", "o", "r", depends_on_at_least=2)

        assert why(subject, RUNS, finished=[over("p", FAILED), over("o", FAILED)]) == (
            ReasonCode.DEPENDENCY_NEVER,
            "depends on 2 of 3 jobs; o and p failed, 1 is left",
        )

    def test_many_jobs_are_shortened(self):
        others = [running(f"r{index}", replica("n1", gpus=[index]), hours=1) for index in range(8)]

        text = why(depending(*(other.name for other in others)), *others)[1]

        assert text == "waits until r0, r1 and 6 more have succeeded, expected at 13:00"

    def test_different_kinds_are_waited_for_together(self):
        subject = depending("r", ("b", DependencyKind.STARTED))

        assert why(subject, RUNS, waiting("b", gpus=8))[1] == "waits until r and b are done"


class TestBeginTimes:
    DATA = (Dataset(name="d", available_at=at(2)), Dataset(name="old", available_at=at(-1)))

    def test_a_begin_time_and_data_that_are_still_to_come(self):
        assert why(waiting("a", gpus=1, not_before=at(1))) == (
            ReasonCode.BEGIN_TIME,
            "waits for its start time, 13:00",
        )
        assert why(waiting("a", gpus=1, datasets=("d", "old")), datasets=self.DATA) == (
            ReasonCode.BEGIN_TIME,
            "waits for dataset d, available at 14:00",
        )

    def test_of_both_the_later_is_told(self):
        subject = waiting("a", gpus=1, datasets=("d",), not_before=at(15))

        assert why(subject, datasets=self.DATA)[1] == "waits for its start time, 2026-11-21 03:00"

    def test_what_is_past_is_no_reason(self):
        subject = waiting("a", gpus=1, datasets=("old",), not_before=at(-1))

        assert why(subject, datasets=self.DATA)[0] is ReasonCode.NOT_CHOSEN


class TestDeadlines:
    def test_a_hard_deadline_that_cannot_be_met(self):
        subject = waiting("a", gpus=1, hours=3, deadline=at(1), hard_deadline=True)

        assert why(subject) == (
            ReasonCode.DEADLINE_IMPOSSIBLE,
            "takes 3h and must be done by 13:00: it would be 2h late",
        )

    def test_a_begin_time_counts(self):
        subject = waiting("a", gpus=1, hours=3, deadline=at(4), hard_deadline=True, not_before=at(2))

        assert why(subject)[1] == (
            "cannot start before 14:00, takes 3h and must be done by 16:00: it would be 1h late"
        )

    def test_just_in_time_and_a_soft_deadline_are_no_reason(self):
        for about in ({"deadline": at(3), "hard_deadline": True}, {"deadline": at(1)}):
            assert why(waiting("a", gpus=1, hours=3, **about))[0] is ReasonCode.NOT_CHOSEN


class TestWindows:
    def closed(self, *nodes, start=0, hours=2, **more):
        kind = {} if more else {"kind": ReservationKind.MAINTENANCE}
        return {
            "reservations": (
                Reservation(name="m", nodes=nodes, start=at(start), duration=hours * HOUR, **kind, **more),
            )
        }

    def test_every_node_is_closed(self):
        assert why(waiting("a", gpus=1), **self.closed("n0", "n1")) == (
            ReasonCode.RESERVED,
            "every matching node is closed by maintenance m on n0 and n1 until 14:00",
        )

    def test_a_job_that_would_not_be_done_before_the_window_waits(self):
        long, short = waiting("a", gpus=1, hours=3), waiting("a", gpus=1, hours=1)
        window = self.closed("n0", "n1", start=1)

        assert why(long, **window) == (
            ReasonCode.RESERVED,
            "every matching node is closed by maintenance m on n0 and n1 from 13:00 to 15:00; takes 3h",
        )
        assert why(short, **window)[0] is ReasonCode.NOT_CHOSEN

    def test_another_node_with_room_is_enough_and_one_without_is_not(self):
        subject, other = waiting("a", gpus=1), running("r", *whole("n1"), hours=3)

        assert why(subject, **self.closed("n0"))[0] is ReasonCode.NOT_CHOSEN
        assert why(subject, other, **self.closed("n0")) == (
            ReasonCode.RESERVED,
            "every node with room is closed by maintenance m on n0 until 14:00",
        )

    def test_the_window_of_a_node_without_room_is_not_named_and_one_of_two_is(self):
        subject = waiting("a", gpus=1, hours=3)
        full, two = (
            Reservation(
                name=name, kind=ReservationKind.MAINTENANCE, nodes=nodes, start=at(hour), duration=HOUR
            )
            for name, nodes, hour in (("late", ("n1",), 2), ("early", ("n0",), 1))
        )
        both = "every matching node is closed by maintenance late on n1 from 14:00 to 15:00"
        one = "every node with room is closed by maintenance early on n0 from 13:00 to 14:00; takes 3h"

        assert why(subject, reservations=(full, two))[1] == f"{both}, or by 1 other window; takes 3h"
        assert why(subject, running("r", *whole("n1"), hours=1), reservations=(full, two))[1] == one

    def test_too_little_room_even_with_closed_nodes_is_told_first(self):
        others = [running(f"r{index}", *whole(f"n{index}"), hours=3) for index in range(2)]

        assert why(waiting("a", gpus=1), *others, **self.closed("n0"))[0] is ReasonCode.RESOURCES

    def test_owners_by_queue_and_by_user_come_in(self):
        window = self.closed("n0", "n1", queues=("q",), users=("ann",))
        queues = [queue("q"), queue("p")]

        assert why(waiting("a", gpus=1, queue="q"), queues=queues, **window)[0] is ReasonCode.NOT_CHOSEN
        assert (
            why(waiting("a", gpus=1, queue="p", user="ann"), queues=queues, **window)[0]
            is ReasonCode.NOT_CHOSEN
        )
        found = reasons(
            waiting("a", gpus=1, queue="p", user="bob"),
            waiting("b", gpus=1, queue="p", user="ann"),
            queues=queues,
            **window,
        )
        assert [found["a"].code, found["b"].code] == [ReasonCode.RESERVED, ReasonCode.NOT_CHOSEN]


class TestGroups:
    def test_a_job_that_would_fit_waits_for_the_others_of_its_group(self):
        found = reasons(waiting("a", gpus=1, co_start="g"), waiting("b", gpus=9, co_start="g"))

        assert found["a"].code is ReasonCode.CO_START
        assert found["a"].text.startswith(
            "starts only together with b of group g; b: one replica needs 9 GPUs"
        )
        assert found["b"].code is ReasonCode.NO_MATCHING_NODE

    def test_together_they_do_not_fit(self):
        jobs = [waiting(name, gpus=8, replicas=2, co_start="g") for name in "ab"]

        assert why(*jobs) == (ReasonCode.CO_START, "starts only together with b of group g")

    def test_a_group_of_which_one_runs_is_free(self):
        other = running("r", replica("n1", gpus=[0]), hours=1, co_start="g")

        found = reasons(waiting("a", gpus=1, co_start="g"), waiting("b", gpus=9, co_start="g"), other)

        assert found["a"].code is ReasonCode.NOT_CHOSEN


def test_nodes_that_are_still_to_come_are_told():
    nodes = [node("n0", ready=False, ready_at=at(1)), node("n1", ready=False)]

    assert why(waiting("a", gpus=1), nodes=nodes) == (
        ReasonCode.RESOURCES,
        "no matching node is ready; n0 is expected at 13:00",
    )


def test_a_job_that_would_fit_and_has_a_later_start_says_so():
    code, text = why(
        waiting("a", gpus=1), planned=[LaterStart("a", 2, (replica(gpus=[0]),))], policy=looking_ahead()
    )

    assert code is ReasonCode.NOT_CHOSEN
    assert text == "would fit, but the start promised to it is better for all in sum"


class TestPromisedAway:
    """It would fit now, and would be in the way of promises."""

    LONG = waiting("a", gpus=8, hours=4)
    NODE = (node("n0"),)

    def why(self, slot, subject=LONG, *, nodes=NODE, promised=True, **world):
        planned = [LaterStart("b", slot, whole("n0"), promised=promised)]
        return why(
            subject, waiting("b", gpus=8), planned=planned, policy=looking_ahead(), nodes=nodes, **world
        )

    def test_places_that_are_promised_before_it_would_be_done(self):
        assert self.why(3) == (
            ReasonCode.NOT_CHOSEN,
            "would fit, but not until it is done: b is promised a start at 15:00 there",
        )

    def test_a_job_that_would_be_done_or_fits_beside_or_elsewhere_is_not_in_the_way(self):
        plain = "would fit, but no place was chosen for it in the time given"

        assert self.why(4)[1] == plain
        assert self.why(3, nodes=cluster(2))[1] == plain
        assert self.why(3, nodes=(node("n0", gpus=16),))[1] == plain

    def test_a_start_that_is_only_foreseen_holds_nothing(self):
        assert "promised" not in self.why(3, promised=False)[1]

    def test_quota_that_is_promised_before_it_would_be_done(self):
        assert self.why(3, nodes=cluster(2), queues=[queue(nominal=8)])[1] == (
            "would fit, but from 15:00 on queue q holds 8 of 8 GPUs for others"
        )

    def test_jobs_that_differ_in_duration_are_told_apart(self):
        planned = [LaterStart("b", 3, whole("n0"))]

        found = reasons(
            self.LONG,
            waiting("b", gpus=8),
            waiting("c", gpus=8, hours=1),
            planned=planned,
            policy=looking_ahead(),
            nodes=self.NODE,
        )

        assert found["a"].text != found["c"].text


def test_severity_among_the_reasons_of_time():
    everything = {
        "depends_on": (Dependency(job="p"),),
        "deadline": at(1),
        "hard_deadline": True,
        "not_before": at(2),
    }
    finished = [over("p", FAILED)]
    subject = waiting("a", gpus=100, hours=3, **everything)

    assert why(subject.model_copy(update={"held": True}), finished=finished)[0] is ReasonCode.HELD
    assert why(subject, finished=finished)[0] is ReasonCode.DEPENDENCY_NEVER
    assert why(subject, finished=[over("p")])[0] is ReasonCode.DEADLINE_IMPOSSIBLE
    subject = subject.model_copy(update={"hard_deadline": False})
    assert why(subject, finished=[over("p")])[0] is ReasonCode.NO_MATCHING_NODE
    subject = waiting("a", gpus=8, hours=3, not_before=at(2), depends_on=(Dependency(job="r"),))
    full = running("s", *whole("n0"), hours=3)
    assert why(subject, RUNS, full)[0] is ReasonCode.DEPENDENCY
    subject = subject.model_copy(update={"depends_on": ()})
    assert why(subject, RUNS, full)[0] is ReasonCode.BEGIN_TIME
    assert why(subject, queues=[queue(nominal=4)])[0] is ReasonCode.EXCEEDS_MAX_QUOTA


def test_without_anything_of_time_equal_jobs_share_their_answer():
    jobs = [job(f"j{index}", gpus=8, replicas=3) for index in range(20)]

    found = reasons(*jobs, started=[placement("j0", *whole("n0"))], nodes=cluster(2))

    assert len({id(reason) for reason in found.values()}) == 1

"""Reasons for waiting that have to do with time, and their order among the others."""

from __future__ import annotations

from datetime import timedelta

import pytest

from gpuplan.models.calendar import Reservation, ReservationKind
from gpuplan.models.cluster import Dataset
from gpuplan.models.dependency import Dependency, DependencyKind, FinishedJob, JobOutcome
from gpuplan.models.placement import Running
from gpuplan.models.plan.reason import ReasonCode
from gpuplan.models.plan.solution import LaterStart
from gpuplan.models.policy.policy import Policy
from gpuplan.planner.waiting.diagnose import waiting_reasons
from gpuplan.planner.waiting.messages import not_chosen
from gpuplan.planner.waiting.time_messages import later_start_planned
from tests.support.builders.build import NOW, cluster, job, node, placement, queue, replica, snapshot
from tests.support.builders.solution_builders import target
from tests.support.output.golden import figures as figures_of
from tests.support.samples.horizon_plans import HOUR, at, looking_ahead, running, waiting, whole


def reasons(*jobs, started=(), planned=(), policy=None, finished=(), **world):
    found = snapshot(jobs=jobs, **world).model_copy(update={"finished": tuple(finished)})
    return waiting_reasons(found, policy or Policy(), target(found, *started, planned=planned))


def why(subject, *others, **more):
    reason = reason_of(subject, *others, **more)
    return reason.code, reason.numbers


def reason_of(subject, *others, **more):
    return reasons(subject, *others, **more)[subject.name]


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
            {"needed": 1, "satisfied": 0, "jobs": "r", "expected_seconds": 2 * HOUR},
        )

    def test_what_is_satisfied_is_no_reason(self):
        assert why(depending("p"), finished=[over("p")])[0] is ReasonCode.NOT_CHOSEN
        assert why(depending(("r", DependencyKind.STARTED)), RUNS)[0] is ReasonCode.NOT_CHOSEN

    def test_a_checkpoint_satisfies_jobs_that_wait_for_one(self):
        depends = depending(("r", DependencyKind.CHECKPOINTED))
        saved = Running(
            started_at=RUNS.running.started_at, last_checkpoint_at=NOW, replicas=RUNS.running.replicas
        )

        reason = reason_of(depends, RUNS)
        assert reason.numbers == {"needed": 1, "satisfied": 0, "jobs": "r", "expected_seconds": 2 * HOUR}
        assert "checkpoint" in reason.text
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
        reason = reason_of(depending("p"), finished=[over("p", FAILED)])

        assert reason.numbers == {"needed": 1, "possible": 0, "jobs": "p"}
        assert "failed" in reason.text

    def test_a_job_that_waits_for_one_that_never_starts_never_starts_either(self):
        others = (depending("p", name="b"), depending("b", name="c"))

        found = reasons(depending("c"), *others, finished=[over("p", FAILED)])

        assert {reason.code for reason in found.values()} == {ReasonCode.DEPENDENCY_NEVER}
        assert found["a"].numbers == {"needed": 1, "possible": 0, "jobs": "c"}
        assert "failed" not in found["a"].text

    @pytest.mark.slow
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
        numbers = why(depending("b"), waiting("b", gpus=8, held=True))[1]

        assert numbers == {"needed": 1, "satisfied": 0, "jobs": "b"}

    def test_a_planned_job_is_expected_to_end_as_planned(self):
        planned = [LaterStart("b", 2, whole("n0"))]

        waits = waiting("b", gpus=8, hours=3)
        numbers = why(depending("b"), waits, planned=planned, policy=looking_ahead())[1]

        assert numbers == {"needed": 1, "satisfied": 0, "jobs": "b", "expected_seconds": 5 * HOUR}

    def test_of_several_the_last_that_is_needed_is_expected(self):
        other = running("s", replica("n1", gpus=[1]), hours=4)

        assert why(depending("r", "s"), RUNS, other)[1] == {
            "needed": 2,
            "satisfied": 0,
            "jobs": "r and s",
            "expected_seconds": 4 * HOUR,
        }
        assert why(depending("r", "s", depends_on_at_least=1), RUNS, other) == (
            ReasonCode.DEPENDENCY,
            {"needed": 1, "satisfied": 0, "jobs": "r and s", "expected_seconds": 2 * HOUR},
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
            {"needed": 2, "possible": 1, "jobs": "o and p"},
        )

    def test_many_jobs_are_shortened(self):
        others = [running(f"r{index}", replica("n1", gpus=[index]), hours=1) for index in range(8)]

        reason = reason_of(depending(*(other.name for other in others)), *others)

        assert reason.numbers == {
            "needed": 8,
            "satisfied": 0,
            "jobs": "r0, r1, r2, r3, r4, r5, r6 and r7",
            "expected_seconds": HOUR,
        }
        assert figures_of(reason.text) == "r0 r1 6 13:00"

    def test_different_kinds_are_waited_for_together(self):
        subject = depending("r", ("b", DependencyKind.STARTED))

        reason = reason_of(subject, RUNS, waiting("b", gpus=8))

        assert reason.numbers == {"needed": 2, "satisfied": 0, "jobs": "r and b"}
        assert "succeeded" not in reason.text


class TestBeginTimes:
    DATA = (Dataset(name="d", available_at=at(2)), Dataset(name="old", available_at=at(-1)))

    def test_a_begin_time_and_data_that_are_still_to_come(self):
        assert why(waiting("a", gpus=1, not_before=at(1))) == (
            ReasonCode.BEGIN_TIME,
            {"seconds": HOUR},
        )
        assert why(waiting("a", gpus=1, datasets=("d", "old")), datasets=self.DATA) == (
            ReasonCode.BEGIN_TIME,
            {"dataset": "d", "seconds": 2 * HOUR},
        )

    def test_of_both_the_later_is_told(self):
        subject = waiting("a", gpus=1, datasets=("d",), not_before=at(15))

        reason = reason_of(subject, datasets=self.DATA)

        assert reason.numbers == {"seconds": 15 * HOUR}
        assert figures_of(reason.text) == "2026-11-21 03:00"

    def test_what_is_past_is_no_reason(self):
        subject = waiting("a", gpus=1, datasets=("old",), not_before=at(-1))

        assert why(subject, datasets=self.DATA)[0] is ReasonCode.NOT_CHOSEN


class TestDeadlines:
    def test_a_hard_deadline_that_cannot_be_met(self):
        subject = waiting("a", gpus=1, hours=3, deadline=at(1), hard_deadline=True)

        assert why(subject) == (
            ReasonCode.DEADLINE_IMPOSSIBLE,
            {"needed_seconds": 3 * HOUR, "left_seconds": HOUR, "late_seconds": 2 * HOUR},
        )

    def test_a_begin_time_counts(self):
        subject = waiting("a", gpus=1, hours=3, deadline=at(4), hard_deadline=True, not_before=at(2))

        assert why(subject)[1] == {"needed_seconds": 3 * HOUR, "left_seconds": 2 * HOUR, "late_seconds": HOUR}

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

    def is_closed(self, reason, numbers, *, figures, every):
        assert (reason.code, reason.numbers) == (ReasonCode.RESERVED, numbers)
        assert figures_of(reason.text) == figures
        assert ("matching" if every else "with room") in reason.text

    def test_every_node_is_closed(self):
        self.is_closed(
            reason_of(waiting("a", gpus=1), **self.closed("n0", "n1")),
            {"reservation": "m", "begins_seconds": 0, "ends_seconds": 2 * HOUR},
            figures="n0 n1 14:00",
            every=True,
        )

    def test_a_job_that_would_not_be_done_before_the_window_waits(self):
        long, short = waiting("a", gpus=1, hours=3), waiting("a", gpus=1, hours=1)
        window = self.closed("n0", "n1", start=1)

        self.is_closed(
            reason_of(long, **window),
            {"reservation": "m", "begins_seconds": HOUR, "ends_seconds": 3 * HOUR},
            figures="n0 n1 13:00 15:00 3h",
            every=True,
        )
        assert why(short, **window)[0] is ReasonCode.NOT_CHOSEN

    def test_another_node_with_room_is_enough_and_one_without_is_not(self):
        subject, other = waiting("a", gpus=1), running("r", *whole("n1"), hours=3)

        assert why(subject, **self.closed("n0"))[0] is ReasonCode.NOT_CHOSEN
        self.is_closed(
            reason_of(subject, other, **self.closed("n0")),
            {"reservation": "m", "begins_seconds": 0, "ends_seconds": 2 * HOUR},
            figures="n0 14:00",
            every=False,
        )

    def test_the_window_of_a_node_without_room_is_not_named_and_one_of_two_is(self):
        subject = waiting("a", gpus=1, hours=3)
        full, two = (
            Reservation(
                name=name, kind=ReservationKind.MAINTENANCE, nodes=nodes, start=at(hour), duration=HOUR
            )
            for name, nodes, hour in (("late", ("n1",), 2), ("early", ("n0",), 1))
        )
        other = running("r", *whole("n1"), hours=1)

        self.is_closed(
            reason_of(subject, reservations=(full, two)),
            {"reservation": "late", "begins_seconds": 2 * HOUR, "ends_seconds": 3 * HOUR},
            figures="n1 14:00 15:00 1 3h",
            every=True,
        )
        self.is_closed(
            reason_of(subject, other, reservations=(full, two)),
            {"reservation": "early", "begins_seconds": HOUR, "ends_seconds": 2 * HOUR},
            figures="n0 13:00 14:00 3h",
            every=False,
        )

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
        assert found["a"].numbers == {"group": "g", "jobs": "b"}
        assert found["a"].text.endswith(f"; b: {found['b'].text}")
        assert found["b"].code is ReasonCode.NO_MATCHING_NODE

    def test_together_they_do_not_fit(self):
        jobs = [waiting(name, gpus=8, replicas=2, co_start="g") for name in "ab"]

        assert why(*jobs) == (ReasonCode.CO_START, {"group": "g", "jobs": "b"})
        assert ";" not in reason_of(*jobs).text

    def test_a_group_of_which_one_runs_is_free(self):
        other = running("r", replica("n1", gpus=[0]), hours=1, co_start="g")

        found = reasons(waiting("a", gpus=1, co_start="g"), waiting("b", gpus=9, co_start="g"), other)

        assert found["a"].code is ReasonCode.NOT_CHOSEN


def test_nodes_that_are_still_to_come_are_told():
    nodes = [node("n0", ready=False, ready_at=at(1)), node("n1", ready=False)]

    assert why(waiting("a", gpus=1), nodes=nodes) == (
        ReasonCode.RESOURCES,
        {"node": "n0", "seconds": HOUR},
    )


def test_a_job_that_would_fit_and_has_a_later_start_says_so():
    planned = [LaterStart("a", 2, (replica(gpus=[0]),))]
    reason = reason_of(waiting("a", gpus=1), planned=planned, policy=looking_ahead())

    assert reason == later_start_planned(promised=True)


class TestPromisedAway:
    """It would fit now, and would be in the way of promises."""

    LONG = waiting("a", gpus=8, hours=4)
    NODE = (node("n0"),)

    def reason(self, slot, *, nodes=NODE, promised=True, **world):
        planned = [LaterStart("b", slot, whole("n0"), promised=promised)]
        return reason_of(
            self.LONG, waiting("b", gpus=8), planned=planned, policy=looking_ahead(), nodes=nodes, **world
        )

    def test_places_that_are_promised_before_it_would_be_done(self):
        reason = self.reason(3)

        assert (reason.code, reason.numbers) == (ReasonCode.NOT_CHOSEN, {"jobs": "b"})
        assert figures_of(reason.text) == "15:00"

    def test_a_job_that_would_be_done_or_fits_beside_or_elsewhere_is_not_in_the_way(self):
        fits = not_chosen(proven=False)

        assert self.reason(4) == fits
        assert self.reason(3, nodes=cluster(2)) == fits
        assert self.reason(3, nodes=(node("n0", gpus=16),)) == fits

    def test_a_start_that_is_only_foreseen_holds_nothing(self):
        assert self.reason(3, promised=False) == not_chosen(proven=False)

    def test_quota_that_is_promised_before_it_would_be_done(self):
        reason = self.reason(3, nodes=cluster(2), queues=[queue(nominal=8)])

        assert reason.numbers == {"queue": "q", "used": 8, "limit": 8, "needed": 8}
        assert figures_of(reason.text) == "15:00 8 8"

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

"""What a plan says about later slots: planned starts, what they wait for, promises, kill times, deadlines."""

from __future__ import annotations

from datetime import timedelta

import pytest

from gpuplan.models.calendar import Reservation, ReservationKind, Tariff
from gpuplan.models.cluster import Dataset
from gpuplan.models.dependency import Dependency
from gpuplan.models.placement import Promise, Running
from gpuplan.models.plan.actions import Start
from gpuplan.models.plan.plan import DeadlineState
from gpuplan.models.plan.reason import ReasonCode
from gpuplan.models.plan.solution import LaterStart
from gpuplan.models.policy.policy import Policy
from gpuplan.models.verifier.verify import verify
from gpuplan.planner.apply.promises import promises_of
from gpuplan.planner.plan_file.integrity import contradictions
from gpuplan.planner.plan_file.plan_file import load_plan, save_plan
from gpuplan.planner.render.plan.warnings import unmet_commitments
from tests.support.builders.build import NOW, cluster, job, node, placement, queue, replica, snapshot
from tests.support.builders.solution_builders import drafted
from tests.support.output.golden import figures
from tests.support.samples.horizon_plans import (
    HOUR,
    at,
    looking_ahead,
    promise,
    running,
    timely_plan,
    waiting,
    whole,
)

RUNNING = (
    running("train-a", *whole("n0"), hours=2),
    running("train-b", *whole("n1"), hours=2),
)


def plan_of(*jobs, planned, policy=None, started=(), **world):
    """A plan with these later starts, which does not contradict itself."""
    nodes = world.pop("nodes", None) or cluster(3)
    plan = drafted(
        snapshot(nodes=nodes, jobs=jobs, **world),
        *started,
        policy=policy or looking_ahead(),
        planned=planned,
    )
    assert list(contradictions(plan)) == []
    return plan


def told(plan, name):
    return next(each for each in plan.waiting if each.job == name)


def waits_for(*jobs, planned, **more):
    """What the first job waits for."""
    return told(plan_of(*jobs, planned=planned, **more), jobs[0].name).waits_for


def start_of(plan, name):
    return next(action for action in plan.actions if isinstance(action, Start) and action.job == name)


def outlook_of(subject, *others, planned=(), **more):
    (found,) = plan_of(subject, *others, planned=planned, **more).deadlines
    return found.state, found.projected_finish


def test_a_planned_start_begins_with_its_slot_and_is_told_among_the_waiting():
    world = snapshot(taken_at=NOW + timedelta(minutes=20), jobs=[waiting("a", gpus=8)])

    plan = drafted(world, policy=looking_ahead(), planned=[LaterStart("a", 2, whole("n0"))])

    # The first slot is what is left of the hour.
    (planned,) = plan.planned
    assert (planned.slot, planned.start, planned.promised) == (2, at(2), True)
    assert (told(plan, "a").projected_start, told(plan, "a").promised) == (at(2), True)


def resumed(*, hours=2, **more):
    """A plan that stops a job for another one and has it resume at three."""
    jobs = running("train", *whole("n0"), hours=hours, **more), waiting("fix", gpus=8, priority=9)
    world, policy = snapshot(nodes=cluster(1), jobs=jobs), looking_ahead()
    target = (placement("fix", *whole("n0")),), (LaterStart("train", 3, whole("n0")),)
    earned = verify(world, policy, target[0], planned=target[1])
    plan = drafted(
        world,
        *target[0],
        policy=policy,
        stopped=("train",),
        planned=target[1],
        objective=earned.objective,
        bound=earned.objective,
        terms=earned.terms,
    )
    return plan, next(action for action in plan.actions if action.type == "preempt")


def test_a_job_that_is_stopped_says_when_it_resumes_and_waits_with_that_start():
    plan, stop = resumed()

    assert stop.resumes_at == at(3)
    assert stop.reason.numbers["makes_room_for"] == "fix"
    assert "resumes 15:00" in stop.reason.text
    assert (told(plan, "train").projected_start, told(plan, "train").promised) == (at(3), True)
    assert promises_of(plan) == {"train": Promise(start=at(3), replicas=whole("n0"))}
    assert list(contradictions(plan)) == []


def test_what_a_stop_costs_is_what_is_not_made_good_by_resuming():
    plan, stop = resumed()

    started = start_of(plan, "fix").reason.numbers["points"]

    assert started + stop.reason.numbers["points"] == plan.solution.objective


def test_the_deadline_of_a_job_that_resumes_is_that_of_its_end_then():
    # Two hours are left, one is lost and some minutes are for coming back.
    for due, state in ((7, DeadlineState.MET), (6, DeadlineState.LATE), (1, DeadlineState.IMPOSSIBLE)):
        (outlook,) = resumed(deadline=at(due))[0].deadlines
        assert outlook.state is state
        assert at(6) < outlook.projected_finish < at(7)


def test_a_start_that_is_only_foreseen_is_projected_and_not_promised():
    plan = plan_of(waiting("a", gpus=8), planned=[LaterStart("a", 1, whole("n0"), promised=False)])

    assert (told(plan, "a").projected_start, told(plan, "a").promised) == (at(1), False)
    assert (plan.metrics.jobs.planned, plan.metrics.jobs.promised) == (1, 0)


def test_a_plan_that_looks_ahead_comes_back_from_its_file_as_it_was(tmp_path):
    plan = plan_of(waiting("a", gpus=8, deadline=at(3)), planned=[LaterStart("a", 1, whole("n0"))])

    save_plan(plan, tmp_path / "plan.json")

    assert load_plan(tmp_path / "plan.json") == plan


def test_a_plan_of_this_instant_has_no_word_about_later_in_its_file():
    world = snapshot(jobs=[job("a", gpus=8, deadline=at(3)), job("b", gpus=8)])

    document = drafted(world, placement("a", *whole("n0"))).model_dump(mode="json")

    assert not {"planned", "deadlines"} & document.keys()
    assert document["waiting"][0].keys() == {"job", "reason", "projected_start"}
    assert "kill_at" not in document["actions"][0]
    assert document["metrics"]["jobs"].keys() == {"running", "started", "waiting", "preempted"}


class TestWaitsFor:
    def test_jobs_that_end_on_its_places_just_then(self):
        job_ = waiting("a", gpus=8, replicas=2)

        found = waits_for(job_, *RUNNING, planned=[LaterStart("a", 2, whole("n0", "n1"))])

        assert found == "until train-a and train-b end"

    def test_many_ending_jobs_are_counted(self):
        others = [running(f"r{index}", replica(gpus=[index]), hours=1) for index in range(4)]

        found = waits_for(waiting("a", gpus=8), *others, planned=[LaterStart("a", 1, whole("n0"))])

        assert found == "until r0 and 3 others end"

    def test_only_those_on_its_own_gpus_are_in_its_way(self):
        others = [running(f"r{index}", replica(gpus=[index]), hours=1) for index in range(4)]

        found = waits_for(waiting("a", gpus=1), *others, planned=[LaterStart("a", 1, (replica(gpus=[2]),))])

        assert found == "until r2 ends"

    def test_a_job_that_has_long_ended_by_then_is_not_waited_for(self):
        early = running("r", replica("n0", gpus=[0]), hours=1)
        late = running("s", replica("n0", gpus=[1]), hours=2)

        assert waits_for(waiting("a", gpus=8), early, late, planned=[LaterStart("a", 2, whole("n0"))]) == (
            "until s ends"
        )

    def test_a_job_that_the_plan_starts_before_it(self):
        found = waits_for(
            waiting("a", gpus=8),
            waiting("b", gpus=8, hours=2),
            started=[placement("b", *whole("n0"))],
            planned=[LaterStart("a", 2, whole("n0"))],
        )

        assert found == "until b ends"

    def test_a_job_that_is_planned_before_it(self):
        found = waits_for(
            waiting("a", gpus=8),
            waiting("b", gpus=8, hours=2),
            planned=[LaterStart("a", 3, whole("n0")), LaterStart("b", 1, whole("n0"))],
        )

        assert found == "until b ends"

    def test_a_dependency_that_comes_true_just_then(self):
        subject = waiting("a", gpus=1, depends_on=(Dependency(job="train-a"),))

        found = waits_for(subject, RUNNING[0], planned=[LaterStart("a", 2, (replica("n2", gpus=[0]),))])

        assert found == "until train-a has succeeded"

    def test_a_dependency_that_came_true_earlier_is_not_what_it_waits_for(self):
        subject = waiting("a", gpus=8, depends_on=(Dependency(job="p"),))
        others = (running("p", replica("n2", gpus=[0]), hours=1), RUNNING[0])

        assert waits_for(subject, *others, planned=[LaterStart("a", 2, whole("n0"))]) == "until train-a ends"

    def test_its_begin_time_and_its_data(self):
        dataset = Dataset(name="d", available_at=at(2))
        begins = waiting("a", gpus=1, not_before=at(1))
        reads = waiting("a", gpus=1, datasets=("d",))
        place = (replica("n0", gpus=[0]),)

        assert waits_for(begins, planned=[LaterStart("a", 1, place)]) == "for its start time, 13:00"
        assert (
            waits_for(reads, planned=[LaterStart("a", 2, place)], datasets=(dataset,))
            == "for dataset d, available at 14:00"
        )

    def test_maintenance_and_nodes_to_come(self):
        closed = Reservation(
            name="m", kind=ReservationKind.MAINTENANCE, nodes=("n0",), start=NOW, duration=HOUR
        )
        coming = [node("n0", ready=False, ready_at=at(1))]
        planned = [LaterStart("a", 1, whole("n0"))]

        assert (
            waits_for(waiting("a", gpus=8), planned=planned, reservations=(closed,))
            == "until maintenance m on n0 is over"
        )
        assert waits_for(waiting("a", gpus=8), planned=planned, nodes=coming) == "for node n0, ready at 13:00"

    def test_quota_that_others_hold_elsewhere(self):
        other = running("r", *whole("n1"), hours=1, queue="q")

        found = waits_for(
            waiting("a", gpus=8), other, planned=[LaterStart("a", 1, whole("n0"))], queues=[queue(nominal=8)]
        )

        assert found == "for quota of queue q"

    def test_its_group(self):
        jobs = [waiting(name, gpus=8, co_start="g") for name in "ab"]

        found = waits_for(
            *jobs, RUNNING[1], planned=[LaterStart("a", 2, whole("n0")), LaterStart("b", 2, whole("n1"))]
        )

        assert found == "for its group g"

    def test_a_cheaper_time(self):
        dear = Tariff(name="day", price_per_gpu_hour=3, start=NOW, duration=HOUR)

        found = waits_for(waiting("a", gpus=8), planned=[LaterStart("a", 1, whole("n0"))], tariffs=(dear,))

        assert found == "for a cheaper time"

    def test_nothing_that_is_found_is_room(self):
        assert waits_for(waiting("a", gpus=8), planned=[LaterStart("a", 1, whole("n0"))]) == "for room"

    def test_a_job_without_gpus_waits_for_jobs_that_end_on_its_nodes(self):
        other = running("r", replica("n0", gpus=[0], cpus=96), hours=1, cpus=96)

        found = waits_for(
            waiting("a", cpus=50), other, planned=[LaterStart("a", 1, (replica("n0", cpus=50),))]
        )

        assert found == "until r ends"


class TestStarts:
    WORLD = (waiting("a", gpus=8, hours=2), waiting("b", gpus=8, replicas=2, hours=3))

    def plan(self, slot, *, promised=True, **backfill):
        return plan_of(
            *self.WORLD,
            RUNNING[0],
            started=[placement("a", *whole("n1"))],
            planned=[LaterStart("b", slot, whole("n0", "n1"), promised=promised)],
            policy=looking_ahead(**backfill),
        )

    def test_a_start_in_front_of_a_promise_says_so_and_is_killed_in_time(self):
        start = start_of(self.plan(2, kill=True), "a")

        assert start.reason.numbers["ahead_of"] == "b"
        assert figures(start.reason.text) == "14:00"
        assert start.kill_at == at(2)

    def test_no_job_is_killed_where_the_policy_does_not_say_so(self):
        assert start_of(self.plan(2), "a").kill_at is None

    @pytest.mark.parametrize("hours", [1, 0, -1])
    def test_a_job_that_was_promised_its_start_is_not_killed_for_another_promise(self, hours):
        promised = self.WORLD[0].model_copy(update={"promise": promise(hours, *whole("n1"))})
        plan = plan_of(
            promised,
            *self.WORLD[1:],
            RUNNING[0],
            started=[placement("a", *whole("n1"))],
            planned=[LaterStart("b", 2, whole("n0", "n1"))],
            policy=looking_ahead(kill=True),
        )

        assert "ahead of b's start" in start_of(plan, "a").reason.text
        assert start_of(plan, "a").kill_at is None

    @pytest.mark.parametrize(("most", "killed"), [(1, at(2)), (2, None)])
    def test_no_job_is_killed_with_fewer_replicas_than_its_duration_is_stated_for(self, most, killed):
        plan = plan_of(
            waiting("a", gpus=8, hours=2, replicas=(1, most)),
            *self.WORLD[1:],
            RUNNING[0],
            started=[placement("a", *whole("n1"))],
            planned=[LaterStart("b", 2, whole("n0", "n1"))],
            policy=looking_ahead(kill=True),
        )

        assert start_of(plan, "a").kill_at == killed

    def test_no_job_is_killed_for_a_start_that_is_only_foreseen(self):
        start = start_of(self.plan(2, kill=True, promised=False), "a")

        assert start.kill_at is None
        assert "ahead of" not in start.reason.text

    def test_no_job_is_killed_for_a_promise_on_other_nodes(self):
        plan = plan_of(
            *self.WORLD,
            started=[placement("a", *whole("n1"))],
            planned=[LaterStart("b", 2, whole("n0", "n2"))],
            policy=looking_ahead(kill=True),
        )

        assert start_of(plan, "a").kill_at is None

    @pytest.mark.parametrize(
        ("hours", "words"),
        [(2, "earlier than promised (14:00)"), (0, "as promised"), (-3, "promised 09:00, 3h ago")],
    )
    def test_a_promised_job_that_starts_says_how_its_promise_was_kept(self, hours, words):
        subject = waiting("a", gpus=8, promise=promise(hours, *whole("n0")))

        plan = plan_of(subject, started=[placement("a", *whole("n0"))], planned=[])

        assert words in start_of(plan, "a").reason.text

    @pytest.mark.parametrize("slots", [1, 12])
    def test_the_points_of_each_change_are_what_the_verifier_counts(self, slots):
        policy = looking_ahead(slots)
        tariff = Tariff(name="day", price_per_gpu_hour=0.5, start=NOW, duration=2 * HOUR)
        stopped = running("r", *whole("n0"), hours=30, deadline=at(1), preemptible=True)
        world = snapshot(
            jobs=[waiting("a", gpus=8, hours=4, deadline=at(2), priority=9), stopped], tariffs=(tariff,)
        )

        plan = drafted(world, placement("a", *whole("n0")), stopped=["r"], policy=policy)

        before, after = (
            verify(world, policy, placements) for placements in (world.running_placements, plan.placements)
        )
        points = [action.reason.numbers["points"] for action in plan.actions]
        assert after.violations == ()
        assert sum(points) == after.objective - before.objective


class TestDeadlines:
    def test_in_time_with_much_to_spare_is_met(self):
        subject = waiting("a", gpus=8, hours=2, deadline=at(9))

        found = outlook_of(subject, planned=[LaterStart("a", 1, whole("n0"))])

        assert found == (DeadlineState.MET, at(3))

    def test_in_time_with_little_to_spare_is_critical_until_it_starts(self):
        subject = waiting("a", gpus=8, hours=4, deadline=at(5))

        waits = outlook_of(subject, planned=[LaterStart("a", 1, whole("n0"))])
        starts = outlook_of(subject, started=[placement("a", *whole("n0"))])

        assert waits == (DeadlineState.CRITICAL, at(5))
        assert starts == (DeadlineState.MET, at(4))

    def test_half_its_duration_to_spare_is_no_longer_critical(self):
        subject = waiting("a", gpus=8, hours=4, deadline=at(6))

        assert outlook_of(subject, planned=[LaterStart("a", 2, whole("n0"))])[0] is DeadlineState.MET

    def test_a_start_that_comes_too_late_is_late(self):
        subject = waiting("a", gpus=8, hours=2, deadline=at(4))

        assert outlook_of(subject, planned=[LaterStart("a", 3, whole("n0"))]) == (DeadlineState.LATE, at(5))

    def test_what_could_not_even_start_now_is_impossible(self):
        subject = waiting("a", gpus=8, hours=2, deadline=at(1))

        assert outlook_of(subject) == (DeadlineState.IMPOSSIBLE, None)
        assert outlook_of(subject, planned=[LaterStart("a", 1, whole("n0"))])[0] is DeadlineState.IMPOSSIBLE

    def test_the_fastest_model_that_the_cluster_has_decides_what_is_possible(self):
        subject = waiting("a", gpus=8, hours=2, deadline=at(3), gpu_models={"B200": 2, "T4": 1})
        slow = [node("n0", model="T4")]

        assert outlook_of(subject, nodes=slow)[0] is DeadlineState.IMPOSSIBLE
        assert outlook_of(subject, nodes=[*slow, node("n1", model="B200")])[0] is not DeadlineState.IMPOSSIBLE

    def test_no_start_in_the_horizon_is_late_only_if_its_end_is_too_late(self):
        soon = waiting("a", gpus=8, hours=2, deadline=at(13))
        late = waiting("a", gpus=8, hours=2, deadline=at(14))

        assert outlook_of(soon) == (DeadlineState.LATE, None)
        assert outlook_of(late) == (DeadlineState.MET, None)

    @pytest.mark.parametrize(
        ("hours", "state"), [(2, DeadlineState.MET), (1, DeadlineState.IMPOSSIBLE)], ids=["in time", "late"]
    )
    def test_a_running_job_goes_on_for_what_is_left_of_it(self, hours, state):
        subject = running("a", *whole("n0"), hours=2).model_copy(update={"deadline": at(hours)})

        assert outlook_of(subject) == (state, at(2))

    def test_a_job_that_moves_to_a_slower_model_and_starts_anew_there_completes_later(self):
        subject = running(
            "a",
            *whole("n0"),
            hours=2,
            deadline=at(9),
            gpu_models={"H100-80GB": 2, "T4": 1},
            checkpoint_duration=0,
            restart_duration=0,
        )
        saved = Running(
            started_at=subject.running.started_at, last_checkpoint_at=NOW, replicas=subject.running.replicas
        )
        nodes = [node("n0"), node("n1", model="T4")]

        found = outlook_of(
            subject.model_copy(update={"running": saved}), nodes=nodes, started=[placement("a", *whole("n1"))]
        )

        assert found == (DeadlineState.MET, at(4))


class TestWindows:
    """A running job has to leave before a window opens in this slot."""

    SOON = Reservation(
        name="m", kind=ReservationKind.MAINTENANCE, nodes=("n0",), start=at(0.5), duration=HOUR
    )

    def plan(self, **more):
        world = snapshot(jobs=[running("r", *whole("n0"), hours=2)], reservations=(self.SOON,))
        return drafted(world, policy=looking_ahead(), **more)

    def test_a_stopped_or_moved_job_says_for_which_window(self):
        stopped = self.plan(stopped=["r"])
        moved = self.plan(stopped=[]).snapshot
        moved = drafted(moved, placement("r", *whole("n1")), policy=looking_ahead())

        for plan in (stopped, moved):
            assert plan.actions[0].reason.code is ReasonCode.DRAINED
            assert plan.actions[0].reason.text.startswith("leaves n0: maintenance m begins at 12:30; ran 1h")

    def test_a_job_that_stays_is_told_as_unmet(self):
        assert unmet_commitments(self.plan()) == ["maintenance m: r is still on n0 (stays)"]
        assert unmet_commitments(self.plan(stopped=["r"])) == []

    def test_a_window_in_a_later_slot_leaves_time(self):
        later = self.SOON.model_copy(update={"start": at(1.5)})
        world = snapshot(jobs=[running("r", *whole("n0"), hours=2)], reservations=(later,))

        assert unmet_commitments(drafted(world, policy=looking_ahead())) == []


def test_the_example_does_not_contradict_itself():
    assert list(contradictions(timely_plan())) == []


def test_without_a_horizon_nothing_is_said_about_deadlines():
    plan = drafted(snapshot(jobs=[waiting("a", gpus=8, deadline=at(1))]), policy=Policy())

    assert plan.deadlines == ()

"""Until when a job waits if nothing is changed, with a plan that looks ahead and without."""

from __future__ import annotations

from datetime import timedelta

from gpuplan.models.calendar import Reservation, ReservationKind
from gpuplan.models.policy.settings import HorizonPolicy
from gpuplan.planner.explain.explanation import RemedyKind
from tests.support.builders.build import NOW, job, node, queue, snapshot
from tests.support.harness.explain_helpers import CALM, FULL, found, greedy_plan, remedies_of, runs


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


def test_of_those_that_end_at_the_same_second_only_those_are_named_without_which_there_is_no_room():
    about = {"expected_duration": 2 * 3600}
    here = [runs(f"here-{index}", "n9", index, **about) for index in range(4)]
    elsewhere = [runs(f"aa-{number}", f"n{number}", *range(8), **about) for number in range(3)]
    full = [runs("always", "n9", 4, 5, 6, 7, expected_duration=9 * 3600)]
    nodes = [*(node(f"n{number}", model="T4") for number in range(3)), node("n9")]
    waiting = job("a", gpus=2, gpu_models=["H100-80GB"])

    remedy = found(snapshot(nodes=nodes, jobs=[*here, *elsewhere, *full, waiting]))[RemedyKind.WAIT]

    assert remedy.parts[0].text == "wait until here-0 and here-1 end, expected at 13:00"
    assert remedy.seconds == 3600


def test_the_one_that_makes_room_alone_is_named_alone():
    about = {"expected_duration": 2 * 3600}
    jobs = [
        runs("a-small", "n0", 0, **about),
        runs("b-small", "n0", 1, **about),
        runs("large", "n0", 2, 3, 4, 5, 6, 7, **about),
        job("a", gpus=4),
    ]

    remedy = found(snapshot(nodes=[node("n0")], jobs=jobs))[RemedyKind.WAIT]

    assert remedy.parts[0].text == "wait until large ends, expected at 13:00"


def test_of_the_holders_of_a_quota_that_end_together_as_many_are_named_as_must_end():
    about = {"expected_duration": 2 * 3600}
    jobs = [runs(f"r{index}", "n0", index, **about) for index in range(4)]
    world = snapshot(queues=[queue("q", nominal=4)], jobs=[*jobs, job("a", gpus=3)])

    remedy = found(world)[RemedyKind.WAIT]

    assert remedy.parts[0].text == "wait until r0, r1 and r2 end, expected at 13:00"


def test_what_a_job_depends_on_is_named_rather_than_what_ends_with_it():
    about = {"expected_duration": 2 * 3600}
    jobs = [runs("aside", "n0", 0, **about), runs("prepare", "n1", 0, **about)]
    after = job("a", gpus=1, depends_on=[{"job": "prepare", "kind": "completed"}])

    remedy = found(snapshot(jobs=[*jobs, after]))[RemedyKind.WAIT]

    assert remedy.parts[0].text == "wait until prepare ends, expected at 13:00"


def test_of_two_jobs_one_of_which_must_be_over_the_first_to_end_is_waited_for():
    long = runs("long", "n0", 0, expected_duration=7200)
    short = runs("short", "n0", 1, expected_duration=3600)
    either = [{"job": "long", "kind": "completed"}, {"job": "short", "kind": "completed"}]
    waiting = job("a", gpus=1, depends_on=either, depends_on_at_least=1)

    remedy = found(snapshot(jobs=[long, short, waiting]))[RemedyKind.WAIT]

    assert "short" in remedy.parts[0].text


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


def ahead(slots=3):
    return CALM.model_copy(update={"horizon": HorizonPolicy(slots=slots, length="1h")})


def test_a_plan_that_looks_ahead_says_itself_until_when():
    world = snapshot(nodes=[node("n0")], jobs=[FULL[0], job("a", gpus=8, expected_duration=1800)])

    remedy = found(world, policy=ahead())[RemedyKind.WAIT]

    assert remedy.parts[0].text == "wait until 13:00, when it is promised to start"
    assert (remedy.points, remedy.seconds, remedy.nodes) == (0, 3600, ("n0",))


def test_beyond_the_horizon_jobs_that_start_until_then_are_waited_for_as_well():
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


def test_a_start_that_never_comes_is_not_waited_for():
    never = NOW.replace(year=9999)

    remedies = found(snapshot(jobs=[job("a", gpus=1, not_before=never)]))

    assert set(remedies) == {RemedyKind.BEGIN}

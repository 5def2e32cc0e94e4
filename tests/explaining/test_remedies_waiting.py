"""Until when a job waits if nobody does anything, with a plan that looks ahead and without."""

from __future__ import annotations

from datetime import timedelta

from build import NOW, job, node, queue, snapshot
from explained import CALM, FULL, found, greedy_plan, remedies_of, runs

from planner.models.calendar import Reservation, ReservationKind
from planner.models.explanation_remedies import RemedyKind
from planner.models.horizon import HorizonPolicy


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

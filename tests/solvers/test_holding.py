"""Promises are held first: on their own places if these are there, then elsewhere, then later."""

from __future__ import annotations

import slotted
from slotted import promised, waiting

from planner.models.problem import Hold, Predecessor, Return
from planner.solvers.greedy import greedy
from planner.solvers.holding import hold
from planner.solvers.ledger import Ledger

SLOTS = 6


def held(question):
    """(slot, nodes) of each booking by job."""
    return {
        question.classes[each.job_class].jobs[0]: (each.slot, sorted(place.node for place in each.holds))
        for each in hold(question).bookings
    }


def ask(nodes, *classes, **more):
    return slotted.problem(nodes, classes, slots=SLOTS, **more)


def a(promise, **more):
    return waiting("a", slots=SLOTS, hours=2, gpus=more.pop("gpus", 2), promise=promise, **more)


def test_a_question_without_promises_stays_as_it_is():
    question = ask([slotted.node("n0", 4)], waiting("a", slots=SLOTS))

    assert hold(question) is question


def test_a_promise_keeps_its_places_until_it_is_due():
    nodes = [slotted.node("n0", 4), slotted.node("n1", 2)]

    assert held(ask(nodes, a(promised(3, 0)))) == {"a": (3, [0])}
    assert held(ask(nodes, a(promised(3, 1)))) == {"a": (3, [1])}


def test_a_promise_that_is_due_starts_now():
    assert held(ask([slotted.node("n0", 4), slotted.node("n1", 2)], a(promised(0, 0)))) == {"a": (0, [0])}


def test_a_promise_that_may_be_delayed_is_held_for_its_last_slot():
    assert held(ask([slotted.node("n0", 4)], a(promised(1, 0, latest=3)))) == {"a": (3, [0])}


def test_who_lost_its_places_starts_elsewhere_as_early_as_it_can():
    nodes = [slotted.node("n0", 0, of=4), slotted.node("n1", 0, of=2, returns=[slotted.back(1, 0, 1)])]

    assert held(ask(nodes, a(promised(3, 0)))) == {"a": (1, [1])}


def test_a_promise_slips_no_further_than_it_must():
    nodes = [slotted.node("n0", 0, of=2, returns=[slotted.back(4, 0, 1)])]

    assert held(ask(nodes, a(promised(2, 0)))) == {"a": (4, [0])}


def test_who_lost_its_places_takes_none_from_others():
    nodes = [slotted.node("n0", 0, of=2), slotted.node("n1", 2)]
    jobs = a(promised(1, 0)), waiting("b", slots=SLOTS, hours=2, gpus=2, promise=promised(2, 1))

    found = held(ask(nodes, *jobs))

    assert found["b"] == (2, [1])
    assert found["a"] == (0, [1])


def test_a_promised_share_is_not_taken_by_whole_gpus_that_could_be_others():
    nodes = [slotted.node("n0", 3)]
    whole = waiting("a", slots=SLOTS, hours=6, gpus=2, promise=promised(0, 0, gpus=(1, 2)))
    share = waiting("b", slots=SLOTS, hours=6, gpus=0, milli=500, promise=promised(0, 0, gpus=(0,)))

    assert held(ask(nodes, whole, share)) == {"a": (0, [0]), "b": (0, [0])}


def test_the_starving_come_after_promises_and_by_how_long_they_wait():
    nodes = [slotted.node("n0", 0, of=1, returns=[slotted.back(1, 0)])]
    jobs = [
        waiting("young", slots=SLOTS, points=9000, starving=1),
        waiting("old", slots=SLOTS, points=1, starving=0),
        waiting("sure", slots=SLOTS, points=1, promise=promised(2, 0)),
    ]

    assert held(ask(nodes, *jobs)) == {"sure": (2, [0]), "old": (1, [0]), "young": (3, [0])}


def test_companions_keep_their_promises_together_or_move_together():
    pair = [waiting(name, slots=SLOTS, gpus=2, co_start=0, promise=promised(2, 0)) for name in "ab"]

    assert held(ask([slotted.node("n0", 4)], *pair)) == {"a": (2, [0]), "b": (2, [0])}
    slots = {slot for slot, _ in held(ask([slotted.node("n0", 2), slotted.node("n1", 2)], *pair)).values()}
    assert slots == {0}


def test_a_promise_holds_though_it_waits_for_another_one():
    jobs = [
        waiting("z", slots=SLOTS, promise=promised(3, 0), needed=1, predecessors=(Predecessor(job_class=1),)),
        waiting("y", slots=SLOTS, hours=2, promise=promised(1, 0)),
    ]

    assert held(ask([slotted.node("n0", 1)], *jobs)) == {"y": (1, [0]), "z": (3, [0])}


def test_a_promise_that_waits_for_a_job_without_one_is_planned_with_the_others():
    jobs = [
        waiting("z", slots=SLOTS, promise=promised(3, 0), needed=1, predecessors=(Predecessor(job_class=1),)),
        waiting("y", slots=SLOTS, hours=2),
    ]
    question = ask([slotted.node("n0", 1)], *jobs)

    assert held(question) == {}
    assert slotted.starts(greedy(hold(question))) == {"y": 0, "z": 2}


def test_nobody_gets_in_the_way_of_a_booking():
    nodes = [slotted.node("n0", 2)]
    others = [waiting(f"b{hours}", slots=SLOTS, hours=hours, gpus=1, points=90_000) for hours in (2, 3, 4)]
    question = hold(ask(nodes, a(promised(2, 0)), *others))

    starts = slotted.starts(greedy(question))

    assert starts["a"] <= 2
    assert starts["b2"] == 0
    assert starts["b3"] >= 2


def test_a_promise_starts_earlier_where_that_pays():
    question = hold(ask([slotted.node("n0", 4)], a(promised(3, 0))))

    assert slotted.starts(Ledger(question)) == {"a": 3}
    assert slotted.starts(greedy(question)) == {"a": 0}


def test_a_preempted_job_does_not_return_to_booked_places():
    """The stop itself is another's business: here the incumbent has left, and a booking took its place."""
    from planner.models.problem import Incumbent, Shape  # noqa: PLC0415
    from planner.solvers import leaving  # noqa: PLC0415

    shape = Shape(2, 0, (0, 0, 0))
    runs = Incumbent("r", shape, (Hold(0, (0, 1)),), 0, slotted.MODEL, 1, -5, 0, 0, 0, 1, until=4)
    back = Return(4, ((0, 1000), (1, 1000)), (), (0, 0, 0), 0)
    nodes = [slotted.node("n0", 0, of=2, returns=[back])]
    ledger = Ledger(ask(nodes, a(None), incumbents=(runs,)))

    assert ledger.book(0, 0, 2) is None
    assert leaving.stop(ledger, 0)
    number = ledger.book(0, 0, 2)
    assert number is not None
    assert not leaving.restore(ledger, 0)
    ledger.unbook(number)
    assert leaving.restore(ledger, 0)
    assert ledger.book(0, 0, 4) is not None

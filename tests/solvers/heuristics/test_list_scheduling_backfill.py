"""
Backfilling as the field knows it: EASY, hybrid and conservative are depths of one list schedule.

Jobs, sizes, lengths and which of them start are those of the test "Test the correctness of different queuing
policies" of flux-framework/flux-sched (a queue-manager test, read in 2026-11): one node of 16 cores, here
GPUs, eleven jobs in order of their numbers. Lengths are rounded up to hours, as slots are; that changes no
decision of the example. The terms are those of Mu'alem & Feitelson, IEEE TPDS 12(6), 2001; no figure of that
paper is reproduced.
"""

from __future__ import annotations

import pytest

from gpuplan.solvers.heuristics.list_scheduling import reserve_best_starts, schedule_in_order
from gpuplan.solvers.state.ledger import Ledger
from tests.support.builders import slot_problems

SLOTS = 24
MINUTES = {6: 121, 7: 179, 8: 239, 9: 239, 10: 299, 11: 59}
SIZES = {1: 8, 2: 10, 3: 12, 4: 14, 5: 16, 6: 6, 7: 4, 8: 4, 9: 2, 10: 2, 11: 2}
CONSERVATIVE_SIZES = SIZES | {4: 16, 5: 14}
"""There jobs 4 and 5 are submitted the other way round."""


def started(depth, *, sizes=SIZES, without=()):
    """Numbers of the jobs that start now."""
    classes = [
        slot_problems.waiting(
            str(number),
            slots=SLOTS,
            hours=-(-MINUTES.get(number, 60) // 60),
            gpus=size,
            points=100_000,
            due=number,
        )
        for number, size in sizes.items()
        if number not in without
    ]
    ledger = Ledger(
        slot_problems.problem([slot_problems.node("n0", 16)], classes, slots=SLOTS, widest=16, depth=depth)
    )
    schedule_in_order(ledger)
    return [
        int(job)
        for job, slot in sorted(slot_problems.starts(ledger).items(), key=lambda e: int(e[0]))
        if not slot
    ]


@pytest.mark.parametrize(
    ("depth", "sizes", "gone", "expected"),
    [
        (1, SIZES, (), [1, 6, 11]),
        (1, SIZES, (6,), [1, 7, 9, 11]),
        (3, SIZES, (), [1, 7, 11]),
        (3, SIZES, (7,), [1, 9, 11]),
        (None, CONSERVATIVE_SIZES, (), [1, 7, 11]),
        (None, CONSERVATIVE_SIZES, (7,), [1, 11]),
    ],
    ids=["easy", "easy later", "hybrid", "hybrid later", "conservative", "conservative later"],
)
def test_the_jobs_start_that_start_under_flux(depth, sizes, gone, expected):
    assert started(depth, sizes=sizes, without=gone) == expected


def two_in_line(depth):
    """
    Half of four GPUs are held for two hours; a wants four of them, b three; c wants one for three hours.

    c delays not a, which starts when everything is free, but b if that is to start after a.
    """
    nodes = [slot_problems.node("n0", 2, of=4, returns=[slot_problems.back(2, 0, 1)])]
    jobs = [
        slot_problems.waiting("a", slots=8, hours=2, gpus=3, points=9000, due=1),
        slot_problems.waiting("b", slots=8, hours=2, gpus=4, points=9000, due=2),
        slot_problems.waiting("c", slots=8, hours=5, gpus=1, points=10, due=3),
    ]
    ledger = Ledger(slot_problems.problem(nodes, jobs, slots=8, depth=depth))
    schedule_in_order(ledger)
    reserve_best_starts(ledger)
    return slot_problems.starts(ledger)


def test_easy_lets_others_delay_the_second_in_line_and_conservative_none():
    easy, conservative = two_in_line(1), two_in_line(None)

    assert easy["a"] == conservative["a"] == 2
    assert easy["c"] == 0
    assert conservative["b"] == 4 < easy["b"]
    assert conservative["c"] > 0

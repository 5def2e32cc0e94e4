"""Quotas of later slots agree with those of now, slot by slot."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from gpuplan.models.problem.problem import QueueBudget
from gpuplan.solvers.state.constraints.quota import FutureQuota, QuotaLedger
from tests.support.builders import slot_problems

A_LOT = 40_000


@pytest.mark.parametrize("seed", range(8))
def test_quotas_ahead_agree_with_those_of_now_slot_by_slot(seed):
    """Usage of each slot, counted anew as if that slot were now."""
    for number in range(40):
        draw = random.Random(1000 * seed + number)
        slots, queues = 4, 4
        own = [draw.randint(2, 4) * 1000 for _ in range(queues)]
        returns = tuple(
            (draw.randint(1, 3), queue, 1000, None) for queue in range(queues) if draw.random() < 0.6
        )
        limits = tuple(draw.choice((None, 3000, 6000, 9000, 20_000)) for _ in range(queues))
        budget = QueueBudget(
            "", (0, 1, 2, 3), (2, 2, 3, None), tuple(draw.choice((0, 2000)) for _ in range(queues)),
            tuple(None if limit is None else limit + draw.choice((0, 3000)) for limit in limits),
            limits, tuple(own), returns,
        )  # fmt: skip
        question = slot_problems.problem(
            [slot_problems.node("n0", 1)], [], slots=slots, queues="abcd", budgets=(budget,)
        )
        ahead, changes = FutureQuota(question), []
        for _ in range(draw.randint(0, 6)):
            first = draw.randint(1, 3)
            change = draw.randrange(queues), draw.randint(1, 2) * 500, (first, draw.randint(first, 4))
            changes.append(change)
            ahead.change(change[0], slot_problems.MODEL, change[1], change[2], new=True)
        queue = draw.randrange(queues)
        rooms = []
        for slot in range(1, slots):
            left = list(own)
            for when, of, milli, _ in returns:
                left[of] -= milli if when <= slot else 0
            alone = QuotaLedger(replace(question, budgets=(replace(budget, own=tuple(left), releases=()),)))
            for of, milli, span in changes:
                if span[0] <= slot < span[1]:
                    alone.change(of, slot_problems.MODEL, milli, new=True)
            fitting = (
                milli
                for milli in range(500, A_LOT + 1, 500)
                if not alone.exceeded_limit(queue, slot_problems.MODEL, milli)
            )
            rooms.append(max(fitting, default=0))
        for slot in range(1, slots):
            room = ahead.room(queue, slot_problems.MODEL, (slot, slot + 1), known=False)
            assert max(0, min(A_LOT, room)) == rooms[slot - 1]
        room = ahead.room(queue, slot_problems.MODEL, (1, slots), known=False)
        assert max(0, min(A_LOT, room)) == min(rooms)
        assert ahead.room(queue, slot_problems.MODEL, (1, slots), known=True) >= room

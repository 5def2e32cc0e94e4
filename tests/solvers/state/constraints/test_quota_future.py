"""Quotas of later slots agree with those of now, slot by slot."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from gpuplan.models.problem.problem import QueueBudget
from gpuplan.models.queue import ALL_MODELS, CPUS, MEMORY, QuotaAmounts, amount_index
from gpuplan.solvers.state.constraints.quota import QuotaColumns, QuotaLedger, QuotaTable, future_quota
from tests.support.builders import slot_problems

A_LOT = 40_000


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_quotas_ahead_agree_with_those_of_now_slot_by_slot(seed):
    """Usage of each slot, counted anew as if that slot were now; of GPUs, CPU cores or memory."""
    for number in range(40):
        draw = random.Random(1000 * seed + number)
        slots, queues = 4, 4
        resource = draw.choice((ALL_MODELS, slot_problems.MODEL, CPUS, MEMORY))
        counted = amount_index(resource)
        own = [draw.randint(2, 4) * 1000 for _ in range(queues)]
        returns = tuple(
            (draw.randint(1, 3), queue, 1000, None) for queue in range(queues) if draw.random() < 0.6
        )
        limits = tuple(draw.choice((None, 3000, 6000, 9000, 20_000)) for _ in range(queues))
        budget = QueueBudget(
            resource, (0, 1, 2, 3), (2, 2, 3, None), tuple(draw.choice((0, 2000)) for _ in range(queues)),
            tuple(None if limit is None else limit + draw.choice((0, 3000)) for limit in limits),
            limits, tuple(own), returns,
        )  # fmt: skip
        question = slot_problems.problem(
            [slot_problems.node("n0", 1)], [], slots=slots, queues="abcd", budgets=(budget,)
        )
        ahead, changes = future_quota(question), []
        for _ in range(draw.randint(0, 6)):
            first = draw.randint(1, 3)
            change = draw.randrange(queues), draw.randint(1, 2) * 500, (first, draw.randint(first, 4))
            new = draw.random() < 0.7
            changes.append((*change, new))
            ahead.change(
                change[0], slot_problems.MODEL, _amounts(resource, change[1]), slice(*change[2]), new=new
            )
        queue = draw.randrange(queues)
        rooms = []
        for slot in range(1, slots):
            left = list(own)
            for when, of, milli, _ in returns:
                left[of] -= milli if when <= slot else 0
            alone = QuotaLedger(replace(question, budgets=(replace(budget, own=tuple(left), releases=()),)))
            for of, milli, span, new in changes:
                if span[0] <= slot < span[1]:
                    alone.change(of, slot_problems.MODEL, _amounts(resource, milli), new=new)
            fitting = (
                milli
                for milli in range(500, A_LOT + 1, 500)
                if not any(alone.exceeded_limits(queue, slot_problems.MODEL, _amounts(resource, milli)))
            )
            rooms.append(max(fitting, default=0))
            returning = [
                room[counted]
                for room in (
                    alone.room(queue, slot_problems.MODEL, known=True),
                    ahead.room(queue, slot_problems.MODEL, slice(slot, slot + 1), known=True),
                )
            ]
            assert len({max(0, min(A_LOT, room)) for room in returning}) == 1
        for slot in range(1, slots):
            room = ahead.room(queue, slot_problems.MODEL, slice(slot, slot + 1), known=False)[counted]
            assert max(0, min(A_LOT, room)) == rooms[slot - 1]
        room = ahead.room(queue, slot_problems.MODEL, slice(1, slots), known=False)[counted]
        assert max(0, min(A_LOT, room)) == min(rooms)
        assert ahead.room(queue, slot_problems.MODEL, slice(1, slots), known=True)[counted] >= room


def _amounts(resource, amount):
    """So much of one resource, and more of the others, which no quota limits."""
    others = [9 * A_LOT] * len(QuotaAmounts._fields)
    others[amount_index(resource)] = amount
    return QuotaAmounts(*others)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_few_columns_agree_with_a_table_of_them(seed):
    """The same changes in some of three columns: room, and the first limit that is broken, are the same."""
    for number in range(60):
        draw = random.Random(1000 * seed + number)
        own = [draw.randint(6, 9) * 1000 for _ in range(4)]
        limits = tuple(draw.choice((None, 6000, 9000, 12_000)) for _ in range(4))
        budgets = tuple(
            QueueBudget(
                resource, (0, 1, 2, 3), (2, 2, 3, None), tuple(draw.choice((0, 2000)) for _ in range(4)),
                tuple(None if limit is None else limit + draw.choice((0, 3000)) for limit in limits),
                limits, tuple(own),
            )
            for resource in draw.sample((ALL_MODELS, slot_problems.MODEL, CPUS, MEMORY), 2)
        )  # fmt: skip
        question = slot_problems.problem(
            [slot_problems.node("n0", 1)], [], slots=1, queues="abcd", budgets=budgets
        )
        usages = [np.array(budget.usage_up_the_tree(own), dtype=np.int64) for budget in budgets]
        table = QuotaTable(question, [np.repeat(usage[:, None], 3, axis=1) for usage in usages])
        columns = QuotaColumns(question, 3)
        for _ in range(6):
            queue, where = draw.randrange(4), np.array(sorted(draw.sample(range(3), draw.randint(1, 3))))
            new, taken = draw.random() < 0.5, [draw.choice((0, 500, 1000)) for _ in range(3)]
            # Some give it back; running jobs that leave give back what was never taken.
            signs = draw.choice(((1,), (1, -1))) if new else draw.choice(((1,), (-1,), (1, -1)))
            for each, sign in product((table, columns), signs):
                amounts = QuotaAmounts(*(sign * amount for amount in taken))
                each.change(queue, slot_problems.MODEL, amounts, where, new=new)
            queue, asked = draw.randrange(4), QuotaAmounts(*(draw.choice((0, 500, 4000)) for _ in range(3)))
            for known in (False, True):
                rooms = [
                    each.room(queue, slot_problems.MODEL, where, known=known) for each in (table, columns)
                ]
                assert len({tuple(min(A_LOT, amount) for amount in room) for room in rooms}) == 1
            broken = [
                each.exceeded_limit(queue, slot_problems.MODEL, asked, where) for each in (table, columns)
            ]
            told = {
                found and (found.budget.resource, found.queue, found.used, found.needed) for found in broken
            }
            assert len(told) == 1

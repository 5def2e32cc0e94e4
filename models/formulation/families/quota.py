"""(C7) Queue limits up the tree, and (C8) guarantees of queues."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuplan.models.formulation.rows import Row, row
from gpuplan.models.units import MILLI

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuplan.models.formulation.columns import Columns
    from gpuplan.models.formulation.rows import Term
    from gpuplan.models.problem.problem import Problem


def quota(problem: Problem, x: Columns) -> Iterator[Row]:
    """
    No queue, and no queue above it, exceeds its limit of a resource r: of all GPUs, of one GPU model, of CPU
    cores, or of memory.

        usage[r,q] = own_rq + placed[r,q] − left[r,q] + Σ_{children c} spilled[r,c]
        placed[r,q] = Σ_{j in q} amount_rjk · max_j · jobs[j,k]
        left[r,q]  = Σ_{v in q} amount_rv · ( held_v · (stop[v] + move[v]) + shrink[v] )
        usage[r,q]  ≤  limit_rq
        spilled[r,c] = usage[r,c], or spill[r,c] ≥ usage[r,c] − kept_rc where c does not lend all its quota

    and where the usage of running jobs exceeds the limit, which is then set to that usage,

        new[r,q]  ≤  M · fresh[r,q]
        usage[r,q]  ≤  limit_rq − (limit_rq − firm_rq) · fresh[r,q]
        new[r,c]  ≤  M · (within[r,c] + passed[r,c])
        usage[r,c]  ≤  kept_rc + M · (1 − within[r,c])

    in thousandths of GPUs or CPU cores, or in MiB. amount_rjk is what a replica requests of r on tier k, and
    0 if r is a GPU model other than that of the tier. new[r,q] are starts and added replicas directly in the
    queue, new[r,c] those of its children c that lend all, passed[r,c] those of children that do not. kept_rc
    is the quota that c does not lend, firm_rq the true limit, held_v the number of replicas of running job v.
    An elastic class counts amount_rjk · replicas[i,t] instead. Limits and kept quota are those of
    `models.queue.QueueLimits`.
    """
    for budget in problem.budgets:
        terms = [[*counted] for counted in x.usage(budget.resource)]
        fixed = list(budget.own)
        new = [[term for term in counted if term[0] in x.newcomers] for counted in terms]
        for queue in budget.leaves_first:
            key = (budget.resource, problem.queues[queue])
            if (limit := budget.limit[queue]) is not None and terms[queue]:
                yield row("quota", key, terms[queue], upper=limit - fixed[queue])
            if limit is not None and (fresh := x.fresh.get((budget.resource, queue))) is not None:
                yield row("quota", (*key, "new"), [*new[queue], (fresh, -_most(x, new[queue]))], upper=0)
                more = limit - (budget.firm[queue] or 0)
                yield row("quota", (*key, "firm"), [*terms[queue], (fresh, more)], upper=limit - fixed[queue])
            parent = budget.parent[queue]
            if parent is None:
                continue
            if (spill := x.spill.get((budget.resource, queue))) is None:
                terms[parent] += terms[queue]
                new[parent] += new[queue]
                fixed[parent] += fixed[queue]
            else:
                lends = [*terms[queue], (spill, -1)]
                yield row("quota", (*key, "spill"), lends, upper=budget.kept[queue] - fixed[queue])
                terms[parent].append((spill, 1))
            if (passing := x.passing.get((budget.resource, queue))) is not None:
                room = budget.kept[queue] - fixed[queue]
                yield from _passing(x, key, terms[queue], new[queue], (*passing, room))
                new[parent].append((passing[1], 1))


def _passing(
    x: Columns, key: tuple[str, str], terms: list[Term], new: list[Term], given: tuple[int, int, int]
) -> Iterator[Row]:
    """New jobs count above a queue that lends usage upwards; `given`: within, passed, kept − own."""
    within, passed, room = given
    yield row("quota", (*key, "passed"), [*new, (within, -_most(x, new)), (passed, -_most(x, new))], upper=0)
    most = max(0, sum(amount * x.upper[column] for column, amount in terms if amount > 0) - room)
    yield row("quota", (*key, "within"), [*terms, (within, most)], upper=room + most)


def _most(x: Columns, terms: list[Term]) -> int:
    return sum(amount * x.upper[column] for column, amount in terms)


def guarantees(problem: Problem, x: Columns) -> Iterator[Row]:
    """
    The part of a guarantee that a queue is entitled to and does not get is missing, in whole GPUs.

        Σ_{q below g} ( own_rq + placed[r,q] − left[r,q] )  +  1000 · missing[g]  ≥  owed_g    ∀ guarantees g

    owed_g is min(guarantee, demand) of resource r in the queue and all queues below it; placed and left are
    the sums of (C7), here regardless of what a queue does not lend.
    """
    for index, column in x.missing.items():
        guarantee = problem.guarantees[index]
        usage = x.usage(guarantee.resource)
        terms = [term for queue in guarantee.queues for term in usage[queue]]
        owed = guarantee.owed - guarantee.own
        yield row("guarantees", (index,), [*terms, (column, MILLI)], lower=owed)

"""
Stop one running job for several waiting ones that its quota keeps out.

Preemption for one waiting job after the other does not see it: none of them is worth what the running job is
with the guarantees that it helps to meet, but together they are.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from gpuplan.models.eligibility.preemption_order import may_use_freed
from gpuplan.models.units import MILLI
from gpuplan.solvers.deadline import is_late
from gpuplan.solvers.heuristics import vacate
from gpuplan.solvers.heuristics.greedy_fill import fill_free_capacity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuplan.models.problem.jobs import Incumbent, JobClass
    from gpuplan.solvers.state.constraints.quota import QuotaDemand
    from gpuplan.solvers.state.ledger import Ledger


def start_several_for_one(ledger: Ledger, *, deadline: float | None = None) -> bool:
    """
    Stop running jobs, each for several waiting ones, where that pays; True if anything changed.

    The running jobs by which most would be gained by estimate come first. At most `GreedyParams.stops_tried`
    are tried, and only jobs of more than one GPU: a smaller one has room for few.
    """
    changed, tries = False, ledger.params.greedy.stops_tried
    while tries > 0 and (kept_out := _kept_out(ledger)):
        for _, index in sorted(_promising(ledger, kept_out), reverse=True)[:tries]:
            if is_late(deadline):
                return changed
            tries -= 1
            if _replace(ledger, index, kept_out):
                changed = True
                break
        else:
            break
    return changed


def _replace(ledger: Ledger, index: int, kept_out: list[_KeptOut]) -> bool:
    """Stop a running job and fill what is free then; False, and nothing changes, if that does not pay."""
    mark, before = ledger.undo.mark(), ledger.objective
    if vacate.stop_incumbent(ledger, index) and any(
        _limits(ledger, each.number) is None for each in kept_out
    ):
        fill_free_capacity(ledger)
        vacate.restore_preempted(ledger)
        if ledger.objective > before:
            return True
    ledger.undo.rollback(mark)
    return False


class _KeptOut(NamedTuple):
    """Jobs of a class that quotas keep out wherever they may run."""

    number: int
    """Of the class."""
    job_class: JobClass
    jobs: int
    milli: int
    """Thousandths of GPUs of one job."""
    limits: tuple[QuotaDemand, ...]
    """By option, the first limit that one more job would break."""
    helped: tuple[int, ...]
    """Guarantees that it helps to meet."""

    def gains_by(self, one: Incumbent) -> bool:
        """True if a running job that leaves gives back as much as the first limit would be exceeded by."""
        replicas = len(one.holds)
        return may_use_freed(self.job_class, (one.rank, frozenset(one.claims))) and any(
            each.relief(one.queue, one.quota_of(each.budget.resource) * replicas) >= each.excess
            for each in self.limits
        )


def _promising(ledger: Ledger, kept_out: list[_KeptOut]) -> Iterator[tuple[float, int]]:
    """(points gained by estimate, running job), where these are more than 0."""
    at = defaultdict[int, list[_KeptOut]](list)
    for each in kept_out:
        for queue in {limit.queue for limit in each.limits}:
            at[queue].append(each)
    order = {each.number: position for position, each in enumerate(kept_out)}

    @cache
    def below(queue: int) -> list[_KeptOut]:
        """What limits above a queue keep out, in order."""
        above = ledger.problem.budgets[0].path_to_root(queue)
        found = {each.number: each for limit in above for each in at[limit]}
        return sorted(found.values(), key=lambda each: order[each.number])

    for index, one in enumerate(ledger.problem.incumbents):
        if one.quota_milli > MILLI and vacate.may_stop_incumbent(ledger, index):
            gain = _estimated_gain(ledger, one, below(one.queue))
            if gain > 0:
                yield gain, index


def _estimated_gain(ledger: Ledger, one: Incumbent, kept_out: list[_KeptOut]) -> float:
    """Points gained if as many GPUs as a running job holds go to jobs that limits above it keep out."""
    quota = ledger.queues.quota
    gain = float(one.stop_points or 0)
    gain -= quota.points_owed_without(one.queue, one.gpu_model, one.quota_milli, {})
    lacking = Counter(dict(enumerate(quota.missing)))
    for guarantee in quota.guarantees_of(one.queue, one.gpu_model):
        lacking[guarantee] += one.quota_milli
    left = one.quota_milli
    for each in kept_out:
        jobs = min(each.jobs, left // each.milli)
        if not jobs or not each.gains_by(one):
            continue
        taken = jobs * each.milli
        gain += jobs * each.job_class.most_points
        for guarantee in each.helped:
            gain += quota.price(guarantee) * min(taken, max(0, lacking[guarantee])) / MILLI
            lacking[guarantee] -= taken
        left -= taken
    return gain


def _kept_out(ledger: Ledger) -> list[_KeptOut]:
    """Classes with jobs that quotas keep out, most points per GPU first."""
    found, quota = list[tuple[float, _KeptOut]](), ledger.queues.quota
    for index, job_class in enumerate(ledger.problem.classes):
        milli, jobs = job_class.shape.quota_milli * job_class.minimum, ledger.jobs_left(index)
        if not milli or not jobs or not job_class.starts_alone or not (limits := _limits(ledger, index)):
            continue
        where = job_class.queue, job_class.options[0].gpu_model
        density = job_class.most_points / milli + sum(price for _, price in quota.owed(*where)) / MILLI
        helped = tuple(quota.guarantees_of(*where))
        found.append((-density, _KeptOut(index, job_class, jobs, milli, limits, helped)))
    return [each for _, each in sorted(found, key=lambda each: each[0])]


def _limits(ledger: Ledger, index: int) -> tuple[QuotaDemand, ...] | None:
    """By option, the first limit that one more job of a class would break; None if it breaks none on one."""
    job_class = ledger.problem.classes[index]
    found: list[QuotaDemand] = []
    for option in job_class.options:
        limit = ledger.queues.exceeded_limit(job_class, option, job_class.minimum)
        if limit is None:
            return None
        found.append(limit)
    return tuple(found)

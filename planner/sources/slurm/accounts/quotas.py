"""
Limits on GPUs as quotas of queues, as far as they fit into one tree.

The jobs that a limit counts are a set. Sets of which any two are apart, or one within the other, are a tree
of queues. Limits of accounts and of their users are; one of a QOS is, unless it cuts across another. Which
limits are in the tree depends on the limits only, not on the jobs that are there: the queue of a job stays
the same.

A limit gives no right to so many GPUs. So in the arithmetic of quotas (`models/queue.py`) the nominal quota
of a limited queue is 0, and it borrows, up to its limit, from a root without a quota. That root lends without
limit, since a queue without a quota and without jobs is below it.

Other limits decide how many jobs may start: of the pending jobs, those beyond a limit are held. In the order
in which Slurm looks at them, each pending job may start if all its limits leave room for it beside the
running jobs and those before it. So whatever a plan starts, no limit is exceeded while the running jobs stay;
a plan that stops one of them does not use what it leaves before the next epoch, and a job that has room and
no places keeps the room from those behind it.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Final, TypeAlias

from gpuplan.models.queue import ALL_MODELS, Queue, Quota
from gpuplan.planner.sources.slurm.accounts.limits import LimitId, taken_by
from gpuplan.planner.sources.slurm.values import LONGEST_REASON, name_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    from gpuplan.models.job import Job
    from gpuplan.planner.sources.slurm.accounts.limits import AccountLimits, Limit, Payer
    from gpuplan.planner.sources.slurm.values import Record


JobKind: TypeAlias = "tuple[LimitId, ...]"
"""The limits on GPUs that are in force for a job; jobs of one kind are in the same sets."""

_GPU: Final = re.compile(r"^gres/gpu(?::(?P<type>.+))?$")
_ROOT: Final = "slurm/all"
_UNLIMITED: Final = "slurm/unlimited"
_QOS: Final = "slurm/"
"""Begin of the names of queues that are of no account."""


class QuotaTree:
    """The queues of the jobs of a cluster."""

    def __init__(self, limits: AccountLimits, present: Iterable[Payer]) -> None:
        """Choose the limits that are quotas; `present` are the payers of the jobs that are there."""
        self._limits = limits
        self._most: dict[LimitId, int] = {}
        kinds = {(payer.account, self._kind(payer)) for payer in {*limits.payers(), *present}}
        self._members = _members({kind for _, kind in kinds})
        self._names = _names(_chosen(self._members), self._members)
        """Queue of each chosen limit; those of one account, user or QOS on the same jobs have one queue."""
        self._below: dict[str, set[str]] = defaultdict(set)
        """The lowest queues of limits that jobs of an account count for; "" if some count for none."""
        for account, kind in kinds:
            self._below[account].add(next(iter(self._chain(kind)), ""))

    def _kind(self, payer: Payer) -> JobKind:
        """The limits on GPUs that are in force for the jobs of a payer."""
        found = [limit for limit in self._limits.of(payer) if _is_on_gpus(limit)]
        for limit in found:
            self._most[limit.id] = limit.most
        return tuple(limit.id for limit in found)

    def covers(self, limit: LimitId) -> bool:
        """True if a limit is a quota of this tree."""
        return limit in self._names

    def queue_of(self, payer: Payer) -> str:
        """The queue of the jobs of a payer; empty without an account."""
        account, lowest = payer.account, next(iter(self._chain(self._kind(payer))), "")
        if not account or _is_of(lowest, account):
            return lowest
        if _is_of_qos(lowest):
            return f"{account}/{lowest.removeprefix(_QOS)}"
        others = {each for each in self._below[account] if not _is_of_qos(each)}
        if others == {lowest}:
            return account
        return f"{account}/account:{lowest}" if lowest else f"{account}/unlimited"

    def _chain(self, kind: JobKind) -> list[str]:
        """Queues that jobs of a kind count for, lowest first."""
        found = [limit for limit in kind if limit in self._names]
        # Where two have the same jobs, the one that comes first is of the user, or of the lower account.
        found.sort(key=lambda limit: len(self._members[limit]))
        return list(dict.fromkeys(self._names[limit] for limit in found))

    def queues(self, payers: Iterable[Payer], without_limit: Mapping[LimitId, int]) -> tuple[Queue, ...]:
        """
        The queues of the jobs of these payers, and those above them.

        What running jobs take of a limit that is not in force for them is not left for others.
        """
        parents: dict[str, str | None] = {}
        for payer in payers:
            if own := self.queue_of(payer):
                chain = [own, *(name for name in self._chain(self._kind(payer)) if name != own)]
                last = _ROOT if len(chain) > 1 or own in self._names.values() else None
                parents |= dict(zip(chain, [*chain[1:], last], strict=True))
        if _ROOT in parents.values():
            parents |= {_ROOT: None, _UNLIMITED: _ROOT}
        quotas = self._quotas(without_limit)
        return tuple(_queue(name, parent, quotas.get(name, {})) for name, parent in parents.items())

    def _quotas(self, without_limit: Mapping[LimitId, int]) -> dict[str, dict[str, int]]:
        found: dict[str, dict[str, int]] = defaultdict(dict)
        for limit, name in self._names.items():
            model = _model_of(limit)
            most = max(0, self._most[limit] - without_limit.get(limit, 0))
            found[name][model] = min(most, found[name].get(model, most))
        return found


def _is_on_gpus(limit: Limit) -> bool:
    tres = limit.id.tres
    return limit.in_force and limit.together and (tres == "gres/gpu" or tres.startswith("gres/gpu:"))


def _model_of(limit: LimitId) -> str:
    match = _GPU.match(limit.tres)
    return (match["type"] if match else None) or ALL_MODELS


def _members(kinds: Iterable[JobKind]) -> dict[LimitId, frozenset[JobKind]]:
    """The kinds of jobs that each limit counts."""
    found: dict[LimitId, set[JobKind]] = defaultdict(set)
    for kind in kinds:
        for limit in kind:
            found[limit].add(kind)
    return {limit: frozenset(of) for limit, of in found.items()}


def _chosen(members: Mapping[LimitId, frozenset[JobKind]]) -> list[LimitId]:
    """Limits of which no two cut across each other: those of accounts first, then those on the most jobs."""
    chosen: dict[LimitId, None] = {}
    for limit in sorted(members, key=lambda each: (each.scope[0] == "qos", -len(members[each]), each)):
        shared = Counter(other for kind in members[limit] for other in kind if other in chosen)
        if all(count in (len(members[limit]), len(members[other])) for other, count in shared.items()):
            chosen[limit] = None
    return list(chosen)


def _names(chosen: Iterable[LimitId], members: Mapping[LimitId, frozenset[JobKind]]) -> dict[LimitId, str]:
    found: dict[LimitId, str] = {}
    of_name: dict[str, frozenset[JobKind]] = {}
    for limit in chosen:
        name = _queue_name(limit)
        same = of_name.setdefault(name, members[limit]) == members[limit]
        found[limit] = name if same else f"{name}:{limit.tres}"
    return found


def _queue_name(limit: LimitId) -> str:
    """`ACCOUNT`, `ACCOUNT/USER`, `ACCOUNT/USER/PARTITION`, `slurm/qos:QOS` or `slurm/qos:QOS/USER`."""
    place, *names = limit.scope
    if place != "qos":
        return "/".join(names)
    qos, *of = names
    return "/".join((f"{_QOS}qos:{qos}", *([":".join(of) if of[0] == "account" else of[1]] if of else [])))


def _is_of(queue: str, account: str) -> bool:
    return queue == account or queue.startswith(f"{account}/")


def _is_of_qos(queue: str) -> bool:
    return queue.startswith(_QOS)


def _queue(name: str, parent: str | None, limits: Mapping[str, int]) -> Queue:
    quotas = {model: Quota(nominal=0, borrowing_limit=count) for model, count in limits.items()}
    return Queue(
        name=name_of(name),
        parent=None if parent is None else name_of(parent),
        quota=quotas.pop(ALL_MODELS, None),
        gpu_models={name_of(model): quota for model, quota in quotas.items()},
    )


# Limits that are no quotas: of the pending jobs, those beyond a limit are held.


Counts: TypeAlias = "list[tuple[Limit, int]]"
"""The limits that a job counts for, with how much."""


def admitted(
    jobs: Collection[tuple[Job, Record]],
    limits: AccountLimits,
    tree: QuotaTree,
    note: Callable[[str, str], None],
) -> list[Job]:
    """The jobs with their records, without the records; pending ones beyond a limit are held."""
    counted = {id(job): _counts(record, limits, running=job.running is not None) for job, record in jobs}
    pending = [job for job, _ in jobs if job.running is None and not job.held]
    room = _Room(
        tree,
        running=[counted[id(job)] for job, _ in jobs if job.running is not None],
        pending=[counted[id(job)] for job in pending],
    )
    held: dict[int, str] = {}
    for job in sorted(pending, key=_turn):
        if reasons := room.lacks(counted[id(job)]):
            held[id(job)] = "; ".join(reasons)
            note(f"job {job.name}", held[id(job)])
        else:
            room.take(counted[id(job)])
    return [
        job.model_copy(update={"held": True, "hold_reason": held[id(job)][:LONGEST_REASON]})
        if id(job) in held
        else job
        for job, _ in jobs
    ]


class _Room:
    """What limits leave."""

    def __init__(self, tree: QuotaTree, *, running: Iterable[Counts], pending: Iterable[Counts]) -> None:
        """What the running jobs leave."""
        self._tree = tree
        self._running = _sum(running)
        self._used = self._running.copy()
        self._demand = self._running + _sum(pending)

    def take(self, counts: Counts) -> None:
        """Let a job have what it counts for."""
        self._used.update({limit.id: amount for limit, amount in counts})

    def lacks(self, counts: Counts) -> list[str]:
        """
        Why a job cannot start beside the running jobs and those before it; empty if it can.

        A limit that all jobs together do not reach keeps none back. A job of which a quota leaves too little
        beside the running ones alone takes no room of the others: jobs behind it would wait for one that does
        not start.
        """
        in_force = [(limit, amount) for limit, amount in counts if limit.in_force]
        scarce = [each for each in in_force if self._demand[each[0].id] > each[0].most]
        others = [each for each in scarce if not self._tree.covers(each[0].id)]
        if not others:
            return []
        quotas = [each for each in in_force if self._tree.covers(each[0].id)]
        return [*self._beyond(others, self._used), *self._beyond(quotas, self._running)]

    @staticmethod
    def _beyond(counts: Counts, used: Mapping[LimitId, int]) -> Iterator[str]:
        for limit, amount in counts:
            if used[limit.id] + amount > limit.most:
                unit = " MiB" if limit.id.tres == "mem" else ""
                yield (
                    f"the limit {limit.text} does not allow it now: it needs {amount:,}{unit}, "
                    f"{used[limit.id]:,}{unit} are in use or go to jobs before it"
                )


def _sum(all_counts: Iterable[Counts]) -> Counter[LimitId]:
    total = Counter[LimitId]()
    for counts in all_counts:
        total.update({limit.id: amount for limit, amount in counts})
    return total


def without_limit(records: Collection[Record], limits: AccountLimits) -> Mapping[LimitId, int]:
    """What running jobs take of limits that are not in force for them."""
    found = Counter[LimitId]()
    for record in records:
        for limit, amount in _counts(record, limits, running=True):
            if not limit.in_force:
                found[limit.id] += amount
    return found


def _counts(record: Record, limits: AccountLimits, *, running: bool) -> Counts:
    """The limits that a job counts for, with how much."""
    taken = taken_by(record, running=running)
    found = (limit for limit in limits.of(limits.payer(record)) if limit.together)
    return [(limit, amount) for limit in found if (amount := taken.get(limit.id.tres, 0))]


def _turn(job: Job) -> tuple[int, int, str, int, str]:
    """Place of a job in Slurm's order: the higher priority first, then the earlier submission."""
    return -job.priority, -job.weight_milli, job.submitted_at.isoformat(), len(job.name), job.name

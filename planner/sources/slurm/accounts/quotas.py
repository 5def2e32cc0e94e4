"""
Limits on GPUs as quotas of queues, as far as they fit into one tree.

The jobs that a limit counts are a set. Sets of which any two are apart, or one within the other, are a tree
of queues. Limits of accounts and of their users are; one of a QOS is, unless it cuts across another. Which
limits are in the tree depends on the limits only, not on the jobs that are there: the queue of a job stays
the same.

A limit gives no right to so many GPUs. So in the arithmetic of quotas (`models/queue.py`) the nominal quota
of a limited queue is 0, and it borrows, up to its limit, from a root without a quota. That root lends without
limit, since a queue without a quota and without jobs is below it.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Final, TypeAlias

from gpuplan.models.queue import ALL_MODELS, Queue, Quota
from gpuplan.planner.sources.slurm.values import name_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gpuplan.planner.sources.slurm.accounts.limits import AccountLimits, Limit, LimitId, Payer

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

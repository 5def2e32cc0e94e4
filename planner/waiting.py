"""
Why a job waits once a plan is in force: the most severe reason that applies, with numbers.

The order of severity is that of `ReasonCode`. Jobs that differ only in name share one answer, so that
thousands of them cost what their few kinds cost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from planner import waiting_words as words
from planner.free_pool import FreePool, needs_of
from planner.matching import Matcher
from planner.models.occupancy import NodeFree, free_capacity
from planner.models.plan import ReasonCode
from planner.quota_room import QuotaRoom
from planner.unmodelled import not_modelled

if TYPE_CHECKING:
    from collections.abc import Iterable

    from planner.models.job import Job
    from planner.models.placement import Placement
    from planner.models.plan import Reason
    from planner.models.snapshot import Snapshot


def waiting_reasons(snapshot: Snapshot, placements: tuple[Placement, ...]) -> dict[str, Reason]:
    """The reason of every job without a placement, by job name, given the placements of all others."""
    placed = {placement.job for placement in placements}
    waiting = [job for job in snapshot.jobs if job.name not in placed]
    examiner = _Examiner(snapshot, placements, waiting)
    reason_by_kind: dict[Any, Reason] = {}
    reasons: dict[str, Reason] = {}
    for job in waiting:
        kind = _kind(job)
        reason = reason_by_kind.get(kind)
        if reason is None:
            reason = reason_by_kind[kind] = examiner.reason(job)
        reasons[job.name] = reason
    return reasons


def _kind(job: Job) -> tuple[Any, ...]:
    """All that a reason depends on in a job."""
    request = job.request
    return (
        (job.queue, job.held, job.weight_milli == 0),
        (job.gang.minimum, job.gang.maximum, job.locality.required),
        (request.gpus, request.gpu_milli, request.gpu_memory_mib, *sorted(request.mig)),
        (request.cpu_milli, request.memory_mib, request.disk_mib, *sorted(request.resources.items())),
        (*sorted(job.gpu_models), *sorted(job.node_selector.items())),
        job.tolerations,
    )


class _Examiner:
    """Looks for the reason of one job after the other; what they have in common is computed once."""

    def __init__(self, snapshot: Snapshot, placements: tuple[Placement, ...], waiting: Iterable[Job]) -> None:
        self._nodes = snapshot.cluster.nodes
        self._models = {model for node in self._nodes if (model := node.gpu_model)}
        self._matcher = Matcher(self._nodes, waiting)
        self._room = QuotaRoom(snapshot, placements)
        free = free_capacity(self._nodes, placements)
        self._free = [free[node.name] for node in self._nodes]
        self._empty = [NodeFree.of(node) for node in self._nodes]
        self._empty_pools: dict[tuple[int, ...], FreePool] = {}
        self._free_pools: dict[Any, list[FreePool]] = {}

    def reason(self, job: Job) -> Reason:
        """The most severe reason."""
        if job.held:
            return words.held()
        if (unplanned := not_modelled(job)) is not None:
            return words.not_planned(unplanned)
        match = self._matcher.match(job)
        if not match.nodes:
            return words.no_match(job, match, self._models)
        needs = needs_of(job.request)
        empty = self._empty_pool(match.nodes)
        if not empty.fitting(needs, 1):
            return words.too_large(empty, needs)
        smallest = job.request.total_gpu_milli * job.gang.minimum
        ever = self._room.alone(job.queue, smallest, match.gpu_models)
        if ever.shortage is not None:
            return words.beyond_quota(ReasonCode.EXCEEDS_MAX_QUOTA, ever.shortage)
        now = self._room.now(job.queue, smallest, ever.gpu_models)
        if now.shortage is not None:
            return words.beyond_quota(ReasonCode.WAITING_FOR_QUOTA, now.shortage)
        return self._no_room(job, match.nodes, now.gpu_models)

    def _no_room(self, job: Job, matching: tuple[int, ...], gpu_models: tuple[str, ...]) -> Reason:
        """What is missing on the nodes that match, as far as the quotas allow them."""
        needs, replicas = needs_of(job.request), job.gang.minimum
        # Of several GPU models, the one that comes nearest to enough tells most.
        found, pool = max(
            (
                (pool.fitting(needs, replicas), pool)
                for pool in self._choices(job, matching, gpu_models=gpu_models)
            ),
            key=lambda choice: (choice[0], choice[1].total(next(iter(needs), ""))),
        )
        if found >= replicas:
            return words.not_chosen(job)
        return words.too_little_free(pool, needs, replicas) or words.fragmented(pool, needs, replicas)

    def _choices(self, job: Job, matching: tuple[int, ...], *, gpu_models: tuple[str, ...]) -> list[FreePool]:
        """The sets of nodes within which the whole job must find its place."""
        if not job.request.needs_gpu:
            sets: tuple[tuple[str, ...] | None, ...] = (None,)
        elif job.gang.minimum == 1:
            sets = (gpu_models,)
        else:
            sets = tuple((model,) for model in gpu_models)  # a gang runs on one GPU model
        key = (matching, sets)
        pools = self._free_pools.get(key)
        if pools is None:
            pools = self._free_pools[key] = [
                FreePool(
                    [
                        self._free[index]
                        for index in matching
                        if models is None or self._nodes[index].gpu_model in models
                    ]
                )
                for models in sets
            ]
        return pools

    def _empty_pool(self, matching: tuple[int, ...]) -> FreePool:
        pool = self._empty_pools.get(matching)
        if pool is None:
            pool = self._empty_pools[matching] = FreePool([self._empty[index] for index in matching])
        return pool

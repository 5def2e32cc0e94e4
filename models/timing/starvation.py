"""
Starvation: nodes held for the job that has waited too long, in plans with a single slot.

Without this, a gang or a job that needs most of a node never starts while smaller jobs wait, since these take
all freed resources before there is enough for it. The nodes held are those that first have room for it if
running jobs end as expected. Other jobs start there only if they are expected to end before, as in EASY
backfilling (Lifka, JSSPP 1995), or if they have a place beside the job: what it leaves of its nodes is for
the jobs that have waited longest. With more than one slot such a job is promised a start instead.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import TYPE_CHECKING, Final

from gpuplan.models.queue import amount_index, is_gpu_model, queue_and_above, queue_limits, quota_resources
from gpuplan.models.timing.progress import unserved_seconds

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping

    from gpuplan.models.cluster import Node
    from gpuplan.models.job import Job
    from gpuplan.models.placement import Replica
    from gpuplan.models.policy.policy import Policy
    from gpuplan.models.snapshot import Snapshot
    from gpuplan.models.timing.durations import Durations


@dataclass(frozen=True, slots=True)
class NodeHold:
    """Nodes held for a job."""

    job: Job
    nodes: frozenset[str]
    begins: int
    """Seconds after the snapshot at which the nodes have room for it."""
    ends: int
    """Seconds after the snapshot at which it is expected to end."""
    beside: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """By node: further jobs that have room there beside it, all together."""

    def is_for(self, job: str) -> bool:
        """True for the job, and for jobs that have a place beside it."""
        return job == self.job.name or any(job in names for names in self.beside.values())


def hold_for_starving_job(
    snapshot: Snapshot, policy: Policy, durations: Durations, closed: Collection[str] = ()
) -> NodeHold | None:
    """
    Nodes held for the first starving job that lacks only room, at its minimum number of replicas.

    The order is by priority, then by the time without places (`unserved_seconds`), so that jobs that take
    turns do not get the held nodes again and again. None if no job is starving, or none of them could ever
    start. No node in `closed` is held, and none under power caps, where room alone does not let a job start.
    """
    least = policy.horizon.backfill.starving
    if policy.horizon.slots > 1 or least is None or snapshot.cluster.rack_power:
        return None
    unserved = {
        job.name: unserved_seconds(job, snapshot.taken_at)
        for job in snapshot.waiting
        if job.waiting_seconds(snapshot.taken_at) >= least and _lacks_room_alone(job, snapshot)
    }
    starving = [job for job in snapshot.waiting if unserved.get(job.name, 0) >= least]
    if not starving:
        return None
    stays, usage = _running_intervals(snapshot, durations), _Usage(snapshot)
    open_nodes = [node for node in snapshot.cluster.nodes if node.name not in closed]
    tried: set[tuple[Hashable, ...]] = set()
    for job in sorted(starving, key=lambda each: (-each.priority, -unserved[each.name], each.name)):
        if job.requirements_key not in tried:
            tried.add(job.requirements_key)
            found = _first_room(job, open_nodes, snapshot, durations, stays, usage)
            if found is not None:
                hold, counts = found
                beside = _beside(hold, counts, snapshot, durations, stays, usage)
                return replace(hold, beside=beside)
    return None


def _lacks_room_alone(job: Job, snapshot: Snapshot) -> bool:
    """True if nothing in its description, except GPUs, cores and memory, keeps a job from starting."""
    tied = job.withheld or job.depends_on or job.co_start or job.datasets or job.anti_affinity or job.spread
    avoided = bool(job.labels) and "anti_affinity" in snapshot.stated
    special = job.request.mig or job.request.gpu_milli or job.locality.required or job.hard_deadline
    early = (begins := job.begins_at) is not None and begins > snapshot.taken_at
    return bool(job.weight_milli and job.request.gpus and not (tied or avoided or special or early))


def _running_intervals(snapshot: Snapshot, durations: Durations) -> dict[str, list[tuple[int, Replica]]]:
    """(seconds to its end, replica) of all running jobs, by node."""
    found: dict[str, list[tuple[int, Replica]]] = defaultdict(list)
    for job in snapshot.jobs:
        for replica in job.running.replicas if job.running else ():
            found[replica.node].append((durations.remaining(job), replica))
    return found


def _first_room(
    job: Job,
    candidates: Iterable[Node],
    snapshot: Snapshot,
    durations: Durations,
    stays: Mapping[str, list[tuple[int, Replica]]],
    usage: _Usage,
) -> tuple[NodeHold, dict[str, int]] | None:
    """Earliest end over the GPU models, with the replicas by node; a job runs on one model, within quotas."""
    by_model: dict[str, list[tuple[str, list[tuple[int, int]]]]] = defaultdict(list)
    for node in candidates:
        if node.gpus and _is_eligible(job, node):
            room = list(_room(job, node, snapshot, stays.get(node.name, ())))
            by_model[node.gpus.model].append((node.name, room))
    holds = [
        (NodeHold(job, frozenset(chosen), begins, begins + durations.seconds(job, model)), chosen)
        for model, rooms in sorted(by_model.items())
        if usage.allows(job, model) and (found := _nodes(job.gang.minimum, rooms))
        for begins, chosen in [found]
    ]
    return min(holds, key=lambda each: each[0].ends, default=None)


def _beside(
    hold: NodeHold,
    counts: Mapping[str, int],
    snapshot: Snapshot,
    durations: Durations,
    stays: Mapping[str, list[tuple[int, Replica]]],
    usage: _Usage,
) -> dict[str, frozenset[str]]:
    """
    Jobs that share the held nodes: the first in order that fit beside its replicas once it has room.

    Each of them has its own place on one node, so that they may start before the job without delaying it.
    Only jobs of one replica; those that end before, or have a higher priority, may start there anyway.
    """
    overcommit, job = bool(snapshot.cluster.overcommit), hold.job
    nodes = {name: snapshot.cluster.node_by_name[name] for name in sorted(counts)}
    left: dict[str, dict[str, int]] = {}
    for name, node in nodes.items():
        there = [replica for end, replica in stays.get(name, ()) if end > hold.begins]
        left[name] = _free(node, there, overcommit=overcommit)
        _take(left[name], _needs(job, overcommit=overcommit), counts[name])
    found: dict[str, set[str]] = defaultdict(set)
    no_room: set[tuple[Hashable, ...]] = set()
    for each in sorted(snapshot.waiting, key=lambda each: (-each.priority, each.submitted_at, each.name)):
        if not any(amounts[_WHOLE_GPUS] > 0 for amounts in left.values()):
            break
        if (
            each.name == job.name
            or each.priority > job.priority
            or each.gang.maximum > 1
            or each.requirements_key in no_room
            or not _lacks_room_alone(each, snapshot)
        ):
            continue
        needed = _needs(each, overcommit=overcommit)
        for name, node in nodes.items():
            model = node.gpu_model or ""
            if (
                all(left[name].get(what, 0) >= amount for what, amount in needed.items())
                and _is_eligible(each, node)
                and usage.allows(each, model)
                and durations.seconds(each, model) > hold.begins
            ):
                _take(left[name], needed, 1)
                found[name].add(each.name)
                break
        else:
            no_room.add(each.requirements_key)
    return {name: frozenset(jobs) for name, jobs in found.items()}


def _is_eligible(job: Job, node: Node) -> bool:
    """
    True if a node is eligible for replicas of a job, regardless of room.

    It does not call `node_eligibility.refusal`: the verifier uses holds too, and must share no code with the
    filters of problems.
    """
    return (
        node.gpus is not None
        and node.schedulable
        and not node.power_cap_watts
        and (not job.gpu_models or node.gpus.model in job.gpu_models)
        and node.gpus.memory_mib >= job.request.gpu_memory_mib
        and job.node_selector.items() <= node.labels.items()
        and all(match.holds(node.labels) for match in job.affinity)
        and (not job.regions or node.region in job.regions)
        and all(job.tolerates(taint) for taint in node.taints)
    )


def _room(
    job: Job, node: Node, snapshot: Snapshot, stays: Iterable[tuple[int, Replica]]
) -> Iterator[tuple[int, int]]:
    """(seconds from now, replicas that fit from then on), at each increase."""
    left = list(stays)
    before = 0
    for at in sorted({0, *(end for end, _ in left)}):
        there = [replica for end, replica in left if end > at]
        if (fit := _replicas(job, node, there, overcommit=bool(snapshot.cluster.overcommit))) > before:
            yield at, fit
            before = fit


def _replicas(job: Job, node: Node, there: Iterable[Replica], *, overcommit: bool) -> int:
    """
    Number of replicas of a job that fit on a node beside other replicas.

    With overcommit, CPU and memory are not checked.
    """
    free, needed = _free(node, there, overcommit=overcommit), _needs(job, overcommit=overcommit)
    return max(0, min(free.get(what, 0) // amount for what, amount in needed.items()))


_WHOLE_GPUS: Final = "whole GPUs"


def _free(node: Node, there: Iterable[Replica], *, overcommit: bool) -> dict[str, int]:
    """Amounts that some replicas leave of a node; with overcommit without CPU and memory."""
    there = list(there)
    held = {each.index for replica in there for each in replica.gpus}
    gpus = node.gpus.by_index if node.gpus else {}
    free = {
        _WHOLE_GPUS: sum(
            gpu.healthy and gpu.mig is None and index not in held for index, gpu in gpus.items()
        ),
        "disk": node.disk_mib - sum(each.disk_mib for each in there),
    }
    if not overcommit:
        free["cpu"] = node.cpu_milli - sum(each.cpu_milli for each in there)
        free["memory"] = node.memory_mib - sum(each.memory_mib for each in there)
    for name, amount in node.resources.items():
        free[f"resource {name}"] = amount - sum(each.resources.get(name, 0) for each in there)
    return free


def _needs(job: Job, *, overcommit: bool) -> dict[str, int]:
    """Amounts of a replica of a job, those above 0."""
    request = job.request
    needed = {_WHOLE_GPUS: request.gpus, "disk": request.disk_mib}
    if not overcommit:
        needed |= {"cpu": request.cpu_milli, "memory": request.memory_mib}
    needed |= {f"resource {name}": amount for name, amount in request.resources.items()}
    return {what: amount for what, amount in needed.items() if amount}


def _take(free: dict[str, int], needed: Mapping[str, int], times: int) -> None:
    for what, amount in needed.items():
        free[what] -= times * amount


def _nodes(
    replicas: int, rooms: Iterable[tuple[str, list[tuple[int, int]]]]
) -> tuple[int, dict[str, int]] | None:
    """Earliest time with room for this many replicas, and their numbers by node, most room first."""
    becoming = sorted((at, name, fit) for name, room in rooms for at, fit in room)
    fits: dict[str, int] = {}
    total = 0
    for now, together in groupby(becoming, key=lambda each: each[0]):
        for _, name, fit in together:
            total += fit - fits.get(name, 0)
            fits[name] = fit
        if total >= replicas:
            chosen, left = dict[str, int](), replicas
            for name in sorted(fits, key=lambda name: (-fits[name], name)):
                if left > 0:
                    chosen[name] = min(left, fits[name])
                    left -= chosen[name]
            return now, chosen
    return None


class _Usage:
    """Quota usage of running jobs, by queue and resource."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._own: dict[str, dict[str, int]] = {}

    def allows(self, job: Job, model: str) -> bool:
        """True if quotas allow a job to start on a GPU model beside all running jobs."""
        needed = job.request.quota.times(job.gang.minimum)
        for resource in quota_resources(self._snapshot.queues):
            if resource != model and is_gpu_model(resource):
                continue
            own = dict(self._of(resource))
            own[job.queue] = own.get(job.queue, 0) + needed[amount_index(resource)]
            limits = queue_limits(self._snapshot.queues, resource)
            used = limits.usage(own)
            for name in queue_and_above(job.queue, limits.parent):
                if (limit := limits.limit[name]) is not None and used[name] > limit:
                    return False
        return True

    def _of(self, resource: str) -> dict[str, int]:
        if resource not in self._own:
            models = self._snapshot.cluster.gpu_model_by_node
            own: dict[str, int] = defaultdict(int)
            for job in self._snapshot.jobs:
                for replica in job.running.replicas if job.running else ():
                    own[job.queue] += replica.quota_on(models.get(replica.node), resource)
            self._own[resource] = own
        return self._own[resource]

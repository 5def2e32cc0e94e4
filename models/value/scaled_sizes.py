"""Sizes of scaled jobs: usual number of replicas, worth and patience of a job on each GPU model."""

from __future__ import annotations

from collections import Counter
from functools import cached_property
from math import fsum
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from gpuplan.models.queue import queue_and_above, queue_limits
from gpuplan.models.units import MILLI

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from gpuplan.models.cluster import Node
    from gpuplan.models.gang import Gang
    from gpuplan.models.job import Job
    from gpuplan.models.queue import QueueLimits
    from gpuplan.models.snapshot import Snapshot

    _Kind: TypeAlias = tuple[int, Gang, tuple[tuple[str, int], ...]]
    """All that costs depend on: thousandths of GPUs of a replica, gang, and speeds of GPU models."""

_MUCH_WORSE: Final = 1.5
"""Cost on a GPU model, relative to the best, from which on a job rather waits; chosen on benchmark jobs."""


class ModelSize(NamedTuple):
    """Size and worth of a job on one GPU model."""

    usual: int
    """Number of replicas that share its points evenly."""
    worth_milli: int
    """Its points with all replicas, in thousandths of its points at full size on its fastest GPU model."""
    regret: float = 0
    """
    Cost of a start here beyond that on the best GPU model, in units of its time at full size on the fastest;
    0 unless it is much worse here.
    """


class ScaledSizes:
    """
    The best size of each scaled job on each GPU model, given all jobs of a snapshot.

    A job costs the time that it takes, and the time by which it delays others:

        cost(m, k) = ( 1 + price(m) · k / fewest ) / speed(m, k)

    The price of a GPU model is the number of jobs, with their fewest replicas, per place. A job that may use
    several models counts on each of them, and more on those where it is faster:

        price(m) = Σ_j fewest_j · GPUs_j · speed_j(m) / Σ_m' GPUs(m') · speed_j(m')

    On each model the usual size has the least cost (`Gang.usual_size`), and the points with it are in
    proportion to one over that cost. So a job that gains little from a fast model leaves it to jobs that gain
    more, if there are any; without other jobs the cost is the job's time.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot, self._usable = snapshot, snapshot.cluster.open_gpus
        self._by_job: dict[str, dict[str | None, ModelSize]] = {}
        self._by_kind: dict[tuple[_Kind, tuple[str, ...]], dict[str | None, ModelSize]] = {}
        self._models: dict[tuple[Hashable, ...], tuple[str, ...]] = {}
        self._limits: dict[str, QueueLimits] = {}
        self._best: dict[tuple[_Kind, tuple[str, ...]], str | None] = {}
        self._best_nodes: dict[tuple[tuple[Hashable, ...], str | None], frozenset[str]] = {}

    def of(self, job: Job, gpu_model: str | None) -> ModelSize:
        """Size and worth of a job on a GPU model; None is any model, or that of a job without GPUs."""
        known = self._by_job.get(job.name)
        if known is None:
            kind = _kind(job), self._within_reach(job)
            known = self._by_job[job.name] = self._by_kind.setdefault(kind, {})
        if gpu_model not in known:
            known[gpu_model] = self._size(job, gpu_model)
        return known[gpu_model]

    def best_model(self, job: Job) -> str | None:
        """The GPU model with the least cost of those that the job may use; None if there is none."""
        reach = self._within_reach(job)
        key = _kind(job), reach
        if key not in self._best:
            self._best[key] = min(reach, key=lambda model: self._cost(job, model), default=None)
        return self._best[key]

    def best_nodes(self, job: Job) -> frozenset[str]:
        """Names of the nodes of that model that the job may use, as far as is known here."""
        best = self.best_model(job)
        key = job.requirements_key, best
        if key not in self._best_nodes:
            nodes = self._nodes.get(best or "", ())
            self._best_nodes[key] = frozenset(node.name for node in nodes if suits(job, node))
        return self._best_nodes[key]

    def _size(self, job: Job, gpu_model: str | None) -> ModelSize:
        gang, usual = job.gang, self._usual(job, gpu_model)
        if gpu_model is None:
            return ModelSize(usual, MILLI)
        best = self.best_model(job) or gpu_model
        cost, least = self._cost(job, gpu_model), self._cost(job, best)
        if cost < least:  # a job that runs where it may not start today
            best, least = gpu_model, cost
        at_best = job.rate_milli(best, self._usual(job, best))
        larger = gang.speed_milli(gang.maximum, gpu_model) / gang.speed_milli(usual, gpu_model)
        worth = max(1, round(at_best * larger * least / cost))
        return ModelSize(usual, worth, cost - least if cost > _MUCH_WORSE * least else 0)

    def _usual(self, job: Job, gpu_model: str | None) -> int:
        room, milli = self._usable.get(gpu_model or ""), job.request.total_gpu_milli
        most = None if room is None or not milli else room * MILLI // milli
        return job.gang.usual_size(self._price(gpu_model), gpu_model, room=most)

    def _cost(self, job: Job, gpu_model: str) -> float:
        """Least cost on a GPU model, relative to the time at full size on the fastest one."""
        usual = self._usual(job, gpu_model)
        share = self._price(gpu_model) * usual / job.gang.minimum
        return (1 + share) * MILLI / max(1, job.rate_milli(gpu_model, usual))

    def _price(self, gpu_model: str | None) -> float:
        return self._prices.get(gpu_model or "", self._crowd)

    def _within_reach(self, job: Job) -> tuple[str, ...]:
        """GPU models of nodes that a job may use, and that its queue may hold enough of."""
        needed = job.request.total_gpu_milli * job.gang.minimum
        if (key := job.requirements_key) not in self._models:
            self._models[key] = tuple(
                model
                for model, nodes in self._nodes.items()
                if self._usable[model] * MILLI >= needed
                and self._may_hold(job.queue, model, needed)
                and any(suits(job, node) for node in nodes)
            )
        return self._models[key]

    def _may_hold(self, queue: str, gpu_model: str, milli: int) -> bool:
        """True if the limits of a queue and of those above it allow so much of a GPU model."""
        if gpu_model not in self._limits:
            self._limits[gpu_model] = queue_limits(self._snapshot.queues, gpu_model)
        limits = self._limits[gpu_model]
        found = (limits.limit.get(name) for name in queue_and_above(queue, limits.parent))
        return all(most is None or most >= milli for most in found)

    @cached_property
    def _nodes(self) -> Mapping[str, list[Node]]:
        """Nodes that accept jobs, by GPU model."""
        found: dict[str, list[Node]] = {}
        for node in self._snapshot.cluster.nodes:
            if node.gpus and node.gpus.count and node.schedulable:
                found.setdefault(node.gpus.model, []).append(node)
        return dict(sorted(found.items()))

    @cached_property
    def _asking(self) -> list[tuple[Job, int]]:
        """One job of each kind that needs GPUs, and thousandths of GPUs of the kind with fewest replicas."""
        one_of: dict[_Kind, Job] = {}
        asked: Counter[_Kind] = Counter()
        for job in self._snapshot.jobs:
            if job.weight_milli and job.request.needs_gpu and not job.withheld:
                kind = _kind(job)
                asked[kind] += job.request.total_gpu_milli * job.gang.minimum
                one_of.setdefault(kind, job)
        return [(job, asked[kind]) for kind, job in one_of.items()]

    @cached_property
    def _crowd(self) -> float:
        """Jobs per place of the whole cluster."""
        asked = sum(milli for _, milli in self._asking)
        return asked / MILLI / max(1, sum(self._usable.values()))

    @cached_property
    def _prices(self) -> Mapping[str, float]:
        """Price of each GPU model; the same to the last digit in whatever order the jobs come."""
        parts: dict[str, list[float]] = {model: [] for model in self._usable}
        for job, milli in self._asking:
            models = [model for model in self._usable if not job.gpu_models or model in job.gpu_models]
            speeds = {model: job.rate_milli(model, job.gang.minimum) for model in models}
            room = sum(self._usable[model] * speed for model, speed in speeds.items())
            for model, speed in speeds.items():
                parts[model].append(milli * speed / (MILLI * max(1, room)))
        return {model: fsum(found) for model, found in parts.items()}


def _kind(job: Job) -> _Kind:
    return job.request.total_gpu_milli, job.gang, tuple(job.gpu_models.items())


def suits(job: Job, node: Node) -> bool:
    """
    True if a job could run on a node as far as labels, region, taints and GPUs tell.

    What a job waits for in vain costs it its patience, so further rules need not be known here.
    """
    gpus = node.gpus
    return (
        gpus is not None
        and (not job.gpu_models or gpus.model in job.gpu_models)
        and (bool(job.request.mig) or job.request.gpu_memory_mib <= gpus.memory_mib)
        and all(node.labels.get(key) == value for key, value in job.node_selector.items())
        and all(match.holds(node.labels) for match in job.affinity)
        and (not job.regions or node.region in job.regions)
        and all(job.tolerates(taint) for taint in node.taints)
    )

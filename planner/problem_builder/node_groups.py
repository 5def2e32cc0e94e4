"""Nodes of a problem, in groups of nodes that are equal for all candidates, and in domains."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from gpuplan.models.eligibility.node_eligibility import eligibility_key, ineligibility
from gpuplan.models.mig import mig_geometry
from gpuplan.models.problem.problem import NodeGroup
from gpuplan.models.value.disruption_cost import currency_points

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gpuplan.models.cluster import Cluster, Dataset, Level, Node, NodeGpus
    from gpuplan.models.job import Job
    from gpuplan.models.policy.policy import Policy
    from gpuplan.models.timing.reservation_windows import ReservationWindows
    from gpuplan.planner.problem_builder.candidates import Filters, JobCandidate


class NodeGroups:
    """
    Existing nodes, then nodes that become ready within the horizon, then nodes that pools may add.

    `coming` has the first slots of the nodes that become ready, `jobs` are all jobs of the snapshot.
    """

    def __init__(
        self,
        cluster: Cluster,
        policy: Policy,
        optional: Iterable[tuple[Node, ...]],
        candidates: Iterable[JobCandidate],
        coming: Mapping[str, int],
        windows: ReservationWindows,
        jobs: Iterable[Job],
    ) -> None:
        existing = [node for node in cluster.nodes if node.schedulable]
        # Eligibility is checked for the time when these nodes are ready.
        existing += [node.model_copy(update={"ready": True}) for node in cluster.nodes if node.name in coming]
        self.nodes: list[Node] = list(existing)
        self.groups: list[NodeGroup] = _existing_groups(
            existing, _NodeQuery(cluster, candidates, windows), coming
        )
        for pool, opened in enumerate(optional):
            if opened:
                indices = tuple(range(len(self.nodes), len(self.nodes) + len(opened)))
                self.groups.append(NodeGroup(opened[0].gpu_model, opened[0].gpu_count, indices, pool=pool))
                self.nodes.extend(opened)
        self.opens = tuple(coming.get(self.nodes[group.nodes[0]].name, 0) for group in self.groups)
        """First slot in which the nodes take jobs, by group."""
        self.windowed = frozenset(
            index for index in range(len(self.groups)) if windows.of(self.first_of(index).name)
        )
        """Groups of nodes with reservation windows."""
        self._policy = policy
        self._datasets = {dataset.name: dataset for dataset in cluster.datasets}
        self._allowed: dict[Filters, dict[str | None, tuple[int, ...]]] = {}
        self._costs: dict[Any, tuple[tuple[int, int], ...]] = {}
        self._open: dict[tuple[tuple[int, ...], int], tuple[int, ...]] = {}
        self._equal: dict[tuple[int, ...], tuple[int, ...]] = {}
        self.groups = [
            replace(group, scarcity=scarcity)
            for group, scarcity in zip(self.groups, self._scarcity(jobs), strict=True)
        ]

    @cached_property
    def index(self) -> dict[str, int]:
        """Index of each node, by name."""
        return {node.name: index for index, node in enumerate(self.nodes)}

    @cached_property
    def group_of(self) -> dict[int, int]:
        """The group of each node."""
        return {node: index for index, group in enumerate(self.groups) for node in group.nodes}

    def allowed(self, candidate: JobCandidate) -> dict[str | None, tuple[int, ...]]:
        """Groups that may take replicas of a candidate, by GPU model; under None for a job without GPUs."""
        allowed = self._allowed_by(candidate.filters, candidate.job)
        if candidate.gpu_model is None:
            return allowed
        model = candidate.gpu_model
        return {model: allowed[model]} if model in allowed else {}

    def _allowed_by(self, filters: Filters, job: Job) -> dict[str | None, tuple[int, ...]]:
        if (allowed := self._allowed.get(filters)) is None:
            allowed = self._allowed[filters] = self._ask(job)
        return allowed

    def _scarcity(self, jobs: Iterable[Job]) -> list[float]:
        """`NodeGroup.scarcity` of each group: the demand of a job is spread over all GPUs that it may use."""
        gpus = [group.gpus * len(group.nodes) for group in self.groups]
        if sum(count > 0 for count in gpus) < 2:
            return [0.0] * len(gpus)
        demand: Counter[Filters] = Counter()
        first: dict[Filters, Job] = {}
        for job in jobs:
            if milli := job.request.total_gpu_milli * job.gang.minimum:
                filters = eligibility_key(job)
                demand[filters] += milli
                first.setdefault(filters, job)
        pressure = [0.0] * len(gpus)
        for filters, milli in demand.items():
            allowed = self._allowed_by(filters, first[filters])
            usable = [group for groups in allowed.values() for group in groups]
            offered = sum(gpus[group] for group in usable)
            for group in usable if offered < sum(gpus) else ():
                pressure[group] += milli / offered
        highest = max(pressure) or 1.0
        return [round(each / highest, 3) for each in pressure]

    def scarcity(self, groups: Iterable[int]) -> float:
        """The least scarcity among groups."""
        return min((self.groups[group].scarcity for group in groups), default=0.0)

    def first_of(self, group: int) -> Node:
        """The first node of a group; all nodes of a group are equal for candidates."""
        return self.nodes[self.groups[group].nodes[0]]

    def open_in(self, groups: tuple[int, ...], slot: int) -> tuple[int, ...]:
        """Groups that take jobs in a slot; nodes that pools may add count only in slot 0."""
        found = self._open.get((groups, slot))
        if found is None:
            kept = tuple(
                group
                for group in groups
                if self.opens[group] <= slot and (slot == 0 or self.groups[group].pool is None)
            )
            # Equal results share one tuple, since there are many of them.
            found = self._open[groups, slot] = self._equal.setdefault(kept, kept)
        return found

    def _ask(self, job: Job) -> dict[str | None, tuple[int, ...]]:
        allowed: dict[str | None, list[int]] = defaultdict(list)
        needs_gpu = job.request.needs_gpu
        for index, group in enumerate(self.groups):
            # No node with GPUs is added for jobs without GPUs.
            suits = needs_gpu or group.pool is None or not group.gpus
            if suits and ineligibility(job, self.first_of(index)) is None:
                allowed[group.gpu_model if needs_gpu else None].append(index)
        return {model: tuple(indices) for model, indices in allowed.items()}

    def node_points(self, job: Job, groups: Iterable[int]) -> tuple[tuple[int, int], ...]:
        """(group, points) per replica, nonzero only: datasets to fetch, node preferences not met."""
        if not job.datasets and not job.preferred_nodes:
            return ()
        groups = sorted(groups)
        wishes = tuple(sorted(job.preferred_nodes, key=repr))
        key = tuple(sorted(job.datasets)), wishes, tuple(groups)
        costs = self._costs.get(key)
        if costs is None:
            each = ((group, self._points(job, self.first_of(group))) for group in groups)
            costs = self._costs[key] = tuple((group, points) for group, points in each if points)
        return costs

    def _points(self, job: Job, node: Node) -> int:
        fetched = sum(_cost(self._datasets[name], node) for name in sorted(job.datasets))
        missed = sum(
            preferred.points for preferred in job.preferred_nodes if not preferred.match.holds(node.labels)
        )
        return -currency_points(self._policy, fetched) - missed

    def domains(self, levels: Iterable[Level]) -> tuple[tuple[Level, tuple[int, ...]], ...]:
        """Domain number of each node at each level, numbered in the order of the nodes."""
        return tuple((level, self._domains(level)) for level in sorted(set(levels)))

    def _domains(self, level: Level) -> tuple[int, ...]:
        numbers: dict[tuple[Any, ...], int] = {}
        # A node without a domain forms its own; no domain path has this nested form, so there is no clash.
        paths = (node.domain(level) or ((node.name,),) for node in self.nodes)
        return tuple(numbers.setdefault(path, len(numbers)) for path in paths)


class _NodeQuery:
    """Node attributes that the candidates' filters and prices depend on."""

    def __init__(
        self, cluster: Cluster, candidates: Iterable[JobCandidate], windows: ReservationWindows
    ) -> None:
        jobs = {candidate.job.name: candidate.job for candidate in candidates}.values()
        self._selectors = sorted({item for job in jobs for item in job.node_selector.items()})
        self._matches = sorted(
            {match for job in jobs for match in job.affinity}
            | {preferred.match for job in jobs for preferred in job.preferred_nodes},
            key=lambda match: (match.key, match.operator, match.values),
        )
        self._regions = {region for job in jobs for region in job.regions}
        datasets = {dataset.name: dataset for dataset in cluster.datasets}
        self._datasets = [datasets[name] for name in sorted({name for job in jobs for name in job.datasets})]
        self._windows = {
            number: window
            for number, window in enumerate(windows.all)
            if not all(windows.owns(job, window.reservation) for job in jobs)
        }

    def key(self, node: Node) -> tuple[Any, ...]:
        """Sortable key that is equal for nodes that are equal for all candidates."""
        asked_region = node.region in self._regions
        return (
            _gpu_key(node.gpus) if node.gpus else ("", 0, 0, False, ()),
            tuple(node.labels.get(label) == value for label, value in self._selectors),
            tuple(sorted((taint.key, taint.value, taint.effect) for taint in node.taints)),
            tuple(match.holds(node.labels) for match in self._matches),
            (asked_region, node.region if asked_region else ""),
            tuple(_cost(dataset, node) for dataset in self._datasets),
            tuple(number for number, window in self._windows.items() if node.name in window.nodes),
        )


def _gpu_key(gpus: NodeGpus) -> tuple[Any, ...]:
    # Without a known MIG geometry no instance can be created, so only the present ones count.
    present = (
        () if mig_geometry(gpus.model) else {one.profile for gpu in gpus.details for one in gpu.mig or ()}
    )
    parts = gpus.time_sliced, gpus.may_be_unhealthy, gpus.watts, tuple(sorted(present))
    return (gpus.model, gpus.count, gpus.memory_mib, *parts)


def _existing_groups(nodes: list[Node], asked: _NodeQuery, coming: Mapping[str, int]) -> list[NodeGroup]:
    """Groups of nodes that take jobs now, then those of later nodes; `coming` has their slots."""
    members: dict[Any, list[int]] = defaultdict(list)
    for index, node in enumerate(nodes):
        members[coming.get(node.name, 0), asked.key(node)].append(index)
    return [
        NodeGroup(gpu_model=key[0][0] or None, gpus=key[0][1], nodes=tuple(indices))
        for (_, key), indices in sorted(members.items())
    ]


def _cost(dataset: Dataset, node: Node) -> float:
    return dataset.zones.get(node.zone, dataset.elsewhere)

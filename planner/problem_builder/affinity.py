"""Anti-affinity and interference: jobs that must not share a domain, or that pay a price if they do."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from gpuplan.models.cluster import Level
from gpuplan.models.problem.problem import AffinityNeighbour

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from gpuplan.models.job import Job
    from gpuplan.models.policy.policy import Policy
    from gpuplan.models.problem.jobs import JobClass
    from gpuplan.models.snapshot import Snapshot
    from gpuplan.planner.problem_builder.node_groups import NodeGroups


class AffinityTags:
    """Tags (numbers of label sets that some job avoids) and workload classes with an interference price."""

    def __init__(self, policy: Policy, jobs: Iterable[Job]) -> None:
        jobs = list(jobs)
        avoided = {tuple(sorted(avoidance.labels.items())) for job in jobs for avoidance in job.anti_affinity}
        # A label set that no job carries restricts no job.
        self._tags = {
            labels: tag
            for tag, labels in enumerate(
                sorted(labels for labels in avoided if any(_carries(job, labels) for job in jobs))
            )
        }
        points: dict[tuple[str, str], int] = defaultdict(int)
        for entry in policy.prices.interference:
            if entry.points:
                one, other = sorted(entry.classes)
                points[one, other] += entry.points
        self.interference = tuple((one, other, price) for (one, other), price in sorted(points.items()))
        self._workloads = {name for pair in points for name in pair}

    def carries(self, job: Job) -> tuple[int, ...]:
        """Tags of the label sets that a job carries."""
        if not self._tags:
            return ()
        return tuple(tag for labels, tag in self._tags.items() if _carries(job, labels))

    def avoids(self, job: Job) -> tuple[tuple[int, Level], ...]:
        """Tags that a job avoids, each with the level of the domains."""
        if not self._tags:
            return ()
        labels = ((tuple(sorted(one.labels.items())), one.level) for one in job.anti_affinity)
        return tuple(sorted({(self._tags[these], level) for these, level in labels if these in self._tags}))

    def workload(self, job: Job) -> str:
        """The job's workload class if it has an interference price; else empty."""
        return job.workload_class if job.workload_class in self._workloads else ""

    def standing(
        self, snapshot: Snapshot, sites: NodeGroups, classes: Iterable[JobClass], leaving: Mapping[str, int]
    ) -> tuple[AffinityNeighbour, ...]:
        """Running jobs that restrict or price new replicas nearby; `leaving` has incumbent indices by job."""
        if not self._tags and not self._workloads:
            return ()
        guests = _NewReplicaTags(classes, self.interference)
        found: list[AffinityNeighbour] = []
        for job in snapshot.jobs:
            if job.running is None:
                continue
            one = AffinityNeighbour(
                job=job.name,
                incumbent=leaving.get(job.name),
                nodes=(),
                workload=guests.met(self.workload(job)),
                carries=tuple(tag for tag in self.carries(job) if tag in guests.avoided),
                avoids=tuple((tag, level) for tag, level in self.avoids(job) if tag in guests.carried),
            )
            if one.workload or one.carries or one.avoids:
                found += _placed(one, job, snapshot, sites, guests)
        return tuple(found)


class _NewReplicaTags:
    """Tags that new replicas avoid or carry, and workload classes that interfere with theirs."""

    def __init__(self, classes: Iterable[JobClass], interference: tuple[tuple[str, str, int], ...]) -> None:
        classes = list(classes)
        self.avoided: dict[int, set[Level]] = defaultdict(set)
        """Levels by tag."""
        for job_class in classes:
            for tag, level in job_class.avoids:
                self.avoided[tag].add(level)
        self.carried = {tag for job_class in classes for tag in job_class.carries}
        workloads = {job_class.workload for job_class in classes}
        # Both classes of a pair count: a node on which both already run has no further interference price.
        self._met = {
            name for one, other, _ in interference if workloads & {one, other} for name in (one, other)
        }

    def met(self, workload: str) -> str:
        """The workload class if an interference price of some new replica depends on it; else empty."""
        return workload if workload in self._met else ""


def _placed(
    one: AffinityNeighbour, job: Job, snapshot: Snapshot, sites: NodeGroups, guests: _NewReplicaTags
) -> Iterator[AffinityNeighbour]:
    """
    A running job with its nodes.

    A node that takes no new replicas is not in the problem. Another node of the same domain represents it,
    once for each level wider than a node.
    """
    names = {replica.node for replica in job.running.replicas} if job.running else set()
    nodes = tuple(sorted(sites.index[name] for name in names if name in sites.index))
    if nodes:
        yield _at(one, nodes)
    elsewhere = [snapshot.cluster.node_by_name[name] for name in sorted(names) if name not in sites.index]
    wide = {level for _, level in one.avoids} | {
        level for tag in one.carries for level in guests.avoided[tag]
    }
    for level in sorted(wide - {Level.NODE}):
        outside = {domain for node in elsewhere if (domain := node.domain(level))}
        outside -= {sites.nodes[index].domain(level) for index in nodes}
        first = {
            domain: index
            for index, node in reversed(list(enumerate(sites.nodes)))
            if (domain := node.domain(level)) in outside
        }
        if first:
            carries = tuple(tag for tag in one.carries if level in guests.avoided[tag])
            avoids = tuple(avoided for avoided in one.avoids if avoided[1] == level)
            yield AffinityNeighbour(
                one.job, one.incumbent, tuple(sorted(first.values())), "", carries, avoids
            )


def _at(one: AffinityNeighbour, nodes: tuple[int, ...]) -> AffinityNeighbour:
    return AffinityNeighbour(one.job, one.incumbent, nodes, one.workload, one.carries, one.avoids)


def _carries(job: Job, labels: tuple[tuple[str, str], ...]) -> bool:
    return all(job.labels.get(key) == value for key, value in labels)

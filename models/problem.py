"""
Problem: the frozen question of one epoch, in integers.

Identical waiting jobs form a `JobClass`, interchangeable nodes a `NodeGroup`; both the greedy heuristic and
the formulation read this and nothing else. Plain tuples here; whoever computes turns them into arrays.
"""

from __future__ import annotations

from dataclasses import dataclass

from planner.models.queue import ALL_MODELS
from planner.models.units import MILLI


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """Nodes that the same jobs may use: same GPU model and count, same answer to every selector and taint."""

    gpu_model: str | None
    gpus: int
    """GPUs per node."""
    nodes: tuple[int, ...]
    """Indices into `Problem.nodes`."""


@dataclass(frozen=True, slots=True)
class FreeNode:
    """What one node has free."""

    name: str
    gpus: tuple[int, ...]
    """Thousandths free by GPU index; never negative."""
    amounts: tuple[int, ...]
    """Free amount of each of `Problem.resources`; never negative."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What one replica takes from a node."""

    gpus: int
    """Whole GPUs."""
    gpu_milli: int
    """Share of one GPU; 0 with whole GPUs or none."""
    amounts: tuple[int, ...]
    """Of each of `Problem.resources`."""

    @property
    def quota_milli(self) -> int:
        """Thousandths of GPUs that count against quotas."""
        return self.gpus * MILLI + self.gpu_milli


@dataclass(frozen=True, slots=True)
class Option:
    """A GPU model on which all replicas of a job may run (None: any node, without GPUs)."""

    gpu_model: str | None
    groups: tuple[int, ...]
    """Indices into `Problem.groups`."""
    points: int
    """Objective points of a placed job; of each placed replica if the class is elastic."""


@dataclass(frozen=True, slots=True)
class JobClass:
    """Waiting jobs that are worth the same, may use the same nodes and take the same there."""

    jobs: tuple[str, ...]
    """Names, the one to start first in front."""
    shape: Shape
    minimum: int
    """Replicas."""
    maximum: int
    queue: int
    """Index into `Problem.queues`."""
    options: tuple[Option, ...]
    """Best paid first."""

    @property
    def elastic(self) -> bool:
        """True if the number of replicas is a choice."""
        return self.minimum < self.maximum

    def points(self, option: Option, replicas: int) -> int:
        """Objective points of one job placed with so many replicas."""
        return option.points * replicas if self.elastic else option.points

    @property
    def most_points(self) -> int:
        """Points of one job at its best."""
        return max((self.points(option, self.maximum) for option in self.options), default=0)


@dataclass(frozen=True, slots=True)
class QueueBudget:
    """Limits of one resource over the queue tree (see `models.queue.QueueLimits`), in thousandths of GPUs."""

    resource: str
    """A GPU model, or `ALL_MODELS`."""
    leaves_first: tuple[int, ...]
    parent: tuple[int | None, ...]
    kept: tuple[int, ...]
    limit: tuple[int | None, ...]
    """Never below what running jobs already use, so that the question always has an answer."""
    own: tuple[int, ...]
    """Held by running jobs directly in each queue."""

    def counts(self, gpu_model: str | None) -> bool:
        """True if GPUs of this model count here."""
        return gpu_model is not None and self.resource in (ALL_MODELS, gpu_model)


@dataclass(frozen=True, slots=True)
class Problem:
    """The frozen question of one epoch."""

    resources: tuple[str, ...]
    """Countable resources of a node beside GPUs: thousandths of cores, memory, disk, then others by name."""
    nodes: tuple[FreeNode, ...]
    groups: tuple[NodeGroup, ...]
    classes: tuple[JobClass, ...]
    queues: tuple[str, ...]
    budgets: tuple[QueueBudget, ...]

    @property
    def ceiling(self) -> int:
        """Points if every job with an option ran at its best: a bound that needs no solver."""
        return sum(len(job_class.jobs) * job_class.most_points for job_class in self.classes)

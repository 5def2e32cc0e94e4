"""Violation: one broken rule with its subject, the value found and the value allowed."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Rule(StrEnum):
    """The rules for plans; a constraint family that enforces a rule has the same name."""

    ASSIGNMENT = "assignment"
    """Each placement names a known, startable job, once; slot 0."""
    EVICTION = "eviction"
    """Only running jobs that may be preempted, resized or migrated are; others keep their placement."""
    CAPABILITY = "capability"
    """Each change is of a kind that the cluster can carry out."""
    DAMAGE = "damage"
    """No job keeps a lost place, and each job with lost places is named."""
    GANG = "gang"
    """All replicas are placed, within the gang's range, on one GPU model."""
    REQUEST = "request"
    """Each replica holds exactly what the job requests."""
    SELECTION = "selection"
    """The node is known, ready, selected and tolerated; GPU model, memory and health match."""
    GPU_CAPACITY = "gpu_capacity"
    """Whole GPUs: at most one replica holds each."""
    FRACTIONAL_GPU = "fractional_gpu"
    """Shares of one GPU add up to at most the whole GPU."""
    MIG = "mig"
    """MIG instances form a legal layout, on GPUs in MIG mode without other use."""
    CPU_MEMORY = "cpu_memory"
    """CPU, memory, disk and countable resources of a node suffice."""
    QUOTA = "quota"
    """No queue, and no queue above it, exceeds its limit."""
    LOCALITY = "locality"
    """All replicas are within one domain of the required level."""
    SPREAD = "spread"
    """No domain holds more replicas of a job than its spread allows."""
    PRIORITY = "priority"
    """No job takes a place that a pending job of higher priority could use."""
    PREEMPTION = "preemption"
    """Nodes, quota and power that preempted and shrunk jobs give up go only to jobs of higher priority."""
    DISRUPTION_BUDGET = "disruption_budget"
    """Of no group of jobs more are preempted, shrunk and migrated than its disruption budget leaves."""
    ANTI_AFFINITY = "anti_affinity"
    """Jobs with anti-affinity do not share a domain."""
    POWER = "power"
    """GPUs in use draw no more power than their node and rack allow."""
    POOLS = "pools"
    """Added nodes belong to a pool and are within its limits; removed nodes are empty."""
    ORDER = "order"
    """There is an order in which every step finds the resources that it takes free."""
    HORIZON = "horizon"
    """Later starts are of pending jobs, in existing slots, and their resources are free then."""
    WINDOWS = "windows"
    """On reserved nodes, or nodes in maintenance, only owners' jobs start, or jobs that end in time."""
    DEPENDENCIES = "dependencies"
    """Jobs start after their dependencies and earliest start; co-start groups start together."""
    DEADLINES = "deadlines"
    """No job with a hard deadline starts if it would miss it."""
    UNDISTURBED = "undisturbed"
    """Later starts of pending jobs count on nothing that the plan takes from running jobs."""
    PROMISES = "promises"
    """A promised start is kept, unless its places are lost for reasons that no plan can change."""


@dataclass(frozen=True, slots=True, order=True)
class Violation:
    """One broken rule."""

    rule: Rule
    """The rule that is broken."""
    subject: str
    """Subject of the violation, such as `job train-a` or `node h100-03 gpu 2`."""
    found: str
    """What was found, in words."""
    allowed: str
    """What the rule allows, in words."""

    def __str__(self) -> str:
        return f"{self.rule}: {self.subject}: found {self.found}, allowed {self.allowed}"

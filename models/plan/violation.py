"""Violation: one broken rule with its subject, what was found and what is allowed."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Rule(StrEnum):
    """The rules a plan must keep; constraint families bear the same names where one enforces the rule."""

    ASSIGNMENT = "assignment"
    """Each placement names a known, startable job, once; slot 0."""
    EVICTION = "eviction"
    """A running job that is stopped, resized or moved may be; any other keeps its placement."""
    DAMAGE = "damage"
    """Nothing stays on a place that no longer holds, and what has lost its place is named."""
    GANG = "gang"
    """All replicas, within the gang's range, on one GPU model."""
    REQUEST = "request"
    """Each replica holds exactly what the job asks for."""
    SELECTION = "selection"
    """Node known, ready, selected, tolerated; GPU model, memory and health as required."""
    GPU_CAPACITY = "gpu_capacity"
    """Whole GPUs: each is held by one replica at most."""
    FRACTIONAL_GPU = "fractional_gpu"
    """Shares of one GPU add up to at most the GPU."""
    MIG = "mig"
    """MIG instances form a legal layout, on GPUs in MIG mode not used otherwise."""
    CPU_MEMORY = "cpu_memory"
    """CPU, memory, disk and countable resources of a node suffice."""
    QUOTA = "quota"
    """No queue, nor any above it, exceeds its limit."""
    LOCALITY = "locality"
    """Replicas stay within one domain of the required level."""
    SPREAD = "spread"
    """No domain holds more replicas of a job than its spread allows."""
    PRIORITY = "priority"
    """No job takes a place that a waiting job of higher priority could use."""
    PREEMPTION = "preemption"
    """What stopped and shrunk jobs give up, of nodes, quota and power, is for jobs of higher priority."""
    ANTI_AFFINITY = "anti_affinity"
    """Jobs that must not meet in a domain do not."""
    POWER = "power"
    """The GPUs in use draw no more power than their node and rack may."""
    POOLS = "pools"
    """Added nodes are of a pool and within its limits; removed ones are empty."""
    ORDER = "order"
    """There is an order in which every step finds free what it takes."""
    HORIZON = "horizon"
    """Later starts are of waiting jobs, in slots that there are, and what they need is free then."""
    WINDOWS = "windows"
    """Nobody comes to reserved nodes, or ones in maintenance, who is no owner or not gone in time."""
    DEPENDENCIES = "dependencies"
    """Jobs start after what they depend on, and no earlier than they may; co-start groups together."""
    DEADLINES = "deadlines"
    """No job with a hard deadline starts that would miss it."""
    PROMISES = "promises"
    """A promised start is kept, unless its places are taken by what no plan could help."""


@dataclass(frozen=True, slots=True, order=True)
class Violation:
    """One broken rule."""

    rule: Rule
    """The rule that is broken."""
    subject: str
    """What broke it, such as `job train-a` or `node h100-03 gpu 2`."""
    found: str
    """What was found, in words."""
    allowed: str
    """What the rule allows, in words."""

    def __str__(self) -> str:
        return f"{self.rule}: {self.subject}: found {self.found}, allowed {self.allowed}"

"""Sensitivity: the value of more nodes of each kind, by the linear relaxation and by planning again."""

from __future__ import annotations

from gpuplan.models.base import Noun
from gpuplan.models.units import Count, Name, Timestamp


class Step(Noun):
    """A number of added nodes, and the new plan with them."""

    nodes: Count
    gain: int | None = None
    """Points of that plan minus those of the plan without; None if there is no plan."""
    jobs: int | None = None
    """Number of additional jobs that run."""
    doubt: int | None = None
    """Most points by which the gain may be wrong in either direction, from both gaps; None if unknown."""


class NodeValue(Noun):
    """Value of more nodes of one kind."""

    kind: str
    """The kind in words: `8 × H100-80GB`."""
    like: Name
    """The existing node, or the pool's template, that the new nodes copy."""
    pool: Name | None = None
    """Pool of the new nodes, if the cluster has no such node yet."""
    nodes: Count
    """Number of existing nodes of the kind."""
    marginal: int | None = None
    """Linear relaxation with one more node minus that without, in points; None if a value is missing."""
    steps: tuple[Step, ...] = ()

    @property
    def name(self) -> str:
        """The kind in words, with the pool if one is set."""
        return kind_name(self.kind, self.pool)


class Sensitivity(Noun):
    """Values of more nodes by kind: marginal values and planned gains."""

    snapshot: str
    """Fingerprint of the snapshot."""
    policy: str
    """Fingerprint of the policy."""
    epoch: Timestamp
    seed: int
    objective: int | None
    """Objective of the plan without more nodes."""
    relaxation: int | None
    """Value of the linear relaxation without more nodes."""
    kinds: tuple[NodeValue, ...]
    failures: tuple[str, ...] = ()
    """Plans and relaxations that failed, with the reasons."""

    @property
    def sound(self) -> bool:
        """True if nothing failed."""
        return not self.failures


def kind_name(words: str, pool: str | None) -> str:
    """`8 × H100-80GB`, or `8 × H100-80GB, pool spot`."""
    return words if pool is None else f"{words}, pool {pool}"

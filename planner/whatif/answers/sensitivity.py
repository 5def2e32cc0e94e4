"""Sensitivity: what more nodes of each kind are worth, by the linear relaxation and by planning again."""

from __future__ import annotations

from gpuplan.models.base import Noun
from gpuplan.models.units import Count, Name, Timestamp


class Step(Noun):
    """So many nodes more, and the plan made anew with them."""

    nodes: Count
    gain: int | None = None
    """Points of that plan beyond those of the plan without; None if there is no plan."""
    jobs: int | None = None
    """Jobs that run more."""
    doubt: int | None = None
    """Points by which the gain may be off at most, either way: the gaps of both plans; None if unknown."""


class NodeValue(Noun):
    """What more nodes of one kind are worth."""

    kind: str
    """In words: `8 × H100-80GB`."""
    like: Name
    """The node, or the pool's template, that the new ones are like."""
    pool: Name | None = None
    """The pool whose nodes the new ones are, where the cluster has no such node yet."""
    nodes: Count
    """That there are."""
    marginal: int | None = None
    """Points of the linear relaxation with one node more beyond those without; None if it has no value."""
    steps: tuple[Step, ...] = ()

    @property
    def name(self) -> str:
        """In words, with the pool where nothing else tells it apart."""
        return kind_name(self.kind, self.pool)


class Sensitivity(Noun):
    """Values of more nodes, by kind; both ways of telling them side by side."""

    snapshot: str
    """Fingerprint."""
    policy: str
    """Fingerprint."""
    epoch: Timestamp
    seed: int
    objective: int | None
    """Of the plan without more nodes."""
    relaxation: int | None
    """Value of the linear relaxation without more nodes."""
    kinds: tuple[NodeValue, ...]
    failures: tuple[str, ...] = ()
    """What could not be planned or relaxed, and why."""

    @property
    def sound(self) -> bool:
        """True if there is nothing of the kind."""
        return not self.failures


def kind_name(words: str, pool: str | None) -> str:
    """`8 × H100-80GB`, or `8 × H100-80GB, pool spot`."""
    return words if pool is None else f"{words}, pool {pool}"

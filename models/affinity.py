"""Affinity: the nodes that a job may or should use, and the domains that replicas and jobs share or avoid."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field, model_validator

from gpuplan.models.base import Noun
from gpuplan.models.cluster import Level, Taint, TaintEffect
from gpuplan.models.units import (
    AtLeastOne,
    Label,
    Name,
)


class LocalityPreference(Noun):
    """How close together the replicas of a gang must, or should, be."""

    required: Level | None = None
    """All replicas must be in one domain of this level."""
    preferred: Level | None = None
    """All replicas should be in one domain of this level; each further domain has a price."""


class Spread(Noun):
    """Maximum number of replicas of the job in one domain of a level (as topology spread constraints)."""

    level: Level = Level.NODE
    """Level of the domains."""
    most: AtLeastOne = Field(default=1, alias="max")
    """Maximum number of replicas of the job in one domain."""


class MatchOperator(StrEnum):
    """Comparison of a node label (Kubernetes' terms)."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"


class NodeMatch(Noun):
    """A condition on a node's labels."""

    key: Name
    """Label to compare."""
    operator: MatchOperator = MatchOperator.IN
    """Comparison operator."""
    values: tuple[Label, ...] = ()
    """Values to compare with; none with `Exists` and `DoesNotExist`."""

    @model_validator(mode="after")
    def _values_where_compared(self) -> NodeMatch:
        compares = self.operator in (MatchOperator.IN, MatchOperator.NOT_IN)
        if compares != bool(self.values):
            expected = "values" if compares else "no values"
            raise ValueError(f"expected {expected} with operator {self.operator}, found {list(self.values)}")
        return self

    def holds(self, labels: dict[str, str]) -> bool:
        """True if the labels meet the condition; a missing label equals no value."""
        match self.operator:
            case MatchOperator.IN:
                return labels.get(self.key) in self.values
            case MatchOperator.NOT_IN:
                return labels.get(self.key) not in self.values
            case MatchOperator.EXISTS:
                return self.key in labels
            case MatchOperator.DOES_NOT_EXIST:
                return self.key not in labels


class PreferredNodes(Noun):
    """Preferred nodes of a job, and the cost of a replica on any other node."""

    match: NodeMatch
    """Condition on preferred nodes."""
    points: Annotated[int, Field(strict=True, ge=0, le=1_000_000)]
    """Cost of a replica on any other node, in points."""


class AntiAffinity(Noun):
    """Jobs that must not share a domain with this one: those that have all of the labels."""

    labels: dict[Name, Label] = Field(min_length=1)
    """Labels of the jobs that must not share a domain with this one; such a job has all of them."""
    level: Level = Level.NODE
    """Level of the domain that must not be shared."""


class Toleration(Noun):
    """A taint that the job accepts (as in Kubernetes, an absent key or value matches every one)."""

    key: Name | None = None
    """Tolerated taint key; absent means every key."""
    value: Label | None = None
    """Tolerated taint value; absent means every value."""
    effect: TaintEffect | None = None
    """Tolerated taint effect; absent means every effect."""

    def accepts(self, taint: Taint) -> bool:
        """True if this toleration covers the taint."""
        return (
            self.key in (None, taint.key)
            and self.value in (None, taint.value)
            and self.effect in (None, taint.effect)
        )

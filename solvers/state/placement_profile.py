"""Tenant: all that decides which nodes a replica of a class may use, and which it takes first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gpuplan.models.policy.policy import Profile
from gpuplan.models.problem.jobs import ClassRole

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuplan.models.cluster import Level
    from gpuplan.models.problem.jobs import JobClass, Shape
    from gpuplan.models.problem.problem import Problem


@dataclass(frozen=True, slots=True)
class AffinityTraits:
    """Attributes of a job that matter to other jobs on the same node or in the same domain."""

    workload: str = ""
    carries: tuple[int, ...] = ()
    avoids: tuple[tuple[int, Level], ...] = ()


NO_AFFINITY: Final = AffinityTraits()


@dataclass(frozen=True, slots=True)
class PlacementProfile:
    """Attributes of a class for placement; classes with equal tenants share a board."""

    shape: Shape
    rank: int = 0
    claim: int = 0
    node_points: tuple[tuple[int, int], ...] = ()
    """(group, points of a replica there)."""
    profile: Profile = Profile.PACK
    affinity: AffinityTraits = NO_AFFINITY
    own: int | None = None
    """Running job that grows; its own replicas do not conflict with the new ones."""
    ends: tuple[tuple[str | None, int], ...] = ()
    """(GPU model, slot before which it is gone if it starts in slot 0); empty with a single slot."""

    @classmethod
    def of(cls, problem: Problem, job_class: JobClass, traits: AffinityTraits) -> PlacementProfile:
        """The tenant of a class, without what makes no difference; `traits` are those that matter."""
        grows = job_class.role is ClassRole.GROW and traits != NO_AFFINITY
        return cls(
            shape=job_class.shape,
            rank=job_class.rank if problem.incumbents else 0,
            claim=job_class.claim,
            node_points=job_class.node_points,
            profile=job_class.profile,
            affinity=traits,
            own=job_class.incumbent if grows else None,
            ends=tuple((option.gpu_model, option.ends[0]) for option in job_class.options)
            if problem.slots > 1
            else (),
        )


def interned(tenants: Iterable[PlacementProfile]) -> tuple[PlacementProfile, ...]:
    """The same, with one object for all equal ones: these then have the same identity."""
    known: dict[PlacementProfile, PlacementProfile] = {}
    return tuple(known.setdefault(tenant, tenant) for tenant in tenants)

"""Patch: changes of a snapshot and its policy. apply_patch(…) → PatchedSnapshot: what to plan instead."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final, Literal, TypeAlias

from pydantic import Field

from gpuplan.models.base import Noun
from gpuplan.models.units import Name
from gpuplan.models.validation.base import SnapshotView
from gpuplan.models.validation.checks import CHECKS
from gpuplan.models.validation.entities import profiles_are_offered
from gpuplan.planner.whatif.patch.job_changes import AddJobs, RemoveJobs, ScaleDemand, SetJobs
from gpuplan.planner.whatif.patch.node_changes import (
    AddNodes,
    DrainNodes,
    FailNodes,
    RemoveNodes,
    ReplaceGpus,
    SetPool,
)
from gpuplan.planner.whatif.patch.setting_changes import SetPolicy, SetPrice, SetQuota, SetSolver
from gpuplan.planner.whatif.patch.world import SnapshotSections

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuplan.models.policy.policy import Policy
    from gpuplan.models.snapshot import Snapshot

Change: TypeAlias = Annotated[
    AddNodes
    | RemoveNodes
    | FailNodes
    | DrainNodes
    | ReplaceGpus
    | SetPool
    | SetPrice
    | SetQuota
    | SetJobs
    | AddJobs
    | RemoveJobs
    | ScaleDemand
    | SetPolicy
    | SetSolver,
    Field(discriminator="change"),
]
"""One change; `change` names the kind, and `apply` makes it in a world."""

_CHECKS: Final = tuple(check for check in CHECKS if check is not profiles_are_offered)
"""Checks of a changed world. It may have lost the only GPUs that offer a profile; then jobs just wait."""


class Patch(Noun):
    """Named changes of a snapshot and its policy; without changes the result is the base itself."""

    format_version: Literal["1.0"] = "1.0"
    """Version of the format of this document."""
    name: Name
    """Name of the scenario."""
    description: Annotated[str, Field(max_length=200)] = ""
    """One sentence for people."""
    changes: tuple[Change, ...] = ()
    """Changes to snapshot and policy, applied in this order; an empty list is the base itself."""


@dataclass(frozen=True, slots=True)
class PatchMisfit:
    """An entry of a patch that does not fit the snapshot."""

    section: str
    """`changes` or `expectations`."""
    index: int | None
    """Index of the entry; None if only all changes together are wrong."""
    message: str


@dataclass(frozen=True, slots=True)
class PatchedSnapshot:
    """A snapshot and its policy after the changes of a patch."""

    snapshot: Snapshot
    policy: Policy
    misfits: tuple[PatchMisfit, ...] = ()
    """If there are any, this is not what the patch describes."""


def apply_patch(
    snapshot: Snapshot, policy: Policy, patch: Patch, expected: Sequence[Name | None] = ()
) -> PatchedSnapshot:
    """
    Apply the changes in order, each to the result of the previous ones.

    `expected` holds the job of each expectation, or None; these jobs must exist afterwards.
    """
    world = SnapshotSections(snapshot.canonical(), policy)
    misfits = [
        PatchMisfit("changes", index, fault)
        for index, change in enumerate(patch.changes)
        for fault in change.apply(world)
    ]
    misfits += [
        PatchMisfit("expectations", index, fault)
        for index, job in enumerate(expected)
        if job is not None
        for fault in world.unknown("job", job, world.jobs)
    ]
    changed = world.snapshot()
    if changed is not world.base and not misfits:
        view = SnapshotView(changed)
        misfits += [PatchMisfit("changes", None, each.message) for check in _CHECKS for each in check(view)]
    return PatchedSnapshot(changed, world.policy, tuple(misfits))

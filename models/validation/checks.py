"""
Consistency checks of a whole snapshot: names are unique, references are known, nothing is held twice.

pydantic validates each entry alone; these checks compare entries with each other. They are pure: the loader
of a document turns locations into files and lines.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final, TypeAlias

from gpuplan.models.validation import calendar, cluster, dependencies, running, times
from gpuplan.models.validation import entities as entries
from gpuplan.models.validation.base import Inconsistency, SnapshotView

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gpuplan.models.snapshot import Snapshot

    Check: TypeAlias = Callable[[SnapshotView], Iterator[Inconsistency]]


class Section(StrEnum):
    """A section of a snapshot; a check may be valid only if certain sections are complete."""

    TAKEN_AT = "taken_at"
    CLUSTER = "cluster"
    QUEUES = "queues"
    JOBS = "jobs"
    FINISHED = "finished"


CHECKS: Final[dict[Check, frozenset[Section]]] = {
    entries.names_are_unique: frozenset(),
    entries.gpu_details_fit: frozenset(),
    entries.mig_layouts_are_legal: frozenset(),
    cluster.pools_exist: frozenset({Section.CLUSTER}),
    cluster.templates_take_jobs: frozenset(),
    cluster.datasets_exist: frozenset({Section.CLUSTER}),
    cluster.racks_exist: frozenset({Section.CLUSTER}),
    entries.parents_exist: frozenset({Section.QUEUES}),
    entries.queues_form_a_tree: frozenset({Section.QUEUES}),
    entries.guarantees_can_be_kept: frozenset({Section.QUEUES}),
    entries.queues_exist: frozenset({Section.QUEUES}),
    entries.profiles_are_offered: frozenset({Section.CLUSTER}),
    times.times_are_in_order: frozenset({Section.TAKEN_AT}),
    times.pool_scaling_is_past: frozenset({Section.TAKEN_AT}),
    times.finished_jobs_ended: frozenset({Section.TAKEN_AT}),
    times.hard_deadlines_are_given: frozenset(),
    times.promises_are_for_waiting_jobs: frozenset(),
    calendar.reserved_nodes_exist: frozenset({Section.CLUSTER}),
    calendar.enough_nodes_match: frozenset({Section.CLUSTER}),
    calendar.owners_exist: frozenset({Section.QUEUES}),
    dependencies.dependencies_exist: frozenset({Section.JOBS, Section.FINISHED}),
    dependencies.no_job_waits_for_itself: frozenset(),
    dependencies.dependency_count_is_possible: frozenset(),
    running.gangs_are_complete: frozenset(),
    running.placements_are_valid: frozenset({Section.CLUSTER}),
    running.profiles_in_use_are_valid: frozenset(),
    running.mig_use_fits_the_layout: frozenset({Section.CLUSTER}),
    running.gpus_are_held_once: frozenset(),
    running.node_capacity_is_kept: frozenset({Section.CLUSTER}),
}
"""All checks, with the sections that must be complete for each."""

DAMAGE_CHECKS: Final[tuple[Check, ...]] = (
    running.gangs_are_complete,
    running.placements_are_valid,
    running.mig_use_fits_the_layout,
    running.node_capacity_is_kept,
    entries.profiles_are_offered,
    cluster.racks_exist,
    calendar.reserved_nodes_exist,
    calendar.enough_nodes_match,
)
"""The checks that find damage."""


def inconsistencies(
    snapshot: Snapshot, *, incomplete: frozenset[Section] = frozenset()
) -> Iterator[Inconsistency]:
    """
    All inconsistencies between entries, including damage.

    Checks that need an incomplete section are skipped.
    """
    view = SnapshotView(snapshot)
    for check, needed in CHECKS.items():
        if not needed & incomplete:
            yield from check(view)

"""Which jobs make room for which other jobs, derived from the dependencies between the steps."""

from __future__ import annotations

from collections import defaultdict
from functools import cached_property
from typing import TYPE_CHECKING

from gpuplan.planner.plan_builder.ordering import JobStep, LayoutStep

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuplan.planner.plan_builder.ordering import Step


class Beneficiaries:
    """Jobs that take what other jobs release, for the steps of one plan."""

    def __init__(self, steps: Iterable[Step]) -> None:
        self._steps = {step.id: step for step in steps}

    def jobs_taking_over(self, step: JobStep) -> tuple[str, ...]:
        """
        Jobs that take the resources that a job released, sorted.

        If no job takes exactly these resources: the jobs with new replicas on the nodes that it left. They
        depend on its departure for another reason, such as the power of the node.
        """
        taking = self._followers.get(step.id)
        if taking is None:
            taking = {name for node in step.change.nodes_left for name in self._arriving.get(node, ())} - {
                step.change.job.name
            }
        return tuple(sorted(taking))

    def jobs_replaced(self, step: JobStep) -> tuple[str, ...]:
        """Jobs that released the places a job takes, sorted."""
        return tuple(sorted(self._followed.get(step.id, ())))

    def served(self, step: LayoutStep) -> tuple[str, ...]:
        """
        Jobs that use the instances a repartition creates, sorted.

        One of several repartitions of a GPU may create no instance that is used; its jobs are then all jobs
        that take instances of this GPU.
        """
        coming = self._coming.get((step.change.node, step.change.gpu), ())
        return tuple(sorted(self._served.get(step.id, coming)))

    def arriving(self, node: str) -> tuple[str, ...]:
        """Jobs with new replicas on a node, sorted."""
        return tuple(sorted(self._arriving.get(node, ())))

    def leaving(self, node: str) -> tuple[str, ...]:
        """Jobs that release replicas on a node, sorted."""
        return tuple(sorted(self._leaving.get(node, ())))

    @cached_property
    def _served(self) -> dict[str, set[str]]:
        """Jobs with a step that depends on another step, by the id of that other step."""
        served: dict[str, set[str]] = defaultdict(set)
        for step in self._steps.values():
            if isinstance(step, JobStep):
                for id_ in step.after:
                    served[id_].add(step.change.job.name)
        return served

    @cached_property
    def _coming(self) -> dict[tuple[str, int], set[str]]:
        """Jobs that take MIG instances, by node and GPU."""
        coming: dict[tuple[str, int], set[str]] = defaultdict(set)
        for step in self._steps.values():
            if isinstance(step, JobStep):
                for replica in step.change.arriving:
                    for held in replica.mig_slices:
                        coming[replica.node, held.index].add(step.change.job.name)
        return coming

    @cached_property
    def _followed(self) -> dict[str, set[str]]:
        """Jobs that released resources for a step, by the id of the step that takes them."""
        return {
            step.id: names
            for step in self._steps.values()
            if isinstance(step, JobStep) and (names := self._released_before(step))
        }

    @cached_property
    def _followers(self) -> dict[str, set[str]]:
        """Jobs that take the resources of a step, by the id of the step that releases them."""
        step_of = {
            step.change.job.name: step.id for step in self._steps.values() if isinstance(step, JobStep)
        }
        followers: dict[str, set[str]] = defaultdict(set)
        for id_, names in self._followed.items():
            taker = self._steps[id_]
            if isinstance(taker, JobStep):
                for name in names:
                    followers[step_of[name]].add(taker.change.job.name)
        return dict(followers)

    def _released_before(self, step: JobStep | LayoutStep) -> set[str]:
        """Jobs that released the resources that a step takes."""
        names: set[str] = set()
        for id_ in step.after:
            match earlier := self._steps[id_]:
                case JobStep():
                    names.add(earlier.change.job.name)
                case LayoutStep() if earlier.change.before is None:
                    # The job released whole GPUs, and the step takes MIG instances cut from them.
                    names |= self._released_before(earlier)
                case _:
                    pass
        return names

    @cached_property
    def _arriving(self) -> dict[str, set[str]]:
        arriving: dict[str, set[str]] = defaultdict(set)
        for step in self._steps.values():
            if isinstance(step, JobStep):
                for node in step.change.nodes_taken:
                    arriving[node].add(step.change.job.name)
        return arriving

    @cached_property
    def _leaving(self) -> dict[str, set[str]]:
        leaving: dict[str, set[str]] = defaultdict(set)
        for step in self._steps.values():
            if isinstance(step, JobStep):
                for node in step.change.nodes_left:
                    leaving[node].add(step.change.job.name)
        return leaving

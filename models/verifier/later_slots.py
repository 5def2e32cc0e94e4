"""The cluster in a later slot, which the rules about one instant check like the cluster now."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final

from gpuplan.models.cluster import MigInstance, Node, NodeGpus
from gpuplan.models.placement import MigSlice
from gpuplan.models.plan.violation import Rule, Violation
from gpuplan.models.verifier.context import Context, Interval
from gpuplan.models.verifier.job_changes import Change, JudgedPlacement
from gpuplan.models.verifier.rules import capacity as capacity_rules
from gpuplan.models.verifier.rules import placement as job_rules
from gpuplan.models.verifier.rules.quota import quota_limits

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator


INSTANT_RULES: Final[dict[Rule, Callable[[Context], Iterator[Violation]]]] = {
    Rule.GANG: job_rules.gang,
    Rule.REQUEST: job_rules.request,
    Rule.SELECTION: job_rules.selection,
    Rule.LOCALITY: job_rules.locality,
    Rule.SPREAD: job_rules.spread,
    Rule.ANTI_AFFINITY: job_rules.anti_affinity,
    Rule.GPU_CAPACITY: capacity_rules.gpu_capacity,
    Rule.FRACTIONAL_GPU: capacity_rules.fractional_gpu,
    Rule.MIG: capacity_rules.mig,
    Rule.CPU_MEMORY: capacity_rules.cpu_memory,
    Rule.POWER: capacity_rules.power,
    Rule.QUOTA: quota_limits,
}
"""Rules about a state and not about changes: they also check later slots."""

SHARED_RESOURCES: Final = (
    Rule.GPU_CAPACITY,
    Rule.FRACTIONAL_GPU,
    Rule.MIG,
    Rule.CPU_MEMORY,
    Rule.POWER,
    Rule.QUOTA,
)
"""Those of them about resources that jobs share."""


@dataclass(frozen=True)
class SlotState(Context):
    """
    The jobs present in a slot: new ones, which the rules check, and others, which count as unchanged.

    Between two starts resources are only released, so a job that fits at its start fits until its end.
    """

    stays: tuple[Interval, ...] = ()
    """The jobs present; their placements are those of the case."""
    new: Collection[str] = ()
    """Names of the jobs to check."""
    changed_nodes: tuple[Node, ...] = ()
    """Nodes in a state different from now."""

    @cached_property
    def nodes(self) -> dict[str, Node]:
        """Nodes by name, in their state in that slot."""
        return {**super().nodes, **{node.name: node for node in self.changed_nodes}}

    @cached_property
    def usage_after(self) -> dict[tuple[str, str], int]:
        """Usage of all jobs present: those that count as unchanged need not run now."""
        return self._usage(self.placements)

    @cached_property
    def judged_placements(self) -> tuple[JudgedPlacement, ...]:
        """All replicas of the jobs to check are new, and no others."""
        return tuple(
            JudgedPlacement(stay.placement, stay.job, Change.STARTED, range(len(stay.placement.replicas)))
            if stay.job.name in self.new
            else JudgedPlacement(stay.placement, stay.job, Change.KEPT, ())
            for stay in self.stays
        )


def state_in_slot(case: Context, stays: Iterable[Interval], slot: int, new: Collection[str]) -> SlotState:
    """The cluster in a slot, given all stays; the jobs in `new` are to be checked."""
    begun = [stay for stay in stays if stay.slot <= slot]
    there = tuple(stay for stay in begun if slot < stay.until)
    changed_nodes = tuple(_changed_nodes(case, begun, slot, new))
    return replace(state_if_all_present(case, there, new), changed_nodes=changed_nodes)


def state_if_all_present(case: Context, stays: Iterable[Interval], new: Collection[str]) -> SlotState:
    """The cluster as of now, with all these jobs present."""
    there = tuple(stays)
    placements = tuple(stay.placement for stay in there)
    return SlotState(
        case.snapshot,
        case.policy,
        placements,
        case.added,
        case.removed,
        known=case.facts,
        stays=there,
        new=new,
    )


def breaks_rule(then: SlotState, *rules: Rule) -> bool:
    """True if any of some rules about one instant is broken."""
    return any(True for rule in rules for _ in INSTANT_RULES[rule](then))


def _changed_nodes(
    case: Context, begun: Iterable[Interval], slot: int, new: Collection[str]
) -> Iterator[Node]:
    """Nodes that are ready by that slot, or have GPUs that were switched to MIG mode and stay in it."""
    used: dict[str, dict[int, set[MigInstance]]] = {}
    for stay in begun:
        for replica in stay.placement.replicas if stay.job.request.mig and stay.job.name not in new else ():
            for held in replica.gpus:
                if isinstance(held, MigSlice):
                    instance = MigInstance(profile=held.profile, start=held.start)
                    used.setdefault(replica.node, {}).setdefault(held.index, set()).add(instance)
    known = {**case.snapshot.cluster.node_by_name, **{node.name: node for node in case.added}}
    for name, node in known.items():
        opens = not node.ready and 0 < case.time.opening(node) <= slot
        gpus = _switched(node.gpus, used[name]) if node.gpus and name in used else node.gpus
        if opens or gpus is not node.gpus:
            yield node.model_copy(update={"ready": node.ready or opens, "gpus": gpus})


def _switched(gpus: NodeGpus, used: dict[int, set[MigInstance]]) -> NodeGpus:
    """The GPUs of a node after instances are created on some that are not in MIG mode now."""
    switched = {
        index: gpus.by_index[index].model_copy(update={"mig": tuple(sorted(instances, key=str))})
        for index, instances in used.items()
        if index in gpus.by_index and gpus.by_index[index].mig is None
    }
    if not switched:
        return gpus
    return gpus.model_copy(update={"details": tuple({**gpus.by_index, **switched}.values())})


def later_violations(case: Context) -> Iterator[Violation]:
    """Violations of the rules about one instant in each later slot in which a job starts."""
    for slot in sorted({stay.slot for stay in case.time.later}):
        begins = {stay.job.name for stay in case.time.later if stay.slot == slot}
        then = state_in_slot(case, (*case.time.now, *case.time.later), slot, begins)
        for rule in INSTANT_RULES.values():
            for violation in rule(then):
                yield replace(violation, subject=f"{violation.subject} in slot {slot}")

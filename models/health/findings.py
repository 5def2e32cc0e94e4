"""What the rules of health find in a snapshot, and the snapshot without the GPUs that they exclude."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from gpuplan.models.health.measurement import FATAL_XIDS, HealthAction, HealthPolicy, Measurement, RowRemap
from gpuplan.models.placement import GpuShare
from gpuplan.models.units import print_seconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gpuplan.models.cluster import Node, NodeGpus
    from gpuplan.models.job import Job
    from gpuplan.models.snapshot import Snapshot

    _Holders: TypeAlias = Mapping[tuple[str, int], list[tuple[str, int]]]
    """By node and GPU: the jobs that hold a part of it, each with the seconds since it began there."""


@dataclass(frozen=True, slots=True)
class HealthFinding:
    """What a rule found at one GPU."""

    node: str
    index: int
    text: str
    """What was measured, with its numbers."""
    fault: str
    """The rule that it breaks, in words that are the same in each epoch."""
    action: HealthAction
    """What follows; never `ignore`."""

    def __str__(self) -> str:
        effect = ", so no job starts there" if self.action is HealthAction.EXCLUDE else ""
        return f"GPU {self.index} of {self.node}: {self.text}{effect}"


def health_findings(snapshot: Snapshot, rules: HealthPolicy) -> tuple[HealthFinding, ...]:
    """What the rules find in the measurements of a snapshot, by node and GPU."""
    return tuple(_found(snapshot, rules, _holders(snapshot) if snapshot.measured else {}))


def with_exclusions(snapshot: Snapshot, rules: HealthPolicy) -> Snapshot:
    """
    The snapshot in which the GPUs that the rules exclude are unhealthy; itself if there are none.

    GPUs that are unhealthy already stay as they are, so that the rules may be asked again.
    """
    faults: dict[str, dict[int, list[str]]] = defaultdict(lambda: defaultdict(list))
    for each in health_findings(snapshot, rules):
        if each.action is HealthAction.EXCLUDE:
            faults[each.node][each.index].append(each.fault)
    nodes = tuple(
        _without(node, {index: "; ".join(told) for index, told in faults[node.name].items()})
        if node.name in faults
        else node
        for node in snapshot.cluster.nodes
    )
    if all(new is old for new, old in zip(nodes, snapshot.cluster.nodes, strict=True)):
        return snapshot
    return snapshot.with_nodes(nodes)


def lasting_faults(snapshot: Snapshot, rules: HealthPolicy) -> set[tuple[str, int]]:
    """GPUs, as (node, index), that the rules exclude or have excluded, whatever jobs hold them by now."""
    held: _Holders = {(each.node, each.index): [("", each.period)] for each in snapshot.measured}
    return {
        (each.node, each.index)
        for each in _found(snapshot, rules, held)
        if each.action is HealthAction.EXCLUDE
    }


def _found(snapshot: Snapshot, rules: HealthPolicy, held: _Holders) -> Iterator[HealthFinding]:
    nodes = snapshot.cluster.node_by_name
    for seen in snapshot.measured:
        node = nodes.get(seen.node)
        if node is None or seen.index >= node.gpu_count:
            continue
        for text, fault, action in _judged(seen, rules, held.get((seen.node, seen.index), ())):
            if action is not HealthAction.IGNORE:
                yield HealthFinding(seen.node, seen.index, text, fault, action)


def _judged(
    seen: Measurement, rules: HealthPolicy, holders: list[tuple[str, int]] | tuple[()]
) -> Iterator[tuple[str, str, HealthAction]]:
    """What was measured, the rule in words, and what follows."""
    heat, idle = rules.heat, rules.idle
    if (hot := seen.hot_for(heat.celsius)) is not None and hot >= heat.lasting:
        degrees = max(at for at, seconds in seen.hot.items() if seconds == hot and at >= heat.celsius)
        limit = f"{heat.celsius} °C or more for {print_seconds(heat.lasting)}"
        peak = f", up to {seen.temperature} °C" if (seen.temperature or 0) > degrees else ""
        yield f"{degrees} °C or more for {print_seconds(hot)}{peak}", limit, heat.action
    quiet = seen.idle_for(idle.percent)
    jobs = [(name, since) for name, since in holders if quiet is not None and since >= idle.lasting]
    if quiet is not None and quiet >= idle.lasting and jobs and len(jobs) == len(holders):
        names = ", ".join(sorted(name for name, _ in jobs))
        since = print_seconds(min(quiet, *(since for _, since in jobs)))
        busy = f"at most {idle.percent} % busy" if idle.percent else "0 % busy"
        limit = f"{busy} for {print_seconds(idle.lasting)} with a job on it"
        yield f"{busy} for {since}, held by {names}", limit, idle.action
    yield from _errors(seen, rules)


def _errors(seen: Measurement, rules: HealthPolicy) -> Iterator[tuple[str, str, HealthAction]]:
    """Errors of the hardware and of programs."""
    for code, since in sorted(seen.xids.items()):
        action = rules.of_xid(code)
        # An exporter tells the last XID until it is restarted; one that excludes no job is told while new.
        is_old = 0 < seen.period <= since
        if action is HealthAction.EXCLUDE or not is_old:
            name = f" ({FATAL_XIDS[code]})" if code in FATAL_XIDS else ", an error of a program"
            since_text = f"{print_seconds(since)} ago" if since else "now"
            ago = f"more than {since_text}" if is_old else since_text
            yield f"XID {code}{name}, {ago}", f"XID {code}{name}", action
    if seen.uncorrectable:
        many = f"{seen.uncorrectable:,} uncorrectable ECC error{'s' if seen.uncorrectable > 1 else ''}"
        yield many, "uncorrectable ECC errors since its last reset", rules.uncorrectable
    if seen.row_remap is not None:
        failed = seen.row_remap is RowRemap.FAILED
        text = "row remapping failed" if failed else "row remapping waits for a reset"
        yield text, text, rules.row_remap


def _holders(snapshot: Snapshot) -> _Holders:
    """Jobs with a share of each measured GPU; MIG instances tell no utilization of their own."""
    measured = {(each.node, each.index) for each in snapshot.measured if each.idle}
    found: dict[tuple[str, int], list[tuple[str, int]]] = defaultdict(list)
    for job in snapshot.jobs if measured else ():
        for replica in job.running_replicas:
            for part in replica.gpus:
                if isinstance(part, GpuShare) and (replica.node, part.index) in measured:
                    found[replica.node, part.index].append((job.name, _seconds_there(job, snapshot)))
    return found


def _seconds_there(job: Job, snapshot: Snapshot) -> int:
    """Time since a running job last began to work at its places."""
    running = job.running
    if running is None:
        return 0
    began = max(filter(None, (running.started_at, running.resumed_at, running.resized_at)))
    return max(0, int((snapshot.taken_at - began).total_seconds()))


def _without(node: Node, faults: dict[int, str]) -> Node:
    """The node in which these GPUs are unhealthy."""
    gpus = node.gpus
    if gpus is None or not any(gpus.by_index[index].healthy for index in faults):
        return node
    return node.model_copy(update={"gpus": with_faults(gpus, faults)})


_LONGEST_FAULT = 253
"""Characters of a fault in a snapshot."""


def with_faults(gpus: NodeGpus, faults: Mapping[int, str]) -> NodeGpus:
    """The GPUs of a node, of which these are unhealthy; those that are so already keep their fault."""
    changed = {
        index: gpus.by_index[index].model_copy(update={"healthy": False, "fault": fault[:_LONGEST_FAULT]})
        for index, fault in faults.items()
        if gpus.by_index[index].healthy
    }
    given = {gpu.index: gpu for gpu in gpus.details}
    return gpus.model_copy(update={"details": tuple(gpu for _, gpu in sorted((given | changed).items()))})

"""
Rules about one job and its places: what its replicas hold, eligible nodes, locality, spread, anti-affinity.

Unchanged running jobs are not checked; for changed ones only the changed part is checked.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Final, TypeAlias

from gpuplan.models.affinity import MatchOperator, NodeMatch
from gpuplan.models.cluster import Level, Node, NodeGpus
from gpuplan.models.mig import mig_geometry
from gpuplan.models.placement import GpuShare, MigSlice, Replica
from gpuplan.models.plan.violation import Rule, Violation
from gpuplan.models.units import MILLI, print_milli
from gpuplan.models.verifier.job_changes import Change
from gpuplan.models.verifier.messages import (
    CORES,
    DISK,
    MEMORY,
    amounts_by_unit,
    format_amount,
    format_count,
    truncated_names,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gpuplan.models.job import Job, ResourceRequest
    from gpuplan.models.verifier.context import Context
    from gpuplan.models.verifier.job_changes import JudgedPlacement

_LEVEL_WORDS: Final = {
    Level.NODE: "node",
    Level.NVLINK_ISLAND: "NVLink island",
    Level.RACK: "rack",
    Level.ZONE: "zone",
    Level.REGION: "region",
}
_Labels: TypeAlias = frozenset[tuple[str, str]]
_Residents: TypeAlias = dict[tuple[str, ...], dict[str, bool]]
"""By domain: the jobs in it, each with whether it has a new replica there."""


def assignment(case: Context) -> Iterator[Violation]:
    """
    Each placement names a job of the snapshot, once, in slot 0.

    A held job does not start, and neither does a job that has failed more often than it may be tried again.
    """
    for name, times in case.placement_counts.items():
        if name not in case.jobs:
            found = "no such job in the snapshot"
            yield Violation(Rule.ASSIGNMENT, f"job {name}", found, "a job of the snapshot")
        if times > 1:
            found = format_count(times, "placement")
            yield Violation(Rule.ASSIGNMENT, f"job {name}", found, "1 placement")
    for job, _ in case.with_change(Change.STARTED):
        if job.held:
            yield Violation(Rule.ASSIGNMENT, f"job {job.name}", "a held job that starts", "a held job waits")
        if job.retry is not None and job.failures > (most := job.retry.retries):
            found = f"a start after {format_count(job.failures, 'failure')}"
            yield Violation(Rule.ASSIGNMENT, f"job {job.name}", found, f"at most {most} retries")
    for placement in case.placements:
        if placement.slot:
            yield Violation(Rule.ASSIGNMENT, f"job {placement.job}", f"slot {placement.slot}", "slot 0")


def gang(case: Context) -> Iterator[Violation]:
    """The number of replicas is within the gang's range, and all with GPUs are on one GPU model."""
    for job, occupant in case.changed:
        replicas = occupant.placement.replicas
        count, least, most = len(replicas), job.gang.minimum, job.gang.maximum
        if not least <= count <= most:
            allowed = f"{least} to {most} replicas" if job.gang.elastic else format_count(most, "replica")
            yield Violation(Rule.GANG, f"job {job.name}", format_count(count, "replica"), allowed)
        models = case.gpu_models(replicas)
        if len(models) > 1:
            yield Violation(
                Rule.GANG, f"job {job.name}", f"GPU models {truncated_names(models)}", "1 GPU model"
            )


def request(case: Context) -> Iterator[Violation]:
    """Each new replica holds exactly the request, with whole GPUs on distinct indices."""
    asked: dict[int, tuple[list[str], dict[str, int]]] = {}
    for job, occupant in case.arrivals:
        # Jobs of one snapshot share equal requests.
        if (known := asked.get(id(job.request))) is None:
            known = asked[id(job.request)] = _requested_gpus(job.request), _requested_amounts(job.request)
        wanted_gpus, wanted = known
        for number in occupant.new:
            replica = occupant.placement.replicas[number]
            held_gpus, held = _held_gpus(replica), amounts_by_unit(replica)
            faults = [(_in_words(held_gpus), _in_words(wanted_gpus))] if held_gpus != wanted_gpus else []
            faults += [(f"gpu {index} more than once", "each GPU once") for index in _repeated(replica)]
            if held != wanted:
                faults += [
                    (format_amount(held.get(unit, 0), unit), format_amount(wanted.get(unit, 0), unit))
                    for unit in held.keys() | wanted.keys()
                    if held.get(unit, 0) != wanted.get(unit, 0)
                ]
            for found, allowed in faults:
                yield Violation(Rule.REQUEST, f"job {job.name} replica {number}", found, allowed)


def _repeated(replica: Replica) -> set[int]:
    """GPUs that the replica lists twice; MIG instances do not count, since one GPU can have several."""
    indices = [held.index for held in replica.gpus if isinstance(held, GpuShare)]
    if len(indices) == len(set(indices)):
        return set()
    return {index for index in indices if indices.count(index) > 1}


def _held_gpus(replica: Replica) -> list[str]:
    """Parts of GPUs by kind, with the words and order of `_requested_gpus`."""
    return sorted(
        _share_kind(held.milli) if isinstance(held, GpuShare) else f"{held.profile} instance"
        for held in replica.gpus
    )


def _requested_gpus(request: ResourceRequest) -> list[str]:
    shares = [_share_kind(request.gpu_milli)] if request.gpu_milli else []
    instances = [f"{profile} instance" for profile, count in request.mig.items() for _ in range(count)]
    return sorted([_share_kind(MILLI)] * request.gpus + shares + instances)


def _share_kind(milli: int) -> str:
    return "whole GPU" if milli == MILLI else f"{print_milli(milli)} GPU share"


def _in_words(kinds: list[str]) -> str:
    return ", ".join(format_count(count, kind) for kind, count in Counter(kinds).items()) or "no GPU"


def _requested_amounts(request: ResourceRequest) -> dict[str, int]:
    return {
        CORES: request.cpu_milli,
        MEMORY: request.memory_mib,
        DISK: request.disk_mib,
        **request.resources,
    }


def selection(case: Context) -> Iterator[Violation]:
    """
    The node of each new replica exists, accepts jobs and suits the job; each GPU exists and suits the job.

    A node with GPUs is not added for jobs without GPUs.
    """
    for job, occupant in case.arrivals:
        for name in sorted({replica.node for replica in occupant.new_replicas}):
            subject = f"job {job.name} on node {name}"
            if node := case.nodes.get(name):
                for found, allowed in _node_faults(job, node):
                    yield Violation(Rule.SELECTION, subject, found, allowed)
                if case.is_added(name) and node.gpus and not job.request.needs_gpu:
                    found = "a job without GPUs on an added node with GPUs"
                    yield Violation(Rule.SELECTION, subject, found, "a job that needs GPUs")
            else:
                yield Violation(Rule.SELECTION, subject, "no such node", "a node of the snapshot")
        for replica in occupant.new_replicas:
            if node := case.nodes.get(replica.node):
                for held in replica.gpus:
                    subject = f"job {job.name} on node {node.name} gpu {held.index}"
                    for found, allowed in _gpu_faults(job, node.gpus, held):
                        yield Violation(Rule.SELECTION, subject, found, allowed)


def _node_faults(job: Job, node: Node) -> Iterator[tuple[str, str]]:
    """Faults of a node for a job as (found, allowed)."""
    if not node.ready:
        yield "not ready", "a ready node"
    if node.cordoned:
        yield "cordoned", "a node that is not cordoned"
    if node.drain:
        yield "to be drained", "a node that is not to be drained"
    for key, value in job.node_selector.items():
        if node.labels.get(key) != value:
            yield _label(node, key), f"label {key}={value}"
    for match in job.affinity:
        if not match.holds(node.labels):
            yield _label(node, match.key), _condition(match)
    if job.regions and node.region not in job.regions:
        yield (
            f"region {node.region}" if node.region else "no region",
            f"region {truncated_names(job.regions)}",
        )
    # A cluster that chooses GPUs itself may choose the unhealthy one.
    sick = [gpu.index for gpu in node.gpus.details if not gpu.healthy] if node.gpus else []
    if job.request.needs_gpu and node.gpus and not node.gpus.pinned and sick:
        found = f"any GPUs of the node, of which {truncated_names(map(str, sick))} unhealthy"
        yield found, "healthy GPUs, or GPUs that the cluster can be told"
    for taint in node.taints:
        if not job.tolerates(taint):
            yield f"taint {taint.key}={taint.value}:{taint.effect}", "tolerated taints"


def _label(node: Node, key: str) -> str:
    return f"label {key}={node.labels[key]}" if key in node.labels else f"no label {key}"


def _condition(match: NodeMatch) -> str:
    match match.operator:
        case MatchOperator.IN:
            return f"label {match.key} in {truncated_names(match.values)}"
        case MatchOperator.NOT_IN:
            return f"label {match.key} not in {truncated_names(match.values)}"
        case MatchOperator.EXISTS:
            return f"a label {match.key}"
        case MatchOperator.DOES_NOT_EXIST:
            return f"no label {match.key}"


def _gpu_faults(job: Job, gpus: NodeGpus | None, held: GpuShare | MigSlice) -> Iterator[tuple[str, str]]:
    """Faults of one GPU for a job as (found, allowed)."""
    if gpus is None or held.index >= gpus.count:
        yield "no such GPU", f"one of the node's {format_count(gpus.count if gpus else 0, 'GPU')}"
        return
    if not gpus.by_index[held.index].healthy:
        yield "unhealthy", "a healthy GPU"
    if job.gpu_models and gpus.model not in job.gpu_models:
        yield f"GPU model {gpus.model}", f"GPU model {truncated_names(job.gpu_models)}"
    if (found := _gpu_memory_mib(gpus, held)) < (needed := job.request.gpu_memory_mib):
        yield f"{found} MiB of GPU memory", f"at least {needed} MiB"
    if gpus.time_sliced and not job.time_slicing and isinstance(held, GpuShare) and held.milli < MILLI:
        yield "a share that is time-sliced", "shares with isolation, or a job that allows time slicing"


def _gpu_memory_mib(gpus: NodeGpus, held: GpuShare | MigSlice) -> int:
    """Memory of a part of a GPU: in proportion to the share, or to the memory slices."""
    if isinstance(held, GpuShare):
        return gpus.memory_mib * held.milli // MILLI
    geometry = mig_geometry(gpus.model)
    if geometry is None or held.profile not in geometry.profiles:
        return 0
    return gpus.memory_mib * geometry.profiles[held.profile].memory_slices // geometry.memory_slices


def locality(case: Context) -> Iterator[Violation]:
    """Replicas on several nodes are in one domain of the required level."""
    for job, occupant in case.changed:
        level = job.locality.required
        if level is None:
            continue
        names = {replica.node for replica in occupant.placement.replicas} & case.nodes.keys()
        # One node is one domain of each level, also where it is in no rack or island at all.
        if len(names) <= 1:
            continue
        domains = {case.nodes[name].domain(level) for name in names}
        word = _LEVEL_WORDS[level]
        if None in domains:
            outside = truncated_names(name for name in names if case.nodes[name].domain(level) is None)
            yield Violation(Rule.LOCALITY, f"job {job.name}", f"nodes in no {word}: {outside}", f"1 {word}")
        elif len(domains) > 1:
            yield Violation(Rule.LOCALITY, f"job {job.name}", format_count(len(domains), word), f"1 {word}")


def spread(case: Context) -> Iterator[Violation]:
    """No domain of the job's spread level has more of its replicas than the maximum."""
    for job, occupant in case.changed:
        if job.spread is None:
            continue
        level, most = job.spread.level, job.spread.most
        # A node in no domain of the level counts as a domain of its own.
        domains = Counter(case.domain(replica.node, level) for replica in occupant.placement.replicas)
        for domain, count in domains.items():
            if count > most:
                found = f"{format_count(count, 'replica')} {_place(domain, level)}"
                allowed = f"at most {format_count(most, 'replica')}"
                yield Violation(Rule.SPREAD, f"job {job.name}", found, allowed)


def anti_affinity(case: Context) -> Iterator[Violation]:
    """A job with anti-affinity shares no domain with another job with all the labels, if one is new there."""
    if not case.facts.some_avoid_others:
        return
    avoiders: dict[tuple[_Labels, Level], list[JudgedPlacement]] = defaultdict(list)
    for occupant in case.judged_placements:
        for avoided in occupant.job.anti_affinity if occupant.job else ():
            avoiders[frozenset(avoided.labels.items()), avoided.level].append(occupant)
    for (labels, level), those in avoiders.items():
        bearers = (each for each in case.judged_placements if each.job and labels <= each.job.labels.items())
        here, there = _residents(case, those, level), _residents(case, bearers, level)
        wanted = truncated_names(f"{key}={value}" for key, value in labels)
        for domain in here.keys() & there.keys():
            for name, others in _meetings(here[domain], there[domain]):
                found = f"{_place(domain, level)} with {truncated_names(others)}"
                allowed = f"no other job with {wanted} there"
                yield Violation(Rule.ANTI_AFFINITY, f"job {name}", found, allowed)


def _residents(case: Context, occupants: Iterable[JudgedPlacement], level: Level) -> _Residents:
    found: _Residents = defaultdict(dict)
    for occupant in occupants:
        name = occupant.placement.job
        for number, replica in enumerate(occupant.placement.replicas):
            jobs = found[case.domain(replica.node, level)]
            jobs[name] = jobs.get(name, False) or number in occupant.new
    return found


def _meetings(avoiders: dict[str, bool], bearers: dict[str, bool]) -> Iterator[tuple[str, list[str]]]:
    """Each job with anti-affinity and the jobs in conflict with it, where one of the two is new."""
    newcomers = [name for name, new in bearers.items() if new]
    for name, new in avoiders.items():
        if others := [other for other in (bearers if new else newcomers) if other != name]:
            yield name, others


def _place(domain: tuple[str, ...], level: Level) -> str:
    """A domain in words: `in rack r0`, `on node n3`; the node if it is in no domain."""
    own = len(domain) > len(Level) or level is Level.NODE
    return f"on node {domain[-1]}" if own else f"in {_LEVEL_WORDS[level]} {domain[-1]}"

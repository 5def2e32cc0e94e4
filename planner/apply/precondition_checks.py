"""Check of each kind of precondition: what was found, and the drift if it does not hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpuplan.models.cluster import MigInstance
from gpuplan.models.eligibility.free_resources import memory_slices
from gpuplan.models.placement import GpuShare, MigSlice, node_names, same_holdings
from gpuplan.models.units import print_milli, print_timestamp

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from gpuplan.models.cluster import Node
    from gpuplan.models.eligibility.free_resources import FreeResources
    from gpuplan.models.job import Job
    from gpuplan.models.placement import Placement
    from gpuplan.models.plan.precondition import Free, GpuLayout, JobRuns, JobWaits


@dataclass(frozen=True, slots=True, order=True)
class DriftItem:
    """One difference between the cluster and the plan's expectation."""

    subject: str
    """Such as `node h100-03` or `job train-a`."""
    change: str
    """What happened to it, such as `lost 8 GPUs`."""
    expected: str
    found: str

    def __str__(self) -> str:
        return f"{self.subject} {self.change}: expected {self.expected}, found {self.found}"


@dataclass(frozen=True, slots=True)
class CheckResult:
    """Result of checking one precondition."""

    text: str
    """What was found."""
    drift: DriftItem | None = None
    """Why it does not hold; None if it does."""


def check_result(drift: DriftItem | None, text: str) -> CheckResult:
    """Result with the given text, or with the drift if there is any."""
    return CheckResult(drift.found if drift else text, drift)


def check_job_waits(wanted: JobWaits, job: Job | None, running: Placement | None) -> CheckResult:
    """The job is pending and its description is unchanged; `running` is its current placement."""
    drift = waiting_drift(wanted.job, job)
    if drift is None and running is not None:
        drift = DriftItem(f"job {wanted.job}", "is already running", "waiting", "started by this plan")
    if drift is None and job is not None:
        drift = _description_drift(job, wanted.job_fingerprint)
    return check_result(drift, f"job {wanted.job} waits, unchanged")


def check_job_runs(
    wanted: JobRuns, job: Job | None, running: Placement | None, planned: Placement | None
) -> CheckResult:
    """The job's description and places are unchanged; `running` is its current placement."""
    drift = running_drift(wanted.job, job, running, planned)
    if drift is None and job is not None:
        drift = _description_drift(job, wanted.job_fingerprint)
    where = _places(running) if running else ""
    return check_result(drift, f"job {wanted.job} runs on {where}, unchanged")


def check_job_damaged(
    name: str,
    job: Job | None,
    at: Placement | None,
    running: Placement | None,
    *,
    planned: tuple[Placement | None, Placement | None],
) -> CheckResult:
    """
    The job runs where the plan found it, at `at`, and some of these places are lost.

    It also holds if the job has released them already: `running` equals its placement after the release.
    `planned` are its placements before and after the release.
    """
    before, after = planned
    if at is None and job is not None and _are_same(running, after):
        return CheckResult(f"job {name} has released its lost places")
    if at is None and job is not None and running is not None:
        subject, change = f"job {name}", "has all its places again"
        return check_result(DriftItem(subject, change, "lost places", "places that hold"), "")
    drift = running_drift(name, job, at, before)
    return check_result(drift, f"job {name} has lost places on {_places(at) if at else ''}")


def check_free(wanted: Free, node: Node | None, free: FreeResources | None) -> CheckResult:
    """The node is ready, and the wanted amounts are free."""
    subject = f"node {wanted.node}"
    if node is None or free is None or not node.schedulable:
        drift = unschedulable_drift(wanted.node, node)
        return CheckResult(drift.found, drift)
    needs = [(name, amount, found) for name, amount, found in _amounts(wanted, node, free) if amount]
    text = (
        f"{subject} has free {_listed((name, found) for name, _, found in needs)}"
        if needs
        else f"{subject} is ready"
    )
    short = [need for need in needs if need[1] > need[2]]
    if not short:
        return CheckResult(text)
    drift = DriftItem(
        subject,
        "has too little free",
        _listed((name, amount) for name, amount, _ in short),
        _listed((name, found) for name, _, found in short),
    )
    return CheckResult(text, drift)


def check_gpu_layout(
    wanted: GpuLayout, node: Node | None, used: Collection[GpuShare | MigSlice]
) -> CheckResult:
    """The GPU has exactly the expected MIG instances, and those to be destroyed are not `used`."""
    subject = f"node {wanted.node} gpu {wanted.gpu}"
    if node is None:
        return check_result(missing_node_drift(wanted.node), "")
    gpu = node.gpus.by_index.get(wanted.gpu) if node.gpus else None
    if gpu is None:
        return check_result(DriftItem(subject, "is gone", "a GPU", "no such GPU"), "")
    found = _layout(gpu.mig)
    if found != _layout(wanted.instances):
        return check_result(
            DriftItem(subject, "has another MIG layout", _layout(wanted.instances), found), ""
        )
    here = [held for held in used if held.index == wanted.gpu]
    if wanted.instances is None:
        busy = ["the GPU"] * bool(here)
    else:
        in_use = {(held.profile, held.start) for held in here if isinstance(held, MigSlice)}
        busy = [_instance(idle) for idle in wanted.idle if (idle.profile, idle.start) in in_use]
    if busy:
        which = ", ".join(sorted(busy))
        return check_result(DriftItem(subject, "is in use", f"{which} idle", f"{which} in use"), "")
    return CheckResult(f"{subject} has MIG layout {found}")


def check_node_empty(name: str, node: Node | None, jobs: Collection[str]) -> CheckResult:
    """The node exists and no job runs on it."""
    if node is None:
        return check_result(missing_node_drift(name), "")
    drift = None
    if jobs:
        drift = DriftItem(f"node {name}", "is in use", "no job running", f"{', '.join(sorted(jobs))} running")
    return check_result(drift, f"node {name} is empty")


def check_node_exists(name: str, node: Node | None) -> CheckResult:
    """The node exists."""
    return check_result(missing_node_drift(name) if node is None else None, f"node {name} exists")


def check_node_absent(name: str, node: Node | None) -> CheckResult:
    """No node has the name."""
    return check_result(None if node is None else present_node_drift(name), f"no node {name} exists")


def waiting_drift(name: str, job: Job | None) -> DriftItem | None:
    """Drift of a job that is expected to be pending; None if it is."""
    if job is None:
        return DriftItem(f"job {name}", "is gone", "a waiting job", "no such job")
    if job.running is not None:
        nodes = ", ".join(sorted(node_names(job.running.replicas)))
        since = print_timestamp(job.running.started_at)
        return DriftItem(f"job {name}", "is already running", "waiting", f"running on {nodes} since {since}")
    return None


def running_drift(
    name: str, job: Job | None, running: Placement | None, planned: Placement | None
) -> DriftItem | None:
    """Drift of a job that is expected to run at `planned`; None if it does, or if `planned` is None."""
    expected = f"running on {_places(planned)}" if planned else "running"
    if job is None:
        return DriftItem(f"job {name}", "is gone", expected, "no such job")
    if running is None:
        return DriftItem(f"job {name}", "does not run any more", expected, "waiting")
    if planned is None or same_holdings(planned.replicas, running.replicas):
        return None
    if _places(planned) != _places(running):
        return DriftItem(f"job {name}", "runs elsewhere", expected, f"running on {_places(running)}")
    return DriftItem(
        f"job {name}", f"holds something else on {_places(planned)}", _held(planned), _held(running)
    )


def missing_node_drift(name: str) -> DriftItem:
    """Drift of an expected node that is missing."""
    return DriftItem(f"node {name}", "is gone", "a node", "no such node")


def present_node_drift(name: str) -> DriftItem:
    """Drift of a node to be added that exists already."""
    return DriftItem(f"node {name}", "is there already", "no node of this name", "one")


def unschedulable_drift(name: str, node: Node | None) -> DriftItem:
    """Drift of a node that takes no jobs: it is gone, down, cordoned or to be drained."""
    if node is None:
        return DriftItem(f"node {name}", "is gone", "a node that is ready", "no such node")
    why = f" ({node.state_reason})" if node.state_reason else ""
    if not node.ready:
        return DriftItem(f"node {name}", "is down", "ready", f"not ready{why}")
    if node.cordoned:
        return DriftItem(f"node {name}", "was cordoned", "not cordoned", f"cordoned{why}")
    return DriftItem(f"node {name}", "is to be drained", "nothing to drain it", "drain set")


def _description_drift(job: Job, expected: str) -> DriftItem | None:
    if (found := job.fingerprint()) == expected:
        return None
    return DriftItem(
        f"job {job.name}", "was changed", f"description {expected[:8]}", f"description {found[:8]}"
    )


def _are_same(one: Placement | None, other: Placement | None) -> bool:
    if one is None or other is None:
        return one is other
    return same_holdings(one.replicas, other.replicas)


def _places(placement: Placement) -> str:
    return ", ".join(sorted(placement.nodes))


def _held(placement: Placement) -> str:
    parts = sorted(
        f"{replica.node} gpu {held.index}" if isinstance(held, GpuShare) else f"{replica.node} {_part(held)}"
        for replica in placement.replicas
        for held in replica.gpus
    )
    return f"{len(placement.replicas)} replicas with {', '.join(parts) or 'no GPU'}"


def _instance(instance: MigInstance | MigSlice) -> str:
    return f"{instance.profile} at {instance.start}"


def _part(held: MigSlice) -> str:
    return f"gpu {held.index} {_instance(held)}"


def _layout(instances: Iterable[MigInstance] | None) -> str:
    """Text of a MIG layout; equal layouts have equal texts."""
    if instances is None:
        return "none: MIG mode is off"
    ordered = sorted(instances, key=lambda instance: (instance.start, instance.profile))
    return ", ".join(map(_instance, ordered)) or "without instances"


def _amounts(wanted: Free, node: Node, free: FreeResources) -> Iterator[tuple[str, int | float, int | float]]:
    """Name, amount wanted and amount free of each resource that a precondition may name."""
    shares: dict[int, int] = {}
    layouts = node.gpus.by_index if node.gpus else {}
    for held in wanted.gpus:
        if isinstance(held, GpuShare):
            shares[held.index] = shares.get(held.index, 0) + held.milli
            continue
        instance = MigInstance(profile=held.profile, start=held.start)
        there = held.index in layouts and instance in (layouts[held.index].mig or ())
        name = f"MIG {held.profile} of GPU {held.index} at {held.start}"
        slices = {(held.index, piece) for piece in memory_slices(held, free.geometry)}
        yield name, 1, int(there and slices.isdisjoint(free.mig_used))
    for index, milli in sorted(shares.items()):
        milli_there = free.gpu_milli[index] if index < len(free.gpu_milli) else 0
        yield f"GPU {index}", print_milli(milli), print_milli(milli_there)
    yield "CPUs", print_milli(wanted.cpu_milli), print_milli(free.cpu_milli)
    yield "MiB memory", wanted.memory_mib, free.memory_mib
    yield "MiB disk", wanted.disk_mib, free.disk_mib
    for name, amount in sorted(wanted.resources.items()):
        yield name, amount, free.resources.get(name, 0)


def _listed(amounts: Iterable[tuple[str, int | float]]) -> str:
    return ", ".join(
        f"{amount} of {name}" if name.startswith(("GPU", "MIG")) else f"{amount} {name}"
        for name, amount in amounts
    )

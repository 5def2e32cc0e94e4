"""
Prometheus metrics of a run, with their names, labels and meanings, and the values of the gauges.

Counters and histograms grow with events. All gauges are replaced together after each epoch, so that a scrape
sees a consistent set, and series of removed objects disappear.
"""

from __future__ import annotations

import logging
import platform
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import prometheus_client
from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.core import GaugeMetricFamily

from gpuplan.models.dependency import JobOutcome
from gpuplan.models.eligibility.free_resources import FreeResources, free_resources_by_node
from gpuplan.models.errors import PlannerError
from gpuplan.models.plan.actions import Change, Migrate, Preempt, Start, changes_of
from gpuplan.models.plan.plan import DeadlineState, Plan
from gpuplan.models.plan.reason import ReasonCode
from gpuplan.models.queue import ALL_MODELS, with_all_below
from gpuplan.models.units import MILLI, SECONDS_PER_HOUR
from gpuplan.planner.analysis.metrics import (
    allocation_ratio,
    fragmentation_ratio,
    gpus_in_use,
    hourly_cost,
    jain_index,
)
from gpuplan.planner.analysis.quota_headroom import usage_by_queue, usage_of_resource
from gpuplan.planner.analysis.target_cluster import cluster_after
from gpuplan.planner.io.atomic_write import write_atomically
from gpuplan.planner.service.event_log import log_event
from gpuplan.planner.service.history import EpochOutcome, EpochRecord

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime
    from pathlib import Path

    from gpuplan.models.cluster import Cluster
    from gpuplan.models.placement import Placement
    from gpuplan.planner.apply.outcome import ApplyOutcome


GANG_SIZES: Final = (1, 2, 4, 8)
"""Replica sizes, in whole GPUs on one node, for which fragmentation is reported."""

LONG_WAIT_SECONDS: Final = 1800
"""Jobs that wait for longer are also counted separately."""

NOT_APPLIED: Final = "NotApplied"
"""Reason of a job that is pending only because its plan is not applied."""


@dataclass(frozen=True, slots=True)
class EpochGauges:
    """Gauge values of one epoch; GPU shares and MIG slices count as fractions of a GPU."""

    gpus: dict[tuple[str, str], float]
    """GPUs by state and model; total is the sum of used, idle, stranded and unhealthy."""
    utilization: float
    """Allocated part of the usable GPUs."""
    fragmentation: dict[int, float]
    """Part of the free GPUs that no replica of this number of whole GPUs could use."""
    pending: dict[tuple[str, str], int]
    """Pending jobs by queue and reason code."""
    long_pending: dict[str, int]
    """Jobs pending for more than half an hour, by queue; without held jobs."""
    running: int
    """Running jobs."""
    dominant_share: dict[str, float]
    """Largest part of all GPUs, CPUs or memory that a queue's jobs hold, by queue."""
    quota_usage: dict[str, float]
    """GPUs held over nominal quota, both with the queues below, by queue; without zero quotas."""
    jain: float
    hourly_cost: float
    """In the cluster's currency."""
    deadlines_at_risk: int
    """Jobs with a deadline that is critical, late or impossible."""


def epoch_gauges(plan: Plan, *, applied: bool) -> EpochGauges:
    """Figures of the cluster after the plan if it was applied completely, else those of the snapshot."""
    snapshot = plan.snapshot
    cluster = cluster_after(snapshot, plan.target) if applied else snapshot.cluster
    placements = plan.placements if applied else snapshot.running_placements
    free = free_resources_by_node(cluster.nodes, placements)
    pending = _pending(plan, applied=applied)
    return EpochGauges(
        gpus=_gpus(cluster, placements, free),
        utilization=allocation_ratio(cluster, placements),
        fragmentation={size: fragmentation_ratio(cluster, free, gpus=size) for size in GANG_SIZES},
        pending=dict(sorted(pending.items())),
        long_pending=_long_pending(plan, applied=applied),
        running=len(placements),
        dominant_share=_dominant_share(plan, cluster, placements),
        quota_usage=_quota_usage(plan, placements),
        jain=jain_index(snapshot, placements),
        hourly_cost=hourly_cost(cluster),
        deadlines_at_risk=sum(each.state is not DeadlineState.MET for each in plan.deadlines),
    )


def _gpus(
    cluster: Cluster, placements: Iterable[Placement], free: Mapping[str, FreeResources]
) -> dict[tuple[str, str], float]:
    """
    GPUs by state and model.

    Stranded GPUs are free GPUs of ready nodes that take no new jobs, or that have no free CPU or memory.
    """
    used, usable = gpus_in_use(cluster, placements)
    total, stranded = Counter[str](), Counter[str]()
    for node in cluster.nodes:
        if node.gpus is None:
            continue
        total[node.gpus.model] += MILLI * node.gpus.count
        room = free[node.name]
        closed = not node.schedulable or room.cpu_milli <= 0 or room.memory_mib <= 0
        if node.ready and closed:
            stranded[node.gpus.model] += sum(max(0, milli) for milli in room.gpu_milli)
    found: dict[tuple[str, str], float] = {}
    for model in sorted(total):
        states = {
            "total": total[model],
            "used": used[model],
            "idle": usable[model] - used[model] - stranded[model],
            "stranded": stranded[model],
            "unhealthy": total[model] - usable[model],
        }
        found |= {(state, model): milli / MILLI for state, milli in states.items()}
    return found


def _pending(plan: Plan, *, applied: bool) -> Counter[tuple[str, str]]:
    jobs = plan.snapshot.job_by_name
    found = Counter(
        (jobs[each.job].queue, each.reason.code.value)
        for each in plan.waiting
        if applied or jobs[each.job].running is None
    )
    if not applied:
        starts = (action.job for action in plan.actions if isinstance(action, Start))
        found.update((jobs[job].queue, NOT_APPLIED) for job in starts)
    return found


def _long_pending(plan: Plan, *, applied: bool) -> dict[str, int]:
    found = {queue.name: 0 for queue in plan.snapshot.queues}
    placed = {placement.job for placement in plan.placements} if applied else frozenset[str]()
    for job in plan.snapshot.jobs:
        waits = job.running is None and job.name not in placed and not job.withheld
        if waits and (plan.epoch - job.submitted_at).total_seconds() > LONG_WAIT_SECONDS:
            found[job.queue] += 1
    return found


def _dominant_share(plan: Plan, cluster: Cluster, placements: Iterable[Placement]) -> dict[str, float]:
    jobs = plan.snapshot.job_by_name
    held: dict[str, Counter[str]] = defaultdict(Counter)
    for placement in placements:
        for replica in placement.replicas:
            amounts = {"gpus": replica.quota_milli, "cpus": replica.cpu_milli, "memory": replica.memory_mib}
            held[jobs[placement.job].queue].update(amounts)
    there = Counter[str]()
    for node in cluster.nodes:
        if node.ready:
            amounts = {"gpus": MILLI * node.gpu_count, "cpus": node.cpu_milli, "memory": node.memory_mib}
            there.update(amounts)
    return {
        queue.name: max(
            (held[queue.name][resource] / amount for resource, amount in there.items() if amount), default=0.0
        )
        for queue in plan.snapshot.queues
    }


def _quota_usage(plan: Plan, placements: Iterable[Placement]) -> dict[str, float]:
    queues = plan.snapshot.queues
    own = usage_of_resource(usage_by_queue(plan.snapshot, placements, added=plan.target.added), ALL_MODELS)
    nominal = {queue.name: queue.quota.nominal if queue.quota else 0 for queue in queues}
    held, quota = with_all_below(queues, own), with_all_below(queues, nominal)
    return {queue.name: held[queue.name] / quota[queue.name] for queue in queues if quota[queue.name]}


_LOG: Final = logging.getLogger(__name__)
# Limits of the buckets, in seconds: an epoch may take from less than a second to some minutes.
_PLAN_SECONDS: Final = (0.1, 0.3, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600)
# From a minute to a week, after which a job counts as starving by default.
_WAIT_SECONDS: Final = (60, 300, 600, 1800, 3600, 7200, 14_400, 28_800, 86_400, 172_800, 604_800)

_GAUGES: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    "gpuplan_build_info": ("1, with the version of gpuplan and of Python.", ("version", "python")),
    "gpuplan_interval_seconds": ("Interval between epochs.", ()),
    "gpuplan_solver_gap_ratio": (
        "Gap between the bound and the objective of the last plan, as a part of the objective.",
        (),
    ),
    "gpuplan_solver_gap_points": ("Gap between the bound and the objective of the last plan, in points.", ()),
    "gpuplan_plan_actions": ("Actions of the last plan.", ("type",)),
    "gpuplan_gpus": (
        "GPUs; total is used, idle, stranded (free where no job can start) and unhealthy together.",
        ("state", "gpu_product"),
    ),
    "gpuplan_gpu_utilization_ratio": ("Allocated part of the GPUs that can be used.", ()),
    "gpuplan_running_jobs": ("Running jobs.", ()),
    "gpuplan_queue_pending_jobs": ("Pending jobs.", ("queue", "reason")),
    "gpuplan_queue_long_pending_jobs": (
        "Jobs pending for more than 30 minutes that are not held.",
        ("queue",),
    ),
    "gpuplan_queue_dominant_share_ratio": (
        "Largest part of all GPUs, CPUs or memory that a queue's jobs hold.",
        ("queue",),
    ),
    "gpuplan_queue_quota_usage_ratio": (
        "GPUs held over nominal quota, both with the queues below.",
        ("queue",),
    ),
    "gpuplan_fairness_jain_index": ("Jain's index over the queues' met demands; 1 is equal.", ()),
    "gpuplan_fragmentation_ratio": (
        "Part of the free GPUs that no replica of this number of whole GPUs could use.",
        ("gang_size",),
    ),
    "gpuplan_hourly_cost_dollars": ("Price of all ready nodes, in the cluster's currency an hour.", ()),
    "gpuplan_deadline_at_risk_jobs": ("Jobs with a critical, late or impossible deadline.", ()),
    "gpuplan_policy_file_ok": ("1 if the policy file can be read, 0 if the last good policy is used.", ()),
    "gpuplan_failures_in_a_row": ("Consecutive failed epochs.", ()),
    "gpuplan_last_plan_timestamp_seconds": ("Time of the last good plan.", ()),
}
"""Gauges: meaning and labels by name."""


class MetricsRegistry:
    """The metrics of one run, in a separate registry."""

    def __init__(self, version: str, *, every: float) -> None:
        """`every` is the interval between epochs in seconds."""
        # Only OpenMetrics uses the creation times of counters, and they double the number of series.
        prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        self._now: dict[str, dict[tuple[str, ...], float]] = {
            "gpuplan_build_info": {(version, platform.python_version()): 1.0},
            "gpuplan_interval_seconds": {(): every},
        }
        self._seen: datetime | None = None
        """Time of the last snapshot; jobs that finished by then are already counted."""
        self.registry.register(self)
        registry = self.registry
        self._plan_seconds = Histogram(
            "gpuplan_plan_duration_seconds",
            "Time to make a plan.",
            ("backend", "status"),
            buckets=_PLAN_SECONDS,
            registry=registry,
        )
        self._waits = Histogram(
            "gpuplan_wait_time_seconds",
            "From the submission of a job to its start.",
            buckets=_WAIT_SECONDS,
            registry=registry,
        )
        self._fallbacks = prometheus_client.Counter(
            "gpuplan_solver_fallback", "Plans of another solver.", ("reason",), registry=registry
        )
        self._applied = prometheus_client.Counter(
            "gpuplan_apply_actions", "Actions carried out.", ("type", "result"), registry=registry
        )
        self._preemptions = prometheus_client.Counter(
            "gpuplan_preemptions", "Running jobs that were stopped.", ("reason",), registry=registry
        )
        self._lost = prometheus_client.Counter(
            "gpuplan_lost_gpu_seconds", "Lost work that was in no checkpoint.", registry=registry
        )
        self._finished = prometheus_client.Counter(
            "gpuplan_finished_jobs", "Jobs that ended.", ("outcome",), registry=registry
        )
        self._epochs = prometheus_client.Counter(
            "gpuplan_epochs", "Epochs by outcome.", ("outcome",), registry=registry
        )
        self._skipped = prometheus_client.Counter(
            "gpuplan_skipped_ticks", "Ticks skipped because an epoch took too long.", registry=registry
        )

        # Series that alerts watch for increases begin at 0: a series that first appears at 1 has no increase.
        for reason in (ReasonCode.MAKES_ROOM, ReasonCode.DRAINED):
            self._preemptions.labels(reason.value)
        for ended in JobOutcome:
            self._finished.labels(ended.value)
        for outcome in EpochOutcome:
            self._epochs.labels(outcome.value)

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """All gauges, for the registry."""
        now = self._now
        for name, (meaning, labels) in _GAUGES.items():
            family = GaugeMetricFamily(name, meaning, labels=labels)
            for values, value in now.get(name, {}).items():
                family.add_metric(values, value)
            yield family

    def planned(self, plan: Plan, seconds: float) -> None:
        """Count a plan that was made and saved."""
        solution = plan.solution
        self._plan_seconds.labels(solution.solver, solution.status).observe(seconds)
        if solution.fallback is not None:
            self._fallbacks.labels(f"{solution.fallback.tried} to {solution.fallback.used}").inc()
        seen, self._seen = self._seen, plan.epoch
        for job in plan.snapshot.finished:
            if seen is not None and job.ended_at > seen:
                self._finished.labels(job.outcome.value).inc()

    def not_planned(self, seconds: float) -> None:
        """Count an epoch without a plan."""
        self._plan_seconds.labels("none", "FAILED").observe(seconds)

    def applied(self, plan: Plan, outcome: ApplyOutcome) -> None:
        """Count the actions of a plan that were carried out."""
        changes = {change.id: change for change in changes_of(plan.actions)}
        for change in (changes[id_] for id_ in outcome.done if id_ in changes):
            self._applied.labels(change.type, "done").inc()
            self._count(plan, change)
        for failure in outcome.failures:
            if failure.action in changes:
                self._applied.labels(changes[failure.action].type, "failed").inc()

    def epoch(self, record: EpochRecord, *, failures: int) -> None:
        """Count an epoch."""
        self._epochs.labels(record.outcome.value).inc()
        self._skipped.inc(record.skipped_ticks)
        self._now = self._now | {
            "gpuplan_policy_file_ok": {(): float(not record.policy_error)},
            "gpuplan_failures_in_a_row": {(): float(failures)},
        }

    def show(self, plan: Plan, figures: EpochGauges) -> None:
        """Set the gauges of a plan."""
        types = Counter[str](action.type for action in plan.actions)
        objective, bound = plan.solution.objective, plan.solution.bound
        points = None if bound is None else bound - objective
        # Relative to an objective of 0, as of a plan without changes, the gap would be a number of points.
        gap = plan.solution.gap if objective > 0 or not points else None
        shown: dict[str, dict[tuple[str, ...], float]] = {
            "gpuplan_solver_gap_ratio": {} if gap is None else {(): gap},
            "gpuplan_solver_gap_points": {} if points is None else {(): float(points)},
            "gpuplan_plan_actions": _labelled(types),
            "gpuplan_gpus": {(state, model): count for (state, model), count in figures.gpus.items()},
            "gpuplan_gpu_utilization_ratio": {(): figures.utilization},
            "gpuplan_running_jobs": {(): float(figures.running)},
            "gpuplan_queue_pending_jobs": {key: float(count) for key, count in figures.pending.items()},
            "gpuplan_queue_long_pending_jobs": _labelled(figures.long_pending),
            "gpuplan_queue_dominant_share_ratio": _labelled(figures.dominant_share),
            "gpuplan_queue_quota_usage_ratio": _labelled(figures.quota_usage),
            "gpuplan_fairness_jain_index": {(): figures.jain},
            "gpuplan_fragmentation_ratio": _labelled(figures.fragmentation),
            "gpuplan_hourly_cost_dollars": {(): figures.hourly_cost},
            "gpuplan_deadline_at_risk_jobs": {(): float(figures.deadlines_at_risk)},
            "gpuplan_last_plan_timestamp_seconds": {(): plan.created_at.timestamp()},
        }
        self._now = self._now | shown

    def text(self) -> str:
        """All metrics in the Prometheus text format."""
        return prometheus_client.generate_latest(self.registry).decode()

    def write(self, path: Path) -> None:
        """Write all metrics atomically to a file for the textfile collector of node_exporter."""
        write_atomically(path, self.text())

    def _count(self, plan: Plan, change: Change) -> None:
        match change:
            case Start():
                waited = plan.epoch - plan.snapshot.job_by_name[change.job].submitted_at
                self._waits.observe(max(0.0, waited.total_seconds()))
            case Preempt() | Migrate():
                hours = change.reason.numbers.get("lost_gpu_hours", 0)
                self._lost.inc(float(hours) * SECONDS_PER_HOUR)
                if isinstance(change, Preempt):
                    self._preemptions.labels(change.reason.code.value).inc()
            case _:
                pass


def serve_metrics(exposition: MetricsRegistry, host: str, port: int) -> int:
    """Serve the metrics from a separate thread; returns the port, which the kernel chooses for 0."""
    try:
        server, _ = prometheus_client.start_http_server(port, addr=host, registry=exposition.registry)
    except OSError as error:
        raise PlannerError(
            f"metrics cannot be served at {host}:{port}: {error.strerror or error}.\n"
            "Give an address of this machine with a free port."
        ) from None
    log_event(_LOG, "listening", host=host, port=server.server_port)
    return int(server.server_port)


def _labelled(values: Mapping[str, float] | Mapping[int, float]) -> dict[tuple[str, ...], float]:
    return {(str(label),): float(value) for label, value in values.items()}

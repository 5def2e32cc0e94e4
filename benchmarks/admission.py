"""
Clusters for admission only, in the shape of published evaluations of optimizing schedulers.

The setting is that of COpter (SOSP 2025) and CvxCluster (arXiv 2605.01614): no running job may be disturbed,
and a round decides which jobs to admit. Racks have 32 nodes of eight GPUs of three models, and a quarter of
the nodes is partly busy. Gangs have 1 to 512 GPUs of one or two allowed models. There are 20 tenants with
quotas, and each job has its own weight, so that few jobs are alike. There is no MIG and no preemption, and
CPU never binds.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from gpuplan.models.affinity import LocalityPreference
from gpuplan.models.cluster import Cluster, Level, Node, NodeGpus
from gpuplan.models.gang import Gang
from gpuplan.models.job import Job, ResourceRequest
from gpuplan.models.placement import GpuShare, Replica, Running
from gpuplan.models.policy.policy import Policy
from gpuplan.models.queue import Queue, Quota
from gpuplan.models.snapshot import Snapshot
from gpuplan.models.units import MILLI
from gpuplan.planner.sources.synthetic import Draws

if TYPE_CHECKING:
    from collections.abc import Iterator

NOW: Final = datetime(2026, 11, 20, 12, tzinfo=UTC)
MODELS: Final = ("A100-80GB", "H100-80GB", "L40S-48GB")
"""Models of the racks, in rotation."""

_GPUS: Final = 8
"""GPUs per node."""

_RACK: Final = 32
"""Nodes per rack."""

_TENANTS: Final = 20


@dataclass(frozen=True)
class Admission:
    """Number of GPUs, and number of waiting jobs."""

    gpus: int
    jobs: int


ADMISSIONS: Final = {
    "10K x 1,000": Admission(10_000, 1_000),
    "10K x 5,000": Admission(10_000, 5_000),
    "100K x 20K": Admission(100_000, 20_000),
    "100K x 50K": Admission(100_000, 50_000),
}


@dataclass(frozen=True)
class _Gang:
    share: int
    """Share in a thousand jobs."""
    gpus: int


_GANGS: Final = (
    *(_Gang(350, 1), _Gang(180, 2), _Gang(140, 4), _Gang(180, 8), _Gang(75, 16)),
    *(_Gang(40, 32), _Gang(22, 64), _Gang(9, 128), _Gang(3, 256), _Gang(1, 512)),
)
"""Ten GPUs per job on average: 1,000 jobs ask for 10,000 GPUs."""


def admission_policy(slots: int = 1) -> dict[str, Any]:
    """A policy under which no job is disturbed; with several slots, each is an hour long."""
    undisturbed = {"preempt": False, "resize": False, "migrate": False}
    return {"disruption": undisturbed} | ({"horizon": {"slots": slots}} if slots > 1 else {})


def policy_of(slots: int = 1) -> Policy:
    """The policy of a round."""
    return Policy.model_validate(admission_policy(slots))


def snapshot_of(admission: Admission, seed: int) -> Snapshot:
    """The snapshot of a round."""
    draws = Draws(seed)
    nodes = tuple(_nodes(admission.gpus // _GPUS))
    running = tuple(_running(draws, nodes))
    waiting = tuple(_waiting(draws, admission.jobs))
    return Snapshot(
        taken_at=NOW,
        cluster=Cluster(name="admission", nodes=nodes),
        queues=tuple(_queues(admission.gpus)),
        jobs=running + waiting,
    ).canonical()


def _nodes(count: int) -> Iterator[Node]:
    for number in range(count):
        rack = number // _RACK
        gpus = NodeGpus(model=MODELS[rack % len(MODELS)], count=_GPUS, memory_mib=80 * 1024)
        yield Node(
            name=f"n{number:05d}",
            gpus=gpus,
            cpu_milli=192,
            memory_mib=2**21,
            rack=f"r{rack:03d}",
            zone="z1",
        )


def _queues(gpus: int) -> Iterator[Queue]:
    """Tenants of different sizes; the sum of their quotas is 1.25 times the GPUs."""
    parts = [1 + tenant % 5 for tenant in range(_TENANTS)]
    for tenant, part in enumerate(parts):
        nominal = gpus * 5 * part // (4 * sum(parts))
        yield Queue(name=f"t{tenant:02d}", quota=Quota(nominal=nominal, borrowing_limit=0))


def _running(draws: Draws, nodes: tuple[Node, ...]) -> Iterator[Job]:
    """One job of one, two or four GPUs on each partly busy node."""
    for node in nodes:
        if not draws.happens(0.25):
            continue
        gpus = 2 ** draws.below(3)
        duration = draws.between(60, 1200)
        held = tuple(GpuShare(index=index, milli=MILLI) for index in range(gpus))
        amounts = _request(gpus)
        replica = Replica(node=node.name, gpus=held, cpu_milli=8 * gpus, memory_mib=amounts.memory_mib)
        started_at = NOW - timedelta(minutes=draws.between(1, duration - 1))
        yield Job(
            name=f"on-{node.name}",
            queue=f"t{draws.below(_TENANTS):02d}",
            request=amounts,
            submitted_at=started_at,
            expected_duration=60 * duration,
            preemptible=False,
            running=Running(started_at=started_at, replicas=(replica,)),
        )


def _waiting(draws: Draws, count: int) -> Iterator[Job]:
    width = len(str(count))
    for number in range(count):
        gpus = draws.by_share(_GANGS).gpus
        nodes = max(1, gpus // _GPUS)
        first = draws.below(len(MODELS))
        allowed = [MODELS[first]]
        if draws.happens(0.5):
            allowed.append(MODELS[(first + 1) % len(MODELS)])
        required = Level.RACK if 1 < nodes <= _RACK else None
        yield Job(
            name=f"j{number:0{width}d}",
            # Two draws, so that some tenants submit far more jobs than others.
            queue=f"t{draws.below(1 + draws.below(_TENANTS)):02d}",
            weight_milli=draws.between(1_000, 10_000),
            request=_request(min(gpus, _GPUS)),
            gang=Gang(minimum=nodes, maximum=nodes),
            gpu_models=dict.fromkeys(sorted(allowed), 1),
            locality=LocalityPreference(required=required),
            submitted_at=NOW - timedelta(minutes=draws.between(0, 300)),
            expected_duration=60 * draws.between(10, 1260),
        )


def _request(gpus: int) -> ResourceRequest:
    return ResourceRequest(gpus=gpus, cpu_milli=8 * gpus, memory_mib=64 * 1024 * gpus)

"""
Three cases that no rule was tuned for: shares of odd sizes, MIG instances, and a deep tree of quotas.

Everything comes from a seed, the sizes of the shares and the limits of the queues included: a rule that is
tuned on one seed is judged on another. All clusters are empty, and the queue asks for about twice the GPUs
(MIG: about as many slices as there are).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from benchmarks.sizes import Size, profile_of
from gpuplan.models.cluster import Cluster, Gpu, Node, NodeGpus
from gpuplan.models.gang import Gang
from gpuplan.models.job import Job, ResourceRequest
from gpuplan.models.queue import Queue, Quota
from gpuplan.models.snapshot import Snapshot
from gpuplan.planner.sources.synthetic import Draws, generate_snapshot
from gpuplan.planner.sources.workload_profile import WorkloadProfile

if TYPE_CHECKING:
    from collections.abc import Iterator

_NOW: Final = datetime(2026, 11, 20, 12, tzinfo=UTC)
_GPUS: Final = 8
_MODEL: Final = "A100-80GB"
_PROFILES: Final = ("1g.10gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb")
_QUEUES_BY_LEVEL: Final = (1, 4, 15, 60, 120)
"""Queues on each level of the tree; jobs are in those of the last."""

SHARES: Final = "shares"
MIG: Final = "MIG"
QUEUES: Final = "queues"


@dataclass(frozen=True)
class OddCase:
    """A kind of case, and its size."""

    kind: str
    nodes: int
    jobs: int


ODD_CASES: Final = {
    "shares, 400 GPUs": OddCase(SHARES, 50, 2_000),
    "shares, 10K GPUs": OddCase(SHARES, 1_250, 50_000),
    "MIG, 25 nodes": OddCase(MIG, 25, 588),
    "MIG, 200 nodes": OddCase(MIG, 200, 4_700),
    "200 queues, M": OddCase(QUEUES, 157, 500),
    "200 queues, L": OddCase(QUEUES, 1_250, 5_000),
}


def odd_snapshot(case: OddCase, seed: int) -> Snapshot:
    """The snapshot of a case."""
    draws = Draws(seed)
    if case.kind == QUEUES:
        return generate_snapshot(_tree_profile(draws, case), seed=seed)
    make = {SHARES: _shares, MIG: _instances}[case.kind]
    return Snapshot(
        taken_at=_NOW,
        cluster=Cluster(name="odd", nodes=tuple(_nodes(case))),
        queues=(Queue(name="all"),),
        jobs=tuple(make(draws, case.jobs)),
    ).canonical()


def _nodes(case: OddCase) -> Iterator[Node]:
    details = tuple(Gpu(index=index, mig=()) for index in range(_GPUS)) if case.kind == MIG else ()
    for number in range(case.nodes):
        gpus = NodeGpus(model=_MODEL, count=_GPUS, memory_mib=80 * 1024, details=details)
        yield Node(
            name=f"n{number:04d}",
            gpus=gpus,
            cpu_milli=128,
            memory_mib=2**20,
            rack=f"r{number // 16:03d}",
            zone="z1",
        )


def _job(draws: Draws, name: str, queue: str, request: ResourceRequest, replicas: int = 1) -> Job:
    return Job(
        name=name,
        queue=queue,
        priority=2 * draws.below(2),
        request=request,
        gang=Gang(minimum=replicas, maximum=replicas),
        submitted_at=_NOW - timedelta(minutes=draws.below(4) * 60),
        expected_duration=3600 * 2 ** draws.below(4),
    )


def _shares(draws: Draws, count: int) -> Iterator[Job]:
    """Ten sizes between a tenth and nine tenths of a GPU, to the hundredth; few sizes divide a GPU."""
    sizes = [10 * draws.between(10, 75) for _ in range(10)]
    for number in range(count):
        milli = sizes[draws.below(len(sizes))]
        request = ResourceRequest(gpu_milli=milli, cpu_milli=2, memory_mib=8 * milli)
        yield _job(draws, f"j{number:05d}", "all", request)


def _instances(draws: Draws, count: int) -> Iterator[Job]:
    """MIG instances of all sizes, small ones more often."""
    shares = [draws.between(2, 6), draws.between(2, 5), draws.between(1, 4), draws.between(1, 3), 1]
    profiles = [profile for profile, share in zip(_PROFILES, shares, strict=True) for _ in range(share)]
    for number in range(count):
        request = ResourceRequest(
            mig={profiles[draws.below(len(profiles))]: 1}, cpu_milli=2, memory_mib=2**13
        )
        yield _job(draws, f"j{number:05d}", "all", request)


def _tree_profile(draws: Draws, case: OddCase) -> WorkloadProfile:
    """The usual cluster, half full, with jobs spread over the leaves; some queues submit far more."""
    profile = profile_of(Size(case.nodes, case.jobs, 8)).document()
    leaves = _QUEUES_BY_LEVEL[-1]
    shares = [1 + draws.below(draws.between(2, 40)) for _ in range(leaves)]
    usual = profile["queues"][-1]
    profile["queues"] = [
        {"queue": queue.document(), "users": 3, "priorities": usual["priorities"]}
        | ({"share": shares.pop()} if queue.name.startswith(f"q{len(_QUEUES_BY_LEVEL) - 1}") else {})
        for queue in _tree(draws, _GPUS * case.nodes)
    ]
    return WorkloadProfile.model_validate(profile)


def _tree(draws: Draws, gpus: int) -> Iterator[Queue]:
    """Five levels; most of the quota is on leaves, and what a subtree lends or borrows is limited."""
    parents: list[str] = []
    for level, queues in enumerate(_QUEUES_BY_LEVEL):
        names = [f"q{level}-{number:03d}" for number in range(queues)]
        leaf = level == len(_QUEUES_BY_LEVEL) - 1
        for number, name in enumerate(names):
            nominal = draws.between(0, 2 * gpus * (7 if leaf else 1) // (10 * queues)) if level else 0
            limit = draws.between(0, gpus // queues)
            quota = Quota(
                nominal=nominal,
                borrowing_limit=limit if draws.happens(0.7) and level else None,
                lending_limit=draws.between(0, nominal) if draws.happens(0.6) and level else None,
                guarantee=nominal // 2 if draws.happens(0.3) and leaf else None,
            )
            parent = parents[number * len(parents) // queues] if parents else None
            yield Queue(name=name, parent=parent, quota=quota)
        parents = names

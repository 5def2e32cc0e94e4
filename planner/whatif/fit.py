"""fit(…) → Fit: copies of a job that the production planner places, and the proof that no more fit."""

from __future__ import annotations

from collections import Counter, defaultdict
from functools import partial
from typing import TYPE_CHECKING, Final

from pydantic import Field

from gpuplan.models.base import Noun
from gpuplan.models.eligibility.free_resources import free_resources_by_node
from gpuplan.models.plan.reason import Reason
from gpuplan.models.units import Count, Name
from gpuplan.planner.analysis.power_use import PowerUse
from gpuplan.planner.analysis.quota_headroom import QuotaHeadroom, usage_by_queue
from gpuplan.planner.epoch import plan_epoch
from gpuplan.planner.text_format import gang_size
from gpuplan.planner.waiting.eligible_nodes import EligibilityIndex, avoided_nodes, domain_of
from gpuplan.planner.waiting.free_capacity import MIG, FreeCapacity, NodeRoom, profiles_in, replica_needs
from gpuplan.planner.waiting.mig_capacity import MigCapacity
from gpuplan.planner.whatif.no_disruption import without_disruption

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gpuplan.models.cluster import Level, Node
    from gpuplan.models.job import Job
    from gpuplan.models.plan.plan import Plan
    from gpuplan.models.plan.solution import Milestone
    from gpuplan.models.policy.policy import Policy
    from gpuplan.models.snapshot import Snapshot
    from gpuplan.solvers.incumbent import Watch

MOST: Final = 10_000
"""Default limit of the copies that are counted."""

# The same for each copy: then the objective and its bound count copies.
_POINTS: Final = 100


class Fit(Noun):
    """Number of copies that fit, proven or as an interval."""

    job: Name
    queue: Name
    asks_for: str
    """The request in words: `2 × 8 GPUs`."""
    fits: Count
    """Number of copies placed; the verifier found no rule broken."""
    at_most: Count | None
    """Upper bound on the copies; None if the bound is above the number of copies asked about."""
    proof: str = ""
    """Source of `at_most`: `counting` or the name of a solver."""
    nodes: dict[Name, Count] = Field(default_factory=dict)
    """Number of placed replicas by node."""
    limit: Reason | None = None
    """Why one more copy does not start."""
    plan_id: str = ""
    seconds: float = 0.0

    @property
    def exact(self) -> bool:
        """True if it is proven that one more copy does not fit."""
        return self.at_most == self.fits


def fit(
    snapshot: Snapshot,
    policy: Policy,
    job: Job,
    *,
    seed: int,
    most: int = MOST,
    watch: Watch | None = None,
) -> Fit:
    """
    Place as many copies of a job as fit beside the running jobs; the job itself, if it runs, keeps its place.

    The planner gets one copy more than counting allows, so that the plan gives a reason why that copy waits.
    """
    alone, _ = without_disruption(snapshot, policy, (), points=_POINTS)
    counted = count_upper_bound(alone, policy, job, most + 1)
    names = _names(snapshot, job.name, min(counted + 1, most))
    copies = [job.model_copy(update={"name": name}) for name in names]
    world, rules = without_disruption(snapshot, policy, copies, points=_POINTS)
    enough = _Enough(min(counted, len(names)) * _POINTS, watch)
    plan = plan_epoch(world, rules, seed=seed, created_at=snapshot.taken_at, watch=enough)
    placed = [placement for placement in plan.placements if placement.job in names]
    waiting = [each.reason for each in plan.waiting if each.job in names]
    at_most, proof = _at_most(plan, len(placed), len(names), counted)
    return Fit(
        job=job.name,
        queue=job.queue,
        asks_for=gang_size(job.request, job.gang.minimum, job.gang.minimum),
        fits=len(placed),
        at_most=at_most if at_most is None or at_most <= most else None,
        proof=proof,
        nodes=dict(sorted(Counter(replica.node for each in placed for replica in each.replicas).items())),
        limit=waiting[0] if waiting else None,
        plan_id=plan.plan_id,
        seconds=round(plan.solution.seconds, 3),
    )


class _Enough:
    """Ends a search, as Ctrl-C does, at the counting bound: the solver's own bound may be higher."""

    def __init__(self, points: int, watch: Watch | None) -> None:
        self._points = points
        self._watch = watch
        self._ended = False

    def __call__(self, now: Milestone) -> None:
        if self._watch is not None:
            self._watch(now)
        if not self._ended and now.objective is not None and now.objective >= self._points:
            self._ended = True
            raise KeyboardInterrupt


def _names(snapshot: Snapshot, name: str, count: int) -> dict[str, int]:
    """Unused names of the copies, in order."""
    free = (f"{name}-more-{number}" for number in range(1, count + len(snapshot.jobs) + 1))
    fresh = [new for new in free if new not in snapshot.job_by_name]
    return {new: number for number, new in enumerate(fresh[:count])}


def _at_most(plan: Plan, placed: int, offered: int, counted: int) -> tuple[int | None, str]:
    """The smallest proven upper bound and its source: counting, or the plan's dual bound per copy."""
    solution = plan.solution
    if solution.bound is None:
        return counted, "counting"
    proven = placed + (solution.bound - solution.objective) // _POINTS
    # The plan's bound says nothing about copies that were not offered.
    if proven < min(offered, counted):
        return proven, solution.solver
    return counted, "counting"


# Upper bound by counting on the copies of one job that fit beside the running jobs; it needs no solver.
#
# Copies are equal, so a node takes a fixed number of their replicas whatever is placed elsewhere.


def count_upper_bound(snapshot: Snapshot, policy: Policy, job: Job, most: int) -> int:
    """Upper bound on the copies of a job that fit, counted up to `most`; the job may be a new one."""
    match = EligibilityIndex(snapshot.cluster.nodes, [job]).match(job)
    nodes = [snapshot.cluster.nodes[index] for index in match.nodes]
    running = (
        (other, [snapshot.cluster.node_by_name[name] for name in other.placement.nodes])
        for other in snapshot.jobs
        if other.placement
    )
    avoided = avoided_nodes(job, nodes, running)
    nodes = [node for node in nodes if node.name not in avoided]
    replicas = _replicas(snapshot, policy, job, nodes, most * job.gang.minimum)
    rooms = QuotaHeadroom(snapshot.queues, usage_by_queue(snapshot, snapshot.running_placements))
    each = job.request.quota.times(job.gang.minimum)

    def within(models: tuple[str, ...], copies: int) -> bool:
        return rooms.now(job.queue, each.times(copies), models).shortage is None

    most = min(most, _apart(job, nodes, replicas, most))
    if not job.request.needs_gpu:
        return _largest(min(most, _gangs(job, nodes, replicas)), partial(within, ()))
    found = 0
    # A gang runs on one GPU model; single replicas are counted model by model too, for the quotas.
    for model in match.gpu_models:
        there = [node for node in nodes if node.gpu_model == model]
        found += _largest(min(most, _gangs(job, there, replicas)), partial(within, (model,)))
    return _largest(min(most, found), partial(within, ()))


def _apart(job: Job, nodes: Iterable[Node], replicas: dict[str, int], most: int) -> int:
    """Number of copies that get a domain of their own, if the job's anti-affinity excludes its own labels."""
    roomy = [node for node in nodes if replicas[node.name]]
    for term in job.anti_affinity:
        if term.labels.items() <= job.labels.items():
            most = min(most, len(_domains(roomy, term.level)))
    return most


def _replicas(
    snapshot: Snapshot, policy: Policy, job: Job, nodes: Iterable[Node], most: int
) -> dict[str, int]:
    """Number of replicas that each node alone can take, by name."""
    cluster = snapshot.cluster
    free = free_resources_by_node(cluster.nodes, snapshot.running_placements, snapshot=snapshot)
    power = PowerUse(cluster, snapshot.running_placements).left_by_node
    mig = MigCapacity(snapshot.running_placements, policy.mig)
    needs = replica_needs(job, cluster, capped=bool(power))
    # Placing instances of several profiles is a packing problem, where counting gives no bound.
    needs = {name: need for name, need in needs.items() if not name.startswith(MIG) or _alike(name)}
    rooms = [NodeRoom(node, free[node.name], mig, power.get(node.name)) for node in nodes]
    return FreeCapacity(rooms).replicas_by_node(needs, most)


def _alike(dimension: str) -> bool:
    return len(profiles_in(dimension)) == 1


def _gangs(job: Job, nodes: Iterable[Node], replicas: dict[str, int]) -> int:
    """Number of copies that satisfy the job's required domain and its spread limit."""
    size, level = job.gang.minimum, job.locality.required if job.gang.minimum > 1 else None
    return sum(_spread_out(job, each, replicas, size) for each in _domains(nodes, level))


def _spread_out(job: Job, nodes: list[Node], replicas: dict[str, int], size: int) -> int:
    rooms = Counter[object]()
    spread = job.spread
    for node in nodes:
        rooms[domain_of(node, spread.level) if spread else node.name] += replicas[node.name]
    each = size if spread is None else min(size, spread.most)
    # What k copies may put into a domain is concave in k, so every k below a possible one is possible.
    return _largest(
        sum(rooms.values()) // size,
        lambda copies: sum(min(room, each * copies) for room in rooms.values()) >= size * copies,
    )


def _domains(nodes: Iterable[Node], level: Level | None) -> list[list[Node]]:
    """Nodes by domain; one domain if there is no level, and a node without a domain alone."""
    found: dict[object, list[Node]] = defaultdict(list)
    for node in nodes:
        found[None if level is None else domain_of(node, level)].append(node)
    return list(found.values())


def _largest(most: int, possible: Callable[[int], bool]) -> int:
    """Largest possible number up to `most`, by bisection; 0 and all below a possible one are possible."""
    least = 0
    while least < most:
        middle = (least + most + 1) // 2
        if possible(middle):
            least = middle
        else:
            most = middle - 1
    return least

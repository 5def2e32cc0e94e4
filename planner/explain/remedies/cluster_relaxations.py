"""Changes outside the job: quotas, policy switches, cordons, power caps and new nodes."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from gpuplan.models.cluster import NodePool, rack_of, rack_path
from gpuplan.models.eligibility.node_eligibility import ineligibility
from gpuplan.models.plan.action_kinds import ActionKind
from gpuplan.models.queue import ALL_MODELS, amount_index, is_gpu_model, queue_and_above, resource_name
from gpuplan.models.units import MILLI, print_seconds
from gpuplan.models.value.disruption_cost import node_points
from gpuplan.planner.analysis.quota_headroom import usage_of_resource
from gpuplan.planner.explain.explanation import RemedyKind, RemedyPart
from gpuplan.planner.explain.remedies.relaxation import Relaxation, constant_part
from gpuplan.planner.text_format import (
    format_count,
    format_money,
    format_quota,
    node_size,
    quota_number,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gpuplan.models.cluster import Node, RackPower
    from gpuplan.models.policy.policy import Policy
    from gpuplan.models.queue import Queue
    from gpuplan.planner.explain.feasibility import PlanFeasibility
    from gpuplan.planner.explain.hypothesis import Hypothesis


def relaxations_of_cluster(question: Hypothesis, ground: PlanFeasibility) -> Iterator[Relaxation]:
    """Yield every change outside the job, and outside the jobs that start together with it."""
    seen = set()
    for each in question.by_member():
        for lever in _around(each, ground):
            part = lever.part(lever.most)
            if (key := (part.kind, part.subject, part.gpu_model, part.resource)) not in seen:
                seen.add(key)
                yield lever


def _around(question: Hypothesis, ground: PlanFeasibility) -> Iterator[Relaxation]:
    yield from _quotas(question, ground)
    yield from _switches(question)
    yield from _holds(question, ground)
    yield from uncordon_relaxations(question)
    yield from _power(question, ground)
    yield from node_count_relaxations(question, ground)


def _quotas(question: Hypothesis, ground: PlanFeasibility) -> list[Relaxation]:
    """
    The quotas from the job's queue up to the root: of all GPUs, of each model, of CPU cores and of memory.

    If raising one alone satisfies all quotas, only one such is kept; the queue that blocks the job comes
    first.
    """
    if ground.is_within_quota(question):
        return []
    short = ground.shortage(question)
    by_name = {queue.name: queue for queue in question.queues}
    levers: list[Relaxation] = []
    lifting: list[Relaxation] = []
    for name in queue_and_above(question.job.queue, question.plan.snapshot.parent_queues):
        queue = by_name[name]
        for resource in queue.limited:
            needed = sum(
                job.request.quota[amount_index(resource)] * job.gang.minimum for job in question.members
            )
            if not needed:
                continue
            # Running jobs may hold more than the limit, if the limit was lowered after they started.
            held = ground.outlook.holds.usage(0)
            all_alike = ALL_MODELS if is_gpu_model(resource) else resource
            lever = _quota(queue, resource, needed + sum(usage_of_resource(held, all_alike).values()))
            levers.append(lever)
            if ground.is_within_quota(lever.apply(question, lever.most)):
                in_the_way = short is not None and short.queue == name
                lifting.insert(0 if in_the_way else len(lifting), lever)
    return lifting[:1] or levers


def _quota(queue: Queue, resource: str, most: int) -> Relaxation:
    quota = queue.limits_for(resource)
    nominal = quota.nominal if quota else 0

    def raised(question: Hypothesis, step: int) -> Hypothesis:
        return replace(question, queues=tuple(_raise(each, step) for each in question.queues))

    def _raise(each: Queue, step: int) -> Queue:
        if each.name != queue.name or (old := each.limits_for(resource)) is None:
            return each
        return each.with_quota(resource, old.model_copy(update={"nominal": old.nominal + step}))

    def part(step: int) -> RemedyPart:
        by = format_quota(step, resource).split(" ", 1)[0]
        return RemedyPart(
            kind=RemedyKind.QUOTA,
            subject=queue.name,
            gpu_model=resource if is_gpu_model(resource) else "",
            resource=resource_name(resource),
            before=quota_number(nominal, resource),
            after=quota_number(nominal + step, resource),
            text=f"raise the quota of queue {queue.name} by {by} to {format_quota(nominal + step, resource)}",
        )

    return Relaxation(most, raised, part)


def _switches(question: Hypothesis) -> Iterator[Relaxation]:
    mig = question.policy.mig
    if not question.job.request.mig or not question.plan.snapshot.cluster.offers(ActionKind.REPARTITION):
        return
    for knob in ("repartition", "switch_mode"):
        if not getattr(mig, knob):

            def on(question: Hypothesis, _: int, knob: str = knob) -> Hypothesis:
                mig = question.policy.mig.model_copy(update={knob: True})
                return replace(question, policy=question.policy.model_copy(update={"mig": mig}))

            part = RemedyPart(
                kind=RemedyKind.POLICY,
                subject=f"mig.{knob}",
                before="off",
                after="on",
                text=f"switch mig.{knob} of the policy on",
            )
            yield Relaxation(1, on, constant_part(part))


def _holds(question: Hypothesis, ground: PlanFeasibility) -> Iterator[Relaxation]:
    """Hold no nodes for starving jobs, if some are held that are closed to the job."""
    starving, hold = question.policy.horizon.backfill.starving, ground.outlook.future.windows.node_hold
    if starving is None or hold is None or hold.is_for(question.job.name):
        return

    def off(question: Hypothesis, _: int) -> Hypothesis:
        horizon = question.policy.horizon
        backfill = horizon.backfill.model_copy(update={"starving": None})
        changed = horizon.model_copy(update={"backfill": backfill})
        return replace(question, policy=question.policy.model_copy(update={"horizon": changed}))

    part = RemedyPart(
        kind=RemedyKind.POLICY,
        subject="horizon.backfill.starving",
        before=print_seconds(starving),
        after="null",
        text=f"hold no nodes for {hold.job.name} (horizon.backfill.starving: null)",
    )
    yield Relaxation(1, off, constant_part(part))


def _power(question: Hypothesis, ground: PlanFeasibility) -> Iterator[Relaxation]:
    """The power caps of racks in which the job may run, raised by at most what all members need there."""
    needed = sum(job.request.total_gpu_milli * job.gang.minimum for job in question.members)
    racks = {rack_of(ground.nodes[name]) for name in ground.counting.counts(question)}
    for cap in question.rack_power:
        if not needed or (key := rack_of(cap)) not in racks:
            continue
        gpus = (node.gpus for node in ground.cluster.nodes if node.gpus and rack_of(node) == key)
        if not (watts := max((each.watts for each in gpus), default=0)):
            continue
        # Running jobs may draw more than the cap, if the cap was lowered after they started.
        over = max(0, ground.counting.power.drawn(key, ()) - cap.watts * MILLI)
        yield _cap(cap, -(-(needed * watts + over) // MILLI))


def _cap(cap: RackPower, most: int) -> Relaxation:
    def raised(question: Hypothesis, step: int) -> Hypothesis:
        new = cap.model_copy(update={"watts": cap.watts + step})
        return replace(
            question, rack_power=tuple(new if each is cap else each for each in question.rack_power)
        )

    # A rack of the same name may be in another zone.
    rack = rack_path(cap)

    def part(step: int) -> RemedyPart:
        return RemedyPart(
            kind=RemedyKind.POWER,
            subject=rack,
            before=cap.watts,
            after=cap.watts + step,
            text=f"raise the power cap of rack {rack} by {step:,} to {cap.watts + step:,} W",
        )

    return Relaxation(most, raised, part)


# Changes of the nodes: lifted cordons and new nodes.


_MOST_KINDS_OF_NODES: Final = 8


def uncordon_relaxations(question: Hypothesis) -> Iterator[Relaxation]:
    """Lift the cordon of a node, for one node of each kind."""
    seen: set[tuple[object, ...]] = set()
    for node in question.plan.snapshot.cluster.nodes:
        if not node.cordoned or not node.ready or node.drain:
            continue
        opened = node.model_copy(update={"cordoned": False})
        if ineligibility(question.job, opened) is None and (kind := _kind(node)) not in seen:
            seen.add(kind)
            why = f" ({node.state_reason})" if node.state_reason else ""
            text = f"uncordon node {node.name}{why}"
            part = RemedyPart(kind=RemedyKind.UNCORDON, subject=node.name, text=text)
            yield Relaxation(1, partial(_adding, (opened,)), constant_part(part))


def _adding(nodes: tuple[Node, ...], question: Hypothesis, step: int) -> Hypothesis:
    """The question with the first `step` of the nodes added."""
    return replace(question, nodes=(*question.nodes, *nodes[:step]))


def node_count_relaxations(question: Hypothesis, ground: PlanFeasibility) -> Iterator[Relaxation]:
    """Add new nodes from a pool's template or like an existing node, the cheapest of each kind."""
    pools = question.plan.snapshot.cluster.pools
    pooled = {pool.name for pool in pools}
    patterns = [(f"to pool {pool.name}", pool.name, _fresh(pool.template)) for pool in pools]
    patterns += [
        (f"like {node.name}", node.name, _fresh(node))
        for node in question.plan.snapshot.cluster.nodes
        if node.pool not in pooled
    ]
    free = _free_around(question, ground)
    seen: set[tuple[object, ...]] = set()
    level = question.job.locality.required
    for where, subject, fresh in sorted(
        patterns, key=lambda each: (each[2].price_per_hour, -free(each[2]), each[1])
    ):
        kind = (*_kind(fresh), fresh.domain(level) if level else None)
        if kind in seen or len(seen) == _MOST_KINDS_OF_NODES:
            continue
        if ineligibility(question.job, fresh) is not None:
            continue
        seen.add(kind)
        most = sum(job.gang.minimum for job in question.members)
        stem = f"{subject}-new"
        while any(name.startswith(stem) for name in ground.nodes):
            stem = f"{stem}-new"
        nodes = tuple(fresh.model_copy(update={"name": f"{stem}-{number}"}) for number in range(1, most + 1))

        yield Relaxation(most, partial(_adding, nodes), partial(_part, subject, where, fresh))


def _part(subject: str, where: str, node: Node, step: int) -> RemedyPart:
    price = (
        f", {format_money(node.price_per_hour)}/h{' each' if step > 1 else ''}" if node.price_per_hour else ""
    )
    return RemedyPart(
        kind=RemedyKind.NODE,
        subject=subject,
        before=0,
        after=step,
        text=f"add {format_count(step, 'node')} of {node_size(node)} {where}{price}",
    )


def _fresh(pattern: Node) -> Node:
    """A new empty node like another one, outside any pool so that no pool limit counts it."""
    return pattern.as_new().model_copy(update={"pool": None})


def new_node_points(policy: Policy, node: Node) -> int:
    """Points that one more node costs over the policy's horizon, as if a pool had added it."""
    pool = NodePool(name="new", template=node, maximum=1)
    return node_points(policy, pool) + policy.prices.scaling


def _free_around(question: Hypothesis, ground: PlanFeasibility) -> Callable[[Node], int]:
    """Free capacity, in replicas, of the domain that a new node would join."""
    level = question.job.locality.required
    if level is None or question.job.gang.minimum == 1:
        return lambda _: 0
    found: Counter[object] = Counter()
    for name, count in ground.counting.counts(question).items():
        found[ground.nodes[name].domain(level)] += count
    return lambda node: found[node.domain(level)]


def _kind(node: Node) -> tuple[object, ...]:
    gpus = node.gpus
    return (
        (gpus.model, gpus.count, gpus.memory_mib) if gpus else None,
        (node.cpu_milli, node.memory_mib, node.disk_mib, tuple(sorted(node.resources.items()))),
        (tuple(sorted(node.labels.items())), node.taints, node.region),
    )

"""Levers on what is around a job: quotas, nodes, switches of the policy, and the time until others end."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from planner.clock import clock
from planner.explaining.lever import Lever, always
from planner.models.cluster import NodePool
from planner.models.explanation_remedies import RemedyKind, RemedyPart
from planner.models.pricing import node_points
from planner.models.queue import ALL_MODELS
from planner.models.selection import refusal
from planner.models.units import print_milli
from planner.wording import counted, decimal, money, named, node_size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from planner.explaining.ground import Ground
    from planner.explaining.question import Question
    from planner.models.cluster import Node
    from planner.models.job import Job
    from planner.models.policy import Policy
    from planner.models.queue import Queue

_MOST_KINDS_OF_NODES: Final = 8


def world_levers(question: Question, ground: Ground) -> Iterator[Lever]:
    """All that may be changed around a job."""
    yield from quota_levers(question, ground)
    yield from _switches(question)
    yield from _uncordoned(question)
    yield from _more_nodes(question, ground)


def quota_levers(question: Question, ground: Ground) -> list[Lever]:
    """
    The quotas on the way from the job's queue up to the root, of all GPUs and of each model.

    Where one alone is enough as far as quotas go, the others are left out; the one in the way comes first.
    """
    needed = question.job.request.total_gpu_milli * question.job.gang.minimum
    if not needed or ground.allowed_models(question):
        return []
    # Running jobs may hold more than a limit that was lowered since.
    most = needed + sum(milli.total() for milli in ground.own.values())
    short = ground.shortage(question)
    by_name = {queue.name: queue for queue in question.queues}
    levers: list[Lever] = []
    lifting: list[Lever] = []
    name: str | None = question.job.queue
    while name is not None:
        queue = by_name[name]
        for resource in (ALL_MODELS, *sorted(queue.gpu_models)):
            if queue.quota_for(resource) is not None:
                lever = _quota(queue, resource, most)
                levers.append(lever)
                if ground.allowed_models(lever.pull(question, most)):
                    in_the_way = short is not None and short.queue == name
                    lifting.insert(0 if in_the_way else len(lifting), lever)
        name = queue.parent
    return lifting[:1] or levers


def _quota(queue: Queue, resource: str, most: int) -> Lever:
    quota = queue.quota_for(resource)
    nominal = quota.nominal if quota else 0

    def raised(question: Question, step: int) -> Question:
        return replace(question, queues=tuple(_raise(each, step) for each in question.queues))

    def _raise(each: Queue, step: int) -> Queue:
        if each.name != queue.name or (old := each.quota_for(resource)) is None:
            return each
        new = old.model_copy(update={"nominal": old.nominal + step})
        if resource == ALL_MODELS:
            return each.model_copy(update={"quota": new})
        return each.model_copy(update={"gpu_models": each.gpu_models | {resource: new}})

    def part(step: int) -> RemedyPart:
        kind = "" if resource == ALL_MODELS else f"{resource} "
        return RemedyPart(
            kind=RemedyKind.QUOTA,
            subject=queue.name,
            gpu_model=resource,
            before=print_milli(nominal),
            after=print_milli(nominal + step),
            text=f"raise the quota of queue {queue.name} by {decimal(step)} to "
            f"{decimal(nominal + step)} {kind}GPUs",
        )

    return Lever(most, raised, part)


def _switches(question: Question) -> Iterator[Lever]:
    mig = question.policy.mig
    if not question.job.request.mig:
        return
    for knob in ("repartition", "switch_mode"):
        if not getattr(mig, knob):

            def on(question: Question, _: int, knob: str = knob) -> Question:
                mig = question.policy.mig.model_copy(update={knob: True})
                return replace(question, policy=question.policy.model_copy(update={"mig": mig}))

            part = RemedyPart(
                kind=RemedyKind.POLICY,
                subject=f"mig.{knob}",
                before="off",
                after="on",
                text=f"switch mig.{knob} of the policy on",
            )
            yield Lever(1, on, always(part))


def _uncordoned(question: Question) -> Iterator[Lever]:
    """Nodes that take nothing new by an operator's word, one of each kind."""
    seen: set[tuple[object, ...]] = set()
    for node in question.plan.snapshot.cluster.nodes:
        if not node.cordoned or not node.ready or node.drain:
            continue
        opened = node.model_copy(update={"cordoned": False})
        if refusal(question.job, opened) is None and (kind := _kind(node)) not in seen:
            seen.add(kind)
            text = f"let node {node.name} take jobs again, which is cordoned"
            part = RemedyPart(kind=RemedyKind.UNCORDON, subject=node.name, text=text)
            yield Lever(1, partial(_adding, (opened,)), always(part))


def _adding(nodes: tuple[Node, ...], question: Question, step: int) -> Question:
    """With so many of the nodes."""
    return replace(question, nodes=(*question.nodes, *nodes[:step]))


def _more_nodes(question: Question, ground: Ground) -> Iterator[Lever]:
    """New nodes, as those of a pool or like one that is there, the cheapest of each kind."""
    pools = question.plan.snapshot.cluster.pools
    patterns = [
        (pool.template.price_per_hour, f"to pool {pool.name}", pool.name, pool.template) for pool in pools
    ]
    pooled = {pool.name for pool in pools}
    patterns += [
        (node.price_per_hour, f"like {node.name}", node.name, node)
        for node in question.plan.snapshot.cluster.nodes
        if node.pool not in pooled
    ]
    free = _free_around(question, ground)
    seen: set[tuple[object, ...]] = set()
    for price, where, subject, pattern in sorted(
        patterns, key=lambda each: (each[0], -free(each[3]), each[2])
    ):
        level = question.job.locality.required
        domain = pattern.domain(level) if level else None
        kind = (*_kind(pattern), domain)
        if kind in seen or len(seen) == _MOST_KINDS_OF_NODES:
            continue
        fresh = fresh_node(pattern)
        if refusal(question.job, fresh) is not None:
            continue
        seen.add(kind)
        most = question.job.gang.minimum
        stem = f"{subject}-new"
        while any(name.startswith(stem) for name in ground.nodes):
            stem = f"{stem}-new"
        nodes = tuple(fresh.model_copy(update={"name": f"{stem}-{number}"}) for number in range(1, most + 1))

        def part(
            step: int, price: float = price, where: str = where, subject: str = subject, node: Node = fresh
        ) -> RemedyPart:
            size = node_size(node)
            each = f", {money(price)}/h each" if step > 1 else f", {money(price)}/h"
            return RemedyPart(
                kind=RemedyKind.NODE,
                subject=subject,
                before=0,
                after=step,
                text=f"add {counted(step, 'node')} of {size} {where}{each if price else ''}",
            )

        yield Lever(most, partial(_adding, nodes), part)


def fresh_node(pattern: Node) -> Node:
    """A node like another one, whatever is wrong with that: whole, empty, and taking jobs."""
    gpus = pattern.gpus
    if gpus is not None:
        details = tuple(gpu.model_copy(update={"healthy": True}) for gpu in gpus.details)
        gpus = gpus.model_copy(update={"details": details})
    whole = {"ready": True, "ready_at": None, "cordoned": False, "drain": False, "pool": None}
    return pattern.model_copy(update={**whole, "gpus": gpus})


def new_node_points(policy: Policy, node: Node) -> int:
    """What one node more costs over the policy's horizon, as if a pool had got it."""
    pool = NodePool(name="new", template=node, maximum=1)
    return node_points(policy, pool) + policy.prices.scaling


def _free_around(question: Question, ground: Ground) -> Callable[[Node], int]:
    """How many replicas find room in the domain that a new node would be in."""
    level = question.job.locality.required
    if level is None or question.job.gang.minimum == 1:
        return lambda _: 0
    found: Counter[object] = Counter()
    for name, count in ground.counts(question).items():
        found[ground.nodes[name].domain(level)] += count
    return lambda node: found[node.domain(level)]


def waiting_lever(question: Question, ground: Ground) -> Lever | None:
    """
    The time until jobs end that the plan lets run, one end after the other; None where nobody does.

    A plan that looks ahead tells itself when the job starts, and who starts on what others leave.
    """
    future = ground.outlook.future
    if future.slots.count > 1:
        return None
    stays = sorted(
        (stay for name, stay in future.stays.items() if name != question.job.name),
        key=lambda stay: (stay.end, stay.job.name),
    )
    ends = sorted({stay.end for stay in stays})
    if not ends:
        return None

    def later(question: Question, step: int) -> Question:
        over = frozenset(stay.job.name for stay in stays if stay.end <= ends[step - 1])
        return replace(question, over=over, job=_without(question.job, over))

    def part(step: int) -> RemedyPart:
        last = [stay.job.name for stay in stays if stay.end == ends[step - 1]]
        moment = future.moment(ends[step - 1])
        at = clock(moment, question.plan.snapshot.taken_at)
        return RemedyPart(
            kind=RemedyKind.WAIT,
            subject=last[0],
            after=ends[step - 1],
            text=f"wait until {named(last)} {'ends' if len(last) == 1 else 'end'}, expected at {at}",
        )

    return Lever(len(ends), later, part)


def _kind(node: Node) -> tuple[object, ...]:
    gpus = node.gpus
    return (
        (gpus.model, gpus.count, gpus.memory_mib) if gpus else None,
        (node.cpu_milli, node.memory_mib, node.disk_mib, tuple(sorted(node.resources.items()))),
        (tuple(sorted(node.labels.items())), node.taints, node.region),
    )


def _without(job: Job, over: frozenset[str]) -> Job:
    """The job as if its dependencies on jobs that are over were satisfied."""
    left = tuple(each for each in job.depends_on if each.job not in over)
    if job.depends_on_at_least is None:
        return job.model_copy(update={"depends_on": left})
    needed = job.depends_on_at_least - (len(job.depends_on) - len(left))
    if needed <= 0:
        return job.model_copy(update={"depends_on": (), "depends_on_at_least": None})
    return job.model_copy(update={"depends_on": left, "depends_on_at_least": needed})

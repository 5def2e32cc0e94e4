"""Families of the plain model about what jobs share: GPUs, MIG, other resources, power, queues, pools."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from gpuplan.models.formulation.rows import Row, row
from gpuplan.models.mig import MEDIA_EXTENSIONS, profile_milli
from gpuplan.models.units import MILLI

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuplan.models.cluster import MigInstance
    from gpuplan.models.formulation.rows import Term
    from gpuplan.models.mig import MigGeometry
    from gpuplan.models.problem.problem import Problem
    from tests.oracle.columns import ReferenceColumns

POWER: Final = "GPU power in thousandths of GPUs"
"""The countable resource that caps of single nodes are stated in."""


def gpus(_problem: Problem, x: ReferenceColumns) -> Iterator[Row]:
    """
    A GPU is held wholly by one, or cut into shares that add up to at most the whole.

        Staircase:   Σ_j whole[j,n,g] + Σ_{v stays} 1 + cut[n,g]  ≤  held[n,g]
        Sharing:     Σ_j h_j · share[j,n,g] + Σ_{v stays} h_v + held for good  ≤  1000 · cut[n,g]

    `held` and `cut` are 1 only if a job is there. To hold a GPU in MIG mode so is illegal anyway.
    """
    for node, gpu in x.gpus():
        if (node, gpu) in x.mig_gpus:
            whole = [(column, MILLI) for _, column in x.users("whole", node, gpu)]
            shares = [
                (column, each.job_class.shape.gpu_milli) for each, column in x.users("share", node, gpu)
            ]
            yield row("gpu_capacity", (node, gpu), [*whole, *shares], upper=MILLI)
            continue
        held, cut = x["held", node, gpu], x["cut", node, gpu]
        for_good, holders = x.held_milli(node, gpu)
        whole = [(column, 1) for _, column in x.users("whole", node, gpu)]
        shares = [(column, each.job_class.shape.gpu_milli) for each, column in x.users("share", node, gpu)]
        wholes_now = sharers_now = shared_now = 0
        for index, position, milli in holders:
            if milli == MILLI:
                wholes_now += 1
                whole += [(column, -1) for column in x.leaving(index, position)]
            else:
                sharers_now, shared_now = sharers_now + 1, shared_now + milli
                shares += [(column, -milli) for column in x.leaving(index, position)]
        key = (node, gpu)
        yield row("gpu_capacity", key, [*whole, (cut, 1), (held, -1)], upper=-wholes_now)
        yield row("gpu_capacity", (*key, "held"), [*whole, (cut, 1), (held, -1)], lower=-wholes_now)
        yield row("fractional_gpu", key, [*shares, (cut, -MILLI)], upper=-for_good - shared_now)
        one_each = [(column, 1 if milli > 0 else -1) for column, milli in shares]
        sharers_now += for_good > 0
        yield row("fractional_gpu", (*key, "cut"), [*one_each, (cut, -1)], lower=-sharers_now)


def mig(problem: Problem, x: ReferenceColumns) -> Iterator[Row]:
    """
    MIG instances are legal together on each GPU, and a GPU in MIG mode is not held as a GPU.

        Σ_j slice[j,n,g,π,a]  ≤  0                                        ∀ (π, a) that may not exist
        Σ_{(π,a) covers b} (Σ_j slice[j,n,g,π,a] + in use)  ≤  1          ∀ memory slices b
        Σ_{a, j} slice[j,n,g,π,a] + in use  ≤  most_π;   the same over all media extensions, with 1
        Σ_{j,π,a} slice[j,n,g,π,a]  ≤  M · switched[n,g];   held[n,g] + switched[n,g]  ≤  1
    """
    for node, gpu in x.gpus():
        geometry, slices, key = x.geometry(node), x.slices(node, gpu), (node, gpu)
        state = x.mig_gpus.get(key)
        if state is not None:
            for kind in ("whole", "share"):
                for candidate, column in x.users(kind, node, gpu):
                    yield row("mig", (*key, *candidate.key), [(column, 1)], upper=0)
        else:
            yield from _switching(problem, x, node, gpu)
        if not slices:
            continue
        in_use = _in_use(x, node, gpu)
        present = {*state.idle, *state.used} if state else set()
        may_create = geometry is not None and (state is None or problem.charges.may_repartition)
        for instance, columns in slices.items():
            if instance not in present and not (may_create and _stands(geometry, instance)):
                yield row("mig", (*key, *_named(instance)), [(column, 1) for column in columns], upper=0)
        users = {instance: ([(column, 1) for column in columns], 0) for instance, columns in slices.items()}
        for instance, (terms, count) in in_use.items():
            users[instance] = ([*users.get(instance, ([], 0))[0], *terms], count)
        yield from _one_layout(geometry, users, key)


def _switching(problem: Problem, x: ReferenceColumns, node: int, gpu: int) -> Iterator[Row]:
    switched, key = x["switched", node, gpu], (node, gpu)
    used = [column for columns in x.slices(node, gpu).values() for column in columns]
    most = sum(x.upper[column] for column in used)
    yield row("mig", (*key, "link"), [*((column, 1) for column in used), (switched, -most)], upper=0)
    yield row("mig", (*key, "switched"), [*((column, 1) for column in used), (switched, -1)], lower=0)
    if problem.charges.switch_mode is None or x.geometry(node) is None:
        yield row("mig", (*key, "mode"), [(switched, 1)], upper=0)
    yield row("mig", (*key, "alone"), [(switched, 1), (x["held", node, gpu], 1)], upper=1)


def _in_use(x: ReferenceColumns, node: int, gpu: int) -> dict[MigInstance, tuple[list[Term], int]]:
    """1 for each instance that stays in use, as terms and a constant."""
    state = x.mig_gpus.get((node, gpu))
    in_use: dict[MigInstance, tuple[list[Term], int]] = {
        instance: ([], 1) for instance in (state.used if state else ())
    }
    for index, position in x.holds_on(node):
        for where, instance in x.problem.incumbents[index].holds[position].slices:
            if where == gpu:
                in_use[instance] = ([(column, -1) for column in x.leaving(index, position)], 1)
    return in_use


def _stands(geometry: MigGeometry | None, instance: MigInstance) -> bool:
    profile = geometry.profiles.get(instance.profile) if geometry else None
    return profile is not None and instance.start in profile.starts


def _named(instance: MigInstance) -> tuple[str, int]:
    return instance.profile, instance.start


def _one_layout(
    geometry: MigGeometry | None,
    users: dict[MigInstance, tuple[list[Term], int]],
    key: tuple[str | int, ...],
) -> Iterator[Row]:
    """Instances with users are legal together; without a known geometry each has one."""
    limits: dict[tuple[str | int, ...], tuple[list[MigInstance], int]] = {}
    if geometry is None:
        limits = {_named(instance): ([instance], 1) for instance in users}
    else:
        for piece in range(geometry.memory_slices):
            covering = [
                each
                for each in users
                if _stands(geometry, each)
                and each.start <= piece < each.start + geometry.profiles[each.profile].memory_slices
            ]
            limits["slice", piece] = covering, 1
        for name, profile in geometry.profiles.items():
            limits["most", name] = [each for each in users if each.profile == name], profile.most
        limits["media",] = [each for each in users if each.profile.endswith(MEDIA_EXTENSIONS)], 1
    for limit, (instances, most) in limits.items():
        terms = [term for instance in instances for term in users[instance][0]]
        count = sum(users[instance][1] for instance in instances)
        if terms:
            yield row("mig", (*key, *limit), terms, upper=most - count)


def cpu_memory(problem: Problem, x: ReferenceColumns) -> Iterator[Row]:
    """
    CPU, memory, disk and countable resources of a node suffice; so does the power its GPUs may draw.

        Σ_j a_jr · replicas[j,n]  −  Σ_{v leaves} a_vr  ≤  free[n,r]
    """
    for resource, name in enumerate(problem.resources):
        for node, free in enumerate(problem.nodes):
            given = [
                (column, -problem.incumbents[index].shape.amounts[resource])
                for index, position in x.holds_on(node)
                for column in x.leaving(index, position)
            ]
            if name == POWER:
                # Where its GPUs cannot draw more, a node has no cap.
                if free.amounts[resource] < _most_milli(x, node):
                    taken = [term for each, _ in x.on_node(node) for term in x.gpu_milli(each, node)]
                    yield row("power", (node,), [*taken, *given], upper=free.amounts[resource])
                continue
            taken = [(column, each.job_class.shape.amounts[resource]) for each, column in x.on_node(node)]
            yield row("cpu_memory", (node, name), [*taken, *given], upper=free.amounts[resource])


def _most_milli(x: ReferenceColumns, node: int) -> int:
    """Thousandths of GPUs that may be taken on a node while all jobs stay."""
    free = x.problem.nodes[node]
    return sum(free.gpus) + sum(
        MILLI - sum(profile_milli(instance.profile) for instance in gpu.used) for gpu in free.mig
    )


def power(problem: Problem, x: ReferenceColumns) -> Iterator[Row]:
    """Σ_n watts_n · (Σ_j thousandths on n − Σ_{v leaves n} thousandths)  ≤  left   ∀ caps of racks."""
    for number, cap in enumerate(problem.power_caps):
        terms: list[Term] = []
        for node, watts in zip(cap.nodes, cap.watts, strict=True):
            for candidate, _ in x.on_node(node):
                terms += [(column, milli * watts) for column, milli in x.gpu_milli(candidate, node)]
            for index, position in x.holds_on(node):
                milli = problem.incumbents[index].shape.quota_milli
                terms += [(column, -milli * watts) for column in x.leaving(index, position)]
        for index, drawn in cap.elsewhere:
            terms += [(column, -drawn) for column in x.away(index)]
        yield row("power", ("rack", number), terms, upper=max(0, cap.left))


def quota(problem: Problem, x: ReferenceColumns) -> Iterator[Row]:
    """usage[r,q] ≤ limit[r,q];  spill[r,q] ≥ usage[r,q] − kept[r,q]."""
    for budget in problem.budgets:
        usage: dict[int, list[Term]] = defaultdict(list)
        for queue, column, milli in x.usage(budget.resource):
            usage[queue].append((column, milli))
        for queue in budget.leaves_first:
            if (parent := budget.parent[queue]) is not None:
                usage[parent].append((x["spill", budget.resource, queue], 1))
        for queue in budget.leaves_first:
            own = budget.own[queue]
            spilled = [*usage[queue], (x["spill", budget.resource, queue], -1)]
            yield row("quota", (budget.resource, queue, "spill"), spilled, upper=budget.kept[queue] - own)
            if (limit := budget.limit[queue]) is not None:
                yield row("quota", (budget.resource, queue), usage[queue], upper=limit - own)


def pools(problem: Problem, x: ReferenceColumns) -> Iterator[Row]:
    """
    A removed node is empty, no job has been stopped or shrunk to empty it, and the pool keeps its minimum.

        replicas[j,n] ≤ M · (1 − close[n]);   close[n] ≤ moved[v]     ∀ v on n
        Σ_n close[n] − Σ_n open[n] ≤ most closed
    """
    for number, option in enumerate(problem.pools):
        closable = [node for node in option.closable if ("close", node) in x.index]
        for node in closable:
            close = x["close", node]
            for candidate, replicas in x.on_node(node):
                terms = [(replicas, 1), (close, candidate.most)]
                yield row("pools", (node, *candidate.key), terms, upper=candidate.most)
            for index, position in x.holds_on(node):
                terms = [(close, 1), *((column, -1) for column in x.moved(index))]
                yield row("pools", (node, "left", index, position), terms, upper=0)
        opened = [node for node in sorted(x.optional) if problem.groups[x.group_of[node]].pool == number]
        terms = [*((x["close", node], 1) for node in closable), *((x["open", node], -1) for node in opened)]
        yield row("pools", (option.name,), terms, upper=option.most_closed)

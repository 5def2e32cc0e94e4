"""
The plain (job, node, GPU) model: every decision spelled out, for cross-checks on small cases only.

It states the rules as the verifier does, node by node and GPU by GPU, so that a placement breaks a row of a
family exactly when the verifier reports the rule of that name. It grows with jobs times GPUs: 10K GPUs are
out of its reach (docs/decisions/0001).
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np

from planner.models.formulation.rows import Formulation, Row, row
from planner.models.placement import GpuShare
from planner.models.units import MILLI

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator

    from planner.models.formulation.rows import Ints, Term
    from planner.models.placement import Placement
    from planner.models.problem import JobClass, Option, Problem


class ReferenceColumns:
    """
    Decision variables of the plain model.

        jobs[j,m]        job j runs on GPU model m
        replicas[j,n]    its replicas on node n
        whole[j,n,g]     its replicas that hold GPU g of node n wholly
        share[j,n,g]     its replicas that hold a share of it
        cut[n,g]         the GPU is shared
        spill[r,q]       what queue q uses of resource r beyond what it keeps
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.upper: list[int] = []
        self.index: dict[Hashable, int] = {}
        self.jobs = [(name, job_class) for job_class in problem.classes for name in job_class.jobs]
        for name, job_class in self.jobs:
            for option in job_class.options:
                self._add(("jobs", name, option.gpu_model), 1)
                for node in self.nodes(option):
                    self._add_replicas(name, job_class, node)
        for node, free in enumerate(problem.nodes):
            for gpu in range(len(free.gpus)):
                self._add(("cut", node, gpu), 1)
        most = 2 * sum(job_class.maximum * job_class.shape.quota_milli for _, job_class in self.jobs)
        for budget in problem.budgets:
            for queue in budget.leaves_first:
                self._add(("spill", budget.resource, queue), most + sum(budget.own))

    def _add(self, key: Hashable, upper: int) -> None:
        self.index[key] = len(self.upper)
        self.upper.append(upper)

    def _add_replicas(self, name: str, job_class: JobClass, node: int) -> None:
        self._add(("replicas", name, node), job_class.maximum)
        for gpu in range(len(self.problem.nodes[node].gpus)):
            if job_class.shape.gpus:
                self._add(("whole", name, node, gpu), job_class.maximum)
            elif job_class.shape.gpu_milli:
                self._add(("share", name, node, gpu), job_class.maximum)

    def nodes(self, option: Option) -> list[int]:
        """Nodes of an option."""
        return [node for group in option.groups for node in self.problem.groups[group].nodes]

    def encode(self, placements: Iterable[Placement]) -> Ints:
        """Values of all columns at placements of the problem's jobs on nodes they may use, legal or not."""
        problem = self.problem
        values = np.zeros(len(self.upper), dtype=np.int64)
        node_of = {node.name: index for index, node in enumerate(problem.nodes)}
        group_of = {node: group for group in problem.groups for node in group.nodes}
        class_of = dict(self.jobs)
        for placement in placements:
            job_class = class_of[placement.job]
            models: set[str | None] = set()
            for replica in placement.replicas:
                node = node_of[replica.node]
                models.add(group_of[node].gpu_model if job_class.shape.quota_milli else None)
                values[self.index["replicas", placement.job, node]] += 1
                for held in replica.gpus:
                    kind = "whole" if isinstance(held, GpuShare) and held.milli == MILLI else "share"
                    values[self.index[kind, placement.job, node, held.index]] += 1
                    if kind == "share":
                        values[self.index["cut", node, held.index]] = 1
            for model in models:
                values[self.index["jobs", placement.job, model]] += 1
        self._encode_spill(values)
        return values

    def _encode_spill(self, values: Ints) -> None:
        for budget in self.problem.budgets:
            usage = list(budget.own)
            for name, job_class in self.jobs:
                for option in job_class.options:
                    if budget.counts(option.gpu_model):
                        usage[job_class.queue] += job_class.shape.quota_milli * sum(
                            int(values[self.index["replicas", name, node]]) for node in self.nodes(option)
                        )
            for queue in budget.leaves_first:
                spilled = max(0, usage[queue] - budget.kept[queue])
                values[self.index["spill", budget.resource, queue]] = spilled
                if (parent := budget.parent[queue]) is not None:
                    usage[parent] += spilled


def reference(problem: Problem, x: ReferenceColumns) -> Formulation:
    """The plain model of a problem."""
    objective = np.zeros(len(x.upper), dtype=np.int64)
    for name, job_class in x.jobs:
        for option in job_class.options:
            if job_class.elastic:
                for node in x.nodes(option):
                    objective[x.index["replicas", name, node]] = option.points
            else:
                objective[x.index["jobs", name, option.gpu_model]] = option.points
    families = (_assignment, _gang, _request, _gpus, _compute, _queues)
    return Formulation(
        upper=np.array(x.upper, dtype=np.int64),
        objective=objective,
        rows=tuple(row for family in families for row in family(problem, x)),
    )


def _assignment(_problem: Problem, x: ReferenceColumns) -> Iterator[Row]:
    """Σ_m jobs[j,m] ≤ 1."""
    for name, job_class in x.jobs:
        terms = [(x.index["jobs", name, option.gpu_model], 1) for option in job_class.options]
        yield row("assignment", (name,), terms, upper=1)


def _gang(_problem: Problem, x: ReferenceColumns) -> Iterator[Row]:
    """min_j · jobs[j,m] ≤ Σ_{n of m} replicas[j,n] ≤ max_j · jobs[j,m]."""
    for name, job_class in x.jobs:
        for option in job_class.options:
            replicas = [(x.index["replicas", name, node], 1) for node in x.nodes(option)]
            size = x.index["jobs", name, option.gpu_model]
            key = (name, option.gpu_model or "")
            yield row("gang", (*key, "min"), [*replicas, (size, -job_class.minimum)], lower=0)
            yield row("gang", (*key, "max"), [*replicas, (size, -job_class.maximum)], upper=0)


def _request(problem: Problem, x: ReferenceColumns) -> Iterator[Row]:
    """Σ_g whole[j,n,g] = g_j · replicas[j,n];  Σ_g share[j,n,g] = replicas[j,n] for shares."""
    for name, job_class in x.jobs:
        shape = job_class.shape
        if not shape.quota_milli:
            continue
        kind, per = ("whole", shape.gpus) if shape.gpus else ("share", 1)
        for option in job_class.options:
            for node in x.nodes(option):
                held = [(x.index[kind, name, node, gpu], 1) for gpu in range(len(problem.nodes[node].gpus))]
                terms = [*held, (x.index["replicas", name, node], -per)]
                yield row("request", (name, node), terms, lower=0, upper=0)


def _gpus(problem: Problem, x: ReferenceColumns) -> Iterator[Row]:
    """
    Staircase: Σ_j whole[j,n,g] + cut[n,g] ≤ 1 on a wholly free GPU, Σ_j whole[j,n,g] ≤ 0 on another.

    Sharing: Σ_j h_j · share[j,n,g] ≤ free[n,g] · cut[n,g].
    """
    holders: dict[tuple[str, int, int], list[Term]] = defaultdict(list)
    for name, job_class in x.jobs:
        for option in job_class.options:
            for node in x.nodes(option):
                for gpu in range(len(problem.nodes[node].gpus)):
                    for kind, amount in (("whole", 1), ("share", job_class.shape.gpu_milli)):
                        if (column := x.index.get((kind, name, node, gpu))) is not None:
                            holders[kind, node, gpu].append((column, amount))
    for node, free in enumerate(problem.nodes):
        for gpu, milli in enumerate(free.gpus):
            cut = x.index["cut", node, gpu]
            fresh = milli == MILLI
            whole = holders["whole", node, gpu]
            yield row("staircase", (node, gpu), [*whole, *([(cut, 1)] if fresh else [])], upper=int(fresh))
            yield row("sharing", (node, gpu), [*holders["share", node, gpu], (cut, -milli)], upper=0)


def _compute(problem: Problem, x: ReferenceColumns) -> Iterator[Row]:
    """Σ_j a_jr · replicas[j,n] ≤ free[n,r]."""
    for resource, name in enumerate(problem.resources):
        terms: dict[int, list[Term]] = defaultdict(list)
        for job, job_class in x.jobs:
            for option in job_class.options:
                for node in x.nodes(option):
                    terms[node].append((x.index["replicas", job, node], job_class.shape.amounts[resource]))
        for node, used in sorted(terms.items()):
            yield row("compute", (node, name), used, upper=problem.nodes[node].amounts[resource])


def _queues(problem: Problem, x: ReferenceColumns) -> Iterator[Row]:
    """usage[r,q] ≤ limit[r,q];  spill[r,q] ≥ usage[r,q] − kept[r,q]."""
    for budget in problem.budgets:
        usage: dict[int, list[Term]] = defaultdict(list)
        for name, job_class in x.jobs:
            for option in job_class.options:
                if budget.counts(option.gpu_model):
                    usage[job_class.queue] += [
                        (x.index["replicas", name, node], job_class.shape.quota_milli)
                        for node in x.nodes(option)
                    ]
        for queue in budget.leaves_first:
            if (parent := budget.parent[queue]) is not None:
                usage[parent].append((x.index["spill", budget.resource, queue], 1))
        for queue in budget.leaves_first:
            spill = x.index["spill", budget.resource, queue]
            own = budget.own[queue]
            yield row(
                "queues",
                (budget.resource, queue, "spill"),
                [*usage[queue], (spill, -1)],
                upper=budget.kept[queue] - own,
            )
            if (limit := budget.limit[queue]) is not None:
                yield row("queues", (budget.resource, queue), usage[queue], upper=limit - own)

"""(C9) Locality."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from gpuplan.models.formulation.rows import Row, row

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuplan.models.cluster import Level
    from gpuplan.models.formulation.columns import Columns
    from gpuplan.models.formulation.rows import Term
    from gpuplan.models.formulation.structure.replica_types import ReplicaType
    from gpuplan.models.problem.problem import Problem


def locality(problem: Problem, x: Columns) -> Iterator[Row]:  # noqa: ARG001 - every family has the same form
    """
    Replicas of a gang are in one domain, in few domains, or not too many in any one.

        required   Σ_{j ∈ i} jobs[j,k] = Σ_d whole[i,k,d]
                   min_i · whole[i,k,d] ≤ Σ_{c ∈ d, k} located[i,c] ≤ max_i · whole[i,k,d]  ∀ i, k, domains d
        preferred  Σ_{c ∈ d} located[i,c] ≤ min(max_i, room_id) · touched[i,d]    ∀ i, d
                   Σ_d touched[i,d] ≥ Σ_{j ∈ i, k} jobs[j,k]    ∀ i
        spread     Σ_{c ∈ d} located[i,c] ≤ most_i · Σ_{j ∈ i, k} jobs[j,k]    ∀ i, d

    room_id is the number of replicas that fit domain d. A node without a domain of the level is a domain of
    its own. The first and the last rule are exact: gangs in one domain are told apart there, and the replicas
    in a domain can be assigned to the gangs in turn. The second is exact for a replica type of one job,
    otherwise a bound.
    """
    for index, kind in enumerate(x.kinds):
        if kind.ignores_domains or not any(
            (kind.classes[0], tier) in x.jobs for tier in range(len(kind.tiers))
        ):
            continue
        if kind.together.required is not None:
            yield from _required(x, index, kind, kind.together.required)
        jobs = [
            x.jobs[member, tier]
            for member in kind.classes
            for tier in range(len(kind.tiers))
            if (member, tier) in x.jobs
        ]
        if kind.together.preferred is not None:
            by_domain = _by_domain(x, index, kind, kind.together.preferred)
            yield from _preferred(x, index, kind, jobs, by_domain)
        if kind.together.spread is not None:
            for domain, columns in _by_domain(x, index, kind, kind.together.spread).items():
                at_most = [
                    *((column, 1) for column in columns),
                    *((job, -kind.together.most) for job in jobs),
                ]
                yield row("locality", (index, "spread", domain), at_most, upper=0)


def _required(x: Columns, index: int, kind: ReplicaType, level: Level) -> Iterator[Row]:
    for tier in range(len(kind.tiers)):
        if (kind.classes[0], tier) not in x.jobs:
            continue
        within: dict[int, list[Term]] = defaultdict(list)
        for cell, column in x.located_of(index, tier):
            within[x.cells.domain(cell, level)].append((column, 1))
        gangs: list[Term] = []
        for domain, replicas in sorted(within.items()):
            whole = x.whole[index, tier, domain]
            gangs.append((whole, -1))
            key = (index, tier, "required", domain)
            if kind.rigid:
                yield row("locality", key, [*replicas, (whole, -kind.maximum)], lower=0, upper=0)
            else:
                yield row("locality", (*key, "min"), [*replicas, (whole, -kind.minimum)], lower=0)
                yield row("locality", (*key, "max"), [*replicas, (whole, -kind.maximum)], upper=0)
        jobs = [(x.jobs[member, tier], 1) for member in kind.classes]
        yield row("locality", (index, tier, "required"), [*jobs, *gangs], lower=0, upper=0)


def _preferred(
    x: Columns, index: int, kind: ReplicaType, jobs: list[int], by_domain: dict[int, list[int]]
) -> Iterator[Row]:
    touched: list[Term] = []
    for domain, columns in by_domain.items():
        most = min(kind.maximum, sum(x.upper[column] for column in columns))
        touches = x.touched[index, domain]
        touched.append((touches, 1))
        terms = [*((column, 1) for column in columns), (touches, -most)]
        yield row("locality", (index, "preferred", domain), terms, upper=0)
    yield row("locality", (index, "preferred"), [*touched, *((job, -1) for job in jobs)], lower=0)


def _by_domain(x: Columns, index: int, kind: ReplicaType, level: Level) -> dict[int, list[int]]:
    """Columns of the replicas of a type in each domain of a level."""
    found: dict[int, list[int]] = defaultdict(list)
    for tier in range(len(kind.tiers)):
        for cell, column in x.located_of(index, tier):
            found[x.cells.domain(cell, level)].append(column)
    return dict(sorted(found.items()))

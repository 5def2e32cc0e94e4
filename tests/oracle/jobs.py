"""Families of the plain model about one job at a time, and about the jobs it may follow or meet."""

from __future__ import annotations

from collections import defaultdict
from itertools import combinations
from typing import TYPE_CHECKING

from gpuplan.models.formulation.rows import Row, row
from tests.oracle.index import SLICES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuplan.models.cluster import Level
    from gpuplan.models.problem.jobs import JobClass
    from gpuplan.models.problem.problem import AffinityNeighbour, Problem
    from tests.oracle.columns import ReferenceColumns


def assignment(_problem: Problem, x: ReferenceColumns) -> Iterator[Row]:
    """No job is placed twice: placed[c,j] ≤ 1."""
    for candidate in x.candidates:
        yield row("assignment", candidate.key, [(x["placed", *candidate.key], 1)], upper=1)


def eviction(problem: Problem, x: ReferenceColumns) -> Iterator[Row]:
    """
    A running job stops, moves, shrinks or grows, one of them, as far as the problem lets it.

        stop[v] + moved[v] + shrink[v] + grown[v] ≤ 1;   gives[v,k] ≤ shrink[v]
    """
    for index, incumbent in enumerate(problem.incumbents):
        stop, shrink = x["stop", index], x["shrink", index]
        fates = [*x.away(index), shrink, *x.grow(index)]
        yield row("eviction", (index, "fate"), [(column, 1) for column in fates], upper=1)
        if incumbent.stop_points is None:
            yield row("eviction", (index, "stop"), [(stop, 1)], upper=0)
        for position in range(len(incumbent.holds)):
            gives = x["gives", index, position]
            yield row("eviction", (index, position), [(gives, 1), (shrink, -1)], upper=0)


def gang(problem: Problem, x: ReferenceColumns) -> Iterator[Row]:
    """
    All replicas together, within the gang's range, on one GPU model.

        min_j · placed[j]  ≤  Σ_n replicas[j,n]  ≤  max_j · placed[j];   Σ_m on[j,m] ≤ placed[j]
        Σ_{n of m} replicas[j,n]  ≤  M · on[j,m];   Σ_k gives[v,k] ≤ r_v − fewest_v
    """
    for index, incumbent in enumerate(problem.incumbents):
        gives = [(x["gives", index, position], 1) for position in range(len(incumbent.holds))]
        yield row("gang", (index, "fewest"), gives, upper=len(gives) - incumbent.min_replicas)
    for candidate in x.candidates:
        job_class, key = candidate.job_class, candidate.key
        placed = x["placed", *key]
        replicas = [(x["replicas", *key, node], 1) for node in x.nodes_of(candidate)]
        yield row("gang", (*key, "min"), [*replicas, (placed, -job_class.minimum)], lower=0)
        yield row("gang", (*key, "max"), [*replicas, (placed, -job_class.maximum)], upper=0)
        on = [x["on", *key, option.gpu_model] for option in job_class.options]
        yield row("gang", (*key, "models"), [*((column, 1) for column in on), (placed, -1)], upper=0)
        for column, option in zip(on, job_class.options, strict=True):
            there = [(x["replicas", *key, node], 1) for node in x.nodes(option)]
            most = candidate.most * len(there)
            yield row("gang", (*key, option.gpu_model or ""), [*there, (column, -most)], upper=0)


def request(problem: Problem, x: ReferenceColumns) -> Iterator[Row]:
    """
    Replicas hold what they ask for.

        Σ_g whole[j,n,g] = g_j · replicas[j,n];   Σ_g share[j,n,g] = replicas[j,n]
        Σ_{g,a} slice[j,n,g,π,a] = count_jπ · replicas[j,n]
    """
    for candidate in x.candidates:
        shape, key = candidate.job_class.shape, candidate.key
        for node in x.nodes_of(candidate):
            gpus = range(len(problem.nodes[node].gpus))
            replicas = x["replicas", *key, node]
            asked = [
                *([([x["whole", *key, node, gpu] for gpu in gpus], shape.gpus)] if shape.gpus else []),
                *([([x["share", *key, node, gpu] for gpu in gpus], 1)] if shape.gpu_milli else []),
                *(
                    (
                        [
                            x["slice", *key, node, gpu, profile, start]
                            for gpu in gpus
                            for start in range(SLICES)
                        ],
                        count,
                    )
                    for profile, count in shape.mig
                ),
            ]
            for number, (columns, count) in enumerate(asked):
                terms = [*((column, 1) for column in columns), (replicas, -count)]
                yield row("request", (*key, node, number), terms, lower=0, upper=0)


def selection(_problem: Problem, x: ReferenceColumns) -> Iterator[Row]:
    """
    A node that may be added takes replicas only if it is: replicas[j,n] ≤ M · open[n].

    Nodes that a job may not use have no columns.
    """
    for node in sorted(x.optional):
        for candidate, replicas in x.on_node(node):
            terms = [(replicas, 1), (x["open", node], -candidate.most)]
            yield row("selection", (*candidate.key, node), terms, upper=0)


def locality(_problem: Problem, x: ReferenceColumns) -> Iterator[Row]:
    """Replicas are in one domain of the required level: Σ_d present[j,l,d] ≤ 1."""
    for candidate in x.candidates:
        if (level := candidate.job_class.together.required) is not None:
            domains = sorted({x.domain(level, node) for node in x.nodes_of(candidate)})
            terms = [(x["present", *candidate.key, level, domain], 1) for domain in domains]
            yield row("locality", candidate.key, terms, upper=1)


def presence(_problem: Problem, x: ReferenceColumns) -> Iterator[Row]:
    """
    What `present` means.

        replicas[j,n] ≤ M · present[j,l,d(n)]
        present[v,l,d] + stop[v] + moved[v] + gives[v,k] ≥ 1     ∀ k in d
    """
    for candidate in x.candidates:
        for level in x.levels(candidate):
            for node in x.nodes_of(candidate):
                present = x["present", *candidate.key, level, x.domain(level, node)]
                terms = [(x["replicas", *candidate.key, node], 1), (present, -candidate.most)]
                yield row("presence", (*candidate.key, level, node), terms, upper=0)
    for standing in x.problem.standing:
        for level in x.meeting_levels:
            for domain in sorted({x.domain(level, node) for node in standing.nodes}):
                for position, leaving in enumerate(_ways_to_leave(x, standing, level, domain)):
                    present = x["present", "standing", standing.job, level, domain]
                    terms = [(present, 1), *((column, 1) for column in leaving)]
                    yield row("presence", (standing.job, level, domain, position), terms, lower=1)


def _ways_to_leave(
    x: ReferenceColumns, standing: AffinityNeighbour, level: Level, domain: int
) -> Iterator[list[int]]:
    """For each replica in a domain: columns of which one is 1 if it leaves."""
    if standing.incumbent is None:
        yield []
    elif places := x.places_in(standing, level, domain):
        for position in places:
            yield x.leaving(standing.incumbent, position)
    else:
        yield x.away(standing.incumbent)


def spread(problem: Problem, x: ReferenceColumns) -> Iterator[Row]:
    """Σ_{n ∈ d} replicas[j,n] ≤ most_j   ∀ domains d of the level over which j is spread."""
    for candidate in x.candidates:
        together = candidate.job_class.together
        if together.spread is None:
            continue
        domains = defaultdict(list)
        for node in x.nodes_of(candidate):
            domain = problem.domain_of(together.spread)[node]
            domains[domain].append((x["replicas", *candidate.key, node], 1))
        for domain, terms in sorted(domains.items()):
            yield row("spread", (*candidate.key, domain), terms, upper=together.most)


def anti_affinity(problem: Problem, x: ReferenceColumns) -> Iterator[Row]:
    """
    A job and one that it avoids are not in one domain, unless both were there already.

        present[a,l,d] + present[b,l,d]  ≤  1     ∀ a avoiding b at level l, not both standing
    """
    new: list[tuple[str, tuple[str | int, ...], JobClass | AffinityNeighbour, bool]] = [
        (each.name, each.key, each.job_class, True) for each in x.candidates
    ]
    old = [(each.job, ("standing", each.job), each, False) for each in problem.standing]
    for one, other in combinations([*new, *old], 2):
        if one[0] == other[0] or not (one[3] or other[3]):
            continue
        for level in sorted(_kept_apart(one[2], other[2]) | _kept_apart(other[2], one[2])):
            for domain in sorted({x.domain(level, node) for node in range(len(problem.nodes))}):
                columns = [x.index.get(("present", *each[1], level, domain)) for each in (one, other)]
                terms = [(column, 1) for column in columns if column is not None]
                if len(terms) == 2:
                    yield row("anti_affinity", (*one[1], *other[1], level, domain), terms, upper=1)


def _kept_apart(one: JobClass | AffinityNeighbour, other: JobClass | AffinityNeighbour) -> set[Level]:
    """Levels at which one avoids the other."""
    return {level for tag, level in one.avoids if tag in other.carries}

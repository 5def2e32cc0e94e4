"""(C10) Eviction."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from gpuplan.models.formulation.rows import Row, row

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuplan.models.formulation.columns import Columns
    from gpuplan.models.formulation.rows import Term
    from gpuplan.models.problem.jobs import Incumbent
    from gpuplan.models.problem.problem import Problem


def eviction(problem: Problem, x: Columns) -> Iterator[Row]:
    """
    At most one eviction pattern is used on a node, and a running job leaves all its nodes or none.

        Σ_{o on n} out[o]  ≤  1    ∀ nodes n
        Σ_{o on n: v stopped} out[o]  =  stop[v],   the same for move[v]    ∀ v, nodes n of v
        given[v] = Σ_o given_ov · out[o] + Σ_{crowded n} given[v,n]
        given[v]  ≤  shrink[v]  ≤  given[v] + elsewhere_v    ∀ elastic v
        freed[n,g]  ≤  stop[v] + move[v] + given[v,n]    ∀ crowded n, GPUs g shared there, v on g
        emptied[n]  ≤  move[v]    ∀ crowded n, v on n
        resized[v]  ≤  shrink[v]  ≤  spare_v · resized[v]    ∀ elastic v
        Σ_p fewer[v,p]  =  shrink[v]    ∀ v with replicas of unequal points
        stop[v] + move[v] + resized[v] + Σ_k grown[v,k]  ≤  1    ∀ v

    On a GPU of which v holds all, freed[n,g] ≤ given[v,n]: what it frees by leaving counts there anyway. The
    second row is for nodes that are not crowded. On crowded nodes stop[v] and move[v] each count what v
    holds there, rounded up. For a job on one node that can only be preempted, stop[v] is this sum and not a
    column. given_ov is the number of replicas that v gives up in pattern o, elsewhere_v its replicas on nodes
    where no job may start, spare_v its replicas above the minimum; grown are the jobs columns of the class
    that adds replicas to it.
    """
    leavers = _Leavers(x)
    for node, departures in x.eviction_patterns.by_node.items():
        if len(departures) > 1:
            yield row("eviction", ("node", node), [(x.out[each], 1) for each in departures], upper=1)
    yield from _crowded(x)
    for v, incumbent in enumerate(problem.incumbents):
        nodes = {hold.node for hold in incumbent.holds if hold.node is not None} - x.eviction_patterns.crowded
        for name, columns, by_node in (("stop", x.stop, leavers.stopped), ("move", x.move, leavers.moved)):
            if v in columns:
                for node in sorted(nodes):
                    terms = [*by_node[v, node], (columns[v], -1)]
                    yield row("eviction", (name, v, node), terms, lower=0, upper=0)
        if v in x.shrink:
            yield from _shrinking(x, v, incumbent, leavers.given[v])
        fates = [columns[v] for columns in (x.stop, x.move, x.resized) if v in columns]
        fates += x.growth_of.get(v, [])
        if len(fates) > 1:
            yield row("eviction", ("one", v), [(column, 1) for column in fates], upper=1)


class _Leavers:
    """Terms of the eviction patterns in which each running job leaves."""

    def __init__(self, x: Columns) -> None:
        self.stopped: dict[tuple[int, int], list[Term]] = defaultdict(list)
        """By incumbent and node."""
        self.moved: dict[tuple[int, int], list[Term]] = defaultdict(list)
        self.given: dict[int, list[Term]] = defaultdict(list)
        """Replicas given up, by incumbent."""
        for departure, column in x.out.items():
            for v in departure.stopped:
                self.stopped[v, departure.node].append((column, 1))
            for v in departure.moved:
                self.moved[v, departure.node].append((column, 1))
            for v, replicas in departure.shrunk:
                self.given[v].append((column, replicas))
        for (v, _), column in x.fates.given.items():
            self.given[v].append((column, 1))


def _shrinking(x: Columns, v: int, incumbent: Incumbent, given: list[Term]) -> Iterator[Row]:
    elsewhere = sum(hold.node is None for hold in incumbent.holds)
    spare = len(incumbent.holds) - incumbent.min_replicas
    shrink, resized = x.shrink[v], x.resized[v]
    minus = [(column, -replicas) for column, replicas in given]
    yield row("eviction", ("shrink", v), [(shrink, 1), *minus], lower=0, upper=elsewhere)
    yield row("eviction", ("resized", v, "max"), [(shrink, 1), (resized, -spare)], upper=0)
    yield row("eviction", ("resized", v, "min"), [(shrink, 1), (resized, -1)], lower=0)
    if v in x.fates.fewer:
        terms = [(shrink, 1), *((part.column, -1) for part in x.fates.fewer[v])]
        yield row("eviction", ("fewer", v), terms, lower=0, upper=0)


def _crowded(x: Columns) -> Iterator[Row]:
    """A GPU is freed, and a node emptied, only if all jobs have left."""
    for (node, gpu), sharers in x.fates.sharers.items():
        for v in sharers:
            left = [] if (node, gpu) in x.fates.freed_by_giving else [*x.fates.leaves(v)]
            if (v, node) in x.fates.given:
                # One replica given up counts as all of them: rounded up, as on all crowded nodes.
                left.append(x.fates.given[v, node])
            terms = [(x.fates.freed[node, gpu], 1), *((column, -1) for column in left)]
            yield row("eviction", ("freed", node, gpu, v), terms, upper=0)
    for node, column in x.fates.emptied.items():
        for v in x.eviction_patterns.holds[node]:
            yield row("eviction", ("emptied", node, v), [(column, 1), (x.move[v], -1)], upper=0)

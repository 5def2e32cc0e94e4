"""Target → values of all columns: the warm start of a solver, and a test of the rows."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

import numpy as np

from gpuplan.models.formulation.structure.eviction_patterns import EvictionPattern
from gpuplan.models.formulation.structure.replica_types import fill_tiers
from gpuplan.models.placement import GpuShare
from gpuplan.models.problem.jobs import ClassRole
from gpuplan.models.problem.problem import replica_changes
from gpuplan.models.units import MILLI

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuplan.models.formulation.columns import Columns
    from gpuplan.models.formulation.rows import Ints
    from gpuplan.models.placement import Placement, Replica
    from gpuplan.models.plan.solution import DesiredState
    from gpuplan.models.problem.jobs import HeldResources, Incumbent
    from gpuplan.models.problem.problem import QueueBudget


def encode(x: Columns, target: DesiredState) -> Ints:
    """
    Values of all columns at a feasible target.

    Where some of several equal running jobs leave a node, the cheapest of them stand for those that leave.
    """
    return _Encoder(x, target).values()


class _Encoder:
    def __init__(self, x: Columns, target: DesiredState) -> None:
        self.x, self.problem = x, x.problem
        self.target = target
        self.value = np.zeros(len(x.upper), dtype=np.int64)
        self.node_of = {node.name: index for index, node in enumerate(self.problem.nodes)}
        self.group_of = {
            node: index for index, group in enumerate(self.problem.groups) for node in group.nodes
        }
        self.class_of = {
            name: index
            for index, job_class in enumerate(self.problem.classes)
            if job_class.role is ClassRole.START
            for name in job_class.jobs
        }
        self.kind_of = {member: index for index, kind in enumerate(x.kinds) for member in kind.classes}
        self.tier_of = {
            (index, group): tier
            for index, kind in enumerate(x.kinds)
            for tier, groups in enumerate(kind.groups)
            for group in groups
        }
        self.departure: dict[int, EvictionPattern] = {}
        self.gone: dict[int, list[tuple[int, int]]] = defaultdict(list)
        """(GPU index, thousandths) released, by node: those of the jobs that really leave."""
        self.new: list[tuple[int, list[Replica]]] = []
        """(class, new replicas) of every job that starts, migrates or grows."""

    def values(self) -> Ints:
        by_job = {placement.job: placement for placement in self.target.placements}
        self._leave(by_job)
        self.new += [
            (member, list(placement.replicas))
            for placement in self.target.placements
            if (member := self.class_of.get(placement.job)) is not None
        ]
        for member, replicas in self.new:
            self._place(member, replicas)
        self._cut_gpus()
        self._pools()
        self._instances()
        self._encode_spill()
        self._encode_missing()
        self._fragmentation()
        self._later()
        return self.value

    def _leave(self, by_job: dict[str, Placement]) -> None:
        """Set the outcome of each running job, and the eviction pattern of each node."""
        x = self.x
        fate: dict[int, str] = {}
        given_up: dict[int, Counter[int]] = defaultdict(Counter)
        fresh: dict[int, list[Replica]] = {}
        for v, incumbent in enumerate(self.problem.incumbents):
            after = by_job.get(incumbent.job)
            if after is None:
                fate[v] = "stop"
                self._give_up(incumbent, incumbent.holds)
                continue
            positions, come = replica_changes(self.problem, incumbent, after, self.node_of)
            gone = [incumbent.holds[position] for position in positions]
            fresh[v] = come
            if gone and come:
                fate[v] = "move"
                self._give_up(incumbent, incumbent.holds)
                fresh[v] = list(after.replicas)
            elif gone:
                fate[v] = "shrink"
                self._give_up(incumbent, gone)
                given_up[v] = Counter(hold.node for hold in gone if hold.node is not None)
                self.value[x.shrink[v]], self.value[x.resized[v]] = len(gone), 1
                self._count(fill_tiers(x.fates.fewer.get(v, ()), len(gone)))
            elif come:
                fate[v] = "grow"
        stands_for = {v: x.eviction_patterns.canonical(v, fate) for v in fate}
        self.class_of |= {
            self.problem.incumbents[v].job: resume
            for v, what in fate.items()
            if what == "stop" and (resume := self.problem.incumbents[stands_for[v]].resume) is not None
        }
        known = {stands_for[v]: what for v, what in fate.items()}
        for v, what in known.items():
            if what in ("stop", "move") and v not in x.fates.stopped_with:
                self.value[(x.stop if what == "stop" else x.move)[v]] = 1
        for v, what in fate.items():
            incumbent = self.problem.incumbents[stands_for[v]]
            member = {"move": incumbent.move, "grow": incumbent.grow}.get(what)
            if member is not None:
                self.new.append((member, fresh[v]))
        self._depart(known, given_up)

    def _depart(self, fate: dict[int, str], given_up: dict[int, Counter[int]]) -> None:
        """Set the eviction pattern of each node."""
        x = self.x
        for node, here in x.eviction_patterns.holds.items():
            departure = EvictionPattern(
                node,
                stopped=tuple(v for v in here if fate.get(v) == "stop"),
                moved=tuple(v for v in here if fate.get(v) == "move"),
                shrunk=tuple((v, given_up[v][node]) for v in here if given_up[v][node]),
            )
            if not departure.disturbed_count:
                continue
            self.departure[node] = departure
            if node in x.eviction_patterns.crowded:
                self._leave_crowded(node, departure)
            else:
                self.value[x.out[departure]] = 1

    def _leave_crowded(self, node: int, departure: EvictionPattern) -> None:
        fates = self.x.fates
        for v, replicas in departure.shrunk:
            self.value[fates.given[v, node]] = replicas
        giving = {v for v, _ in departure.shrunk}
        gone = {*departure.stopped, *departure.moved, *giving}
        free = self._free(node)
        for (at, gpu), column in fates.freed.items():
            by = giving if (at, gpu) in fates.freed_by_giving else gone
            if at == node and by >= {*fates.sharers[at, gpu]} and free[gpu] == MILLI:
                self.value[column] = 1
        if node in fates.emptied and len(departure.moved) == len(self.x.eviction_patterns.holds[node]):
            self.value[fates.emptied[node]] = 1

    def _place(self, member: int, replicas: Iterable[Replica]) -> None:
        """Count one job and its replicas."""
        x, kind = self.x, self.kind_of[member]
        together = x.kinds[kind].together
        nodes = [self.node_of[replica.node] for replica in replicas]
        tier = self.tier_of[kind, self.group_of[nodes[0]]]
        self.value[x.jobs[member, tier]] += 1
        self._count(fill_tiers(x.further.get((member, tier), ()), len(nodes) - x.kinds[kind].minimum))
        for node in nodes:
            cell = x.cells.of[node]
            if x.kinds[kind].ignores_domains:
                self.value[x.replicas[kind, self.group_of[node]]] += 1
                size = x.kinds[kind].shape.gpus
                if size in x.blocks[cell]:
                    self.value[x.blocks[cell][size]] += 1
            else:
                self.value[x.located[kind, cell]] += 1
        if together.required is not None:
            domain = self.problem.domain_of(together.required)[nodes[0]]
            self.value[x.whole[kind, tier, domain]] += 1
        if together.preferred is not None:
            domains = self.problem.domain_of(together.preferred)
            for domain in {domains[node] for node in nodes}:
                self.value[x.touched[kind, domain]] += 1

    def _count(self, values: dict[int, int]) -> None:
        for column, value in values.items():
            self.value[column] += value

    def _cut_gpus(self) -> None:
        """Count GPUs that are wholly free after evictions and of which a share is newly held."""
        cut = set()
        for _, replicas in self.new:
            for replica in replicas:
                node = self.node_of[replica.node]
                for held in replica.gpus:
                    if isinstance(held, GpuShare) and held.milli < MILLI:
                        cut.add((node, held.index))
        for node, gpu in cut:
            if self._free(node)[gpu] == MILLI:
                self.value[self.x.opened[self.x.cells.of[node]]] += 1

    def _give_up(self, incumbent: Incumbent, holds: Iterable[HeldResources]) -> None:
        for hold in holds:
            if hold.node is not None:
                milli = incumbent.shape.gpu_milli or MILLI
                self.gone[hold.node] += [(gpu, milli) for gpu in hold.gpus]

    def _free(self, node: int) -> list[int]:
        """Thousandths free by GPU after evictions."""
        free = list(self.problem.nodes[node].gpus)
        for gpu, milli in self.gone[node]:
            free[gpu] += milli
        return free

    def _pools(self) -> None:
        added = Counter(self.node_of[node.name] for node in self.target.added)
        for opening in self.x.cells.expansions:
            self.value[opening.column] = sum(added[node] for node in opening.nodes)
        removed = {self.node_of[name] for name in self.target.removed}
        for closing in self.x.cells.reductions:
            nodes = {*closing.idle, *(node for node, _ in closing.emptied)}
            self.value[closing.column] = len(removed & nodes)

    def _instances(self) -> None:
        x = self.x
        column_of = {
            (node, gpu, place): column
            for state in x.mig
            for place, _, _, column in state.instances
            for node, gpu in state.gpus
        }
        switched_state = {state.cell: state for state in x.mig if state.switched is not None}
        switched = set()
        for _, replicas in self.new:
            for replica in replicas:
                node = self.node_of[replica.node]
                for held in replica.gpus:
                    if isinstance(held, GpuShare):
                        continue
                    place = (held.profile, held.start)
                    if (column := column_of.get((node, held.index, place))) is not None:
                        self.value[column] += 1
                        continue
                    # No state has this GPU, so it is not in MIG mode yet and is switched for this instance.
                    state = switched_state[x.cells.of[node]]
                    self.value[next(column for at, _, _, column in state.instances if at == place)] += 1
                    if (node, held.index) not in switched and state.switched is not None:
                        self.value[state.switched] += 1
                        switched.add((node, held.index))

    def _encode_spill(self) -> None:
        for budget in self.problem.budgets:
            usage, new = list(budget.own), [False] * len(budget.own)
            for queue, counted in enumerate(self.x.usage(budget.resource)):
                usage[queue] += sum(milli * int(self.value[column]) for column, milli in counted)
                new[queue] = any(self.value[column] and column in self.x.newcomers for column, _ in counted)
            for queue in budget.leaves_first:
                spilled = max(0, usage[queue] - budget.kept[queue])
                if (parent := budget.parent[queue]) is not None:
                    usage[parent] += spilled
                    new[parent] |= new[queue] and spilled > 0
                if (spill := self.x.spill.get((budget.resource, queue))) is not None:
                    self.value[spill] = spilled
                if (passing := self.x.passing.get((budget.resource, queue))) is not None:
                    self.value[passing[0]] = not spilled
                    self.value[passing[1]] = new[queue] and spilled > 0
                firm = budget.firm[queue]
                if (fresh := self.x.fresh.get((budget.resource, queue))) is not None and firm is not None:
                    self.value[fresh] = usage[queue] <= firm
        self._encode_power()

    def _encode_power(self) -> None:
        """Mark racks over their power cap in which a new job is placed."""
        racks = {
            node: number for number in self.x.fresh_power for node in self.problem.power_caps[number].nodes
        }
        for member, replicas in self.new:
            for replica in replicas:
                number = racks.get(self.node_of[replica.node])
                # Shares and MIG instances are not counted in (C13).
                if number is not None and self.problem.classes[member].shape.gpus:
                    self.value[self.x.fresh_power[number]] = 1

    def _encode_missing(self) -> None:
        for index, column in self.x.missing.items():
            guarantee = self.problem.guarantees[index]
            usage = self.x.usage(guarantee.resource)
            used = guarantee.own + sum(
                milli * int(self.value[each]) for queue in guarantee.queues for each, milli in usage[queue]
            )
            self.value[column] = max(0, -(-(guarantee.owed - used) // MILLI))

    def _later(self) -> None:
        """Starts in later slots, and the columns that depend on them."""
        x = self.x
        for planned in self.target.planned:
            if (index := self.class_of.get(planned.job)) is None:
                continue
            group = self.group_of[self.node_of[planned.replicas[0].node]]
            options = enumerate(self.problem.classes[index].options)
            position = next(at for at, option in options if group in option.later_groups[planned.slot])
            self.value[x.later.starts[index, position, planned.slot]] += 1
        x.later.add_up(self.value)
        for budget in self.problem.budgets:
            self._later_spill(budget)

    def _later_spill(self, budget: QueueBudget) -> None:
        for slot in range(1, self.problem.slots if any(budget.kept) else 1):
            terms, usage = self.x.later.usage(budget, slot)
            for queue, counted in enumerate(terms):
                usage[queue] += sum(milli * int(self.value[column]) for column, milli in counted)
            for queue in budget.leaves_first:
                spilled = max(0, usage[queue] - budget.kept[queue])
                if (parent := budget.parent[queue]) is not None:
                    usage[parent] += spilled
                if (spill := self.x.later.spill.get((budget.resource, queue, slot))) is not None:
                    self.value[spill] = spilled

    def _fragmentation(self) -> None:
        """Blocks of the reference size that stay free, and free GPUs outside of such blocks."""
        x, size = self.x, self.problem.charges.reference_gpus
        if not x.waste:
            return
        taken: Counter[tuple[int, int]] = Counter()
        for _, replicas in self.new:
            for replica in replicas:
                for held in replica.gpus:
                    taken[self.node_of[replica.node], held.index] += 1
        gone = {self.node_of[name] for name in self.target.removed}
        there = {self.node_of[node.name] for node in self.target.added}
        for node, group in self.group_of.items():
            if node in gone or (self.problem.groups[group].pool is not None and node not in there):
                continue
            cell = x.cells.of[node]
            if cell not in x.waste:
                continue
            milli = self._free(node)
            free = sum(each == MILLI and not taken[node, gpu] for gpu, each in enumerate(milli))
            self.value[x.phantom[cell]] += free // size
            self.value[x.waste[cell]] += free % size

"""
Which reversals together break no rule: as many as possible, each with what it cannot do without.

The verifier decides. All reversals are tried at once, and those that break a rule are found by halves, so a
rollback of which everything is legal is judged once.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from gpuplan.models.cluster import rack_of
from gpuplan.models.eligibility.free_resources import memory_slices
from gpuplan.models.errors import PlannerError
from gpuplan.models.mig import mig_geometry
from gpuplan.models.placement import GpuShare
from gpuplan.models.plan.rollback import StayingChange, StaysCode
from gpuplan.models.plan.solution import DesiredState, IdleLayout, LaterStart
from gpuplan.models.plan.violation import Rule
from gpuplan.models.queue import root_queue
from gpuplan.models.timing.time_slots import TimeSlots
from gpuplan.models.units import MILLI
from gpuplan.models.verifier.verify import Verifier
from gpuplan.planner.action_marks import PROMISES
from gpuplan.planner.analysis.target_cluster import Changed
from gpuplan.planner.rollback.reversals import Reversal, staying
from gpuplan.planner.text_format import join_first_names, join_jobs

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from gpuplan.models.mig import MigGeometry
    from gpuplan.models.placement import MigSlice, Placement
    from gpuplan.models.plan.solution import Undo
    from gpuplan.models.plan.violation import Violation
    from gpuplan.models.policy.policy import Policy
    from gpuplan.models.snapshot import Snapshot
    from gpuplan.models.verifier.verify import Verification
    from gpuplan.planner.rollback.reversals import Reversals


_RELIEVED: Final = frozenset({Rule.CPU_MEMORY, Rule.QUOTA, Rule.POWER, Rule.ANTI_AFFINITY})
"""Rules that a reversal may keep once jobs elsewhere stop; those that hold its GPUs stop with it anyway."""

_MOST_TRIALS: Final = 200
"""Limit on the judgements of which jobs have to stop; one takes a second on 1,500 nodes with 7,000 jobs."""


@dataclass(frozen=True, slots=True)
class Found:
    """The result of a search."""

    target: DesiredState
    verification: Verification
    stays: tuple[StayingChange, ...]
    """What is not undone though it could be expressed."""


class RollbackSearch:
    """The search for the reversals of one plan in one cluster without lost places."""

    def __init__(self, live: Snapshot, policy: Policy, plan: Undo, wishes: Reversals) -> None:
        """`plan` has the jobs and pools of the plan that is undone."""
        self._live, self._policy, self._plan, self._wishes = live, policy, plan, wishes
        self._verify = Verifier(live, policy)
        self._accepted = Changed()
        self._refused: dict[str, tuple[Reversal, tuple[Violation, ...]]] = {}
        self._stays: list[StayingChange] = []
        self._trials = _MOST_TRIALS
        self._slots = {name: slots for name, slots in self._slots_of_promises() if slots}
        self._racks = {node.name: rack_of(node) for node in live.cluster.nodes}
        self._holders: dict[tuple[str, int], list[tuple[str, GpuShare | MigSlice]]] = defaultdict(list)
        for placed in live.running_placements:
            for replica in placed.replicas:
                for held in replica.gpus:
                    self._holders[replica.node, held.index].append((placed.job, held))

    def run(self, *, stop_started: bool) -> Found:
        """
        Find the reversals; with `stop_started` the jobs that the plan started are stopped in any case.

        Raises
        ------
        PlannerError
            The cluster breaks a rule even if nothing is undone.
        """
        if broken := self._violations(Changed()):
            self._leave_out_promises(broken)
        wishes = self._wishes
        self._accept(wishes.nodes)
        self._accept(list(self._with_their_needs()))
        for reversal, broken in list(self._refused.values()):
            if all(violation.rule in _RELIEVED for violation in broken):
                self._accept_by_stopping(reversal)
        if stop_started:
            self._accept([self._as_group(reversal) for reversal in wishes.started.values()])
        self._accept([each for each in wishes.new_nodes if self._is_empty(each)])
        self._accept([each for each in wishes.layouts if self._is_idle(each)])
        return self._result()

    # --- legality ------------------------------------------------------------------------------------------

    def _violations(self, change: Changed) -> tuple[Violation, ...]:
        return self._verify(self._target(change)).violations

    def _target(self, change: Changed) -> DesiredState:
        placements = (change.places.get(job.name, job.placement) for job in self._live.jobs)
        placed = {each.job: each for each in placements if each is not None}
        return DesiredState(
            tuple(placed[name] for name in sorted(placed)),
            tuple(change.added[name] for name in sorted(change.added)),
            tuple(sorted(change.removed)),
            tuple(self._promised_starts(placed)),
            replace(
                self._plan,
                opened=tuple(sorted(change.opened)),
                layouts=tuple(IdleLayout(*gpu, change.layouts[gpu]) for gpu in sorted(change.layouts)),
            ),
        )

    def _promised_starts(self, placed: dict[str, Placement]) -> Iterator[LaterStart]:
        """The promised starts that the cluster has, which a rollback leaves as they are."""
        for job in self._live.jobs:
            if (slots := self._slots.get(job.name)) and job.promise and job.name not in placed:
                yield LaterStart(job.name, slots[0], job.promise.replicas)

    def _slots_of_promises(self) -> Iterator[tuple[str, list[int]]]:
        """By pending job, the slot in which its promised start is, and the last one that is not too late."""
        horizon, now = self._policy.horizon, self._live.taken_at
        edges = TimeSlots.of(horizon, now).edges
        for job in self._live.jobs:
            if job.promise is None or job.running is not None or job.withheld:
                continue
            start = (job.promise.start - now).total_seconds()
            dues = (start, start + horizon.backfill.max_delay)
            found = [bisect_right(edges, due) - 1 for due in dues if due < edges[-1]]
            if found and found[0] >= 1:
                yield job.name, sorted(set(found))

    def _leave_out_promises(self, broken: tuple[Violation, ...]) -> None:
        """
        Leave out promised starts that the cluster as it is cannot keep: those that a violation names.

        Raises
        ------
        PlannerError
            Rules are broken without promised starts too.
        """
        left, out = broken, dict[str, list[int]]()
        why: dict[str, Violation] = {}
        while left and self._slots:
            named = {name: each for each in left for name in self._promised_in(each)}
            for name, violation in sorted((named or dict.fromkeys(self._slots, left[0])).items()):
                why[name], slots = violation, self._slots.pop(name)
                if len(slots) > 1:
                    self._slots[name] = slots[1:]
                else:
                    out[name] = slots
            left = self._violations(Changed())
        for name, slots in out.items():
            # Of two that exclude each other one may stay; and one that could be kept must be.
            self._slots[name] = slots
            if (broken_with := self._violations(Changed())) and len(broken_with) >= len(left):
                del self._slots[name]
                text = f"its promised start is impossible now ({_told(why[name])}); the next plan changes it"
                stays = StayingChange(action=PROMISES, subject=f"job {name}", code=StaysCode.RULE, text=text)
                self._stays.append(stays.model_copy(update={"rule": why[name].rule}))
            else:
                left = broken_with
        if left:
            listed = "\n".join(f"  {violation}" for violation in broken[:5])
            raise PlannerError(
                f"the cluster as it is needs another plan first, since rules would be broken:\n{listed}\n"
                "Run `gpuplan plan`, apply it, and roll back then."
            )

    def _promised_in(self, violation: Violation) -> set[str]:
        """Jobs with promised starts that a violation is about, or else those that it names."""
        own = {violation.subject.removeprefix("job ").partition(" ")[0]} & self._slots.keys()
        return own or {word.strip(",;") for word in violation.found.split()} & self._slots.keys()

    def _accept(self, reversals: Sequence[Reversal]) -> None:
        """Accept as many as are legal; again, while one that was accepted may have made others legal."""
        left = list(reversals)
        while left:
            before = self._accepted
            self._halve(left)
            left = [each for each in left if each.action in self._refused]
            if self._accepted == before:
                return

    def _halve(self, reversals: Sequence[Reversal]) -> None:
        trial = self._accepted
        for reversal in reversals:
            trial |= reversal.change
        broken = self._violations(trial)
        if not broken:
            self._accepted = trial
            for reversal in reversals:
                self._refused.pop(reversal.action, None)
        elif len(reversals) == 1:
            self._refused[reversals[0].action] = reversals[0], broken
        else:
            middle = len(reversals) // 2
            self._halve(reversals[:middle])
            self._halve(reversals[middle:])

    # --- what a job needs to go back -----------------------------------------------------------------------

    def _with_their_needs(self) -> Iterator[Reversal]:
        """Each job that can go back, with the jobs of the plan that are in its way and with its nodes."""
        for name, reversal in self._wishes.jobs.items():
            needed, obstacle = self._closure(name)
            if obstacle:
                self._stays.append(staying(reversal, *obstacle))
            else:
                yield Reversal(reversal.action, reversal.subject, needed)

    def _closure(self, name: str) -> tuple[Changed, tuple[StaysCode, str] | None]:
        """All that must be undone together with the change of a job, or what makes that impossible."""
        wishes, change, seen = self._wishes, Changed(), {name}
        open_ = [name]
        while open_:
            job = open_.pop()
            reversal = wishes.jobs.get(job) or wishes.started[job]
            change |= reversal.change
            if (place := reversal.change.places[job]) is not None:
                nodes, lost = self._nodes_for(place)
                if lost:
                    return change, (StaysCode.LOST, f"{_its(job, name)}node {lost} is gone")
                change |= nodes
            for other in sorted({*self._in_the_way(job, place), *self._started_together(job)} - seen):
                if other not in wishes.jobs and other not in wishes.started:
                    where = join_first_names(sorted(place.nodes)) if place else ""
                    text = f"{_its(job, name)}place on {where} is taken by job {other}"
                    return change, (StaysCode.TAKEN, text)
                seen.add(other)
                open_.append(other)
        return change, None

    def _nodes_for(self, place: Placement) -> tuple[Changed, str]:
        """The nodes of a place that must come back or be opened first; or the name of one that cannot."""
        by_node = {
            name: each.change
            for each in self._wishes.nodes
            for name in (*each.change.added, *each.change.opened)
        }
        change = Changed()
        for name in sorted(place.nodes):
            node = self._live.cluster.node_by_name.get(name)
            if node is None and name not in by_node:
                return change, name
            change |= by_node.get(name, Changed())
        return change, ""

    def _in_the_way(self, job: str, place: Placement | None) -> Iterator[str]:
        """Other jobs that hold a GPU, or part of one, of a place."""
        for replica in place.replicas if place else ():
            node = self._live.cluster.node_by_name.get(replica.node)
            geometry = mig_geometry((node.gpu_model if node else None) or "")
            for held in replica.gpus:
                others = [each for each in self._holders[replica.node, held.index] if each[0] != job]
                shares = sum(part.milli for _, part in others if isinstance(part, GpuShare))
                for other, part in others:
                    if _exclude(held, part, shares, geometry):
                        yield other

    def _started_together(self, job: str) -> Iterator[str]:
        """The other jobs of a co-start group that the plan changed in the same way."""
        group = self._live.job_by_name[job].co_start
        alike = self._wishes.jobs if job in self._wishes.jobs else self._wishes.started
        if group:
            yield from (name for name in alike if self._live.job_by_name[name].co_start == group)

    def _as_group(self, reversal: Reversal) -> Reversal:
        """The stop of a job that the plan started, with those of its co-start group."""
        (name,) = reversal.change.places
        change = reversal.change
        for other in self._started_together(name):
            change |= self._wishes.started[other].change
        return Reversal(reversal.action, reversal.subject, change)

    def _accept_by_stopping(self, reversal: Reversal) -> None:
        """
        Accept a job that lacks CPU, memory, quota or power, if it has them once started jobs stop.

        Each of these that is not needed runs on, the most important first.
        """
        helpers = self._stoppable(sorted(self._helpers(reversal), key=self._importance))
        if helpers and self._trials > 0 and self._is_legal_with(reversal, helpers):
            needed = self._needed(reversal, helpers, ())
            self._accepted |= _joined(reversal, needed)
            del self._refused[reversal.action]

    def _stoppable(self, helpers: Sequence[Reversal]) -> Sequence[Reversal]:
        """Those of the helpers that the verifier lets stop; it names jobs that are not preemptible."""
        change = self._accepted
        for helper in helpers:
            change |= helper.change
        named = {violation.subject.removeprefix("job ") for violation in self._violations(change)}
        return [helper for helper in helpers if named.isdisjoint(helper.change.places)]

    def _needed(
        self, reversal: Reversal, helpers: Sequence[Reversal], others: Sequence[Reversal]
    ) -> Sequence[Reversal]:
        """Those of the helpers that a reversal needs beside the `others`; found by halves."""
        if self._trials <= 0:
            return helpers
        if self._is_legal_with(reversal, others):
            return ()
        if len(helpers) == 1:
            return helpers
        # The first are the most important: they run on if the last ones are enough.
        middle = len(helpers) // 2
        first, last = helpers[:middle], helpers[middle:]
        of_first = self._needed(reversal, first, (*others, *last))
        return (*of_first, *self._needed(reversal, last, (*others, *of_first)))

    def _is_legal_with(self, reversal: Reversal, helpers: Sequence[Reversal]) -> bool:
        self._trials -= 1
        return not self._violations(self._accepted | _joined(reversal, helpers))

    def _helpers(self, reversal: Reversal) -> list[Reversal]:
        """Stops of jobs that share racks or the tree of queues with the jobs of a reversal."""
        places = [place for place in reversal.change.places.values() if place]
        racks = {self._racks.get(node) for place in places for node in place.nodes}
        roots = {self._root(place.job) for place in places}
        found = []
        for name, stop in self._wishes.started.items():
            placed = self._live.job_by_name[name].placement
            already = self._accepted.places.get(name, placed) is None
            if placed is None or already or name in reversal.change.places:
                continue
            if self._root(name) in roots or any(self._racks.get(node) in racks for node in placed.nodes):
                found.append(self._as_group(stop))
        return found

    def _importance(self, stop: Reversal) -> tuple[int, str]:
        return -max(self._live.job_by_name[name].priority for name in stop.change.places), stop.action

    def _root(self, job: str) -> str:
        """The topmost queue above a job."""
        return root_queue(self._live.job_by_name[job].queue, self._live.parent_queues)

    # --- nodes and GPUs that must be unused ----------------------------------------------------------------

    def _is_empty(self, reversal: Reversal) -> bool:
        """True if no job runs on a node that the plan added, once the accepted reversals are done."""
        target, removed = self._target(self._accepted), reversal.change.removed
        if jobs := sorted(each.job for each in target.placements if each.nodes & removed):
            text = f"{join_jobs(jobs)} {'run' if len(jobs) > 1 else 'runs'} on it"
            self._stays.append(staying(reversal, StaysCode.IN_USE, text))
        return not jobs

    def _is_idle(self, reversal: Reversal) -> bool:
        """True if a layout that is put back has all instances that are then in use."""
        ((node, gpu), layout) = next(iter(reversal.change.layouts.items()))
        users = sorted(
            placed.job
            for placed in self._target(self._accepted).placements
            for replica in placed.on_mig
            for held in replica.mig_slices
            if (replica.node, held.index) == (node, gpu) and held.instance not in layout
        )
        if users:
            text = f"{join_jobs(users)} {'use' if len(users) > 1 else 'uses'} its instances"
            self._stays.append(staying(reversal, StaysCode.IN_USE, text))
        return not users

    # --- the result ----------------------------------------------------------------------------------------

    def _result(self) -> Found:
        target = self._target(self._accepted)
        rest = (_forbidden(reversal, broken) for reversal, broken in self._refused.values())
        running = (
            self._runs_on(name, reversal)
            for name, reversal in self._wishes.started.items()
            if name not in self._accepted.places and reversal.action not in self._refused
        )
        return Found(target, self._verify(target), (*self._stays, *rest, *running))

    def _runs_on(self, name: str, reversal: Reversal) -> StayingChange:
        placed = self._live.job_by_name[name].placement
        where = join_first_names(sorted(placed.nodes)) if placed else ""
        return staying(reversal, StaysCode.STARTED, f"it runs on {where}; --stop-started stops it")


def _forbidden(reversal: Reversal, broken: Iterable[Violation]) -> StayingChange:
    """The reversal with the violation that is about it, or the first one."""
    found = tuple(broken)
    own = next((each for each in found if each.subject.startswith(reversal.subject)), found[0])
    text = _told(own)
    return staying(reversal, StaysCode.RULE, text).model_copy(update={"rule": own.rule})


def _told(violation: Violation) -> str:
    return f"rule {violation.rule}: {violation.subject}: found {violation.found}, allowed {violation.allowed}"


def _joined(reversal: Reversal, helpers: Iterable[Reversal]) -> Changed:
    change = reversal.change
    for helper in helpers:
        change |= helper.change
    return change


def _its(job: str, asked: str) -> str:
    """`its `, or `job b must go back with it too, and its `."""
    return "its " if job == asked else f"job {job} must go back too, and its "


def _exclude(
    one: GpuShare | MigSlice, other: GpuShare | MigSlice, shares: int, geometry: MigGeometry | None
) -> bool:
    """True if two parts of one GPU cannot both be held; `shares` is the sum of those beside the first."""
    if isinstance(one, GpuShare) and isinstance(other, GpuShare):
        return one.milli + shares > MILLI
    if isinstance(one, GpuShare) or isinstance(other, GpuShare):
        return True
    return not set(memory_slices(one, geometry)).isdisjoint(memory_slices(other, geometry))

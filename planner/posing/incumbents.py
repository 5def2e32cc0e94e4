"""Incumbents: running jobs that may be stopped, shrunk, grown or moved, as far as it could ever pay."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from planner.models.placement import MigSlice
from planner.models.pricing import disruption_points
from planner.models.problem_jobs import Hold, Incumbent, Role

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from planner.models.placement import Replica
    from planner.models.policy import Policy
    from planner.models.problem_jobs import JobClass
    from planner.models.snapshot import Snapshot
    from planner.posing.candidates import Candidate, Filters, Runner
    from planner.posing.classes import Classifier
    from planner.posing.shapes import Shapes
    from planner.posing.sites import Sites
    from planner.posing.timing import Timing


@dataclass(frozen=True, slots=True)
class Outlook:
    """What could pay to be done to a running job."""

    runner: Runner
    stop: bool
    shrink: bool
    move: bool
    followed: bool
    """It has replicas where others could follow it."""

    @property
    def yields(self) -> bool:
        """True if who follows it onto its nodes needs a rank."""
        return self.followed and (self.stop or self.shrink) and not self.runner.borrows


def outlooks(
    policy: Policy,
    sites: Sites,
    runners: Iterable[Runner],
    wanting: Iterable[Candidate],
    trees: Mapping[str, str],
    *,
    capped: bool,
) -> list[Outlook]:
    """
    What could pay to be done to each running job.

    Stopping or shrinking it: for a job whose priority allows that and that could use one of its nodes, or
    the quota it holds in the same tree of queues (`trees` has the root of each limited one), or its power
    where racks are `capped`; a borrower for anybody; and a job that has to leave.
    Whoever may be moved may have to make room for somebody else who moves.
    """
    wanting = list(wanting)
    pressure = _pressure(sites, wanting)
    # A rack's power may be all that is missing, wherever in the rack.
    for_power = max((one.job.priority for one in wanting if one.job.request.needs_gpu), default=-1)
    in_tree: dict[str, int] = {}
    for candidate in wanting:
        if candidate.job.queue in trees and candidate.job.request.needs_gpu:
            root = trees[candidate.job.queue]
            in_tree[root] = max(in_tree.get(root, 0), candidate.job.priority)
    open_group = {
        name: group for name, index in sites.index.items() if not sites.opens[group := sites.group_of[index]]
    }
    found = []
    for runner in runners:
        groups = [open_group[name] for name in runner.placement.nodes if name in open_group]
        highest = max([pressure.get(group, -1) for group in groups], default=-1)
        for_quota = in_tree.get(trees.get(runner.job.queue, ""), -1)
        least = runner.job.priority + policy.disruption.priority_gap
        rival = max(highest, for_quota, for_power if capped else -1)
        pressed = rival >= least or (runner.borrows and bool(wanting))
        found.append(
            Outlook(
                runner,
                stop=runner.stop and (pressed or runner.drains),
                shrink=runner.shrink and (pressed or runner.drains),
                move=runner.move,
                followed=bool(groups),
            )
        )
    return found


def _pressure(sites: Sites, wanting: Iterable[Candidate]) -> dict[int, int]:
    """The highest priority among those who could use a group, by group."""
    pressure: dict[int, int] = {}
    first: dict[tuple[Filters, str | None], Candidate] = {}
    for candidate in wanting:
        key = candidate.filters, candidate.gpu_model
        if key not in first or first[key].job.priority < candidate.job.priority:
            first[key] = candidate
    for candidate in first.values():
        for groups in sites.allowed(candidate).values():
            for group in sites.open_in(groups, 0):
                pressure[group] = max(pressure.get(group, 0), candidate.job.priority)
    return pressure


@dataclass(frozen=True, slots=True)
class Lone:
    """Running jobs that may move, and those that may grow, by name: each is a class of its own."""

    movers: Mapping[str, Candidate]
    growers: Mapping[str, Candidate]

    @classmethod
    def of(cls, candidates: Iterable[Candidate]) -> Lone:
        """Those of all candidates."""
        candidates = list(candidates)
        movers = {one.job.name: one for one in candidates if one.role is Role.MOVE}
        return cls(movers, {one.job.name: one for one in candidates if one.role is Role.GROW})


class Incumbents:
    """The incumbents of a question, and their classes behind those of waiting jobs."""

    def __init__(
        self,
        snapshot: Snapshot,
        policy: Policy,
        *,
        sites: Sites,
        shapes: Shapes,
        timing: Timing,
        classes: list[JobClass],
    ) -> None:
        self._snapshot = snapshot
        self._policy = policy
        self._sites = sites
        self._shapes = shapes
        self._timing = timing
        self._queues = {queue.name: index for index, queue in enumerate(snapshot.queues)}
        self.classes = classes
        self.found: list[Incumbent] = []

    def add(self, outlook: Outlook, lone: Lone, classifier: Classifier, rank: int) -> None:
        """Take in a running job, unless nothing can be done to it that pays."""
        runner, number = outlook.runner, len(self.found)
        mover = lone.movers.get(runner.job.name) if outlook.move else None
        grower = lone.growers.get(runner.job.name)
        move = self._append(classifier.only(mover, number) if mover else None)
        grow = self._append(classifier.only(grower, number) if grower else None)
        if outlook.stop or outlook.shrink or move is not None or grow is not None:
            self.found.append(self._incumbent(outlook, rank=rank, move=move, grow=grow))

    def _append(self, job_class: JobClass | None) -> int | None:
        if job_class is None:
            return None
        self.classes.append(job_class)
        return len(self.classes) - 1

    def _incumbent(self, outlook: Outlook, *, rank: int, move: int | None, grow: int | None) -> Incumbent:
        runner, policy, now = outlook.runner, self._policy, self._snapshot.taken_at
        job, count = runner.job, len(runner.running.replicas)
        earnings, ahead = self._timing.earnings, self._timing.ahead
        # Without later slots it makes no difference.
        left = self._timing.remaining(job) if ahead else 0
        leaving = -earnings.completion(job, runner.gpu_model, count, seconds=left)
        leaving -= disruption_points(policy, job, now)
        # Whoever moves is not late for that, as far as points go.
        stopping = leaving - (earnings.saved_lateness(job, start=0, seconds=left) if ahead else 0)
        return Incumbent(
            job=job.name,
            shape=self._shapes.freed(runner),
            holds=tuple([self._hold(replica) for replica in runner.running.replicas]),
            queue=self._queues[job.queue],
            gpu_model=runner.gpu_model,
            rank=rank,
            stop_points=stopping if outlook.stop else None,
            leave_points=leaving - policy.prices.migration,
            shrink_points=-earnings.completion(job, runner.gpu_model, 1, seconds=left)
            if outlook.shrink
            else 0,
            resize_points=-policy.prices.resize,
            fewest=job.gang.minimum if outlook.shrink else count,
            move=move,
            grow=grow,
            on_leaving=policy.prices.drain if runner.drains else 0,
            until=self._timing.until(job) if ahead else 1,
        )

    def _hold(self, replica: Replica) -> Hold:
        index = self._sites.index.get(replica.node)
        if index is None:
            return Hold(None)
        gpus = self._sites.nodes[index].gpus
        if gpus and not gpus.details:
            return Hold(node=index, gpus=replica.shared_gpus)
        # An unhealthy GPU is of no use to anybody else.
        sound = [held for held in replica.gpus if gpus and gpus.by_index[held.index].healthy]
        return Hold(
            node=index,
            gpus=tuple(sorted(held.index for held in sound if not isinstance(held, MigSlice))),
            slices=tuple(
                sorted(
                    ((held.index, held.instance) for held in sound if isinstance(held, MigSlice)),
                    key=lambda held: (held[0], held[1].start),
                )
            ),
        )

"""Verification of a trial: concrete places that break no rule answer a question, with their points."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final

from gpuplan.models.cluster import Node, RackPower, rack_of
from gpuplan.models.job import HIGHEST_PRIORITY, Job
from gpuplan.models.placement import GpuShare, Placement, Replica, Running
from gpuplan.models.plan.actions import Keep, Repartition, Wait
from gpuplan.models.plan.actions import Start as Starting
from gpuplan.models.plan.solution import DesiredState
from gpuplan.models.policy.policy import Disruption, Policy, PoolPolicy
from gpuplan.models.queue import Queue
from gpuplan.models.units import MILLI
from gpuplan.models.verifier.verify import TargetCheck
from gpuplan.planner.explain.hypothesis import Hypothesis
from gpuplan.planner.problem_builder import build_problem
from gpuplan.solvers.heuristics.greedy import greedy
from gpuplan.solvers.targets.to_target import target_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuplan.models.snapshot import Snapshot
    from gpuplan.planner.explain.feasibility import CandidateNodes, PlanFeasibility


_MOST_ROOMS: Final = 3


@dataclass(frozen=True, slots=True)
class TrialStart:
    """Placements of a job, and of the jobs that start together with it, that the verifier accepts."""

    placements: tuple[Placement, ...]
    points: int
    """Objective with the start, minus the objective without it."""
    by_hand: bool = False
    """True if a rule forbids a plan to stop these jobs, but an operator may stop them."""

    @property
    def nodes(self) -> tuple[str, ...]:
        """Names of the nodes, sorted."""
        return tuple(sorted({replica.node for each in self.placements for replica in each.replicas}))


@dataclass(frozen=True)
class TrialVerifier:
    """Verifies additional starts on top of all actions of one plan."""

    ground: PlanFeasibility
    _objectives: dict[tuple[frozenset[str], frozenset[str]], int] = field(default_factory=dict)
    """Objective without the job, by the set of deferred jobs and the set of ended jobs."""

    def start(self, question: Hypothesis) -> TrialStart | None:
        """Start the job on places that break no rule; None if no such places are found."""
        for rooms in self._choices(question):
            placements = place_on_candidates(rooms, question, self.ground)
            if placements and (judged := self._judged(question, placements)) is not None:
                return TrialStart(placements, *judged)
        return None

    def _choices(self, question: Hypothesis) -> Iterator[list[tuple[str, CandidateNodes]]]:
        """The best rooms one at a time; for jobs that start together, the best rooms of all at once."""
        best = []
        for each in question.by_member():
            rooms = sorted(self.ground.candidate_nodes(each), key=partial(_order, each.job))[:_MOST_ROOMS]
            best += [(each.job.name, room) for room in rooms]
        yield from [best] if question.others else ([each] for each in best)

    def _judged(self, question: Hypothesis, placements: tuple[Placement, ...]) -> tuple[int, bool] | None:
        """Points of the placements at present prices, and `by_hand`; None if they break a rule."""
        trial, by_hand = self._trial(question, placements), False
        if not trial.keeps_rules():
            # An operator may do by hand what the plan may not; the price is the same.
            by_hand = bool(question.stopped) and not question.second
            if not by_hand or not self._trial(question, placements, by_hand=True).keeps_rules():
                return None
        now = self._trial(replace(question, second=0), placements) if question.second else trial
        return now.objective() - self._before(question), by_hand

    def _before(self, question: Hypothesis) -> int:
        """Objective of the plan in a snapshot in which the same jobs have ended."""
        jobs = question.plan.snapshot.job_by_name
        # Any snapshot knows the running jobs; a deferred job must not count as running already.
        deferred = frozenset(name for name in question.stopped if jobs[name].running is None)
        key = deferred, question.over
        known = self._objectives.get(key)
        if known is None:
            plain = Hypothesis.unchanged(question.plan, jobs[question.job.name])
            plain = replace(plain, stopped=deferred, over=question.over, begun=question.begun)
            known = self._objectives[key] = self._trial(plain, ()).objective()
        return known

    def _trial(
        self, question: Hypothesis, placements: tuple[Placement, ...], *, by_hand: bool = False
    ) -> TargetCheck:
        """
        What the verifier judges: the plan with the job on some places, or without it.

        If the plan only starts jobs, the verifier gets a snapshot in which they run already. This is the same
        question and takes a third of the time, unless a nominal quota would count that does not in the plan,
        as the started jobs borrow it. The same holds for every plan once time has passed since it.
        """
        ground, plan = self.ground, question.plan
        target = question.target(placements, without=None if placements else question.over)
        if self._only_starts or question.second:
            world = question.snapshot(self._settled, ground.cluster, by_hand=by_hand)
            return TargetCheck(world, question.policy, DesiredState(target.placements))
        world = question.snapshot(plan.snapshot.job_by_name, plan.snapshot.cluster, by_hand=by_hand)
        return TargetCheck(world, question.policy, target)

    @cached_property
    def _only_starts(self) -> bool:
        """True if the plan covers this instant alone and only starts or keeps jobs and repartitions GPUs."""
        actions = self.ground.plan.actions
        calm = all(isinstance(action, Starting | Keep | Wait | Repartition) for action in actions)
        return calm and self.ground.outlook.future.slots.count == 1 and not self._may_count_nominal

    @property
    def _may_count_nominal(self) -> bool:
        """True if a nominal quota may count in the objective, as jobs may reclaim what is lent of it."""
        snapshot, policy = self.ground.plan.snapshot, self.ground.plan.policy
        counts = policy.disruption.reclaim and policy.prices.nominal > 0
        return counts and any(quota.nominal for queue in snapshot.queues for quota in queue.gpu_quotas)

    @cached_property
    def _settled(self) -> dict[str, Job]:
        """The jobs as the plan leaves them: exactly the placed jobs run."""
        snapshot, placed = self.ground.plan.snapshot, self.ground.placed
        jobs, durations = dict(snapshot.job_by_name), self.ground.outlook.future.durations
        for name, job in snapshot.job_by_name.items():
            if (placement := placed.get(name)) is not None:
                running = job.running or Running(
                    started_at=snapshot.taken_at,
                    resumed_at=durations.resumes_at(job),
                    replicas=placement.replicas,
                )
                # The same replicas object as in the target, so that a comparison of the two is by identity.
                held = running.model_copy(update={"replicas": placement.replicas})
                jobs[name] = job.model_copy(update={"running": held})
            elif job.running:
                jobs[name] = durations.stopped(job)
        return jobs


def _order(job: Job, room: CandidateNodes) -> tuple[int, int, str]:
    """Sort key: fast GPU models first, then small rooms, because large rooms are worth more left whole."""
    return -job.speed_milli(room.gpu_model), sum(room.counts.values()), room.gpu_model or ""


# Trial placement: concrete places from the production planner, for the verifier to check.
#
# The planner gets a few nodes only, on which all other jobs stay where the plan has them. Quotas and time
# rules are checked before, and the verifier checks them again.


_SPARE_NODES: Final = 8
"""Nodes offered beyond one per replica, so that the planner has a choice."""

_ANY_QUEUE: Final = "queue"

_FREE_OF_TIME: Final[dict[str, Any]] = {
    "queue": _ANY_QUEUE,
    "depends_on": (),
    "depends_on_at_least": None,
    "co_start": None,
    "deadline": None,
    "hard_deadline": False,
    "promise": None,
}


def place_on_candidates(
    rooms: list[tuple[str, CandidateNodes]], question: Hypothesis, ground: PlanFeasibility
) -> tuple[Placement, ...]:
    """Place all members of the question, each in its own rooms; empty if no placement is found."""
    enough = sum(job.gang.minimum for job in question.members) + _SPARE_NODES
    few = [(name, room.by_room[:enough]) for name, room in rooms]
    everything = [(name, room.by_room) for name, room in rooms]
    return _placed_on(few, question, ground) or (
        _placed_on(everything, question, ground) if few != everything else ()
    )


def _placed_on(
    choice: list[tuple[str, list[str]]], question: Hypothesis, ground: PlanFeasibility
) -> tuple[Placement, ...]:
    """Place the members on the nodes chosen for each of them."""
    snapshot = question.plan.snapshot
    chosen: dict[str, dict[str, str]] = defaultdict(dict)
    for job, names in choice:
        for name in names:
            chosen[name][f"room for {job}"] = ""
    nodes = tuple(
        node.model_copy(update={"labels": node.labels | labels})
        for name, labels in sorted(chosen.items())
        for node in (ground.counting.place(name, question).node,)
    )
    cluster = snapshot.cluster.model_copy(
        update={
            "nodes": nodes,
            "pools": (),
            "reservations": (),
            "rack_power": tuple(_power_here(nodes, question, ground)),
        }
    )
    world = snapshot.model_copy(
        update={
            "cluster": cluster,
            "queues": (Queue(name=_ANY_QUEUE),),
            "jobs": (*_staying(nodes, question, ground), *map(_eager, question.members)),
            "finished": (),
        }
    ).canonical()
    policy = Policy(
        weights=question.policy.weights,
        prices=question.policy.prices,
        mig=question.policy.mig,
        profiles=question.policy.profiles,
        disruption=Disruption(preempt=False, resize=False),
        pools=PoolPolicy(scale_up=False, scale_down=False),
    )
    target = target_of(greedy(build_problem(world, policy)), world.running_placements)
    found = tuple(each for each in target.placements if each.job in question.names)
    return found if len(found) == len(question.names) else ()


def _eager(job: Job) -> Job:
    """The job with its minimum size, top priority and no time rules: it starts now if it fits at all."""
    gang = job.gang.model_copy(update={"maximum": job.gang.minimum})
    return job.model_copy(
        update={
            **_FREE_OF_TIME,
            "priority": HIGHEST_PRIORITY,
            "weight_milli": 1000 * MILLI,
            "held": False,
            "not_before": None,
            "retry": None,
            "gang": gang,
            "node_selector": job.node_selector | {f"room for {job.name}": ""},
        }
    )


def _power_here(
    nodes: tuple[Node, ...], question: Hypothesis, ground: PlanFeasibility
) -> Iterator[RackPower]:
    """The rack caps that are left for these nodes, after what other nodes draw."""
    here = {node.name for node in nodes}
    for cap in question.rack_power:
        rack = rack_of(cap)
        if not any(rack_of(node) == rack for node in nodes):
            continue
        away = ground.counting.power.drawn(rack, question.gone, away_from=here)
        yield cap.model_copy(update={"watts": max(1, cap.watts - -(-away // MILLI))})


def _staying(nodes: tuple[Node, ...], question: Hypothesis, ground: PlanFeasibility) -> Iterator[Job]:
    """Residents of the nodes, and stand-ins for promised starts there, as running jobs that cannot move."""
    snapshot = question.plan.snapshot
    held: dict[str, list[Replica]] = defaultdict(list)
    for node in nodes:
        for job, replica in ground.counting.there(node.name, question):
            held[job.name].append(replica)
    for name, replicas in sorted(held.items()):
        yield _steady(snapshot.job_by_name[name], tuple(replicas), snapshot)
    for node in nodes:
        # The member that ends first has the fewest promises to respect; the verifier checks the others.
        by_member = [ground.counting.promised_away(node.name, each) for each in question.by_member()]
        promised = min(by_member, key=lambda each: each.total())
        parts = tuple(GpuShare(index=index, milli=milli) for index, milli in sorted(promised.items()))
        if parts:
            name = f"promised-on-{node.name}"
            while name in snapshot.job_by_name:
                name = f"also-{name}"
            stand_in = question.job.model_copy(update={"name": name})
            yield _steady(stand_in, (Replica(node=node.name, gpus=parts),), snapshot)


def _steady(job: Job, replicas: tuple[Replica, ...], snapshot: Snapshot) -> Job:
    return job.model_copy(
        update={
            **_FREE_OF_TIME,
            "running": Running(started_at=snapshot.taken_at, replicas=replicas),
            "preemptible": False,
        }
    )

"""Periodic runs on a small simulated cluster in which things happen between epochs."""

from __future__ import annotations

import gc
import random
from collections import Counter
from dataclasses import dataclass, field
from datetime import timedelta

from gpuplan.models.placement import same_holdings
from gpuplan.models.plan.actions import Preempt, Start
from gpuplan.models.plan.plan import Plan
from gpuplan.models.policy.policy import Disruption, Policy
from gpuplan.models.verifier.verify import verify_target
from gpuplan.planner.apply.audit_log import AuditLog
from gpuplan.planner.executors.simulated import SimulatedCluster
from gpuplan.planner.service.clusters import LiveCluster
from gpuplan.planner.service.history import History, read_history
from gpuplan.planner.service.loop import EpochSchedule, ServiceLoop
from gpuplan.planner.service.prometheus import MetricsRegistry
from gpuplan.planner.service.run_epoch import RunContext
from gpuplan.planner.service.run_files import LastReadPolicy, PlanStore
from gpuplan.planner.service.shutdown import StopSignal
from tests.support.builders import build
from tests.support.builders.build import NOW, node, queue, snapshot

EVERY = 300
GREEDY = Policy(solvers=(), disruption=Disruption(minimum_runtime=2 * EVERY))
ACTOR = "tester@host"


class Clock:
    """Seconds that pass only when told."""

    def __init__(self):
        self.seconds = 0.0

    def __call__(self):
        return self.seconds

    def now(self):
        return NOW + timedelta(seconds=self.seconds)


class PatientStop(StopSignal):
    """A stop with pauses that take no time; what happens meanwhile is done instead."""

    def __init__(self, clock, meanwhile=lambda: None):
        super().__init__()
        self.clock = clock
        self.meanwhile = meanwhile
        self.pauses = []

    def pause(self, seconds):
        self.pauses.append(seconds)
        self.clock.seconds += seconds
        self.meanwhile()


@dataclass
class Bench:
    """A run with everything around it in one folder."""

    folder: object
    world: object = None
    policy: Policy = GREEDY
    applies: bool = True
    remembers: bool = True
    """The cluster tells what earlier plans promised."""
    meanwhile: object = lambda: None
    clock: Clock = field(default_factory=Clock)

    def __post_init__(self):
        state = self.folder / "cluster.db"
        if not state.exists():
            SimulatedCluster.create(state, self.world).close()
        self.cluster = SimulatedCluster(state)
        self.stop = PatientStop(self.clock, self.meanwhile)
        self.live = LiveCluster(
            executor=self.cluster,
            audit=AuditLog(self.folder / "audit.jsonl"),
            actor=ACTOR,
            now=self.clock.now,
            stop=lambda: self.stop.requested,
        )
        self.context = RunContext(
            read=self.read,
            policy=LastReadPolicy(lambda: self.policy),
            plans=PlanStore(self.folder / "plans", keep=5),
            applier=self if self.applies else None,
            remembers_promises=self.remembers,
            seed=0,
            now=self.clock.now,
            stop=self.stop,
        )
        self.metrics = MetricsRegistry("1.2.3", every=EVERY)
        self.reader = self.live.read

    def read(self):
        return self.reader()

    def apply(self, plan, *, resume):
        return self.live.apply(plan, resume=resume)

    def applied_steps(self, plan):
        return self.live.applied_steps(plan)

    def under_way(self):
        return self.live.under_way()

    def epochs(self, number):
        """Run so many epochs as a process of its own would; True if the last one went well."""
        with History(self.folder / "history.db") as history:
            run = ServiceLoop(
                context=self.context,
                history=history,
                metrics=self.metrics,
                pace=EpochSchedule(EVERY, began=self.clock(), draw=random.Random(0)),
                clock=self.clock,
            )
            run.begin()
            return run.until_stopped(epochs=number)

    def records(self):
        return read_history(self.folder / "history.db")

    def outcomes(self):
        return [record.outcome.value for record in self.records()]

    def plans_of_steps(self):
        """Of each step that was carried out, the plan."""
        return [key.partition("-")[0] for key, _ in self.cluster.operations()]

    def close(self):
        self.cluster.close()
        self.stop.close()


QUEUES = (
    queue("all", nominal=96),
    queue("research", parent="all", nominal=0, guarantee=32),
    queue("products", parent="all", nominal=0, guarantee=24),
    queue("batch", parent="all", nominal=0),
)
MOST_WAITING = 25
"""So that the world stays as large as it is."""
_LENGTHS = (600, 900, 1800, 3600, 7200)


def alive():
    """Plans, and all objects, that are in memory."""
    gc.collect()
    objects = gc.get_objects()
    return sum(type(each) is Plan for each in objects), len(objects)


def carried_out(records):
    """Steps that were carried out by plan, as the history knows it: what was done before counts once."""
    found = Counter()
    for record in records:
        if steps := record.done + record.done_before:
            found[record.plan_id] = max(found[record.plan_id], steps)
    return found


@dataclass
class Busy(Bench):
    """Twelve nodes, jobs that arrive and end, nodes that fail and come back; all that happens is noted."""

    seed: int = 0
    looked_at: tuple[int, ...] = ()
    """Numbers of epochs after which memory is looked at: that takes longer than the epoch."""

    def __post_init__(self):
        self.draw = random.Random(f"busy {self.seed}")
        self.world = snapshot(nodes=[node(f"n{number:02d}") for number in range(12)], queues=QUEUES)
        self.meanwhile = self.happen
        self.submitted, self.down, self.failures = [], {}, 0
        self.stopped, self.turns = {}, []
        """When each job was preempted; (stopped job, job started on its places), in the order of time."""
        self.hit = Counter()
        """How often each job lost its node."""
        self.alive = {}
        """By epoch that is looked at: plans in memory, all objects in memory, jobs in the snapshot."""
        self.passed, self.plans, self.faults = 0, 0, []
        super().__post_init__()

    def happen(self):
        """Five minutes pass, in which jobs end and others come, and perhaps a node goes or returns."""
        self.cluster.advance(EVERY)
        there = self.cluster.snapshot()
        self.passed += 1
        if self.passed in self.looked_at:
            self.alive[self.passed] = (*alive(), len(there.jobs) + len(there.finished))
        waiting = sum(job.running is None for job in there.jobs)
        self.arrive(min(self.draw.choice((0, 2, 3, 4, 8)), MOST_WAITING - waiting))
        for name in [name for name, until in self.down.items() if until <= self.plans]:
            self.cluster.return_node(name)
            del self.down[name]
        if self.draw.random() < 0.12 and len(self.down) < 3:
            name = self.draw.choice(
                [f"n{number:02d}" for number in range(12) if f"n{number:02d}" not in self.down]
            )
            self.hit.update(self.cluster.fail_node(name))
            self.down[name] = self.plans + self.draw.choice((2, 5, 9))
            self.failures += 1

    def arrive(self, number):
        now = self.cluster.snapshot().taken_at
        jobs = []
        for _ in range(number):
            name = f"j{len(self.submitted):05d}"
            about = {
                "gpus": self.draw.choice((1, 1, 2, 4, 8)),
                "replicas": self.draw.choice((1, 1, 1, 2, 4)),
            }
            if self.draw.random() < 0.2:
                about = {"milli": self.draw.choice((250, 500))}
            made = build.job(
                name,
                queue=self.draw.choice(("research", "products", "batch", "batch")),
                priority=self.draw.choice((0, 0, 0, 2, 5, 9)),
                expected_duration=self.draw.choice(_LENGTHS),
                preemptible=self.draw.random() < 0.8,
                **about,
            )
            jobs.append(made.model_copy(update={"submitted_at": now}))
            self.submitted.append(name)
        if jobs:
            self.cluster.submit(jobs)

    def apply(self, plan, *, resume):
        self.plans += 1
        self.faults += verify_target(plan.snapshot, plan.policy, plan.target).violations
        outcome = super().apply(plan, resume=resume)
        there = {each.job: each.replicas for each in self.cluster.snapshot().running_placements}
        meant = {each.job: each.replicas for each in plan.placements}
        if there.keys() != meant.keys() or not all(same_holdings(there[job], meant[job]) for job in meant):
            self.faults.append((self.plans, "the cluster is not as planned"))
        started = {
            each.node: action.job
            for action in plan.actions
            if isinstance(action, Start)
            for each in action.after.replicas
        }
        for action in plan.actions:
            if isinstance(action, Preempt):
                self.stopped.setdefault(action.job, []).append(plan.epoch)
                takers = {started[each.node] for each in action.before.replicas if each.node in started}
                self.turns += [(action.job, taker) for taker in sorted(takers)]
        return outcome

    def accounted(self):
        """Names of all jobs that wait, run or ended, each as often as it is one of these."""
        there = self.cluster.snapshot()
        return Counter(job.name for job in there.jobs) + Counter(name for name, _ in self.cluster.finished())

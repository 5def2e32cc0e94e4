"""Plans that are applied a few steps at a time, as if each apply were cut off."""

from __future__ import annotations

from gpuplan.planner.apply.apply import apply_plan
from gpuplan.planner.apply.audit_log import AuditLog
from gpuplan.planner.apply.promises import steps_of
from gpuplan.planner.executors.simulated import SimulatedCluster
from tests.support.builders.build import NOW, by_value, cluster, job, queue, replica, snapshot
from tests.support.doubles.wrapped_cluster import Wrapped
from tests.support.samples.all_actions import begin, plan_with, preempt


class CutError(Exception):
    """The apply ends without a word, as one that is killed."""


class Cut(Wrapped):
    """A cluster on which an apply is cut off after so many steps, by an error that nothing expects."""

    def __init__(self, inner, steps):
        super().__init__(inner)
        self.left = steps

    def begin(self, action, key):
        self._count()
        return self.inner.begin(action, key)

    def keep_promises(self, promises, key):
        self._count()
        self.inner.keep_promises(promises, key)

    def _count(self):
        if not self.left:
            raise CutError
        self.left -= 1


def resume(plan, live, log):
    return apply_plan(plan, live, log, actor="ann@login1", now=lambda: NOW, resume=True)


def apply_in_pieces(plan, folder, *, steps=1):
    """Snapshot and operations of a cluster after an apply that was cut off after every so many steps."""
    log = AuditLog(folder / "audit.jsonl")
    with SimulatedCluster.create(folder / "cluster.db", plan.snapshot) as live:
        live._db.execute("PRAGMA synchronous = OFF")
        for _ in range(0, len(steps_of(plan)), steps):
            try:
                resume(plan, Cut(live, steps), log)
            except CutError:
                continue
        resume(plan, live, log)
        return live.snapshot(), live.operations()


def apply_at_once(plan, folder):
    """The same of one that was not."""
    return apply_in_pieces(plan, folder, steps=len(steps_of(plan)) + 1)


def preempting(stops, starts, storages=()):
    """
    A plan that stops so many jobs of one GPU, and starts so many that are more important.

    `storages` names where each of the jobs saves its checkpoints.
    """
    count = max(stops, starts)
    held = [replica(f"n{number // 8}", gpus=[number % 8]) for number in range(count)]
    saves = [{"checkpoint_storage": name} for name in storages] or [{}] * stops
    jobs = [job(f"old{number:03}", gpus=1, at=[held[number]], **saves[number]) for number in range(stops)]
    jobs += [job(f"new{number:03}", gpus=1, priority=5) for number in range(starts)]
    world = snapshot(nodes=cluster(-(-count // 8)), jobs=jobs)
    stopping = [preempt(world, f"old{number:03}") for number in range(stops)]
    starting = [begin(world, f"new{number:03}", held[number]) for number in range(starts)]
    return plan_with(world, *stopping, *starting, placements=[action.after for action in starting])


def reclaiming():
    """
    A plan that stops three jobs of a queue that borrows, and starts as many of equal priority there.

    They may take these only because the queue borrows, which it does no more once two are stopped.
    """
    held = [replica("n0", gpus=[number]) for number in range(4)]
    jobs = [job(f"old{number}", gpus=1, queue="borrower", at=[held[number]]) for number in range(4)]
    jobs += [job(f"new{number}", gpus=1, queue="owner") for number in range(3)]
    queues = [
        queue("all", nominal=0),
        queue("borrower", nominal=2, guarantee=2, parent="all"),
        queue("owner", nominal=6, guarantee=6, parent="all"),
    ]
    world = snapshot(nodes=cluster(1), jobs=jobs, queues=queues)
    stopping = [preempt(world, f"old{number}") for number in range(3)]
    starting = [begin(world, f"new{number}", held[number]) for number in range(3)]
    placements = [world.job_by_name["old3"].placement, *(action.after for action in starting)]
    return plan_with(world, *stopping, *starting, policy=by_value(), placements=placements)

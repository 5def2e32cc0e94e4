"""No more jobs save their state to one storage at a time than the policy says, whatever else happens."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from gpuplan.models.errors import PlannerError
from gpuplan.models.plan.actions import Disturbance
from gpuplan.models.policy.settings import ApplyPolicy
from gpuplan.planner.apply.audit_log import AuditLog
from gpuplan.planner.apply.promises import steps_of
from gpuplan.planner.apply.steps.checkpoint_slots import CheckpointSlots
from gpuplan.planner.executors.simulated import SimulatedCluster
from gpuplan.planner.plan_file.plan_file import with_id
from gpuplan.planner.render.plan.warnings import checkpoint_queues
from tests.support.doubles.interrupted_apply import preempting
from tests.support.doubles.lasting_cluster import LastingCluster, VirtualClock
from tests.support.samples.apply_world import carry_out
from tests.support.seeds import EVERY_SEED

SEEDS = 300 if EVERY_SEED else 12
GRACE = 60.0


class Watched(LastingCluster):
    """A lasting cluster that counts how many jobs save to each storage at a time."""

    def begin(self, action, key):
        progress = super().begin(action, key)
        jobs = self.inner.snapshot().job_by_name
        self.most = getattr(self, "most", Counter())
        busy = Counter(
            jobs[request.action.job].checkpoint_storage
            for each, request in self.requests.items()
            if isinstance(request.action, Disturbance) and self._progress(each).phase.value == "under_way"
        )
        self.most |= busy
        return progress


def plan_of(storages, **rules):
    """A plan of one preemption for each storage named, each with a start in its place."""
    count = len(storages)
    plan = preempting(count, count, storages)
    stops, starts = plan.actions[:count], plan.actions[count:]
    starts = tuple(
        start.model_copy(update={"after_actions": (stop.id,)})
        for stop, start in zip(stops, starts, strict=True)
    )
    update = {
        "actions": (*stops, *starts),
        "policy": plan.policy.model_copy(update={"apply": ApplyPolicy(**rules)}),
    }
    return with_id(plan.model_copy(update=update))


def applied(tmp_path, plan, number=0, **more):
    """The watched cluster after an apply of a plan."""
    with SimulatedCluster.create(tmp_path / f"{number}.db", plan.snapshot) as inner:
        more = {"lasts": lambda action: GRACE if action.type == "preempt" else 1.0} | more
        cluster = Watched(inner, VirtualClock(), **more)
        log = AuditLog(tmp_path / f"{number}.jsonl")
        resume = False
        for _ in range(50):
            try:
                carry_out(
                    cluster, log, plan=plan, clock=cluster.clock, resume=resume, drift_mode="preconditions"
                )
                break
            except PlannerError:
                resume = True
        return cluster


def test_storages_have_slots_of_their_own(tmp_path):
    plan = plan_of(["a"] * 6 + ["b"] * 3 + [None] * 4, parallel=20, checkpoints={"a": 2, "b": 3})

    cluster = applied(tmp_path, plan)

    assert cluster.most == {"a": 2, "b": 3, None: 4}
    # Six jobs in three rounds; the others go on meanwhile.
    assert 3 * GRACE <= cluster.clock.now() < 3 * GRACE + 10


def test_without_a_limit_all_save_at_once(tmp_path):
    plan = plan_of(["a"] * 6, parallel=20)

    assert applied(tmp_path, plan).most == {"a": 6}


def test_a_plan_tells_where_its_apply_waits():
    plan = plan_of(["a"] * 6 + ["b"] * 3, checkpoints={"a": 2, "b": 3})

    assert CheckpointSlots(plan).queues(plan.actions) == {"a": (6, 2)}
    assert checkpoint_queues(plan) == ["storage a: 6 jobs save their state, 2 at a time"]


@pytest.mark.slow
def test_slots_are_kept_through_failures_and_resumed_applies(tmp_path):
    tally = Counter()
    for seed in range(SEEDS):
        draw = random.Random(f"slots {seed}")
        storages = [draw.choice(("a", "b", None)) for _ in range(draw.randint(3, 10))]
        limits = {"a": draw.randint(1, 3), "b": draw.randint(1, 3)}
        plan = plan_of(storages, parallel=draw.randint(1, 8), checkpoints=limits, backoff=1, attempts=2)
        rate = draw.choice((0.0, 0.1, 0.3))

        def trouble(call, _, draw=draw, rate=rate):
            return draw.choice(("lost", "no answer")) if call == "begin" and draw.random() < rate else ""

        cluster = applied(
            tmp_path,
            plan,
            seed,
            trouble=trouble,
            lasts=lambda action, draw=draw: draw.uniform(1, 90) if action.type == "preempt" else 1.0,
        )

        most = getattr(cluster, "most", Counter())
        assert all(most[name] <= limit for name, limit in limits.items()), (seed, most)
        tally["full"] += any(most[name] == limit for name, limit in limits.items())
        tally["steps"] += len(list(steps_of(plan)))
    assert tally["full"] >= SEEDS // 2, tally
